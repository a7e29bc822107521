//! Jobs of a world: pushed, and waited for until something is so.

use std::time::Duration;

use super::{SOON, World};
use crate::gitea::{self, Gitea, JobId, JobSpec, JobState, NotInTime, Status, StepSpec};

/// A job with these scripts of [stand-in words](crate::stand_in) as steps.
#[must_use]
pub fn job(key: &str, steps: &[&str]) -> JobSpec {
    JobSpec::new(key)
        .runs_on(["local"])
        .secret("MARKER", "marker-of-every-job-3f1c")
        .steps(steps.iter().map(|script| StepSpec::run(*script)))
}

impl World {
    /// One push; its jobs share one bump of the tasks version.
    pub fn push(&self, jobs: impl IntoIterator<Item = JobSpec>) -> Vec<JobId> {
        self.gitea.push(jobs.into_iter().collect())
    }

    /// One push of one job.
    pub fn push_one(&self, job: JobSpec) -> JobId {
        self.gitea.push_one(job)
    }

    /// Waits until a job has ended, and shows it.
    ///
    /// # Panics
    /// It does not end in time, or ends otherwise.
    pub async fn ends_as(&self, job: JobId, status: Status, limit: Duration) -> JobState {
        let ended = |gitea: &Gitea| gitea.state(job).status.is_end();
        self.check(self.gitea.wait_for(&format!("job {job} has ended"), ended, limit).await);
        let state = self.gitea.state(job);
        assert_eq!(state.status, status, "job {job} ended otherwise: {state:#?}");
        state
    }

    /// Waits until all these jobs have ended well.
    pub async fn all_succeed(&self, jobs: &[JobId], limit: Duration) {
        for job in jobs {
            self.ends_as(*job, Status::Success, limit).await;
        }
    }

    /// The task of the job's latest attempt.
    ///
    /// # Panics
    /// It was not fetched.
    #[must_use]
    pub fn task_of(&self, job: JobId) -> i64 {
        self.gitea.state(job).task.unwrap_or_else(|| panic!("job {job} was not fetched"))
    }

    /// Waits for a condition of the double.
    ///
    /// # Panics
    /// It does not come true [`SOON`].
    pub async fn gitea_shows(&self, what: &str, condition: impl Fn(&Gitea) -> bool) {
        self.check(self.gitea.wait_for(what, condition, SOON).await);
    }

    /// Waits for a condition that sends no event.
    ///
    /// # Panics
    /// It does not come true within `limit`; `condition` says why not.
    pub async fn eventually(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> Result<(), String>) {
        let end = tokio::time::Instant::now() + limit;
        while let Err(last) = condition(self) {
            assert!(tokio::time::Instant::now() < end, "{what}: not within {limit:?}; last seen: {last}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn check(&self, reached: Result<(), NotInTime>) {
        if let Err(error) = reached {
            let calls: Vec<_> = self.gitea.calls().iter().rev().take(12).map(call_in_words).collect();
            panic!("{error}\nexecutors {:?}\nlast calls, newest first: {calls:#?}", self.executors());
        }
    }
}

pub(super) fn call_in_words(call: &gitea::Call) -> String {
    format!("{} {} task {:?}: {} => {:?}", call.at, call.method.name(), call.task, call.summary, call.end)
}
