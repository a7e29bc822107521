//! From a launch to a running executor: folder, identity, supervisor, in this order, each step found again after a
//! crash in between.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use domain::id::Backend as BackendKind;
use domain::launch_env::LaunchEnv;
use domain::metadata::ExecutorRecord;
use domain::reason::Reason;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::folder::{Contents, Folder, LaunchFile, Meta};
use super::isolation::{Isolation, JobUser, Taken, Users, owner};
use super::{LocalBackend, LocalConfig, Program, meta_of, name_of, on_files, supervisor, transient};
use crate::backend::{BackendError, Ensured, ExecutorState, Launch};

/// From the start of a supervisor to its word that the executor was started.
const START_DEADLINE: Duration = Duration::from_secs(10);

pub(super) async fn ensure(backend: &LocalBackend, launch: Launch) -> Result<Ensured, BackendError> {
    let record = launch.record.clone();
    let name = name_of(&record);
    backend.check_socket_path(&name)?;
    if record.backend != BackendKind::Local || record.instance != backend.config.instance {
        return Err(foreign(&name));
    }
    let turn = backend.turn(&name).await;
    let folder = backend.folder(&name);
    let (file, place) = (launch_file(&backend.config, &folder, &launch), folder.clone());
    let users = backend.users.clone();
    let prepared = on_files(move || {
        let prepared = prepare(&place, &launch, file, &users);
        (prepared, turn)
    });
    let (prepared, _turn) = prepared.await?;
    let (meta, state) = prepared.map_err(|error| transient(format!("folder of executor {name}: {error}")))?;
    require_same_life(&name, &meta, &record)?;
    match state {
        ExecutorState::Ended(_) | ExecutorState::Failed(_) | ExecutorState::Vanished => return Ok(Ensured::Ready),
        ExecutorState::Running => backend.serve_identity(&name, &record).await?,
        ExecutorState::Pending | ExecutorState::HeldUp(_) => {
            backend.serve_identity(&name, &record).await?;
            start_supervisor(backend, &folder).await?;
        }
    }
    if let Ok(supervisor) = folder.supervisor() {
        backend.watch.follow(&name, &supervisor);
        return Ok(Ensured::Ready);
    }
    Ok(Ensured::NotYet)
}

/// Starts what a former process made and did not live to start: its task was adopted with the folder, so no launch comes
/// for it again (NEW-53). A folder that somebody works on is left to them.
pub(super) async fn resume(backend: &LocalBackend, name: &str, record: &ExecutorRecord) -> Result<(), BackendError> {
    let Some(_turn) = backend.turn_if_free(name) else { return Ok(()) };
    let folder = backend.folder(name);
    // Whoever had the turn before may have started or removed it.
    let place = folder.clone();
    if !on_files(move || place.exists() && place.state() == ExecutorState::Pending).await? {
        return Ok(());
    }
    backend.serve_identity(name, record).await?;
    let started = start_supervisor(backend, &folder).await;
    // A supervisor of the former process may have been on its way all the time.
    let Ok(supervisor) = folder.supervisor() else { return started };
    backend.watch.follow(name, &supervisor);
    Ok(())
}

/// Makes the folder, or looks at the one that is there. What was never started is given the newest launch data: since
/// the last try we may have been restarted, with another port or key.
fn prepare(folder: &Folder, launch: &Launch, mut file: LaunchFile, users: &Users) -> io::Result<(Meta, ExecutorState)> {
    let (meta, capability) = (meta_of(&launch.record), launch.capability.expose());
    // Until the folder is there nobody else gets its user.
    let _taken = give_user(folder, &mut file, users)?;
    let contents = Contents { meta: &meta, launch: &file, capability };
    if !folder.exists() {
        folder.create(&contents)?;
        return Ok((meta, ExecutorState::Pending));
    }
    let (found, state) = (folder.read_meta()?, folder.state());
    if state == ExecutorState::Pending && same_life(&found, &meta) {
        folder.write_launch(&contents)?;
    }
    Ok((found, state))
}

/// A job that gets a user of its own keeps the one that its folder has.
fn give_user(folder: &Folder, file: &mut LaunchFile, users: &Users) -> io::Result<Option<Taken>> {
    let Some(Isolation { user: JobUser::Own(uid), .. }) = &mut file.isolation else { return Ok(None) };
    if let Some(owner) = owner(folder) {
        *uid = owner;
        return Ok(None);
    }
    let taken = users.take(folder.path().parent().unwrap_or(folder.path()))?;
    *uid = taken.uid;
    Ok(Some(taken))
}

pub(super) fn launch_file(config: &LocalConfig, folder: &Folder, launch: &Launch) -> LaunchFile {
    let record = &launch.record;
    let told = LaunchEnv {
        id: record.id,
        facade_url: config.facade_url.clone(),
        facade_spiffe_id: config.facade_spiffe_id.clone(),
        spiffe_id: record.spiffe_id.clone(),
        backend: record.backend,
        workload_socket: format!("unix://{}", folder.socket().display()),
        capability_file: Some(folder.capability()),
        labels: launch.labels.clone(),
        deadline: record.deadline,
        runner_binary: config.runner_binary.clone(),
        runner_config: config.runner_config.clone(),
    };
    let mut env = config.environment.clone();
    env.insert("HOME".to_owned(), folder.work().display().to_string());
    env.insert("TMPDIR".to_owned(), folder.tmp().display().to_string());
    env.extend(told.to_env());
    let (program, args) = match config.program.clone() {
        Some(Program { path, args }) => (Some(path), args),
        None => (None, vec!["executor".to_owned()]),
    };
    LaunchFile { program, args, env, isolation: config.isolation(), open_files: config.open_files }
}

/// The entries of [`launch_file`] that no other process of this host carries.
pub(super) fn marks(folder: &Folder) -> Vec<String> {
    vec![
        format!("HOME={}", folder.work().display()),
        format!("SPIFFE_ENDPOINT_SOCKET=unix://{}", folder.socket().display()),
    ]
}

/// Starts this very program, also after its file was replaced, as the supervisor of the folder. Its word is awaited but
/// not needed: when it does not come in time, the next call looks at the folder.
async fn start_supervisor(backend: &LocalBackend, folder: &Folder) -> Result<(), BackendError> {
    let mut supervisor = Command::new("/proc/self/exe")
        .arg0("gitea-dynamic-runner")
        .args(&backend.config.supervise)
        .arg(folder.path())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| transient(format!("no supervisor for {}: {error}", folder.path().display())))?;
    let word = first_word(&mut supervisor);
    let word = tokio::time::timeout(START_DEADLINE, word).await;
    // Whoever starts a process buries it, or it stays a zombie.
    backend.watch.bury(supervisor);
    match word {
        Ok(Some(error)) => Err(transient(error)),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Reads until the supervisor says that it started; what it says instead is the error.
async fn first_word(supervisor: &mut Child) -> Option<String> {
    let stderr = supervisor.stderr.take()?;
    let mut said = Vec::new();
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == supervisor::STARTED {
            return None;
        }
        said.push(line);
    }
    Some(if said.is_empty() { "the supervisor ended without a word".to_owned() } else { said.join("; ") })
}

fn require_same_life(name: &str, found: &Meta, wanted: &ExecutorRecord) -> Result<(), BackendError> {
    if same_life(found, &meta_of(wanted)) {
        return Ok(());
    }
    let found = ExecutorRecord::parse(&found.labels, &found.annotations).map(|record| record.digest.to_string());
    Err(BackendError::Conflict {
        name: name.to_owned(),
        found: found.unwrap_or_else(|_| "unreadable".to_owned()),
        wanted: wanted.digest.to_string(),
    })
}

fn same_life(found: &Meta, wanted: &Meta) -> bool {
    // What is written at the making of an object never changes; what is added later is not in `wanted`.
    wanted.labels.iter().all(|(key, value)| found.labels.get(key) == Some(value))
}

fn foreign(name: &str) -> BackendError {
    BackendError::Permanent {
        reason: Reason::Internal,
        cause: format!("executor {name} is not one of the local backend of this instance"),
        remedy: "report this as a fault of the controller".to_owned(),
    }
}
