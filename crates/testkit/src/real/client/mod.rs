//! The client of a real Gitea: REST as administrator, the web pages where REST ends, the database where both do.

mod actions;
mod page;
mod repository;
mod runners;
mod upkeep;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::database::{Database, JobTimes, TaskRow};
use super::error::Error;
use super::http::{Answer, Call, Http};
use super::server::Access;

pub use actions::{Job, Run};
pub use page::{JobPage, Part};
pub use runners::Runner;

/// Looks at one server and acts on it. Every request ends within 30 s.
pub struct Client {
    access: Access,
    http: Http,
    database: Database,
    session: OnceCell<String>,
}

impl Client {
    /// A client for the current runtime.
    #[must_use]
    pub fn new(access: Access) -> Self {
        let (http, database) = (Http::new(&access.url), Database::new(&access.database));
        Self { access, http, database, session: OnceCell::new() }
    }

    /// How the server is reached.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The stored row of a task, with its steps. REST shows the job's status for every step; this does not.
    ///
    /// # Errors
    /// No such task, or the database cannot be read.
    pub fn task(&self, id: i64) -> Result<TaskRow, Error> {
        self.database.task(id)
    }

    /// Key, task and times of a job, by its id.
    ///
    /// # Errors
    /// No such job, or the database cannot be read.
    pub fn job_times(&self, id: i64) -> Result<JobTimes, Error> {
        self.database.job(id)
    }

    /// The jobs of every repository with a greater id than this, by rising id. It costs Gitea nothing: whoever looks often
    /// sees a change of status in finer steps than Gitea's own times have.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn jobs_after(&self, id: i64) -> Result<Vec<JobTimes>, Error> {
        self.database.jobs_after(id)
    }

    /// REST below `/api/v1` as the administrator, by password: Gitea 1.26.0 derives a key for every call with a token,
    /// 10 ms of computing time, because it never makes the cache that it has for them; for passwords we choose the work.
    async fn rest(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<Answer, Error> {
        let path = format!("/api/v1{path}");
        let pair = STANDARD.encode(format!("{}:{}", self.access.admin, self.access.password));
        let mut headers = vec![("authorization", format!("Basic {pair}"))];
        let body = match body {
            Some(body) => {
                headers.push(("content-type", "application/json".to_owned()));
                Bytes::from(serde_json::to_vec(body).map_err(Error::system("encode a request"))?)
            }
            None => Bytes::new(),
        };
        self.http.send(Call { method, path, headers, body }).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.rest(Method::GET, path, NOTHING).await?.json()
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.rest(Method::POST, path, Some(body)).await?.json()
    }

    /// Every page of a REST list; 50 is the most that Gitea gives at once.
    async fn pages<T: DeserializeOwned>(&self, path: &str, key: &str) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        for page in 1.. {
            let answer = self.rest(Method::GET, &format!("{path}?limit=50&page={page}"), NOTHING).await?;
            let mut object: serde_json::Map<String, serde_json::Value> = answer.json()?;
            let list = object.remove(key).filter(|list| !list.is_null()).unwrap_or_else(|| serde_json::json!([]));
            let list: Vec<T> = serde_json::from_value(list).map_err(|cause| Error::Unexpected {
                call: format!("GET {path}"),
                cause: cause.to_string(),
                body: super::error::head(&answer.text(), 2000),
            })?;
            let last = list.len() < 50;
            items.extend(list);
            if last {
                break;
            }
        }
        Ok(items)
    }
}

/// No body.
const NOTHING: Option<&()> = None;
