//! Runs, jobs, logs, secrets and variables.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, NOTHING};
use crate::real::{Error, Seen, Status, eventually};

/// A run of one workflow.
#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    /// The run's id.
    pub id: i64,
    /// `FILE@REF`.
    pub path: String,
    /// `queued`, `waiting`, `in_progress` or `completed`.
    pub status: String,
    /// `success`, `failure`, `cancelled` or `skipped`, once completed.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// The commit it runs for.
    pub head_sha: String,
}

impl Run {
    /// The workflow's file name.
    #[must_use]
    pub fn file(&self) -> &str {
        self.path.split('@').next().unwrap_or(&self.path)
    }
}

/// A job of a run: what REST tells, joined with what only the database knows.
#[derive(Debug, Clone)]
pub struct Job {
    /// The job's id, the same in REST, pages and database.
    pub id: i64,
    /// The name shown; a matrix adds its values in parentheses.
    pub name: String,
    /// The key in the workflow's `jobs`.
    pub key: String,
    /// Its `runs-on`.
    pub labels: Vec<String>,
    /// The present task, or 0.
    pub task_id: i64,
    /// Its own status.
    pub status: Status,
    /// Unix seconds.
    pub created: i64,
    /// Unix seconds; 0 is "not yet".
    pub started: i64,
    /// Unix seconds; 0 is "not yet".
    pub stopped: i64,
}

#[derive(Deserialize)]
struct RestJob {
    id: i64,
    name: String,
    #[serde(default)]
    labels: Option<Vec<String>>,
}

impl Client {
    /// Dispatches a workflow file on `main`; returns the run's id.
    ///
    /// # Errors
    /// No such workflow, or the server refused.
    pub async fn dispatch(&self, repository: &str, file: &str, inputs: &[(&str, &str)]) -> Result<i64, Error> {
        #[derive(Deserialize)]
        struct Dispatched {
            workflow_run_id: i64,
        }
        let inputs: BTreeMap<_, _> = inputs.iter().copied().collect();
        let path = format!("/repos/{repository}/actions/workflows/{file}/dispatches?return_run_details=true");
        let answer: Dispatched = self.post(&path, &json!({"ref": "main", "inputs": inputs})).await?;
        Ok(answer.workflow_run_id)
    }

    /// Every run of a repository, newest first.
    ///
    /// # Errors
    /// The server refused.
    pub async fn runs(&self, repository: &str) -> Result<Vec<Run>, Error> {
        self.pages(&format!("/repos/{repository}/actions/runs"), "workflow_runs").await
    }

    /// The runs that one commit started, by rising id; waits until there are `count`.
    ///
    /// # Errors
    /// They do not appear within `limit`.
    pub async fn runs_of_commit(
        &self,
        repository: &str,
        commit: &str,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Run>, Error> {
        eventually(&format!("{count} runs of commit {commit}"), limit, async || {
            let mut runs = self.runs(repository).await?;
            runs.retain(|run| run.head_sha == commit);
            runs.sort_by_key(|run| run.id);
            Ok(if runs.len() >= count { Seen::Done(runs) } else { Seen::NotYet(format!("{} runs", runs.len())) })
        })
        .await
    }

    /// One run.
    ///
    /// # Errors
    /// No such run.
    pub async fn run(&self, repository: &str, run: i64) -> Result<Run, Error> {
        self.get(&format!("/repos/{repository}/actions/runs/{run}")).await
    }

    /// The jobs of a run, by rising id.
    ///
    /// # Errors
    /// No such run.
    pub async fn jobs(&self, repository: &str, run: i64) -> Result<Vec<Job>, Error> {
        let path = format!("/repos/{repository}/actions/runs/{run}/jobs");
        let jobs: Vec<RestJob> = self.pages(&path, "jobs").await?;
        let mut jobs = jobs.into_iter().map(|job| self.join(job)).collect::<Result<Vec<Job>, Error>>()?;
        jobs.sort_by_key(|job| job.id);
        Ok(jobs)
    }

    /// The whole log of a job as text; `None` while it has no row yet.
    ///
    /// # Errors
    /// No such job, or the server refused.
    pub async fn log(&self, repository: &str, job: i64) -> Result<Option<String>, Error> {
        match self.rest(Method::GET, &format!("/repos/{repository}/actions/jobs/{job}/logs"), NOTHING).await {
            Ok(answer) => Ok(Some(answer.text())),
            // Gitea 1.26 fails on a log without rows, and knows none before the job has a task.
            Err(Error::Status { status: 404 | 500, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a run again.
    ///
    /// # Errors
    /// The server refused.
    pub async fn rerun(&self, repository: &str, run: i64) -> Result<(), Error> {
        self.rest(Method::POST, &format!("/repos/{repository}/actions/runs/{run}/rerun"), NOTHING).await.map(drop)
    }

    /// Sets a secret of a repository.
    ///
    /// # Errors
    /// The server refused.
    pub async fn set_secret(&self, repository: &str, name: &str, value: &str) -> Result<(), Error> {
        let path = format!("/repos/{repository}/actions/secrets/{name}");
        self.rest(Method::PUT, &path, Some(&json!({ "data": value }))).await.map(drop)
    }

    /// Makes a variable of a repository.
    ///
    /// # Errors
    /// It exists, or the server refused.
    pub async fn create_variable(&self, repository: &str, name: &str, value: &str) -> Result<(), Error> {
        let path = format!("/repos/{repository}/actions/variables/{name}");
        self.post::<Value>(&path, &json!({ "value": value })).await.map(drop)
    }

    /// Waits until a run has ended. `progress` sees its jobs at every look.
    ///
    /// # Errors
    /// It has not ended within `limit`; the text tells the state of its jobs.
    pub async fn wait_run(
        &self,
        repository: &str,
        run: i64,
        limit: Duration,
        mut progress: impl FnMut(&[Job]),
    ) -> Result<Run, Error> {
        eventually(&format!("run {run} of {repository} has ended"), limit, async || {
            let jobs = self.jobs(repository, run).await?;
            progress(&jobs);
            let state = self.run(repository, run).await?;
            if state.status == "completed" {
                return Ok(Seen::Done(state));
            }
            let jobs: Vec<String> = jobs.iter().map(|job| format!("{} {:?}", job.name, job.status)).collect();
            Ok(Seen::NotYet(format!("{}; {}", state.status, jobs.join(", "))))
        })
        .await
    }

    fn join(&self, job: RestJob) -> Result<Job, Error> {
        let stored = self.job_times(job.id)?;
        Ok(Job {
            id: job.id,
            name: job.name,
            key: stored.key,
            labels: job.labels.unwrap_or_default(),
            task_id: stored.task_id,
            status: stored.status,
            created: stored.created,
            started: stored.started,
            stopped: stored.stopped,
        })
    }
}
