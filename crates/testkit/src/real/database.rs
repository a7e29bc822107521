//! What Gitea's REST does not show: read-only looks into its SQLite database, beside the running server (WAL).

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, ToSql};
use serde::Serialize;

use super::Error;

const PATIENCE: Duration = Duration::from_secs(10);

/// Gitea's status of a run, job, task or step (`models/actions/status.go`, 1.26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are Gitea's")]
pub enum Status {
    Unknown,
    Success,
    Failure,
    Cancelled,
    Skipped,
    Waiting,
    Running,
    Blocked,
    Cancelling,
}

impl Status {
    /// Success, failure, cancelled or skipped.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled | Self::Skipped)
    }

    fn from_number(number: i64) -> Self {
        match number {
            1 => Self::Success,
            2 => Self::Failure,
            3 => Self::Cancelled,
            4 => Self::Skipped,
            5 => Self::Waiting,
            6 => Self::Running,
            7 => Self::Blocked,
            8 => Self::Cancelling,
            _ => Self::Unknown,
        }
    }
}

/// A row of `action_task` with its steps.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// The task id.
    pub id: i64,
    /// The registration it was given to.
    pub runner_id: i64,
    /// The task's own status.
    pub status: Status,
    /// Unix seconds; 0 is "not yet".
    pub started: i64,
    /// Unix seconds; 0 is "not yet".
    pub stopped: i64,
    /// Unix seconds of the last change, heartbeats included.
    pub updated: i64,
    /// Rows of log.
    pub log_length: i64,
    /// Whether the log was closed and moved to storage.
    pub log_in_storage: bool,
    /// The steps in order.
    pub steps: Vec<StepRow>,
}

/// A row of `action_task_step`.
#[derive(Debug, Clone)]
pub struct StepRow {
    /// Its name as shown.
    pub name: String,
    /// Its own status (REST shows the job's instead).
    pub status: Status,
    /// First row of its log.
    pub log_index: i64,
    /// Rows of its log.
    pub log_length: i64,
    /// Unix seconds; 0 is "not yet".
    pub started: i64,
    /// Unix seconds; 0 is "not yet".
    pub stopped: i64,
}

/// The part of `action_run_job` that REST leaves out or rounds.
#[derive(Debug, Clone)]
pub struct JobTimes {
    /// The job's id.
    pub id: i64,
    /// The key in the workflow's `jobs`.
    pub key: String,
    /// The present task, or 0.
    pub task_id: i64,
    /// The job's own status.
    pub status: Status,
    /// Unix seconds.
    pub created: i64,
    /// Unix seconds; 0 is "not yet".
    pub started: i64,
    /// Unix seconds; 0 is "not yet".
    pub stopped: i64,
}

/// The database of one server. A reader of a WAL database waits for nobody, so these calls may stand in async code.
#[derive(Clone)]
pub(super) struct Database(PathBuf);

impl Database {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn task(&self, id: i64) -> Result<TaskRow, Error> {
        let query = "select id, runner_id, status, started, stopped, updated, log_length, log_in_storage \
                     from action_task where id = ?";
        let mut task = self.one(query, id, |row| {
            Ok(TaskRow {
                id: number(row, 0)?,
                runner_id: number(row, 1)?,
                status: Status::from_number(number(row, 2)?),
                started: number(row, 3)?,
                stopped: number(row, 4)?,
                updated: number(row, 5)?,
                log_length: number(row, 6)?,
                log_in_storage: number(row, 7)? != 0,
                steps: Vec::new(),
            })
        })?;
        let query = "select name, status, log_index, log_length, started, stopped from action_task_step \
                     where task_id = ? order by `index`";
        task.steps = self.all(query, id, |row| {
            Ok(StepRow {
                name: row.get(0)?,
                status: Status::from_number(number(row, 1)?),
                log_index: number(row, 2)?,
                log_length: number(row, 3)?,
                started: number(row, 4)?,
                stopped: number(row, 5)?,
            })
        })?;
        Ok(task)
    }

    pub(super) fn job(&self, id: i64) -> Result<JobTimes, Error> {
        self.one(&format!("{JOBS} where id = ?"), id, job)
    }

    pub(super) fn jobs_after(&self, id: i64) -> Result<Vec<JobTimes>, Error> {
        self.all(&format!("{JOBS} where id > ? order by id"), id, job)
    }

    pub(super) fn runner(&self, uuid: &str) -> Result<i64, Error> {
        self.one("select id from action_runner where uuid = ?", uuid, |row| number(row, 0))
    }

    pub(super) fn deliveries(&self, job: i64) -> Result<Vec<(String, String)>, Error> {
        let query = "select event_type, payload_content from hook_task where hook_id in \
                     (select id from webhook where repo_id = (select repo_id from action_run_job where id = ?)) \
                     order by id";
        self.all(query, job, |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn one<T>(
        &self,
        query: &str,
        id: impl ToSql + Display + Copy,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut rows = self.all(query, id, read)?;
        let missing = || Error::Database { query: query.to_owned(), cause: format!("no row with id {id}") };
        rows.pop().ok_or_else(missing)
    }

    fn all<T>(
        &self,
        query: &str,
        id: impl ToSql,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let run = || -> rusqlite::Result<Vec<T>> {
            let connection = Connection::open_with_flags(&self.0, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.busy_timeout(PATIENCE)?;
            let mut statement = connection.prepare(query)?;
            statement.query_map([id], |row| read(row))?.collect()
        };
        run().map_err(|cause| Error::Database { query: query.to_owned(), cause: cause.to_string() })
    }
}

const JOBS: &str = "select id, job_id, task_id, status, created, started, stopped from action_run_job";

fn job(row: &Row<'_>) -> rusqlite::Result<JobTimes> {
    Ok(JobTimes {
        id: number(row, 0)?,
        key: row.get(1)?,
        task_id: number(row, 2)?,
        status: Status::from_number(number(row, 3)?),
        created: number(row, 4)?,
        started: number(row, 5)?,
        stopped: number(row, 6)?,
    })
}

/// A whole number; NULL counts as 0, as in Gitea's own models.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(row.get::<_, Option<i64>>(column)?.unwrap_or(0))
}
