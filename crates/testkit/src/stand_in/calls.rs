//! The runner's calls, with the official runner's deadlines.

use std::time::Duration;

use anyhow::Context as _;
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, Task, UpdateLogRequest, UpdateTaskRequest,
    UpdateTaskResponse,
};

use super::VERSION;
use super::places::Places;
use crate::gitea::Method;
use crate::runner_client::{CallError, RunnerClient};

/// Longer than anything the executor takes to answer.
const PATIENCE: Duration = Duration::from_secs(100);

/// Too short for a claim, which takes two calls to Gitea.
const HASTE: Duration = Duration::from_millis(40);

/// Its way to the proxy.
pub(super) struct Calls {
    client: RunnerClient,
    fetcher: RunnerClient,
    labels: Vec<String>,
}

impl Calls {
    pub(super) fn new(places: &Places) -> Self {
        let client = RunnerClient::new(&places.address, places.credentials.clone()).deadline(PATIENCE);
        Self { fetcher: client.clone().deadline(places.fetch_timeout), client, labels: places.labels.clone() }
    }

    pub(super) async fn declare(&self) -> anyhow::Result<()> {
        let request = DeclareRequest { version: VERSION.to_owned(), labels: self.labels.clone(), ..Default::default() };
        let response: DeclareResponse = self.client.call(Method::Declare, &request).await?;
        // Without it the official runner panics.
        response.runner.into_option().context("the reply to Declare has no runner").map(drop)
    }

    pub(super) async fn fetch(&self) -> Result<Option<Task>, CallError> {
        let response: FetchTaskResponse = self.fetcher.call(Method::FetchTask, &FetchTaskRequest::default()).await?;
        Ok(response.task.into_option())
    }

    /// Asks and hangs up: whatever the answer is, it is lost.
    pub(super) async fn give_up_fetching(&self) {
        let hasty = self.client.clone().deadline(HASTE);
        let _lost: Result<FetchTaskResponse, _> = hasty.call(Method::FetchTask, &FetchTaskRequest::default()).await;
    }

    pub(super) async fn update_log(&self, request: &UpdateLogRequest) -> Result<i64, CallError> {
        self.client.update_log(request).await
    }

    pub(super) async fn update_task(&self, request: &UpdateTaskRequest) -> Result<UpdateTaskResponse, CallError> {
        self.client.update_task(request).await
    }

    /// Declare in words, for a job that tries what it may still do.
    pub(super) async fn try_declare(&self) -> String {
        let request = DeclareRequest { labels: self.labels.clone(), ..Default::default() };
        in_words(&self.client.call::<_, DeclareResponse>(Method::Declare, &request).await)
    }

    /// FetchTask in words.
    pub(super) async fn try_fetch(&self) -> String {
        match self.fetch().await {
            Ok(Some(task)) => format!("task {}", task.id),
            other => in_words(&other),
        }
    }
}

/// `ok`, or the code of the refusal.
pub(super) fn in_words<T>(answer: &Result<T, CallError>) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().map_or("no_answer", |code| code.as_str()).to_owned(),
    }
}
