//! One-host mode (NEW-147): from an address and a registration token to a complete [`Config`].
//!
//! Order: everything that can be judged without writing (settings, token file, official runner, Gitea's answer to
//! Ping) is judged by [`check`]; then [`lead`] takes the lock of the state folder; then [`prepare`] tries isolation,
//! registers and writes. A start that fails in [`check`] leaves nothing behind, one that fails in [`prepare`] nothing
//! half-written. A later start is not judged by Gitea, and its runner is asked while isolation is tried.

mod error;
pub mod runner;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod wire;
pub mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::id::InstanceId;
use zeroize::Zeroizing;

pub use self::error::StartError;
use self::runner::Found;
use self::settings::{collect, declared, judge, own_settings};
pub use self::settings::{view, with_queue_in_nats};
pub use self::state::{Registration, port_in_use};
use self::wire::Wire;
use crate::account;
use crate::app::walls::{self, Proven};
use crate::args::StandaloneArgs;
use crate::config::raw::Raw;
use crate::config::{
    Config, GiteaUrl, LocalJobs, Runner, SecretFile, SecretRule, local_jobs, secret, setting, table, validate,
};
use crate::files;
use crate::lease::{FileLock, Held, Leadership as _, LeaseError};

/// What this host tells us.
pub struct Surroundings {
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// The host's name.
    pub host: String,
    /// Who we are: a name, or a uid that has none.
    pub user: String,
    /// Whether we are root.
    pub root: bool,
    /// Whether a person reads stderr.
    pub terminal: bool,
    /// Deadline of one call to Gitea.
    pub gitea_patience: Duration,
    /// Deadline of the official runner's `--version`.
    pub runner_patience: Duration,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn here() -> Self {
        use std::io::IsTerminal as _;
        Self {
            environment: Raw::process_environment(),
            host: crate::account::host_name(),
            user: account::ours().map_or_else(|| rustix::process::geteuid().to_string(), |account| account.name),
            root: rustix::process::geteuid().is_root(),
            terminal: std::io::stderr().is_terminal(),
            gitea_patience: Duration::from_secs(30),
            runner_patience: Duration::from_secs(10),
        }
    }

    /// What we are called in Gitea: two users of one host are two runners there.
    fn runner_name(&self) -> String {
        let user = if self.root { String::new() } else { format!("-{}", self.user) };
        format!("gitea-dynamic-runner{user}@{}", self.host)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, value)| value.as_str())
    }

    /// The state folder when nobody names one: of root `/var/lib/gitea-dynamic-runner`, else below the user's own
    /// state folder by the XDG rules.
    ///
    /// # Errors
    /// [`StartError::NoStateFolder`].
    pub fn state_folder(&self) -> Result<PathBuf, StartError> {
        const NAME: &str = "gitea-dynamic-runner";
        if self.root {
            return Ok(Path::new("/var/lib").join(NAME));
        }
        let absolute = |name| self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        base.map(|base| base.join(NAME)).ok_or(StartError::NoStateFolder)
    }
}

/// A start whose preconditions hold; nothing was written yet. No `Debug`: it may hold the registration token.
pub struct Checked {
    raw: Raw,
    url: GiteaUrl,
    state: PathBuf,
    token: Option<SecretFile>,
    /// May be there and good long after it was used.
    token_file: Option<PathBuf>,
    trust_domain: Option<String>,
    program: PathBuf,
    /// None: the trial of a later start can ask it as well, since nothing is made by it.
    runner: Option<Found>,
    name: String,
    gitea_patience: Duration,
    runner_patience: Duration,
}

/// A start that is complete.
pub struct Prepared {
    /// What to run.
    pub config: Config,
    /// The runner's name in Gitea.
    pub name: String,
    /// Whether this start made the registration.
    pub registered_now: bool,
    /// The official runner.
    pub runner: Found,
    /// What keeps jobs apart.
    pub walls: Proven,
    /// What is strange but harmless about the settings.
    pub warnings: Vec<String>,
}

/// The whole start: [`check`], [`lead`], [`prepare`].
///
/// # Errors
/// Any [`StartError`].
pub async fn start(args: &StandaloneArgs, here: &Surroundings) -> Result<(Prepared, Held), StartError> {
    let checked = check(args, here).await?;
    let lead = lead(&checked.state).await?;
    Ok((prepare(checked).await?, lead))
}

/// Makes the state folder, 0700, and takes its lock: from then on this process is the only one that works on it.
///
/// # Errors
/// [`StartError::State`], [`StartError::OtherUser`], [`StartError::DiskFull`], [`StartError::Locked`].
pub async fn lead(state: &Path) -> Result<Held, StartError> {
    state::ours(state)?;
    files::private_folder(state).map_err(|error| unusable(state, &error))?;
    state::room(state)?;
    FileLock::in_folder(state).acquire().await.map_err(|error| match error {
        LeaseError::Taken { path: _, holder } => StartError::Locked { state: state.to_owned(), holder },
        LeaseError::Unusable { path, cause } => unusable(&path, &cause),
        LeaseError::KeyValue(error) => unusable(state, &std::io::Error::other(error)),
        LeaseError::Kubernetes(error) => unusable(state, &std::io::Error::other(error)),
    })
}

/// Judges everything that can be judged without writing.
///
/// # Errors
/// Any [`StartError`] but those of writing.
pub async fn check(args: &StandaloneArgs, here: &Surroundings) -> Result<Checked, StartError> {
    let state = state_of(args, here)?;
    state::ours(&state)?;
    let known = Registration::read(&state)?;
    let raw = collect(args, here, known.as_ref());
    let url = judge(&raw)?;
    short_enough(&state, instance_of(&raw).as_ref())?;
    let trust_domain = raw.get("TRUST_DOMAIN").map(|(text, _)| text.to_owned());
    let token = match &known {
        Some(known) => {
            same_world(known, &state, &url, &raw)?;
            None
        }
        None => Some(token_file(args)?),
    };
    let (_, settings) = local_jobs(&raw).map_err(StartError::Settings)?;
    let program = runner::locate(&settings)?;
    let mut runner = None;
    if known.is_none() {
        runner = Some(runner::ask(program.clone(), here.runner_patience).await?);
        Wire::new(&url, here.gitea_patience).ping().await?;
    }
    Ok(Checked {
        raw,
        url,
        state,
        token,
        token_file: args.registration_token_file.as_ref().and_then(|file| std::path::absolute(file).ok()),
        trust_domain,
        program,
        runner,
        name: known.map_or_else(|| here.runner_name(), |known| known.name),
        gitea_patience: here.gitea_patience,
        runner_patience: here.runner_patience,
    })
}

/// Registers where that is still to be done, writes what is still to be written, and builds the configuration. The
/// caller holds the lock of the state folder.
///
/// # Errors
/// Any [`StartError`].
pub async fn prepare(mut checked: Checked) -> Result<Prepared, StartError> {
    if let Some(address) = checked.raw.value(&table::OPS_LISTEN) {
        state::ops_address(address)?;
    }
    // Read again: the folder may have been registered by a process that held the lock before us.
    let known = Registration::read(&checked.state)?;
    if let Some(known) = &known {
        same_world(known, &checked.state, &checked.url, &checked.raw)?;
    }
    // Their files are no job's business, whether they are there yet or not.
    own_settings(&mut checked.raw, &checked.state, known.as_ref(), None);
    // Before Gitea hears of us: a host that cannot isolate jobs leaves no runner there that never comes online.
    let (runner, walls) = checked.judge_host().await?;
    let (known, registered_now) = match (known, checked.token.take()) {
        (Some(known), _) => (known, false),
        (None, Some(token)) => {
            checked.raw.warnings.extend(secret::exposure(token.path()));
            (checked.register(&token).await?, true)
        }
        (None, None) => return Err(StartError::TokenFileNeeded),
    };
    let Checked { mut raw, state, .. } = checked;
    for name in state::KEYS {
        state::key(&state, name)?;
    }
    let port = state::facade_port(&state)?;
    own_settings(&mut raw, &state, Some(&known), Some(port));
    let name = known.name.clone();
    let config = validate(&raw, known.supplied(&state)).map_err(StartError::Settings)?;
    Ok(Prepared { config, name, registered_now, runner, walls, warnings: raw.warnings })
}

/// Asks the program what it is, and tries whether jobs can be isolated here with it, at once. The caller holds the lock
/// of the state folder.
///
/// # Errors
/// As [`runner::ask`], and [`StartError::NotIsolated`].
pub async fn judge_host(
    (local, settings): (&LocalJobs, &Runner),
    program: PathBuf,
    state: &Path,
    patience: Duration,
) -> Result<(Found, Proven), StartError> {
    let (found, walls) =
        tokio::join!(runner::ask(program.clone(), patience), walls::prove(local, settings, &program, state));
    // What is no runner cannot be started behind walls either.
    Ok((found?, walls.map_err(StartError::NotIsolated)?))
}

fn state_of(args: &StandaloneArgs, here: &Surroundings) -> Result<PathBuf, StartError> {
    match &args.state {
        Some(path) => std::path::absolute(path).map_err(|error| unusable(path, &error)),
        None => here.state_folder(),
    }
}

impl Checked {
    async fn judge_host(&mut self) -> Result<(Found, Proven), StartError> {
        let (mut local, settings) = local_jobs(&self.raw).map_err(StartError::Settings)?;
        local.secrets.extend(self.token_file.take());
        let Some(found) = self.runner.take() else {
            return judge_host((&local, &settings), self.program.clone(), &self.state, self.runner_patience).await;
        };
        let walls = walls::prove(&local, &settings, &self.program, &self.state).await;
        Ok((found, walls.map_err(StartError::NotIsolated)?))
    }

    /// Registers, and writes the registration before anything else can use or lose it.
    async fn register(&self, token: &SecretFile) -> Result<Registration, StartError> {
        let file = Registration::file(&self.state);
        // Reserved before Gitea is asked: it tells UUID and token only once.
        let place = files::Reserved::new(&file).map_err(|error| unusable(&self.state, &error))?;
        let wire = Wire::new(&self.url, self.gitea_patience);
        let runner = wire.register(&self.name, token.expose(), declared(&self.raw)).await?;
        let instance = instance_of(&self.raw).unwrap_or_else(|| InstanceId::derive(self.url.as_str(), &runner.uuid));
        let registration = Registration {
            gitea: self.url.as_str().to_owned(),
            uuid: runner.uuid,
            token: Zeroizing::new(runner.token),
            name: if runner.name.is_empty() { self.name.clone() } else { runner.name },
            id: runner.id,
            trust_domain: self.trust_domain.clone().unwrap_or_else(|| default_trust_domain(&instance)),
            instance: Some(instance.to_string()),
        };
        registration.write(place).map_err(|error| unusable(&file, &error))?;
        self.set_authority_aside(&registration)?;
        Ok(registration)
    }

    /// A folder that lost its registration has an authority of another trust domain: that one is kept under another
    /// name, and the new registration gets its own.
    fn set_authority_aside(&self, registration: &Registration) -> Result<(), StartError> {
        let authority = self.state.join("keys").join("ca.json");
        if self.trust_domain.is_some() || !authority.exists() {
            return Ok(());
        }
        let kept = authority.with_file_name(format!("ca.json.before-{}", registration.id));
        std::fs::rename(&authority, kept).map_err(|error| unusable(&authority, &error))
    }
}

/// The identity sockets of executors lie deep in the state folder, and a socket's address holds 107 bytes. Known before
/// anything is registered: an instance that Gitea's answer will name has 8 characters.
fn short_enough(state: &Path, instance: Option<&InstanceId>) -> Result<(), StartError> {
    let instance = instance.map_or("12345678", InstanceId::as_str);
    let length = state.as_os_str().len() + format!("/executors/gitea-task-9999999999-{instance}-e99/api/id").len();
    if length <= 107 {
        return Ok(());
    }
    let cause = format!("its path is {} bytes too long for the sockets below it; name a shorter one", length - 107);
    Err(StartError::State { path: state.to_owned(), cause })
}

fn instance_of(raw: &Raw) -> Option<InstanceId> {
    raw.value(&table::INSTANCE_ID)
}

fn unusable(path: &Path, error: &std::io::Error) -> StartError {
    StartError::State { path: path.to_owned(), cause: crate::config::secret::plain(error) }
}

/// The folder belongs to one Gitea, one instance and one trust domain for good: running jobs, their names and their
/// identities hang on them.
fn same_world(known: &Registration, state: &Path, url: &GiteaUrl, raw: &Raw) -> Result<(), StartError> {
    if known.gitea != url.as_str() {
        let (registered, asked) = (known.gitea.clone(), url.to_string());
        return Err(StartError::OtherGitea { state: state.to_owned(), registered, asked });
    }
    let other = |name, made: &str| raw.get(name).filter(|(asked, _)| *asked != made).map(|(asked, _)| asked.to_owned());
    if let Some((made, asked)) = known.instance.as_ref().and_then(|made| Some((made, other("INSTANCE_ID", made)?))) {
        return Err(StartError::OtherInstance { state: state.to_owned(), made: made.clone(), asked });
    }
    match other("TRUST_DOMAIN", &known.trust_domain) {
        Some(asked) => {
            Err(StartError::OtherTrustDomain { state: state.to_owned(), made: known.trust_domain.clone(), asked })
        }
        None => Ok(()),
    }
}

fn token_file(args: &StandaloneArgs) -> Result<SecretFile, StartError> {
    let path = args.registration_token_file.as_ref().ok_or(StartError::TokenFileNeeded)?;
    SecretFile::read(path, SecretRule::Text).map_err(|problem| StartError::TokenFile {
        path: path.clone(),
        cause: match problem {
            setting::Problem::Breaks => "it is not accepted".into(),
            setting::Problem::Invalid(why) | setting::Problem::Unreadable(why) => why,
        },
    })
}

/// `<instance>.gdr.internal`: `internal` is reserved for private use, so no other trust domain has that name, and it
/// stays the same for the life of the registration.
#[must_use]
pub fn default_trust_domain(instance: &InstanceId) -> String {
    format!("{instance}.gdr.internal")
}
