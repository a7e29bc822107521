//! The authorities of the built-in issuer on disk: one file, readable by its owner alone, replaced as a whole.
//!
//! Who reads it sees either the old content or the new one, whatever was interrupted. A file that is damaged, belongs to
//! another trust domain or can be read by others is an error and never silently replaced: a new authority would make
//! every certificate of the old one worthless.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use domain::identity::TrustDomain;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::authority::Authority;

const FILE_NAME: &str = "ca.json";
const FORMAT: u32 = 1;
/// Far above two authorities of 2 KiB.
const LARGEST: u64 = 1 << 20;

/// The file of one issuer's authorities.
pub(super) struct Store {
    dir: PathBuf,
    domain: TrustDomain,
}

/// The authorities could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what this issuer wrote.
    #[error(
        "{path} is no usable authority of trust domain {domain}: {what}; restore it, or remove it to start anew, \
             which ends every identity issued so far"
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The trust domain of this issuer.
        domain: TrustDomain,
        /// What is wrong with it.
        what: String,
    },
    /// Others than the owner may read the private key.
    #[error(
        "{path} holds a private key and has mode {mode:04o}; run chmod 600 on it if nobody read it, else remove it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    trust_domain: String,
    /// Oldest first.
    authorities: Vec<Entry>,
}

/// No `Debug`; the key is overwritten when dropped.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// DER, base64.
    certificate: String,
    /// PKCS#8, DER, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Store {
    pub(super) fn new(dir: &Path, domain: &TrustDomain) -> Self {
        Self { dir: dir.to_owned(), domain: domain.clone() }
    }

    /// What is stored, oldest first; `None` when there is no file.
    pub(super) fn load(&self) -> Result<Option<Vec<Authority>>, StoreError> {
        let path = self.path();
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|source| StoreError::Io { path: path.clone(), source })?,
        };
        if !metadata.is_file() || metadata.len() > LARGEST {
            return Err(self.unusable("it is no ordinary file of an issuer"));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(StoreError::Exposed { path, mode });
        }
        let text = Zeroizing::new(fs::read(&path).map_err(|source| StoreError::Io { path, source })?);
        self.parse(&text).map(Some)
    }

    fn parse(&self, text: &[u8]) -> Result<Vec<Authority>, StoreError> {
        // The parser's message may quote the text, which holds the key: only the place is told.
        let content: Content = serde_json::from_slice(text).map_err(|error| {
            self.unusable(&format!("it is damaged at line {} column {}", error.line(), error.column()))
        })?;
        if content.format != FORMAT {
            return Err(self.unusable(&format!("it has format {}, this program knows {FORMAT}", content.format)));
        }
        if content.trust_domain != self.domain.to_string() {
            return Err(self.unusable(&format!("it belongs to trust domain {:?}", content.trust_domain)));
        }
        let authorities = content.authorities.iter().map(|entry| self.authority(entry));
        let authorities = authorities.collect::<Result<Vec<_>, _>>()?;
        if authorities.iter().all(|authority| authority.key.is_none()) {
            return Err(self.unusable("it holds no private key"));
        }
        Ok(authorities)
    }

    fn authority(&self, entry: &Entry) -> Result<Authority, StoreError> {
        let decode = |text: &String| BASE64.decode(text).map_err(|_| self.unusable("it holds damaged base64"));
        let key = entry.key.as_ref().map(decode).transpose()?.map(Zeroizing::new);
        Authority::read(&self.domain, decode(&entry.certificate)?, key.as_ref().map(|key| key.as_slice()))
            .map_err(|error| self.unusable(&error.to_string()))
    }

    /// Writes the first content unless another process was faster. What counts is what [`Store::load`] says afterwards.
    pub(super) fn create(&self, authorities: &[impl AsRef<Authority>]) -> Result<(), StoreError> {
        fs::create_dir_all(&self.dir).map_err(|error| self.io(error))?;
        self.write(authorities, |from, to| match fs::hard_link(from, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(from),
            linked => linked.and_then(|()| fs::remove_file(from)),
        })
    }

    /// Replaces the content.
    pub(super) fn replace(&self, authorities: &[impl AsRef<Authority>]) -> Result<(), StoreError> {
        self.write(authorities, |from, to| fs::rename(from, to))
    }

    fn write(
        &self,
        authorities: &[impl AsRef<Authority>],
        publish: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let text = self.serialize(authorities).map_err(|error| self.io(error.into()))?;
        let temporary = self.dir.join(format!(".{FILE_NAME}.{}", std::process::id()));
        let written = write_new(&temporary, &text)
            .and_then(|()| publish(&temporary, &self.path()))
            .and_then(|()| File::open(&self.dir)?.sync_all());
        written.map_err(|error| self.io(error))
    }

    fn serialize(&self, authorities: &[impl AsRef<Authority>]) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        let entry = |authority: &Authority| Entry {
            certificate: BASE64.encode(&authority.certificate),
            key: authority.key.as_ref().map(|key| BASE64.encode(key.pkcs8())),
        };
        let content = Content {
            format: FORMAT,
            trust_domain: self.domain.to_string(),
            authorities: authorities.iter().map(|authority| entry(authority.as_ref())).collect(),
        };
        // Large enough never to grow: a grown buffer leaves a copy of the key behind.
        let mut text = Zeroizing::new(Vec::with_capacity(4096 * (authorities.len() + 1)));
        serde_json::to_writer_pretty(&mut *text, &content)?;
        Ok(text)
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    fn io(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path(), source }
    }

    fn unusable(&self, what: &str) -> StoreError {
        StoreError::Unusable { path: self.path(), domain: self.domain.clone(), what: what.to_owned() }
    }
}

/// Writes a file that did not exist, for its owner alone, and brings it to the disk.
fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // The mode at creation is subject to the umask.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::{sync::Arc, time::Duration};

    use jiff::Timestamp;

    use super::*;

    fn domain() -> TrustDomain {
        "td.test".parse().unwrap()
    }

    fn authority() -> Arc<Authority> {
        Arc::new(Authority::make(&domain(), Timestamp::now(), Duration::from_secs(1000)).unwrap())
    }

    fn written() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), &domain());
        store.create(&[authority()]).unwrap();
        (dir, store)
    }

    fn error(store: &Store) -> String {
        store.load().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_written_is_read_and_belongs_to_its_owner_alone() {
        let (dir, store) = written();
        let mode = fs::metadata(store.path()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let first = store.load().unwrap().unwrap();
        let retired: Vec<_> =
            first.iter().map(|authority| Arc::new(authority.retired())).chain([authority()]).collect();
        store.replace(&retired).unwrap();
        let second = store.load().unwrap().unwrap();
        assert_eq!(second[0].certificate, first[0].certificate);
        assert!(second[0].key.is_none() && second[1].key.is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn the_first_of_two_that_create_at_once_wins() {
        let (dir, store) = written();
        let before = fs::read(store.path()).unwrap();
        store.create(&[authority()]).unwrap();
        assert_eq!(fs::read(store.path()).unwrap(), before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_cut_off_anywhere_is_an_error() {
        let (_dir, store) = written();
        let whole = fs::read(store.path()).unwrap();
        for length in 0..whole.len() {
            fs::write(store.path(), &whole[..length]).unwrap();
            assert!(matches!(store.load(), Err(StoreError::Unusable { .. })), "cut off after {length} bytes");
        }
    }

    #[test]
    fn an_error_never_quotes_the_key() {
        let (_dir, store) = written();
        let text = fs::read_to_string(store.path()).unwrap();
        let key = text.split("\"key\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        fs::write(store.path(), text.replace("\"key\": \"", "\"format\": \"")).unwrap();
        let error = format!("{} {:?}", error(&store), store.load().err());
        assert!(error.contains("damaged") && !error.contains(&key[..16]), "{error}");
    }

    #[test]
    fn foreign_and_exposed_files_are_refused_with_what_to_do() {
        let (dir, store) = written();
        let foreign = Store::new(dir.path(), &"other.test".parse().unwrap());
        assert!(error(&foreign).contains("belongs to trust domain \"td.test\""), "{}", error(&foreign));
        fs::set_permissions(store.path(), Permissions::from_mode(0o640)).unwrap();
        assert!(error(&store).contains("mode 0640; run chmod 600"), "{}", error(&store));
        fs::set_permissions(store.path(), Permissions::from_mode(0o600)).unwrap();
        fs::write(store.path(), fs::read_to_string(store.path()).unwrap().replace("\"format\": 1", "\"format\": 2"))
            .unwrap();
        assert!(error(&store).contains("format 2"), "{}", error(&store));
        fs::remove_file(store.path()).unwrap();
        fs::create_dir(store.path()).unwrap();
        assert!(error(&store).contains("no ordinary file"), "{}", error(&store));
    }

    #[test]
    fn a_folder_without_any_key_is_refused() {
        let (_dir, store) = written();
        store.replace(&[Arc::new(authority().retired())]).unwrap();
        assert!(error(&store).contains("holds no private key"), "{}", error(&store));
    }

    #[test]
    fn what_an_interrupted_write_left_is_in_nobodys_way() {
        let (dir, store) = written();
        let temporary = dir.path().join(format!(".{FILE_NAME}.{}", std::process::id()));
        fs::write(temporary, "half").unwrap();
        assert!(store.load().unwrap().is_some());
        store.replace(&[authority()]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
