//! What happens in a run. Each scene is short, since it is played once for each of its points; together they hold
//! every kind of end.

use std::path::Path;

use super::stage::{Stage, spec};
use crate::backend::Backend;
use crate::gitea::{JobSpec, Status};
use crate::real::Signal;
use crate::stand_in::{self, Temper};

/// One scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scene {
    /// A first start; two jobs, of which one waits for the other's slot.
    Jobs,
    /// A job is cancelled while it waits, another while it runs, and a third runs afterwards.
    Cancels,
    /// An executor dies before it asked for its task and is replaced; a runner vanishes and its job ends with a reason.
    Deaths,
    /// SIGTERM while a job runs and another waits, and a new start.
    Stop,
    /// SIGKILL at the same place, and a new start: a second crash in what follows the first.
    Crash,
}

/// How a job ends where nothing prevents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    /// Its status.
    pub(super) status: Status,
    /// The rows that its steps say.
    pub(super) rows: &'static [&'static str],
}

/// The job that is pushed last, when everything else is over: it shows that no slot was lost.
pub(super) const LATER: &str = "later";

impl Scene {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Jobs, Self::Cancels, Self::Deaths, Self::Stop, Self::Crash];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Cancels => "cancels",
            Self::Deaths => "deaths",
            Self::Stop => "stop",
            Self::Crash => "crash",
        }
    }

    /// How its runners behave beyond their jobs.
    pub(super) fn runners(self) -> Temper {
        match self {
            Self::Deaths => Temper::DiesFirst,
            _ => Temper::Even,
        }
    }

    /// The controller's settings, `NAME=value`.
    pub(super) fn settings(self, backend: Backend, binary: &Path) -> Vec<String> {
        let shared = (backend == Backend::Local).then(|| stand_in::shown(binary));
        let set = ["LOOK_AHEAD=2", "CANCEL_GRACE=1s", "TERMINAL_GRACE=2s"].map(str::to_owned);
        set.into_iter().chain(shared).collect()
    }

    /// The jobs of all scenes, by name.
    pub(super) fn job(key: &'static str) -> JobSpec {
        let gate = format!("gate {key}");
        match key {
            "running" => spec(key, &[&format!("say {key} one\nsay {key} two\n{gate}\nsay {key} three"), "say four"]),
            "waiting" => spec(key, &["say never"]),
            "vanishing" => spec(key, &["say last words\nsleep 400\nvanish", "say never"]),
            _ => spec(key, &["say one\nsay two", "say three"]),
        }
    }

    /// What becomes of a job.
    pub(super) fn fate(self, key: &str) -> Fate {
        let (status, rows): (_, &'static [&'static str]) = match (self, key) {
            (Self::Cancels, "running") => (Status::Cancelled, &["running one", "running two"]),
            (_, "running") => (Status::Success, &["running one", "running two", "running three", "four"]),
            (_, "waiting") => (Status::Cancelled, &[]),
            (_, "vanishing") => (Status::Failure, &["last words"]),
            _ => (Status::Success, &["one", "two", "three"]),
        };
        Fate { status, rows }
    }

    /// Plays it; the last job is not part of it.
    pub(super) async fn play(self, stage: &Stage) -> anyhow::Result<()> {
        match self {
            Self::Jobs => all(stage, &["first", "second"]).await,
            Self::Cancels => {
                stage.idle().await?;
                cancels(stage).await
            }
            Self::Deaths => {
                stage.idle().await?;
                all(stage, &["replaced", "vanishing"]).await
            }
            Self::Stop => interrupted(stage, Signal::Terminate).await,
            Self::Crash => interrupted(stage, Signal::Kill).await,
        }
    }
}

async fn all(stage: &Stage, keys: &[&'static str]) -> anyhow::Result<()> {
    stage.push(keys)?;
    over(stage, keys).await
}

async fn over(stage: &Stage, keys: &[&'static str]) -> anyhow::Result<()> {
    for key in keys {
        stage.until(&format!("job {key} is over"), |stage| stage.over(key)).await?;
    }
    Ok(())
}

async fn cancels(stage: &Stage) -> anyhow::Result<()> {
    stage.push(&["running", "waiting", "third"])?;
    stage.until("the first job runs", |stage| stage.at_gate("running") || stage.over("running")).await?;
    stage.until("the second is held", |stage| stage.held("waiting")).await?;
    stage.cast.gitea.cancel(stage.job("waiting")?);
    over(stage, &["waiting"]).await?;
    stage.cast.gitea.cancel(stage.job("running")?);
    over(stage, &["running", "third"]).await
}

async fn interrupted(stage: &Stage, signal: Signal) -> anyhow::Result<()> {
    stage.push(&["running", "second"])?;
    stage.until("the first job runs", |stage| stage.at_gate("running") || stage.over("running")).await?;
    stage.until("the second is held", |stage| stage.held("second")).await?;
    stage.register.open();
    stage.end(signal).await?;
    stage.desk.open_gate("running");
    over(stage, &["running", "second"]).await
}
