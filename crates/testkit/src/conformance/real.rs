//! The real Gitea as a side that can be asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use uuid::Uuid;

use super::bench::OWNER;
use super::side::{Answer, Delivery, Observed, Service, Side};
use crate::gitea::{Action, Event, JobId, JobSpec, Scope, Status, StepView, workflow};
use crate::real::{Client, GiteaServer, Status as Stored};

/// A push shows as a run in the background.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// About two seconds when it is idle.
const BACKGROUND: Duration = Duration::from_secs(20);
/// The slack of a sweep: stored times have whole seconds, and the machine may be busy.
const SLACK: Duration = Duration::from_secs(2);

/// How fast its timeouts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As Gitea has them: hours.
    Default,
    /// Seconds, so that a question can wait for them.
    Hasty,
}

impl Pace {
    fn overrides(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Default => &[],
            Self::Hasty => &[
                ("actions.ZOMBIE_TASK_TIMEOUT", "7s"),
                ("actions.ENDLESS_TASK_TIMEOUT", "32s"),
                ("actions.ABANDONED_JOB_TIMEOUT", "12s"),
                ("cron.stop_zombie_tasks.SCHEDULE", "@every 1s"),
                ("cron.stop_endless_tasks.SCHEDULE", "@every 1s"),
                ("cron.cancel_abandoned_jobs.SCHEDULE", "@every 1s"),
            ],
        }
    }

    /// A limit of the table above, with its sweep and the slack.
    fn after(limit: u64) -> Duration {
        Duration::from_secs(limit + 1) + SLACK
    }
}

/// A Gitea of its own for the questions.
pub struct Real {
    _server: GiteaServer,
    client: Client,
    places: Mutex<BTreeMap<JobId, Place>>,
}

/// Where a job stands.
#[derive(Clone)]
struct Place {
    repository: String,
    run: i64,
}

impl Real {
    /// Starts it in `dir`: 2–6 s.
    ///
    /// # Errors
    ///
    /// It is not installed, or does not start.
    pub async fn start(dir: &Path, pace: Pace) -> anyhow::Result<Self> {
        let server = GiteaServer::start(dir, pace.overrides()).await?;
        let client = server.client();
        // Two questions that made their owner at the same time would be in each other's way.
        client.create_empty_repository(&format!("{OWNER}/first")).await?;
        Ok(Self { _server: server, client, places: Mutex::default() })
    }

    fn place(&self, job: JobId) -> anyhow::Result<Place> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&job).cloned().with_context(|| format!("job {job} was never pushed"))
    }

    fn change_places(&self, change: impl FnOnce(&mut BTreeMap<JobId, Place>)) {
        change(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn start_run(&self, jobs: &[JobSpec]) -> anyhow::Result<Vec<JobId>> {
        let repository = jobs.first().context("a job to push")?.repository_name().to_owned();
        for (name, value) in jobs.iter().flat_map(JobSpec::secret_values) {
            self.client.set_secret(&repository, name, value).await?;
        }
        for (name, value) in jobs.iter().flat_map(JobSpec::variables) {
            self.client.create_variable(&repository, name, value).await?;
        }
        // The same file twice would be no push.
        let text = format!("{}# {}\n", workflow(jobs), Uuid::new_v4());
        let commit = self.client.put_file(&repository, ".gitea/workflows/ci.yml", &text).await?;
        let runs = self.client.runs_of_commit(&repository, &commit, 1, RUN_LIMIT).await?;
        let run = runs.first().context("a run")?.id;
        let jobs: Vec<JobId> = self.client.jobs(&repository, run).await?.iter().map(|job| JobId(job.id)).collect();
        self.change_places(|places| {
            places.extend(jobs.iter().map(|job| (*job, Place { repository: repository.clone(), run })));
        });
        Ok(jobs)
    }

    async fn observe(&self, job: JobId) -> anyhow::Result<Observed> {
        let stored = self.client.job_times(job.0)?;
        let task = if stored.task_id == 0 { None } else { Some(self.client.task(stored.task_id)?) };
        let rows = match &task {
            Some(_) => self.client.log(&self.place(job)?.repository, job.0).await?.unwrap_or_default(),
            None => String::new(),
        };
        let step = |row: &crate::real::StepRow| StepView {
            status: status(row.status),
            started: moment(row.started),
            stopped: moment(row.stopped),
            log_index: row.log_index,
            log_length: row.log_length,
        };
        let recorded = self.client.deliveries(job.0)?;
        let deliveries = recorded.iter().filter_map(|(event, payload)| delivery(event, payload));
        Ok(Observed {
            status: status(stored.status),
            steps: task.iter().flat_map(|task| &task.steps).map(step).collect(),
            rows: rows.lines().map(|line| line.split_once(' ').map_or("", |(_, text)| text).to_owned()).collect(),
            stopped: moment(stored.stopped),
            deliveries: deliveries.filter(|(about, _)| *about == job.0 || *about == 0).map(|(_, each)| each).collect(),
        })
    }
}

/// The job that a recorded webhook is about, 0 for one about a run.
fn delivery(event: &str, payload: &str) -> Option<(i64, Delivery)> {
    let payload: serde_json::Value = serde_json::from_str(payload).ok()?;
    let action = match payload["action"].as_str()? {
        "queued" => Action::Queued,
        "waiting" => Action::Waiting,
        "in_progress" => Action::InProgress,
        "completed" => Action::Completed,
        _ => return None,
    };
    match event {
        "workflow_job" => {
            Some((payload["workflow_job"]["id"].as_i64()?, Delivery { event: Event::WorkflowJob, action }))
        }
        "workflow_run" => Some((0, Delivery { event: Event::WorkflowRun, action })),
        _ => None,
    }
}

fn moment(seconds: i64) -> Option<Timestamp> {
    if seconds == 0 { None } else { Timestamp::from_second(seconds).ok() }
}

fn status(stored: Stored) -> Status {
    match stored {
        Stored::Success => Status::Success,
        Stored::Failure => Status::Failure,
        Stored::Cancelled => Status::Cancelled,
        Stored::Skipped => Status::Skipped,
        Stored::Running => Status::Running,
        Stored::Blocked => Status::Blocked,
        Stored::Cancelling => Status::Cancelling,
        Stored::Waiting | Stored::Unknown => Status::Waiting,
    }
}

impl Side for Real {
    fn url(&self) -> String {
        self.client.access().url.clone()
    }

    fn create_repository<'a>(&'a self, repository: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.client.create_empty_repository(repository).await?;
            Ok(self.client.record_webhooks(repository).await?)
        })
    }

    fn rename_repository<'a>(&'a self, repository: &'a str, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.client.rename_repository(repository, name).await?;
            let owner = repository.split('/').next().unwrap_or_default();
            self.change_places(|places| {
                for place in places.values_mut().filter(|place| place.repository == repository) {
                    place.repository = format!("{owner}/{name}");
                }
            });
            Ok(())
        })
    }

    fn delete_repository<'a>(&'a self, repository: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.client.delete_repository(repository).await?) })
    }

    fn registration_token<'a>(&'a self, scope: &'a Scope) -> Answer<'a, String> {
        Box::pin(async move {
            Ok(match scope {
                Scope::Global => self.client.registration_token().await?,
                Scope::Owner(owner) => self.client.registration_token_of(&format!("orgs/{owner}")).await?,
                Scope::Repository(name) => self.client.registration_token_of(&format!("repos/{name}")).await?,
            })
        })
    }

    fn push(&self, jobs: Vec<JobSpec>) -> Answer<'_, Vec<JobId>> {
        Box::pin(async move { self.start_run(&jobs).await })
    }

    fn cancel(&self, job: JobId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Place { repository, run } = self.place(job)?;
            Ok(self.client.cancel(&repository, run).await?)
        })
    }

    fn rerun(&self, job: JobId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Place { repository, run } = self.place(job)?;
            Ok(self.client.rerun(&repository, run).await?)
        })
    }

    fn delete_run(&self, job: JobId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Place { repository, run } = self.place(job)?;
            Ok(self.client.delete_run(&repository, run).await?)
        })
    }

    fn set_service<'a>(&'a self, uuid: &'a str, service: Service) -> Answer<'a, ()> {
        Box::pin(async move {
            let id = self.client.runner_id(uuid)?;
            match service {
                Service::On => self.client.enable_runner(id).await?,
                Service::Off => self.client.disable_runner(id).await?,
            }
            Ok(())
        })
    }

    fn delete_runner<'a>(&'a self, uuid: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.client.delete_runner(self.client.runner_id(uuid)?).await?) })
    }

    fn look(&self, job: JobId) -> Answer<'_, Observed> {
        Box::pin(self.observe(job))
    }

    fn background(&self) -> Duration {
        BACKGROUND
    }

    fn let_pass(&self, time: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            // This waits for nothing but the time itself, which is what the question is about.
            tokio::time::sleep(time).await;
            Ok(())
        })
    }

    fn zombie_after(&self) -> Duration {
        Pace::after(7)
    }

    fn endless_after(&self) -> Duration {
        Pace::after(32)
    }

    fn abandoned_after(&self) -> Duration {
        Pace::after(12)
    }
}
