//! Secrets that lie in the open (I5).

use std::path::{Path, PathBuf};

/// What is looked for, each with a word for it.
type Secrets<'a> = &'a [(&'static str, String)];

/// I5: what is in the log or in a file of the state folder, but for those that are made to hold secrets of ours.
pub(super) fn exposed(state: &Path, log: &str, secrets: Secrets<'_>) -> Vec<String> {
    let mut found = search("the log", log.as_bytes(), secrets);
    found.extend(in_folder(state, &[state.join("keys"), state.join("registration.json")], secrets));
    found
}

/// What is in these files and folders.
pub(super) fn in_places(places: &[PathBuf], secrets: Secrets<'_>) -> Vec<String> {
    let in_place = |place: &PathBuf| match place.is_dir() {
        true => in_folder(place, &[], secrets),
        false => in_file(place, secrets),
    };
    places.iter().flat_map(in_place).collect()
}

fn in_folder(folder: &Path, but: &[PathBuf], secrets: Secrets<'_>) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if but.contains(&path) {
                continue;
            }
            match kind {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => found.extend(in_file(&path, secrets)),
                _ => {}
            }
        }
    }
    found
}

fn in_file(path: &Path, secrets: Secrets<'_>) -> Vec<String> {
    search(&path.display().to_string(), &std::fs::read(path).unwrap_or_default(), secrets)
}

fn search(place: &str, content: &[u8], secrets: Secrets<'_>) -> Vec<String> {
    let holds = |secret: &str| content.windows(secret.len()).any(|part| part == secret.as_bytes());
    let held = secrets.iter().filter(|(_, secret)| holds(secret));
    held.map(|(what, _)| format!("I5: {what} is in clear in {place}")).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A search that finds nothing anywhere would find nothing in every test.
    #[test]
    fn what_lies_in_the_open_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a").join("b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "x marker-3f1c y").unwrap();
        let secrets = [("a marker", "marker-3f1c".to_owned()), ("another", "marker-3f1d".to_owned())];
        assert_eq!(in_places(&[dir.path().to_owned()], &secrets).len(), 1);
        assert_eq!(in_places(&[deep.join("file"), deep.join("none")], &secrets).len(), 1);
        assert_eq!(exposed(dir.path(), "marker-3f1d", &secrets).len(), 2);
    }
}
