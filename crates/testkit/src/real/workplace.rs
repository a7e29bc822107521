//! A folder for our program and its state: local jobs run as other users and have a `/tmp` of their own.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tempfile::TempDir;

use super::Error;

/// Used when the preferred place is closed to others, for example below root's home.
const OPEN_PLACE: &str = "/var/tmp";

/// The longest place in bytes: a state folder in it has sockets below it, whose addresses have 107.
const LONGEST_PLACE: usize = 38;

/// Makes a new folder below `preferred` if other users can get there and its path is short enough, else below `/var/tmp`.
///
/// # Errors
/// The folder cannot be made.
pub fn workplace(preferred: &Path) -> Result<TempDir, Error> {
    let _ = std::fs::create_dir_all(preferred);
    let fits = is_open(preferred) && preferred.as_os_str().len() <= LONGEST_PLACE;
    let place = if fits { preferred } else { Path::new(OPEN_PLACE) };
    let make = || {
        let dir = tempfile::Builder::new().prefix("gdr-").tempdir_in(place)?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        Ok(dir)
    };
    make().map_err(|cause: std::io::Error| Error::system(format!("make a folder in {}", place.display()))(cause))
}

/// Whether everybody may pass through a folder and all above it.
fn is_open(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let passable = |path: &Path| path.metadata().is_ok_and(|data| data.mode() & 0o001 != 0);
    folder.ancestors().all(passable) && !folder.starts_with("/tmp")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_closed_place_is_left_for_an_open_one() {
        let outer = tempfile::tempdir_in(OPEN_PLACE).unwrap();
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let closed = workplace(&inner).unwrap();
        assert_eq!(closed.path().parent().unwrap(), Path::new(OPEN_PLACE));
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(workplace(&inner).unwrap().path().parent().unwrap(), inner);
    }

    #[test]
    fn a_long_place_is_left_for_a_short_one() {
        let outer = tempfile::tempdir_in(OPEN_PLACE).unwrap();
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let inner = outer.path().join("target/mutations/build/tmp");
        assert!(inner.as_os_str().len() > LONGEST_PLACE);
        assert_eq!(workplace(&inner).unwrap().path().parent().unwrap(), Path::new(OPEN_PLACE));
    }
}
