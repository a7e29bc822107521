//! Secrets that lie in the open (I5).

use std::path::{Path, PathBuf};

use super::World;

/// What is looked for, each with a word for it.
type Secrets<'a> = &'a [(&'static str, String)];

impl World {
    /// I5: the secrets of this world, each with a word for it: registration, keys, and those of every task.
    #[must_use]
    pub fn secrets(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| std::fs::read_to_string(self.state().join(name)).unwrap_or_default().trim().to_owned();
        let registration: serde_json::Value = serde_json::from_str(&file("registration.json")).unwrap_or_default();
        let token = registration["token"].as_str().unwrap_or_default().to_owned();
        let own = [
            ("the registration token", self.gitea.registration_token()),
            ("the token of the registration", token),
            ("the capability key", file("keys/capability.key")),
            ("the envelope key", file("keys/envelope.key")),
        ];
        let passwords = self.broker.as_ref().map(|broker| broker.passwords());
        let passwords = passwords.into_iter().flat_map(|passwords| [passwords.producer, passwords.worker]);
        let passwords = passwords.map(|password| ("a password of NATS", password));
        let tasks = self.gitea.jobs().into_iter().filter_map(|job| self.gitea.handed_out(self.gitea.find(job)?.task?));
        let of_tasks = tasks.flat_map(|task| task.secrets.into_values()).map(|value| ("a secret of a task", value));
        own.into_iter().chain(passwords).chain(of_tasks).filter(|(_, value)| value.len() > 8).collect()
    }

    /// Where in the controller's log, in the state folder or in what a NATS server stores and logs one of these lies in
    /// clear; the files that are made to hold our own are left out.
    #[must_use]
    pub fn exposed(&self, secrets: &[(&'static str, String)]) -> Vec<String> {
        let stored = self.broker.iter().flat_map(|broker| in_places(&broker.stored(), secrets));
        exposed(&self.state(), &self.log(), secrets).into_iter().chain(stored).collect()
    }

    /// I5 of the messages that lie with a server now: they are gone from its disk by the end of the test.
    pub(super) fn look_at_what_waits(&mut self) {
        let (Some(broker), Ok(tasks)) = (&self.broker, self.queue.tasks()) else { return };
        let handed_out = tasks.into_iter().filter_map(|task| self.gitea.handed_out(task));
        let secrets = handed_out.flat_map(|task| task.secrets.into_values()).filter(|value| value.len() > 8);
        let secrets: Vec<_> = secrets.map(|value| ("a secret of a task that waits", value)).collect();
        self.exposed.extend(in_places(&broker.stored(), &secrets));
    }
}

/// I5: what is in the log or in a file of the state folder, but for those that are made to hold secrets of ours.
fn exposed(state: &Path, log: &str, secrets: Secrets<'_>) -> Vec<String> {
    let mut found = search("the log", log.as_bytes(), secrets);
    found.extend(in_folder(state, &[state.join("keys"), state.join("registration.json")], secrets));
    found
}

/// What is in these files and folders.
fn in_places(places: &[PathBuf], secrets: Secrets<'_>) -> Vec<String> {
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
