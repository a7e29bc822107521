//! Secrets that lie in the open (I5).

use std::path::{Path, PathBuf};

/// I5: what is in the log or in a file of the state folder, but for those that are made to hold secrets of ours, and in
/// other places.
pub(super) fn exposed(state: &Path, others: &[PathBuf], log: &str, secrets: &[(&'static str, String)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut search = |place: &str, content: &[u8]| {
        let holds = |secret: &str| content.windows(secret.len()).any(|part| part == secret.as_bytes());
        let held = secrets.iter().filter(|(_, secret)| holds(secret));
        found.extend(held.map(|(what, _)| format!("I5: {what} is in clear in {place}")));
    };
    search("the log", log.as_bytes());
    for file in others.iter().filter(|path| path.is_file()) {
        search(&file.display().to_string(), &std::fs::read(file).unwrap_or_default());
    }
    let mut folders: Vec<PathBuf> = others.iter().filter(|path| path.is_dir()).cloned().collect();
    folders.push(state.to_owned());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if path == state.join("keys") || path == state.join("registration.json") {
                continue;
            }
            match kind {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    search(&path.display().to_string(), &std::fs::read(&path).unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    found
}
