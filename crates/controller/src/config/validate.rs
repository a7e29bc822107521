//! The second stage: texts to a [`Config`], or every error at once (CFG-2).

mod nats;
mod pods;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use domain::id::{Backend, InstanceId};
use domain::identity::IdentityRules;
use domain::policy::TrustPolicy;

use super::raw::Raw;
use super::setting::{Need, Row, Setting, Shown};
use super::table::{self, ROWS};
use super::{
    Capacity, Component, Components, Config, ConfigErrors, Election, Facade, Gitea, Identity, Issuer, Keys, Labels,
    Limits, LocalJobs, Log, Ops, Queue, QueueKind, Runner, SecretFile, SettingError,
};

/// What one-host mode knows without a setting.
#[derive(Default)]
pub struct Supplied {
    /// UUID and token of the registration it keeps itself.
    pub registration: Option<(SecretFile, SecretFile)>,
}

/// Validates everything that the selection looks at, and builds the configuration.
///
/// # Errors
/// Every error there is, in the order of the table. Nothing was opened but the files that hold secrets.
pub fn validate(raw: &Raw, supplied: Supplied) -> Result<Config, ConfigErrors> {
    let reader = Reader { raw, read: RefCell::default(), errors: RefCell::new(raw.errors.clone()) };
    let config = reader.config(supplied);
    reader.rest();
    let mut errors = reader.errors.into_inner();
    errors.sort_by_key(|error| ROWS.iter().position(|row| row.name == error.name));
    // A setting that two fields read is wrong once.
    errors.dedup();
    match config {
        Some(config) if errors.is_empty() => Ok(config),
        _ => Err(ConfigErrors(errors)),
    }
}

/// Judges what somebody gave, without asking what is missing: for a start that still has to make the rest.
///
/// # Errors
/// Every wrong value, and what was wrong with file and flags.
pub fn check_given(raw: &Raw) -> Result<(), ConfigErrors> {
    let reader = Reader { raw, read: RefCell::default(), errors: RefCell::new(raw.errors.clone()) };
    for row in ROWS.iter().filter(|row| raw.looks_at(row.when)) {
        if let Some((text, _)) = raw.get(row.name)
            && let Err(problem) = (row.check)(text)
        {
            reader.error(SettingError::of(row.name, row.rule, row.shown, text, problem));
        }
    }
    let errors = reader.errors.into_inner();
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors(errors)) }
}

/// What isolates jobs, and the runner they start: known before there is a registration.
///
/// # Errors
/// What is wrong with these settings.
pub fn local_jobs(raw: &Raw) -> Result<(LocalJobs, Runner), ConfigErrors> {
    let reader = Reader { raw, read: RefCell::default(), errors: RefCell::default() };
    let found = reader.local().zip(reader.runner());
    let errors = reader.errors.into_inner();
    found.filter(|_| errors.is_empty()).ok_or(ConfigErrors(errors))
}

/// Reads settings through their rows and keeps every error.
struct Reader<'a> {
    raw: &'a Raw,
    read: RefCell<BTreeSet<&'static str>>,
    errors: RefCell<Vec<SettingError>>,
}

impl Reader<'_> {
    fn error(&self, error: SettingError) {
        self.errors.borrow_mut().push(error);
    }

    /// The value; none when it is missing or wrong. A missing one is an error when its row says so.
    fn get<T>(&self, setting: &Setting<T>) -> Option<T> {
        let row = table::row(setting.name)?;
        self.read.borrow_mut().insert(setting.name);
        let Some((text, _)) = self.raw.get(setting.name) else {
            if row.need == Need::Required && self.raw.looks_at(row.when) {
                self.error(SettingError::missing(row.name, row.rule));
            }
            return None;
        };
        match (setting.parse)(text) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.error(SettingError::of(row.name, row.rule, row.shown, text, problem));
                None
            }
        }
    }

    /// An optional value: the outer none is an error that is already kept.
    #[expect(clippy::option_option, reason = "absent and wrong are two things")]
    fn optional<T>(&self, setting: &Setting<T>) -> Option<Option<T>> {
        let given = self.raw.get(setting.name).is_some();
        match self.get(setting) {
            None if given => None,
            value => Some(value),
        }
    }

    fn config(&self, supplied: Supplied) -> Option<Config> {
        // Everything is read before the first `?`, so that one error does not hide another.
        let components = self.components();
        let (state_dir, gitea, facade) = (self.state_dir(components.as_ref()), self.gitea(supplied), self.facade());
        let envelope = self.keys(&table::ENVELOPE_KEY_FILE, &table::ENVELOPE_KEY_PREVIOUS_FILE);
        let (labels, capacity, limits) = (self.labels(components.as_ref()), self.capacity(), self.limits());
        let identity = self.identity(state_dir.as_deref());
        let (instance, ops) = (self.optional(&table::INSTANCE_ID), self.get(&table::OPS_LISTEN));
        let (format, level) = (self.get(&table::LOG_FORMAT), self.get(&table::LOG_LEVEL));
        let (local, runner) = (self.local(), self.runner());
        let queue = self.queue();
        let pods = self.pods(components.as_ref());
        let election = self.election(components.as_ref());
        self.issuer(components.as_ref());
        self.orphan_scan();
        if let (Some(gitea), Some(limits)) = (&gitea, &limits) {
            self.cancel_before_zombie(gitea, limits);
        }
        let (gitea, state_dir, queue, election) = (gitea?, state_dir?, queue?, election?);
        let elsewhere = matches!(queue, Queue::JetStream(_)) && election == Election::Kubernetes;
        Some(Config {
            keeps_files: !elsewhere || self.raw.get(table::STATE_DIR.name).is_some(),
            components: components?,
            instance: instance?.unwrap_or_else(|| InstanceId::derive(gitea.url.as_str(), gitea.uuid.expose())),
            gitea,
            identity: identity?,
            facade: facade?,
            queue,
            envelope: envelope?,
            labels: labels?,
            capacity: capacity?,
            limits: limits?,
            runner: runner?,
            local: local?,
            pods: pods?,
            election,
            ops: Ops { listen: ops?, address_file: state_dir.join("ops.addr") },
            log: Log { format: format?, level: level? },
            allow_plaintext: self.get(&table::ALLOW_PLAINTEXT)?,
            state_dir,
        })
    }

    /// Where what this host keeps is; a process that only makes Pods keeps nothing that it could not do without.
    fn state_dir(&self, components: Option<&Components>) -> Option<PathBuf> {
        let pods_only = components.is_some_and(|c| c.has(Component::PodWorker) && !c.has(Component::LocalWorker));
        match self.get(&table::STATE_DIR) {
            None if pods_only && self.raw.get(table::STATE_DIR.name).is_none() => {
                if self.get(&table::QUEUE) == Some(QueueKind::Embedded) {
                    self.error(SettingError::missing(
                        "STATE_DIR",
                        "an absolute path, since QUEUE=embedded keeps tasks there",
                    ));
                }
                Some(std::env::temp_dir().join("gitea-dynamic-runner"))
            }
            given => given,
        }
    }

    fn components(&self) -> Option<Components> {
        let components = self.get(&table::COMPONENTS)?;
        if components.has(Component::VmWorker) {
            self.error(SettingError::new(
                "COMPONENTS",
                "COMPONENTS: this build serves pod-worker and local-worker; vm-worker cannot run yet",
                "set COMPONENTS=scheduler,pod-worker or COMPONENTS=scheduler,local-worker",
            ));
        } else if components.backends().count() > 1 {
            self.error(SettingError::new(
                "COMPONENTS",
                "COMPONENTS: this build serves one backend in a process, and pod-worker and local-worker are two",
                "take one of them out; a second controller with a registration of its own can serve the other",
            ));
        }
        Some(components)
    }

    /// Executors of this host get theirs from us; Pods cannot reach a socket of ours.
    fn issuer(&self, components: Option<&Components>) {
        let Some((issuer, components)) = self.get(&table::IDENTITY_ISSUER).zip(components) else { return };
        if issuer == Issuer::WorkloadApi && components.has(Component::LocalWorker) {
            self.error(SettingError::new(
                "IDENTITY_ISSUER",
                "IDENTITY_ISSUER: local executors get no identity from workload-api yet",
                "set IDENTITY_ISSUER=built-in",
            ));
        }
        if issuer == Issuer::BuiltIn && components.has(Component::PodWorker) {
            self.error(SettingError::new(
                "IDENTITY_ISSUER",
                "IDENTITY_ISSUER: built-in issues on this host only, and Pods run elsewhere",
                "set IDENTITY_ISSUER=workload-api and SPIFFE_ENDPOINT_SOCKET",
            ));
        }
    }

    /// Its only use is not there yet: taking a token that does nothing would promise what nobody keeps (NEW-17).
    fn orphan_scan(&self) {
        if self.raw.get(table::GITEA_API_TOKEN_FILE.name).is_some() {
            self.error(SettingError::new(
                "GITEA_API_TOKEN_FILE",
                "GITEA_API_TOKEN_FILE: this build has no scan for orphaned jobs, and nothing else uses the token",
                "take it out",
            ));
        }
    }

    /// A cancelled job is ended by us before Gitea would judge it by its silence (NEW-167).
    fn cancel_before_zombie(&self, gitea: &Gitea, limits: &Limits) {
        let zombie = gitea.zombie_task_timeout;
        if let Some(grace) = limits.cancel_grace.filter(|grace| *grace >= zombie) {
            self.error(SettingError::new(
                "CANCEL_GRACE",
                format!(
                    "CANCEL_GRACE: {} s are not below GITEA_ZOMBIE_TASK_TIMEOUT, {} s",
                    grace.as_secs(),
                    zombie.as_secs()
                ),
                "set it lower, or both settings and the Gitea server's ZOMBIE_TASK_TIMEOUT higher",
            ));
        }
    }

    fn gitea(&self, supplied: Supplied) -> Option<Gitea> {
        let url = self.get(&table::GITEA_INSTANCE_URL);
        let plaintext = self.get(&table::ALLOW_PLAINTEXT);
        if let Some(url) = url.as_ref().filter(|url| url.is_exposed() && plaintext == Some(false)) {
            self.error(SettingError::new(
                "GITEA_INSTANCE_URL",
                format!("GITEA_INSTANCE_URL: {url} would carry tokens and secrets in clear text"),
                "use https, or set ALLOW_PLAINTEXT=true if the network is yours alone",
            ));
        }
        let (uuid, token) = match supplied.registration {
            Some((uuid, token)) => {
                self.read
                    .borrow_mut()
                    .extend([table::GITEA_RUNNER_UUID_FILE.name, table::GITEA_RUNNER_TOKEN_FILE.name]);
                (Some(uuid), Some(token))
            }
            None => (self.get(&table::GITEA_RUNNER_UUID_FILE), self.get(&table::GITEA_RUNNER_TOKEN_FILE)),
        };
        let (endless, zombie) =
            (self.get(&table::GITEA_ENDLESS_TASK_TIMEOUT), self.get(&table::GITEA_ZOMBIE_TASK_TIMEOUT));
        Some(Gitea {
            url: url?,
            uuid: uuid?,
            token: token?,
            endless_task_timeout: endless?,
            zombie_task_timeout: zombie?,
        })
    }

    fn identity(&self, state_dir: Option<&std::path::Path>) -> Option<Identity> {
        let authority = state_dir.map(|dir| dir.join("keys"));
        let (trust_domain, facade_id) = (self.get(&table::TRUST_DOMAIN), self.get(&table::RUNNER_FACADE_SPIFFE_ID));
        let (prefix, case) = (self.optional(&table::IDENTITY_PREFIX), self.get(&table::IDENTITY_CASE));
        let (trust, svid_ttl) = (self.trust(), self.get(&table::SVID_TTL));
        let (trust_domain, facade_id) = (trust_domain?, facade_id?);
        if facade_id.trust_domain() != trust_domain.as_str() {
            self.error(SettingError::new(
                "RUNNER_FACADE_SPIFFE_ID",
                format!("RUNNER_FACADE_SPIFFE_ID: {facade_id} is not inside TRUST_DOMAIN {trust_domain}"),
                "set both to the same trust domain",
            ));
        }
        let rules = IdentityRules { trust_domain, prefix: prefix?, case: case? };
        Some(Identity { rules, authority: authority?, facade_id, trust: trust?, svid_ttl: svid_ttl? })
    }

    fn trust(&self) -> Option<TrustPolicy> {
        let (trusted_events, untrusted) = (self.get(&table::TRUSTED_EVENTS), self.get(&table::UNTRUSTED_POLICY));
        let untrusted_backends = self.optional(&table::UNTRUSTED_BACKENDS);
        let repositories = self.optional(&table::TRUST_POLICY_FILE);
        Some(TrustPolicy {
            trusted_events: trusted_events?,
            untrusted: untrusted?,
            untrusted_backends: untrusted_backends?,
            repositories: repositories?.unwrap_or_default(),
        })
    }

    fn facade(&self) -> Option<Facade> {
        let (url, listen) = (self.get(&table::RUNNER_FACADE_URL), self.get(&table::RUNNER_FACADE_LISTEN));
        let capability =
            self.keys(&table::RUNNER_FACADE_CAPABILITY_KEY_FILE, &table::RUNNER_FACADE_CAPABILITY_KEY_PREVIOUS_FILE);
        let paths = self.optional(&table::PROXY_PATHS_FILE).map(Option::unwrap_or_default);
        Some(Facade { url: url?, listen: listen?, capability: capability?, paths: paths? })
    }

    fn keys(&self, current: &Setting<SecretFile>, previous: &Setting<SecretFile>) -> Option<Keys> {
        let (current, previous) = (self.get(current), self.optional(previous));
        Some(Keys { current: current?, previous: previous? })
    }

    fn labels(&self, components: Option<&Components>) -> Option<Labels> {
        let default_backend = self.get(&table::DEFAULT_BACKEND);
        let declare_self_hosted = self.get(&table::DECLARE_SELF_HOSTED);
        let extra = self.optional(&table::EXTRA_LABELS).map(Option::unwrap_or_default);
        let named = default_backend.flatten().map(|b| ("DEFAULT_BACKEND", b));
        let named = named.into_iter().chain(extra.iter().flatten().map(|(_, b)| ("EXTRA_LABELS", *b)));
        if let Some(components) = components {
            named.for_each(|(name, backend)| self.enabled(name, backend, components));
        }
        Some(Labels { default_backend: default_backend?, declare_self_hosted: declare_self_hosted?, extra: extra? })
    }

    fn enabled(&self, name: &str, backend: Backend, components: &Components) {
        if !components.backends().any(|enabled| enabled == backend) {
            self.error(SettingError::new(
                name,
                format!("{name}: backend {backend} is named but its worker is not selected"),
                format!("add {backend}-worker to COMPONENTS, or take {backend} out"),
            ));
        }
    }

    fn capacity(&self) -> Option<Capacity> {
        let (local, look_ahead) = (self.get(&table::LOCAL_CAPACITY), self.get(&table::LOOK_AHEAD));
        let (per_owner, per_repository) = (self.optional(&table::OWNER_LIMIT), self.optional(&table::REPOSITORY_LIMIT));
        Some(Capacity {
            local: local?,
            look_ahead: look_ahead?,
            per_owner: per_owner?,
            per_repository: per_repository?,
        })
    }

    fn local(&self) -> Option<LocalJobs> {
        let (isolation, processes) = (self.get(&table::LOCAL_ISOLATION), self.get(&table::LOCAL_PROCESSES));
        let (users, shared) = (self.get(&table::LOCAL_USERS), self.optional(&table::LOCAL_SHARED));
        let secrets = ROWS.iter().filter(|row| row.shown == Shown::SecretFile);
        let secrets = secrets.filter_map(|row| Some(self.raw.get(row.name)?.0.into())).collect();
        let (users, capacity) = (users?, self.get(&table::LOCAL_CAPACITY)?.get());
        if u32::try_from(users.clone().count()).is_ok_and(|count| count < capacity) {
            self.error(SettingError::new(
                "LOCAL_USERS",
                format!("LOCAL_USERS: fewer users than LOCAL_CAPACITY={capacity} jobs"),
                "name at least as many",
            ));
        }
        let shared = shared?.unwrap_or_default();
        for missing in shared.iter().filter(|shared| matches!(shared.path.try_exists(), Ok(false))) {
            self.error(SettingError::new(
                "LOCAL_SHARED",
                format!("LOCAL_SHARED: there is no {}", missing.path.display()),
                "make it first, or take it out",
            ));
        }
        Some(LocalJobs {
            isolation: isolation?,
            users,
            processes: processes?,
            shared,
            home: self.raw.home.clone(),
            secrets,
        })
    }

    fn runner(&self) -> Option<Runner> {
        let (binary, config) = (self.optional(&table::GITEA_RUNNER_BINARY), self.optional(&table::GITEA_RUNNER_CONFIG));
        Some(Runner { binary: binary?, config: config?, environment: self.raw.inherited.clone() })
    }

    fn limits(&self) -> Option<Limits> {
        let (queue_wait, claim) = (self.get(&table::QUEUE_WAIT_LIMIT), self.get(&table::CLAIM_LIMIT));
        let (run, cancel_grace) = (self.optional(&table::RUN_LIMIT), self.optional(&table::CANCEL_GRACE));
        let terminal_grace = self.get(&table::TERMINAL_GRACE);
        Some(Limits {
            queue_wait: queue_wait?,
            claim: claim?,
            run: run?,
            cancel_grace: cancel_grace?,
            terminal_grace: terminal_grace?,
        })
    }

    /// Rows that no typed field reads: settings of components that this build recognises only. They are checked all
    /// the same, so that a configuration that is wrong today is not right tomorrow.
    fn rest(&self) {
        let looked_at = |row: &&Row| !self.read.borrow().contains(row.name) && self.raw.looks_at(row.when);
        for row in ROWS.iter().filter(looked_at) {
            match self.raw.get(row.name) {
                None if row.need == Need::Required => self.error(SettingError::missing(row.name, row.rule)),
                None => {}
                Some((text, _)) => {
                    if let Err(problem) = (row.check)(text) {
                        self.error(SettingError::of(row.name, row.rule, row.shown, text, problem));
                    }
                }
            }
        }
    }
}
