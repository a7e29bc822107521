//! Secrets that are replaced while we run (NEW-140): their files are looked at again and again, and a new content takes
//! effect without a restart; so do the authorities that Gitea's certificate is judged by.
//!
//! Invariant: a content that cannot be used changes nothing; it is told once, and the old one stays. A new key never
//! disturbs what the one before it made: that one is accepted as the previous key, whichever of the two files is
//! written first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use domain::capability::{Key, KeyRing};
use tokio_util::sync::CancellationToken;

use crate::config::setting::Problem;
use crate::config::{self, Keys, Nats, SecretFile};
use crate::gitea::{AUTHORITIES, Gitea, read_authorities_again};
use crate::nats::{Connection, Connections, Password};
use crate::ops::metrics::Metrics;
use crate::telemetry::Secrets;

/// The pause between two looks. Files are compared by their content: a mounted secret is often a chain of links.
const PAUSE: Duration = Duration::from_secs(2);

/// The host's authorities are many, and looked at only with every so many-th look.
const LOOKS: u32 = 30;

/// For the look before anything is done with secrets: these are some small files.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// A key ring whose keys can be replaced.
pub struct Ring(RwLock<Arc<KeyRing>>);

impl Ring {
    /// The ring of these files.
    ///
    /// # Errors
    /// A file holds no key.
    pub fn new(keys: &Keys) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(Arc::new(ring(&keys.current, keys.previous.as_ref())?))))
    }

    /// The keys as they are now.
    #[must_use]
    pub fn now(&self) -> Arc<KeyRing> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn ring(current: &SecretFile, previous: Option<&SecretFile>) -> anyhow::Result<KeyRing> {
    let key = |file: &SecretFile| {
        Key::new(file.expose().as_bytes()).with_context(|| format!("key file {}", file.path().display()))
    };
    Ok(KeyRing::new(key(current)?, previous.map(key).transpose()?))
}

/// A secret file as it was last read.
struct Watched {
    setting: &'static str,
    used: SecretFile,
    /// What is wrong with its present content, once it was told.
    told: Option<Problem>,
}

impl Watched {
    fn new(setting: &'static str, file: &SecretFile) -> Self {
        Self { setting, used: file.clone(), told: None }
    }

    /// Reads the file again; returns the former secret when there is a new one.
    fn look(&mut self, secrets: &Secrets) -> Option<SecretFile> {
        match self.used.reread()? {
            Ok(same) if same.expose() == self.used.expose() => {
                self.told = None;
                None
            }
            Ok(new) => {
                self.told = None;
                secrets.add(new.expose());
                tracing::info!(
                    component = "config",
                    setting = self.setting,
                    "a secret file changed and is used from now on"
                );
                Some(std::mem::replace(&mut self.used, new))
            }
            Err(problem) => {
                if self.told.as_ref() != Some(&problem) {
                    let error = config::SettingError::of_secret(self.setting, self.used.path(), problem.clone());
                    tracing::error!(
                        component = "config",
                        setting = self.setting,
                        error = %error,
                        "a secret file changed and cannot be used; the old secret stays in use"
                    );
                    self.told = Some(problem);
                }
                None
            }
        }
    }
}

/// The files of one ring.
struct RingFiles {
    ring: Arc<Ring>,
    current: Watched,
    previous: Option<Watched>,
}

impl RingFiles {
    fn look(&mut self, secrets: &Secrets) {
        let former = self.current.look(secrets);
        let previous = self.previous.as_mut().and_then(|file| file.look(secrets).map(|_| file.used.clone()));
        // Before its own file says so, the former key is the previous one.
        let Some(accepted) = previous.or(former) else { return };
        // Both texts obeyed the rule of keys when they were read.
        if let Ok(ring) = ring(&self.current.used, Some(&accepted)) {
            *self.ring.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        }
    }
}

/// The file of a password of NATS: a connection that stands is not touched, the next one uses the new content.
struct PasswordFile {
    password: Arc<Password>,
    file: Watched,
}

impl PasswordFile {
    fn look(&mut self, secrets: &Secrets) {
        if self.file.look(secrets).is_some() {
            self.password.replace(self.file.used.expose());
        }
    }
}

/// The files of the passwords of NATS. Whoever waits for its turn looks at them too: a server that has been given new
/// passwords lets nobody in with those of before, and without NATS no turn ever comes. Clones share what they know.
#[derive(Clone, Default)]
pub struct Passwords(Arc<Mutex<Vec<PasswordFile>>>);

impl Passwords {
    /// Of connections that were opened with these settings.
    #[must_use]
    pub fn new(connections: &Connections, nats: &Nats) -> Self {
        let file = |connection: &Connection| {
            let [_, setting] = connection.role().settings();
            let file = Watched::new(setting, &connection.role().login(nats).password);
            PasswordFile { password: Arc::clone(connection.password()), file }
        };
        Self(Arc::new(Mutex::new(vec![file(&connections.producer), file(&connections.worker)])))
    }

    /// Looks for as long as it is polled. A file system that hangs holds up nothing but the next look.
    pub async fn watch(&self, secrets: &Secrets, metrics: &Metrics) {
        loop {
            tokio::time::sleep(PAUSE).await;
            let (this, secrets, metrics) = (self.clone(), secrets.clone(), metrics.clone());
            let look = tokio::task::spawn_blocking(move || {
                this.look(&secrets);
                metrics.secrets(this.files());
            });
            // A look that panicked leaves files whose next look is as good.
            let _ended = look.await;
        }
    }

    fn look(&self, secrets: &Secrets) {
        self.lock().iter_mut().for_each(|file| file.look(secrets));
    }

    /// Whether each of them cannot be used now.
    fn files(&self) -> Vec<(&'static str, bool)> {
        self.lock().iter().map(|PasswordFile { file, .. }| (file.setting, file.told.is_some())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PasswordFile>> {
        // A panic in a look leaves a file that was looked at or one that was not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that is looked at.
pub struct Rotation {
    rings: Vec<RingFiles>,
    passwords: Passwords,
    gitea: Arc<Gitea>,
    token: Watched,
    authorities: AuthorityFiles,
    secrets: Secrets,
    metrics: Metrics,
}

/// What the servers on the way to Gitea are judged by.
struct AuthorityFiles {
    read_again: fn() -> bool,
    looks: u32,
    usable: bool,
}

impl AuthorityFiles {
    fn look(&mut self) {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS) {
            return;
        }
        let usable = (self.read_again)();
        if self.usable && !usable {
            tracing::error!(
                component = "config",
                setting = AUTHORITIES,
                "the host's certificate authorities cannot be read any more; those of before stay in use"
            );
        }
        self.usable = usable;
    }
}

impl Rotation {
    /// Looks at the token of our registration; secrets are told to `secrets` before they are used, and what cannot be used
    /// to `metrics`.
    #[must_use]
    pub fn new(gitea: Arc<Gitea>, token: &SecretFile, secrets: Secrets, metrics: Metrics) -> Self {
        Self {
            rings: Vec::new(),
            passwords: Passwords::default(),
            gitea,
            token: Watched::new(config::table::GITEA_RUNNER_TOKEN_FILE.name, token),
            authorities: AuthorityFiles { read_again: read_authorities_again, looks: 0, usable: true },
            secrets,
            metrics,
        }
    }

    /// And at the files of a ring, whose settings are called so.
    #[must_use]
    pub fn with_ring(mut self, ring: &Arc<Ring>, keys: &Keys, [current, previous]: [&'static str; 2]) -> Self {
        let previous = keys.previous.as_ref().map(|file| Watched::new(previous, file));
        self.rings.push(RingFiles { ring: Arc::clone(ring), current: Watched::new(current, &keys.current), previous });
        self
    }

    /// And at the passwords of NATS.
    #[must_use]
    pub fn with_passwords(self, passwords: Passwords) -> Self {
        Self { passwords, ..self }
    }

    /// Has looked once: the settings may be days old, since a replica reads them before it waits for its turn.
    ///
    /// # Errors
    /// The file system does not answer within 10 s.
    pub async fn looked(mut self) -> anyhow::Result<Self> {
        let look = tokio::task::spawn_blocking(move || {
            self.look();
            self
        });
        let looked = tokio::time::timeout(FIRST_LOOK, look).await.with_context(|| {
            let seconds = FIRST_LOOK.as_secs();
            format!("the secret files (*_FILE) could not be read within {seconds} s; does their file system answer?")
        })?;
        Ok(looked?)
    }

    /// Looks until `stop`. A file system that hangs holds up nothing but the next look.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
            let look = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            tokio::select! {
                looked = look => match looked {
                    Ok(rotation) => self = rotation,
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
        }
    }

    fn look(&mut self) {
        self.rings.iter_mut().for_each(|files| files.look(&self.secrets));
        self.passwords.look(&self.secrets);
        if self.token.look(&self.secrets).is_some() {
            self.gitea.use_token(self.token.used.expose());
        }
        self.authorities.look();
        let files = self.files().map(|file| (file.setting, file.told.is_some()));
        let files = files.chain(self.passwords.files());
        self.metrics.secrets(files.chain([(AUTHORITIES, !self.authorities.usable)]));
    }

    fn files(&self) -> impl Iterator<Item = &Watched> {
        let of_rings = self.rings.iter().flat_map(|files| std::iter::once(&files.current).chain(&files.previous));
        of_rings.chain([&self.token])
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use domain::id::{AssignmentId, Epoch, InstanceId, TaskId};
    use jiff::Timestamp;

    use super::*;
    use crate::config::SecretRule;

    struct Bench {
        dir: tempfile::TempDir,
        ring: Arc<Ring>,
        files: RingFiles,
    }

    impl Bench {
        fn new(previous: Option<char>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = |name: &str, letter: char| {
                std::fs::write(dir.path().join(name), letter.to_string().repeat(32)).unwrap();
                SecretFile::read(&dir.path().join(name), SecretRule::Key).ok().unwrap()
            };
            let keys =
                Keys { current: file("current", '1'), previous: previous.map(|letter| file("previous", letter)) };
            let ring = Arc::new(Ring::new(&keys).unwrap());
            let files = RingFiles {
                ring: Arc::clone(&ring),
                current: Watched::new("CURRENT", &keys.current),
                previous: keys.previous.as_ref().map(|file| Watched::new("PREVIOUS", file)),
            };
            Self { dir, ring, files }
        }

        fn write(&mut self, name: &str, content: &str) {
            std::fs::write(self.dir.path().join(name), content).unwrap();
            self.files.look(&Secrets::default());
        }

        /// Which of the keys 1, 2, 3 is accepted, the one that signs first.
        fn accepted(&self) -> String {
            let (instance, id) = (InstanceId::derive("x", "y"), AssignmentId::of(TaskId::try_from(1).unwrap()));
            let (ring, until) = (self.ring.now(), Timestamp::from_second(1_900_000_000).unwrap());
            let issued = |letter: char| {
                let key = Key::new(letter.to_string().repeat(32).as_bytes()).unwrap();
                KeyRing::new(key, None).issue(&instance, id, Epoch::FIRST, until)
            };
            let signs = ring.issue(&instance, id, Epoch::FIRST, until);
            let mut letters: Vec<char> = ['1', '2', '3']
                .into_iter()
                .filter(|l| ring.verify(issued(*l).expose(), &instance, id).is_ok())
                .collect();
            letters.sort_by_key(|letter| issued(*letter).expose() != signs.expose());
            letters.into_iter().collect()
        }
    }

    /// NEW-140, NEW-99, T24: whichever file is written first, the key before stays accepted.
    #[test]
    fn a_new_key_leaves_the_one_before_accepted() {
        let mut bench = Bench::new(Some('3'));
        assert_eq!(bench.accepted(), "13");
        bench.write("current", &"2".repeat(32));
        assert_eq!(bench.accepted(), "21");
        bench.write("previous", &"1".repeat(32));
        assert_eq!(bench.accepted(), "21");

        let mut bench = Bench::new(Some('3'));
        bench.write("previous", &"1".repeat(32));
        bench.write("current", &"2".repeat(32));
        assert_eq!(bench.accepted(), "21");

        let mut bench = Bench::new(None);
        bench.write("current", &format!("{}\n", "2".repeat(32)));
        assert_eq!(bench.accepted(), "21");
    }

    /// NEW-140: a password is the file's newest content that can be used.
    #[test]
    fn a_new_password() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "first-password").unwrap();
        let read = SecretFile::read(&path, SecretRule::Text).ok().unwrap();
        let password = Arc::new(Password::new(read.expose()));
        let mut file = PasswordFile { password: Arc::clone(&password), file: Watched::new("PASSWORD", &read) };
        for (content, expect) in [("first-password", "first-password"), (" second\n", "second"), ("", "second")] {
            std::fs::write(&path, content).unwrap();
            file.look(&Secrets::default());
            assert_eq!(*password.now(), expect);
        }
    }

    /// NEW-140, T24: authorities are read again about every minute, whatever came of it before.
    #[test]
    fn authorities_are_looked_at() {
        for usable in [true, false] {
            let read_again = if usable { || true } else { || false };
            let mut files = AuthorityFiles { read_again, looks: 0, usable: !usable };
            (1..LOOKS).for_each(|_| files.look());
            assert_eq!(files.usable, !usable, "not yet");
            files.look();
            assert_eq!(files.usable, usable);
        }
        assert_eq!(PAUSE * LOOKS, Duration::from_secs(60));
    }

    /// NEW-140: what cannot be used changes nothing.
    #[test]
    fn a_broken_content_changes_nothing() {
        let mut bench = Bench::new(None);
        for broken in ["", "short", "\u{e4}".repeat(40).as_str()] {
            bench.write("current", broken);
            assert_eq!(bench.accepted(), "1", "{broken:?}");
        }
        std::fs::remove_file(bench.dir.path().join("current")).unwrap();
        bench.files.look(&Secrets::default());
        assert_eq!(bench.accepted(), "1");
        assert!(matches!(&bench.files.current.told, Some(Problem::Unreadable(_))));
        bench.write("current", &"2".repeat(32));
        assert_eq!(bench.accepted(), "21");
        assert_eq!(bench.files.current.told, None);
    }
}
