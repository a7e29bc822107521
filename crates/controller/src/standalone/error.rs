//! Why one-host mode did not start: one clear message with its remedy, and the exit code.

use std::path::PathBuf;

use crate::backend::local::isolation::NotIsolated;
use crate::config::ConfigErrors;

/// Why nothing was started. The text is the problem; [`StartError::remedy`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Flags or settings are wrong.
    #[error("{0}")]
    Settings(ConfigErrors),
    /// No home folder to put the state in.
    #[error("there is no place for the state folder: neither XDG_STATE_HOME nor HOME is set")]
    NoStateFolder,
    /// The first start needs an address.
    #[error("this state folder has no registration yet, and no Gitea was named")]
    GiteaNeeded,
    /// The first start needs a token.
    #[error("this state folder has no registration yet, and no --registration-token-file was given")]
    TokenFileNeeded,
    /// The token file cannot be used.
    #[error("the registration token file {path} cannot be used: {cause}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The state folder belongs to another Gitea.
    #[error("state folder {state} is registered with {registered}, not with {asked}")]
    OtherGitea {
        /// The folder.
        state: PathBuf,
        /// The Gitea it is registered with.
        registered: String,
        /// The one asked for.
        asked: String,
    },
    /// Identities of running jobs would change under them.
    #[error("state folder {state} was made for trust domain {made}, not for {asked}")]
    OtherTrustDomain {
        /// The folder.
        state: PathBuf,
        /// The one it was made for.
        made: String,
        /// The one asked for.
        asked: String,
    },
    /// Nothing answers.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        cause: String,
    },
    /// Something answers, but no Gitea Actions API.
    #[error("{url} answers, but not as a Gitea with Actions: {seen}")]
    NotGitea {
        /// The address.
        url: String,
        /// What came instead.
        seen: String,
    },
    /// Gitea does not know the registration token, or knows a newer one.
    #[error("{url} refused the registration token: {text}")]
    TokenRefused {
        /// The address.
        url: String,
        /// Gitea's words.
        text: String,
    },
    /// Gitea refused for another reason.
    #[error("{url} refused to register this runner: {text}")]
    Refused {
        /// The address.
        url: String,
        /// Gitea's words.
        text: String,
    },
    /// Register was sent and no answer came.
    #[error("{url} did not answer the registration of {name}: {cause}")]
    AnswerLost {
        /// The address.
        url: String,
        /// The runner's name there.
        name: String,
        /// What happened.
        cause: String,
    },
    /// This host does not isolate jobs.
    #[error("{0}")]
    NotIsolated(NotIsolated),
    /// The cluster cannot be talked to.
    #[error("{0}")]
    Cluster(#[from] crate::kubernetes::NoCluster),
    /// The state folder belongs to another user.
    #[error("the state folder {state} belongs to user id {owner}, and this program runs as user id {us}")]
    OtherUser {
        /// The folder.
        state: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Executors are named after the instance id.
    #[error("state folder {state} was made for instance {made}, not for {asked}")]
    OtherInstance {
        /// The folder.
        state: PathBuf,
        /// The one it was made for.
        made: String,
        /// The one asked for.
        asked: String,
    },
    /// The file that remembers the facade's port holds something else.
    #[error("{file} holds no port: {cause}")]
    PortFile {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// Health, metrics and status cannot be served where they were asked for.
    #[error("--ops-listen {address} cannot be listened on: {cause}")]
    OpsListen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        cause: String,
    },
    /// There is no room for what a start writes.
    #[error("the disk of the state folder {state} is full: {free} KiB are left, and a start needs {needed}")]
    DiskFull {
        /// The folder.
        state: PathBuf,
        /// KiB that this user may still write.
        free: u64,
        /// KiB that are needed.
        needed: u64,
    },
    /// The state folder cannot be used.
    #[error("the state folder {path} cannot be used: {cause}")]
    State {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The registration file is damaged.
    #[error("the registration {path} cannot be read: {cause}")]
    Registration {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Another process works on the state folder.
    #[error("state folder {state} is in use by {holder}; two controllers must not share one registration")]
    Locked {
        /// The folder.
        state: PathBuf,
        /// Who, as far as it can be told.
        holder: String,
    },
    /// No official runner.
    #[error("the official Gitea runner was not found: {looked}")]
    RunnerMissing {
        /// Where it was looked for.
        looked: String,
    },
    /// What was found is not the official runner.
    #[error("{path} cannot be used as the official Gitea runner: {cause}")]
    RunnerUnusable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The official runner cannot do one job and end.
    #[error("{path} (version {version}) is too old: it does not know `daemon --once`")]
    RunnerTooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The facade's port is taken.
    #[error("port {port} of 127.0.0.1, where running jobs reach this controller, is in use by {holder}")]
    PortInUse {
        /// The port.
        port: u16,
        /// Who holds it, as far as it can be told.
        holder: String,
        /// The file that names the port.
        file: PathBuf,
    },
}

impl StartError {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Settings(_) => "correct them; `gitea-dynamic-runner config reference` lists every setting".into(),
            Self::NoStateFolder => "name one with --state DIR".into(),
            Self::GiteaNeeded => {
                "the first start needs --gitea URL (the address as in the browser) and --registration-token-file FILE; \
                 another state folder is named with --state DIR"
                    .into()
            }
            Self::TokenFileNeeded => format!("{GET_TOKEN}, write it into a file, and add --registration-token-file FILE"),
            Self::TokenFile { path, cause } if cause.contains("permission denied") => format!(
                "the token in it may be good: let this program's user (id {}) read the file and pass the folders above it; \
                 whose it is now: ls -l {}",
                rustix::process::geteuid().as_raw(),
                path.display()
            ),
            Self::TokenFile { .. } => format!("{GET_TOKEN} and write it into that file"),
            Self::OtherGitea { registered, .. } => {
                format!("use --gitea {registered}, or give the other Gitea a folder of its own with --state DIR")
            }
            Self::OtherTrustDomain { made, .. } => {
                format!("use --trust-domain {made} (or leave it out), or begin anew in another folder with --state DIR")
            }
            Self::Unreachable { cause, .. } if cause.contains("certificate") => {
                "if its certificate is from a CA of your own, set SSL_CERT_FILE to that CA's PEM file".into()
            }
            Self::Unreachable { .. } => "check the address, and that this host reaches it: open it with curl".into(),
            Self::NotGitea { .. } => {
                "give --gitea the address as in the browser's start page, with its path if it has one; a login page or a \
                 proxy in front must let /api/actions pass"
                    .into()
            }
            Self::TokenRefused { .. } => format!("tokens are replaced when a new one is made: {GET_TOKEN}"),
            Self::Refused { .. } => "the words are Gitea's; its log says more".into(),
            Self::AnswerLost { name, .. } => format!(
                "start again; Gitea may now show an unused runner {name} that is never online: delete it there \
                 (Site Administration → Actions → Runners)"
            ),
            Self::NotIsolated(refused) => refused.remedy.clone(),
            Self::Cluster(refused) => refused.remedy.to_owned(),
            Self::OtherUser { owner, .. } => {
                format!("start it as user id {owner}, whose jobs and keys these are, or name another folder with --state DIR")
            }
            Self::OtherInstance { made, .. } => {
                format!("leave INSTANCE_ID out or set it to {made}, or begin anew in another folder with --state DIR")
            }
            Self::PortFile { .. } => {
                "running jobs know the port from CI_RUNNER_FACADE_URL: write that number into the file; or, when no job of \
                 this state folder is running, delete the file and start again"
                    .into()
            }
            Self::OpsListen { .. } => "name another address, or port 0 to let the kernel choose".into(),
            Self::DiskFull { .. } => FREE_SPACE.into(),
            Self::State { cause, .. } if cause.contains("no space left") || cause.contains("quota") => FREE_SPACE.into(),
            Self::State { .. } => {
                "name a folder on a local disk that this user can write to with --state DIR, and see that the disk has space"
                    .into()
            }
            Self::Registration { .. } => {
                "put it back from a backup, or delete it and start with a new --registration-token-file; tasks of the old \
                 registration end by Gitea's own time-outs"
                    .into()
            }
            Self::Locked { state, .. } => format!(
                "stop that one first, or name another folder with --state DIR; what it does: gitea-dynamic-runner status \
                 --state {}",
                state.display()
            ),
            Self::RunnerMissing { .. } => format!("get it: {GET_RUNNER}; then put it into PATH as gitea-runner, or set GITEA_RUNNER_BINARY"),
            Self::RunnerTooOld { .. } => format!("get a newer one: {GET_RUNNER}"),
            Self::RunnerUnusable { .. } => {
                format!("set GITEA_RUNNER_BINARY to the executable file of the official runner; to get it: {GET_RUNNER}")
            }
            Self::PortInUse { file, .. } => format!(
                "end that process; or, when no job of this state folder is running, delete {} and start again",
                file.display()
            ),
        }
    }

    /// 2 when the command line or the settings are wrong, 1 when the world said no (requirements §1.5).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_)
            | Self::NoStateFolder
            | Self::GiteaNeeded
            | Self::TokenFileNeeded
            | Self::TokenFile { .. }
            | Self::OtherGitea { .. }
            | Self::OtherInstance { .. }
            | Self::OtherTrustDomain { .. } => 2,
            _ => 1,
        }
    }
}

const GET_TOKEN: &str = "copy a registration token in Gitea (Site Administration → Actions → Runners → Create new Runner, or \
                         the same in the settings of an organisation or repository)";

const FREE_SPACE: &str = "free some space there, or name a folder on another local disk with --state DIR; what was \
     written there is kept; a task that came when the disk was full already, and could not be written before this \
     program ended, is lost, and its job fails by Gitea's time-out";

const GET_RUNNER: &str = "https://gitea.com/gitea/runner/releases, or build it with `go install \
                          gitea.com/gitea/runner@v1.0.8`, whose file is named runner and lies in $(go env GOPATH)/bin";
