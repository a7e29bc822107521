//! What only the web pages offer in 1.26: the job page as a person sees it, and the cancel button.
//!
//! There is no token against forged requests to fetch: the server looks at `Origin` and `Sec-Fetch-Site`, and lets a
//! client through that sends neither.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use http::header::SET_COOKIE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, Error};
use crate::real::http::{Answer, Call};

/// A job page.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The run's status word.
    pub run: String,
    /// "Set up job", the steps, "Complete job".
    pub parts: Vec<Part>,
}

impl JobPage {
    /// All rows that the page can show, in order.
    #[must_use]
    pub fn text(&self) -> String {
        let rows: Vec<&str> = self.parts.iter().flat_map(|part| &part.rows).map(String::as_str).collect();
        rows.join("\n")
    }
}

/// One fold-out part of a job page.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its title.
    pub name: String,
    /// Its status word.
    pub status: String,
    /// Its log rows.
    pub rows: Vec<String>,
}

#[derive(Deserialize)]
struct View {
    state: State,
    logs: Logs,
}

#[derive(Deserialize)]
struct State {
    run: RunState,
    #[serde(rename = "currentJob")]
    job: CurrentJob,
}

#[derive(Deserialize)]
struct RunState {
    status: String,
}

#[derive(Deserialize)]
struct CurrentJob {
    #[serde(default)]
    steps: Option<Vec<Title>>,
}

#[derive(Deserialize)]
struct Title {
    summary: String,
    status: String,
}

#[derive(Deserialize)]
struct Logs {
    #[serde(default, rename = "stepsLog")]
    steps: Option<Vec<Rows>>,
}

#[derive(Deserialize)]
struct Rows {
    step: usize,
    #[serde(default)]
    lines: Option<Vec<Line>>,
}

#[derive(Deserialize)]
struct Line {
    message: String,
}

impl Client {
    /// The job page's own data: its parts with state and rows.
    ///
    /// # Errors
    /// No such job, or the login failed.
    pub async fn job_page(&self, repository: &str, run: i64, job: i64) -> Result<JobPage, Error> {
        let path = format!("/{repository}/actions/runs/{run}/jobs/{job}");
        let view: View = self.web(&path, &json!({"logCursors": []})).await?.json()?;
        let count = view.state.job.steps.map_or(0, |steps| steps.len());
        let cursors: Vec<Value> = (0..count).map(|step| json!({"step": step, "cursor": 0, "expanded": true})).collect();
        let view: View = self.web(&path, &json!({"logCursors": cursors})).await?.json()?;
        let mut rows: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for part in view.logs.steps.unwrap_or_default() {
            let lines = part.lines.unwrap_or_default().into_iter().map(|line| line.message);
            rows.entry(part.step).or_default().extend(lines);
        }
        let parts = view.state.job.steps.unwrap_or_default().into_iter().enumerate();
        let parts = parts.map(|(index, title)| Part {
            name: title.summary,
            status: title.status,
            rows: rows.remove(&index).unwrap_or_default(),
        });
        Ok(JobPage { run: view.state.run.status, parts: parts.collect() })
    }

    /// Presses the cancel button of a run.
    ///
    /// # Errors
    /// No such run, or the login failed.
    pub async fn cancel(&self, repository: &str, run: i64) -> Result<(), Error> {
        self.web(&format!("/{repository}/actions/runs/{run}/cancel"), &json!({})).await.map(drop)
    }

    /// A web route with a logged-in session.
    async fn web(&self, path: &str, body: &Value) -> Result<Answer, Error> {
        let cookie = self.session.get_or_try_init(|| self.login()).await?.clone();
        let headers = vec![("cookie", cookie), ("content-type", "application/json".to_owned())];
        let body = Bytes::from(body.to_string());
        self.http.send(Call { method: Method::POST, path: path.to_owned(), headers, body }).await
    }

    async fn login(&self) -> Result<String, Error> {
        // Both are made by us of letters, digits and `-`: nothing to escape.
        let form = format!("user_name={}&password={}", self.access.admin, self.access.password);
        let headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
        let call = Call { method: Method::POST, path: "/user/login".to_owned(), headers, body: Bytes::from(form) };
        let answer = self.http.send(call).await?;
        let mut jar = BTreeMap::new();
        for value in answer.headers.get_all(SET_COOKIE) {
            let pair =
                value.to_str().ok().and_then(|text| text.split(';').next()).and_then(|pair| pair.split_once('='));
            if let Some((name, value)) = pair {
                jar.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(jar.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; "))
    }
}
