//! Executors as processes of this host, each with a folder for its object and a [`supervisor`] that outlives us.
//!
//! The intent is on the disk before anything is started, and a folder starts at most one executor in its life. What is
//! known is read from the folders at every list; in memory there are only the served identities and the watches, and a
//! restarted controller makes both anew in its first list.

mod config;
mod ending;
mod folder;
pub mod isolation;
mod listing;
mod log;
mod process;
mod removal;
mod starting;
pub mod supervisor;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::metadata::{ExecutorRecord, Mark};
use domain::reason::Reason;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::OwnedMutexGuard;

pub use self::config::{LocalConfig, Program};
use self::folder::{Durability, Folder, Meta};
use self::isolation::Users;
use self::listing::{name_of, observe_all, subject_of};
use self::watch::Watch;
use super::{Backend, BackendError, Ensured, ExecutorState, Launch, Marked, Observed};
use crate::telemetry::events::executor_log;

/// A path longer than this cannot be a socket's address (`sun_path`, less the closing zero).
const SOCKET_PATH_LIMIT: usize = 107;

/// For work on files; a local disk that needs longer hangs.
const FILES_DEADLINE: Duration = Duration::from_secs(30);

/// For serving one identity socket.
const BIND_DEADLINE: Duration = Duration::from_secs(10);

/// Serves the identity of an executor on a socket at this path, in place of whatever is there, until the returned value
/// is dropped. The error is a text for the operator.
pub type Bind =
    Arc<dyn Fn(&ExecutorRecord, &Path) -> BoxFuture<'static, Result<Box<dyn Serving>, String>> + Send + Sync>;

/// An identity that is served until this is dropped.
pub trait Serving: Send {
    /// Whether it ended by itself, which no fault of a client must bring about (NEW-150).
    fn has_ended(&self) -> bool;
}

/// The backend `local`. Needs a tokio runtime.
pub struct LocalBackend {
    config: LocalConfig,
    executors: PathBuf,
    bind: Bind,
    identities: Mutex<HashMap<String, Identity>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Executors whose end was told.
    told: Mutex<BTreeSet<String>>,
    watch: Watch,
    users: Users,
}

/// The identity socket of one executor.
enum Identity {
    /// Served until this is dropped.
    Served(Box<dyn Serving>),
    /// Taken away for good; a list does not serve it again.
    Withdrawn,
}

/// The right to change one executor's folder; calls for the same folder wait for each other.
type Turn = OwnedMutexGuard<()>;

impl LocalBackend {
    /// Makes the folder of the executors where it is missing. Only the holder of the state folder's lock may do this.
    ///
    /// # Errors
    /// [`BackendError::Permanent`] when the state folder cannot be used, or is so deep that no identity socket fits
    /// into it.
    pub fn new(config: LocalConfig, bind: Bind) -> Result<Self, BackendError> {
        let executors = config.state.join("executors");
        let backend = Self {
            executors,
            bind,
            identities: Mutex::default(),
            turns: Mutex::default(),
            told: Mutex::default(),
            watch: Watch::default(),
            users: Users::new(config.users.clone()),
            config,
        };
        // Ten digits of task number and two of epoch: more than any Gitea will reach.
        backend.check_socket_path(&format!("gitea-task-{}-{}-e99", "9".repeat(10), backend.config.instance))?;
        backend.make_executors_folder().map_err(|error| BackendError::Permanent {
            reason: Reason::ConfigError,
            cause: format!("{}: {error}", backend.executors.display()),
            remedy: "make the state folder exist and writable for this user".to_owned(),
        })?;
        Ok(backend)
    }

    /// Takes an executor's identity away ahead of its end; [`Backend::delete`] does so in any case.
    pub fn withdraw_identity(&self, name: &str) {
        let served = self.identities().insert(name.to_owned(), Identity::Withdrawn);
        // Ended here, not under the lock: what ends with it is not ours.
        drop(served);
    }

    fn forget_identity(&self, name: &str) {
        let served = self.identities().remove(name);
        drop(served);
    }

    /// Lets go of a service that ended by itself, so that the next one takes its place.
    fn forget_ended_identity(&self, name: &str) {
        let mut identities = self.identities();
        if matches!(identities.get(name), Some(Identity::Served(served)) if served.has_ended()) {
            let served = identities.remove(name);
            drop(identities);
            drop(served);
            tracing::warn!(executor = %name, "its identity was not served any more; it is served anew");
        }
    }

    fn make_executors_folder(&self) -> io::Result<()> {
        crate::files::new_private_folder(&self.executors)?;
        folder::sweep(&self.executors)
    }

    fn check_socket_path(&self, name: &str) -> Result<(), BackendError> {
        let length = self.folder(name).socket().as_os_str().len();
        if length <= SOCKET_PATH_LIMIT && self.config.state.is_absolute() {
            return Ok(());
        }
        let state = self.config.state.display();
        let spare = length.saturating_sub(SOCKET_PATH_LIMIT);
        Err(BackendError::Permanent {
            reason: Reason::ConfigError,
            cause: format!(
                "state folder {state}: it must be an absolute path, and the sockets below it may have addresses of at \
                 most {SOCKET_PATH_LIMIT} bytes; ours would have {length}"
            ),
            remedy: format!("choose a --state folder whose path is at least {spare} bytes shorter"),
        })
    }

    fn folder(&self, name: &str) -> Folder {
        Folder::new(self.executors.join(name))
    }

    fn identities(&self) -> std::sync::MutexGuard<'_, HashMap<String, Identity>> {
        // Nothing can panic while it is held.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an executor said last that ended abnormally, once in the life of this process: its folder goes with its end.
    /// One that we end ourselves is no news.
    async fn tell_last_words(&self, observed: &Observed) {
        let how = match &observed.state {
            ExecutorState::Ended(exit) if !exit.is_orderly() => exit.to_string(),
            ExecutorState::Vanished => ExecutorState::VANISHED.to_owned(),
            _ => return,
        };
        let name = &observed.name;
        let ended_by_us = matches!(self.identities().get(name), Some(Identity::Withdrawn));
        if !self.told().insert(name.clone()) || ended_by_us {
            return;
        }
        let log = self.folder(name).log();
        // Without an answer of the disk there is nothing to tell but the end, which others tell.
        let Ok(said) = on_files(move || log::tail(&log)).await else { return };
        executor_log(subject_of(observed).as_ref(), name, &how, &said);
    }

    async fn turn(&self, name: &str) -> Turn {
        self.queue_for(name).lock_owned().await
    }

    fn turn_if_free(&self, name: &str) -> Option<Turn> {
        self.queue_for(name).try_lock_owned().ok()
    }

    fn queue_for(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(name.to_owned()).or_default())
    }

    /// Serves the identity unless it is served or withdrawn.
    async fn serve_identity(&self, name: &str, record: &ExecutorRecord) -> Result<(), BackendError> {
        self.forget_ended_identity(name);
        if self.identities().contains_key(name) {
            return Ok(());
        }
        let serving = (self.bind)(record, &self.folder(name).socket());
        let served = match tokio::time::timeout(BIND_DEADLINE, serving).await {
            Ok(served) => served,
            Err(_) => Err(format!("no answer within {BIND_DEADLINE:?}")),
        };
        let served = served.map_err(|cause| transient(format!("the identity of {name} cannot be served: {cause}")))?;
        self.identities().entry(name.to_owned()).or_insert(Identity::Served(served));
        Ok(())
    }

    /// The part of a list that concerns one executor: what runs is watched and has its identity, what has ended has
    /// none, and what a former process made and did not start is started.
    async fn attend(&self, observed: &Observed) {
        let name = &observed.name;
        // What an earlier registration left is watched; it gets no identity and is not started.
        let record = observed.record.as_ref().ok().filter(|record| record.instance == self.config.instance);
        match (&observed.state, record) {
            (ExecutorState::Running, record) => {
                if let Ok(supervisor) = self.folder(name).supervisor() {
                    self.watch.follow(name, &supervisor);
                }
                if let Some(record) = record
                    && let Err(error) = self.serve_identity(name, record).await
                {
                    tracing::warn!(executor = %name, %error, "identity not served; the next pass tries again");
                }
            }
            (ExecutorState::Pending, Some(record)) => {
                if let Err(error) = starting::resume(self, name, record).await {
                    tracing::warn!(executor = %name, %error, "executor not started; the next pass tries again");
                }
            }
            (ExecutorState::Pending | ExecutorState::HeldUp(_), _) => {}
            (ExecutorState::Ended(_) | ExecutorState::Failed(_) | ExecutorState::Vanished, _) => {
                self.tell_last_words(observed).await;
                self.forget_identity(name);
            }
        }
    }
}

impl Backend for LocalBackend {
    fn ensure(&self, launch: Launch) -> BoxFuture<'_, Result<Ensured, BackendError>> {
        starting::ensure(self, launch).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Observed>, BackendError>> {
        async move {
            let executors = self.executors.clone();
            let observed = on_files(move || observe_all(&executors)).await?;
            let observed = observed.map_err(|error| transient(format!("{}: {error}", self.executors.display())))?;
            join_all(observed.iter().map(|observed| self.attend(observed))).await;
            Ok(observed)
        }
        .boxed()
    }

    fn last_report(&self, name: &str) -> BoxFuture<'_, Result<Option<Vec<u8>>, BackendError>> {
        let folder = self.folder(name);
        async move {
            let left = on_files(move || folder.last_report()).await?;
            left.map_err(|error| transient(format!("last report: {error}")))
        }
        .boxed()
    }

    fn mark(&self, name: &str, mark: Mark) -> BoxFuture<'_, Result<Marked, BackendError>> {
        let name = name.to_owned();
        async move {
            require_name(&name)?;
            let turn = self.turn(&name).await;
            let folder = self.folder(&name);
            let marked = on_files(move || {
                // The turn ends with the work, also when the caller has gone away meanwhile.
                let _turn = turn;
                add_mark(&folder, &mark)
            });
            marked.await?.map_err(|error| transient(format!("mark on executor {name}: {error}")))
        }
        .boxed()
    }

    fn delete(&self, name: &str) -> BoxFuture<'_, Result<(), BackendError>> {
        let name = name.to_owned();
        async move { ending::delete(self, &name).await }.boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.watch.changed().boxed()
    }
}

/// A name comes back to us from outside; it must not lead out of the folder of the executors.
fn require_name(name: &str) -> Result<(), BackendError> {
    if !name.is_empty() && !name.starts_with('.') && !name.contains('/') {
        return Ok(());
    }
    Err(BackendError::Permanent {
        reason: Reason::Internal,
        cause: format!("{name:?} is no executor's name"),
        remedy: "report this as a fault of the controller".to_owned(),
    })
}

fn add_mark(folder: &Folder, mark: &Mark) -> io::Result<Marked> {
    let mut meta = match folder.read_meta() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => return Ok(Marked::Gone),
        meta => meta?,
    };
    let before = meta.clone();
    meta.labels.extend(mark.labels());
    meta.annotations.extend(mark.annotations());
    let durability = if matches!(mark, Mark::Steps(_)) { Durability::Loose } else { Durability::Synced };
    // The same mark again may repeat one whose answer, or whose last sync, is missing: only steps are skipped.
    if meta != before || durability == Durability::Synced {
        folder.write_meta(&meta, durability)?;
    }
    Ok(Marked::Written)
}

fn meta_of(record: &ExecutorRecord) -> Meta {
    Meta { labels: record.labels(), annotations: record.annotations() }
}

/// Runs work that may block. It goes on to its end even when nobody waits for it any more.
async fn on_files<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, BackendError> {
    match tokio::time::timeout(FILES_DEADLINE, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(transient("work on the state folder was cut off".to_owned())),
        Err(_) => Err(transient(format!("the disk of the state folder did not answer within {FILES_DEADLINE:?}"))),
    }
}

fn transient(cause: String) -> BackendError {
    BackendError::Transient { cause, retry_after: None }
}
