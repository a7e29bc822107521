//! One run of a scene: Gitea's double behind the proxy, the real controller, and a keeper that starts it anew whenever it
//! has gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use super::keeper::{Keeper, Surroundings, Watched};
use super::wire::Proxy;
use super::{Register, Relay, Scene, judge, names};
use crate::backend::{Backend, Executors};
use crate::cluster::{Cluster, Image};
use crate::gitea::{Gitea, JobId, JobSpec, Scope, Status};
use crate::queue::{Broker, Engine, Queue};
use crate::real::{Signal, Word, workplace};
use crate::stand_in;
use crate::world::{Desk, Programs};

/// For what takes a moment, several runs at a time on a busy machine.
const SOON: Duration = Duration::from_secs(40);

/// The same with Pods: one whose Secret was not made any more is given up after 30 s, and an entry without a Pod goes at the
/// second of two looks that are 30 s apart.
const SOON_WITH_PODS: Duration = Duration::from_secs(110);

/// Between two looks at what sends no event.
const PAUSE: Duration = Duration::from_millis(10);

/// Who plays: the double, and what the scene calls its jobs.
pub(super) struct Cast {
    pub(super) gitea: Arc<Gitea>,
    keys: Mutex<BTreeMap<JobId, &'static str>>,
}

impl Cast {
    fn keys(&self) -> MutexGuard<'_, BTreeMap<JobId, &'static str>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that a task belongs to.
    pub(super) fn job_of_task(&self, task: i64) -> &'static str {
        let job = self.gitea.job_of(task);
        job.and_then(|job| self.keys().get(&job).copied()).unwrap_or("nobody")
    }

    /// The job that Gitea hands out to somebody who sends this version.
    pub(super) fn waiting(&self, version: i64) -> Option<&'static str> {
        let keys = self.keys();
        let waits = |job: &&JobId| self.gitea.find(**job).is_some_and(|state| state.status == Status::Waiting);
        let next = keys.keys().find(waits)?;
        (version != self.gitea.tasks_version(&Scope::Global)).then(|| keys.get(next).copied())?
    }
}

/// A run that is under way.
pub(super) struct Stage {
    pub(super) cast: Arc<Cast>,
    pub(super) desk: Desk,
    pub(super) register: Arc<Register>,
    pub(super) keeper: Keeper,
    queue: Queue,
    backend: Backend,
    // After the keeper: its controllers go first.
    pub(super) executors: Executors,
    _broker: Option<Arc<Broker>>,
    dir: TempDir,
}

/// What stands on the controller's sides in a run, apart from Gitea.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// Where tasks wait.
    pub engine: Engine,
    /// Where executors are made.
    pub backend: Backend,
}

/// The queue of a run from outside, and the way to it where that is a wire.
struct Back {
    queue: Queue,
    broker: Option<Arc<Broker>>,
    relay: Option<Relay>,
    settings: Vec<String>,
}

impl Back {
    async fn open(
        engine: &Engine,
        cast: &Arc<Cast>,
        register: &Arc<Register>,
        dir: &std::path::Path,
    ) -> anyhow::Result<Self> {
        let (Some(broker), names) = engine.broker().await else {
            let queue = Queue::Embedded(dir.join("state"));
            return Ok(Self { queue, broker: None, relay: None, settings: Vec::new() });
        };
        let relay =
            Relay::start(broker.port(), names::nats::of_messages(Arc::clone(cast)), Arc::clone(register)).await?;
        let settings = broker.settings_of(&names, &relay.url(), dir)?;
        Ok(Self { queue: broker.queue(&names), broker: Some(broker), relay: Some(relay), settings })
    }
}

/// The executors of a run, and the way to them where that is a wire.
struct Front {
    executors: Executors,
    api: Option<Proxy>,
    word: Word,
    settings: Vec<String>,
}

impl Front {
    async fn open(
        backend: Backend,
        image: Image,
        cast: &Arc<Cast>,
        register: &Arc<Register>,
        dir: &std::path::Path,
    ) -> anyhow::Result<Self> {
        if backend == Backend::Local {
            let (executors, settings) = (Executors::Folders(dir.join("state")), Vec::new());
            return Ok(Self { executors, api: None, word: Word::Standalone, settings });
        }
        let cluster = Cluster::start(image, dir).await?;
        let calls = names::kubernetes::of_calls(Arc::clone(cast));
        let api = Proxy::start(cluster.kubernetes.address(), calls, Arc::clone(register)).await?;
        let settings = cluster.settings_of(&cast.gitea, &api.url(), dir)?;
        Ok(Self { executors: Executors::Pods(cluster), api: Some(api), word: Word::Controller, settings })
    }
}

impl Stage {
    pub(super) async fn set(
        programs: &Programs,
        scene: Scene,
        setting: &Setting,
        register: Arc<Register>,
        watched: Watched,
    ) -> anyhow::Result<Self> {
        if scene == Scene::Jobs {
            // The first start is part of it.
            register.open();
        }
        let cast = Arc::new(Cast { gitea: Arc::new(Gitea::start().await), keys: Mutex::default() });
        let calls = names::of_calls(Arc::clone(&cast));
        let proxy = Proxy::start(cast.gitea.address(), calls, Arc::clone(&register)).await?;
        let (desk, dir) = (Desk::open().await?, workplace(&programs.place)?);
        let (runner, own) = (dir.path().join("stand-in-runner"), std::env::current_exe()?);
        stand_in::program(&runner, &own, programs.stand_in, desk.address(), scene.runners(), stand_in::VERSION)?;
        let back = Back::open(&setting.engine, &cast, &register, dir.path()).await?;
        let image = Image { program: programs.controller.clone(), runner: runner.clone() };
        let front = Front::open(setting.backend, image, &cast, &register, dir.path()).await?;
        let arguments = scene.settings(setting.backend, &own).into_iter().chain(back.settings).chain(front.settings);
        let settings = crate::real::Settings {
            word: front.word,
            program: programs.controller.clone(),
            capacity: 1,
            labels: Vec::new(),
            arguments: arguments.flat_map(|setting| ["--set".to_owned(), setting]).collect(),
            environment: [("LOG_LEVEL".to_owned(), "debug".to_owned())].into(),
            user: None,
        };
        let around = Surroundings {
            dir: dir.path().canonicalize()?,
            register: Arc::clone(&register),
            cast: Arc::clone(&cast),
            proxy,
            api: front.api,
            executors: front.executors.clone(),
            relay: back.relay,
            queue: back.queue.clone(),
            stored: back.broker.as_ref().map(|broker| broker.stored().to_vec()).unwrap_or_default(),
            watched,
        };
        let keeper = Keeper::start(settings, around, runner).await?;
        let (queue, backend, executors) = (back.queue, setting.backend, front.executors);
        Ok(Self { cast, desk, register, keeper, queue, backend, executors, _broker: back.broker, dir })
    }

    /// Waits until the controller asks for work, and opens the register: its start is part of another scene.
    pub(super) async fn idle(&self) -> anyhow::Result<()> {
        self.until("the controller asks for work", |stage| stage.cast.gitea.counters().fetches > 0).await?;
        self.register.open();
        Ok(())
    }

    /// One push for each job.
    pub(super) fn push(&self, jobs: &[&'static str]) -> anyhow::Result<()> {
        // Nobody asks for a name before there is one.
        let mut keys = self.cast.keys();
        for key in jobs {
            let job = Scene::job(key).runs_on([self.backend.label()]).secret("PASSWORD", judge::SECRET);
            keys.insert(self.cast.gitea.push_one(job), key);
        }
        Ok(())
    }

    pub(super) fn job(&self, key: &str) -> anyhow::Result<JobId> {
        let keys = self.cast.keys();
        let found = keys.iter().find(|(_, each)| **each == key);
        found.map(|(job, _)| *job).with_context(|| format!("job {key} was not pushed"))
    }

    /// All jobs so far.
    pub(super) fn jobs(&self) -> Vec<(&'static str, JobId)> {
        self.cast.keys().iter().map(|(job, key)| (*key, *job)).collect()
    }

    /// Whether a job's runner has come to its gate.
    pub(super) fn at_gate(&self, key: &str) -> bool {
        self.desk.notes().iter().any(|note| note.verb == "gate" && note.rest == key)
    }

    /// Whether Gitea handed a job out to us.
    pub(super) fn held(&self, key: &str) -> bool {
        self.job(key).is_ok_and(|job| self.cast.gitea.state(job).task.is_some())
    }

    /// Whether a job has ended, or never will: it was handed out to a controller that died before it could keep it.
    pub(super) fn over(&self, key: &str) -> bool {
        let Ok(job) = self.job(key) else { return false };
        let state = self.cast.gitea.state(job);
        state.status.is_end() && state.archived || state.task.is_some_and(|task| self.keeper.lost().contains(&task))
    }

    fn soon(&self) -> Duration {
        match self.backend {
            Backend::Local => SOON,
            Backend::Pod => SOON_WITH_PODS,
        }
    }

    /// Waits until something is so.
    pub(super) async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + self.soon();
        while !so(self) {
            if tokio::time::Instant::now() > end {
                bail!("not within {:?}: {what}", self.soon());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Sends the controller a signal, and waits until the next one has been started. One that was struck first is
    /// followed by another in any case.
    pub(super) async fn end(&self, signal: Signal) -> anyhow::Result<()> {
        let before = self.keeper.controllers().len();
        self.keeper.end(signal).await;
        self.until("the next controller is started", |stage| stage.keeper.controllers().len() > before).await
    }

    pub(super) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// What is left of executors, their processes and messages.
    pub(super) async fn left(&self) -> Vec<String> {
        let mut left = self.executors.left();
        left.extend(self.queue.left(|task| format!("the message of {}", self.cast.job_of_task(task))));
        // To look for processes means to read all of the process table.
        if left.is_empty() {
            let processes = self.keeper.processes().await.into_iter().chain(self.executors.processes());
            left.extend(processes.map(|process| process.arguments.join(" ")));
        }
        left
    }

    /// Waits until nothing is left.
    pub(super) async fn empty(&self) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + self.soon();
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                bail!("left over after {:?}: {left:?}", self.soon());
            }
            tokio::time::sleep(PAUSE * 3).await;
        }
    }

    /// What a person needs in order to understand a failed run.
    pub(super) async fn story(&self) -> String {
        let calls = self.cast.gitea.calls();
        let about = calls.iter().filter(|call| call.task.is_some() || call.number < 8);
        let calls: Vec<String> = about
            .map(|call| {
                format!("{} {} {:?}: {} => {:?}", call.at, call.method.name(), call.task, call.summary, call.end)
            })
            .collect();
        let states: Vec<String> =
            self.jobs().iter().map(|(key, job)| format!("{key}: {:#?}", self.cast.gitea.state(*job))).collect();
        let logs = self.executors.logs().join("\n");
        let notes = self.desk.notes();
        let log = self.keeper.log().await;
        format!(
            "boundaries:\n{}\n\ncalls:\n{}\n\nrunners: {notes:#?}\n\n{}\n\n{logs}\ncontroller:\n{log}",
            self.register.met().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            calls.join("\n"),
            states.join("\n")
        )
    }
}

/// A job of stand-in words.
pub(super) fn spec(key: &str, steps: &[&str]) -> JobSpec {
    crate::world::job(key, steps)
}
