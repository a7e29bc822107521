//! A world is started: the far sides first, then the controller among them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::watch::Watch;
use super::{Desk, Plan, Programs, World, must};
use crate::backend::{Backend, Executors};
use crate::cluster::{Cluster, Image};
use crate::gitea::Gitea;
use crate::outcome;
use crate::queue::Queue;
use crate::real::{Settings, Standalone, Word, workplace};
use crate::stand_in;

impl World {
    /// Starts everything and waits until the controller has declared itself.
    ///
    /// # Panics
    /// Something cannot be started.
    pub async fn start(programs: &Programs, plan: Plan) -> Self {
        let world = Self::start_without_waiting(programs, plan, |_| {}).await;
        world.gitea_shows("the controller has declared itself", |gitea| gitea.counters().declares > 0).await;
        world
    }

    /// As [`World::start`], with `prepare` before the controller starts, and without waiting for its Declare.
    ///
    /// # Panics
    /// Something cannot be started.
    pub async fn start_without_waiting(programs: &Programs, plan: Plan, prepare: impl FnOnce(&Gitea)) -> Self {
        let gitea = Arc::new(Gitea::start_with(plan.rules.clone(), plan.gitea.clone()).await);
        prepare(&gitea);
        let desk = Arc::new(must(Desk::open().await, "a desk"));
        let dir = must(workplace(&programs.place), "a folder");
        let runner = runner(programs, &plan, &desk, dir.path());
        let (broker, names) = plan.engine.broker().await;
        let of_queue =
            broker.as_ref().map(|broker| must(broker.settings_of(&names, broker.url(), dir.path()), "passwords"));
        let (cluster, of_backend) = backend(programs, &plan, &runner, &gitea, dir.path()).await;
        let capacity = usize::try_from(plan.capacity).unwrap_or(usize::MAX);
        let settings = settings(programs, plan, of_queue.into_iter().flatten().chain(of_backend));
        let token = gitea.registration_token();
        let controller = Standalone::start_with_runner(settings, &gitea.url(), dir.path(), &token, runner);
        let controller = must(controller, "the controller");
        let queue = broker.as_ref().map_or_else(|| Queue::Embedded(controller.state()), |broker| broker.queue(&names));
        let executors = cluster.map_or_else(|| Executors::Folders(controller.state()), Executors::Pods);
        let watch = Watch::start(executors.clone(), queue.clone(), capacity, accounted(&gitea, &desk));
        Self {
            gitea,
            desk,
            controller,
            queue,
            broker,
            executors,
            watch,
            controllers: vec![outcome::Controller::started()],
            stand_in: programs.stand_in,
            allowances: Vec::new(),
            remembered: Vec::new(),
            exposed: Vec::new(),
            finished: false,
            dir,
        }
    }
}

/// The file of the stand-in for the official runner.
fn runner(programs: &Programs, plan: &Plan, desk: &Desk, dir: &Path) -> PathBuf {
    let (runner, binary) = (dir.join("stand-in-runner"), this_program());
    let version = plan.runner_version.unwrap_or(stand_in::VERSION);
    let written = stand_in::program(&runner, &binary, programs.stand_in, desk.address(), plan.temper, version);
    must(written, "the stand-in");
    runner
}

/// Where executors are made: the cluster that it needs, and the settings for it.
async fn backend(
    programs: &Programs,
    plan: &Plan,
    runner: &Path,
    gitea: &Gitea,
    dir: &Path,
) -> (Option<Arc<Cluster>>, Vec<String>) {
    match plan.backend {
        Backend::Local => (None, vec![stand_in::shown(&this_program())]),
        Backend::Pod => {
            let image = Image { program: programs.controller.clone(), runner: runner.to_owned() };
            let cluster = must(Cluster::start(image, dir).await, "a cluster");
            let settings = cluster.settings_of(gitea, &cluster.kubernetes.url(), dir);
            (Some(cluster), must(settings, "settings for Pods"))
        }
    }
}

/// How the controller is started; `of_others` are the settings about queue and backend.
fn settings(programs: &Programs, plan: Plan, of_others: impl Iterator<Item = String>) -> Settings {
    let set = plan.settings.iter().map(|(name, value)| format!("{name}={value}"));
    let set = set.chain(of_others).flat_map(|setting| ["--set".to_owned(), setting]);
    let environment = plan.environment.into_iter().chain([("LOG_LEVEL", "debug")]);
    Settings {
        word: match plan.backend {
            Backend::Local => Word::Standalone,
            Backend::Pod => Word::Controller,
        },
        program: programs.controller.clone(),
        capacity: plan.capacity,
        labels: plan.labels,
        arguments: set.collect(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        user: None,
    }
}

/// Whether a runner has a task or Gitea accepted its end.
fn accounted(gitea: &Arc<Gitea>, desk: &Arc<Desk>) -> impl Fn(i64) -> bool + Send + 'static {
    let (gitea, desk) = (Arc::clone(gitea), Arc::clone(desk));
    move |task| {
        let ended = gitea.job_of(task).is_none_or(|job| gitea.state(job).status.is_end());
        ended || !desk.told(task, "task").is_empty()
    }
}

fn this_program() -> PathBuf {
    must(std::env::current_exe(), "this program")
}
