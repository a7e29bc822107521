//! Executors of the local backend belong to their host. Where several hosts share a queue, the one that begins to start a
//! task writes itself down before anything is made, and no other host starts that task: it cannot see whether the executor
//! there has begun the job (NEW-59, NEW-61). One call decides, so of two hosts that begin at once one does.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use crate::account::host_name;
use crate::files;
use crate::queue::ledger::{Entry, Kind, Ledger, life};
use crate::queue::{Key, QueueError};

/// This host, as far as its executors go: a state folder.
pub struct Host {
    ledger: Arc<dyn Ledger>,
    name: String,
}

impl Host {
    /// The host of a state folder, which keeps its name, also over a new start of the machine.
    ///
    /// # Errors
    /// The name cannot be read or written.
    pub fn of_folder(state: &Path, ledger: Arc<dyn Ledger>) -> io::Result<Self> {
        let path = state.join("host");
        let name = match std::fs::read_to_string(&path) {
            Ok(name) => name.trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = new_name()?;
                files::write(&path, name.as_bytes())?;
                name
            }
            Err(error) => return Err(error),
        };
        Ok(Self { ledger, name })
    }

    /// Writes down that this host starts the task of this message. The inner error names the host that did so before.
    ///
    /// # Errors
    /// See [`QueueError`]; then nothing may be made.
    pub(super) async fn begins(&self, message: &Key, now: Timestamp) -> Result<Result<(), String>, QueueError> {
        let key = life(message.id, &message.digest);
        let ours = Entry { key, value: self.name.clone(), at: now };
        let holds = self.ledger.put_if_absent(Kind::Begun, ours).await?;
        Ok(if holds.value == self.name { Ok(()) } else { Err(holds.value) })
    }
}

/// Unlike any other: the machine's own name, for people, and a random number.
fn new_name() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{} {}", host_name(), data_encoding::HEXLOWER.encode(&random)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::queue::contract::key;
    use crate::queue::embedded::{Embedded, Settings};

    /// NEW-59, NEW-61: the host that began a task begins it again; another one never does, and is told whose it is.
    #[tokio::test]
    async fn a_task_belongs_to_the_host_that_began_it() {
        let [shared, one, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let queue = Embedded::open(Settings::new(shared.path().join("queue.db"))).await.unwrap();
        let host = |dir: &tempfile::TempDir| Host::of_folder(dir.path(), queue.ledger()).unwrap();
        let now = Timestamp::now();
        assert_eq!(host(&one).begins(&key(1), now).await, Ok(Ok(())));
        assert_eq!(host(&one).begins(&key(1), now).await, Ok(Ok(())), "after a new start of the process");
        let name = std::fs::read_to_string(one.path().join("host")).unwrap();
        assert_eq!(host(&other).begins(&key(1), now).await, Ok(Err(name)));
        assert_eq!(host(&other).begins(&key(2), now).await, Ok(Ok(())));
    }
}
