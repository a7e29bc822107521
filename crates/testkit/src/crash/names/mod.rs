//! What boundaries are called: Gitea's calls by method, job and content, those of Kubernetes by verb, kind and job, changes
//! of the state folder by system call and path. A name must be the same in every run of a scene.

pub(super) mod kubernetes;
pub(super) mod nats;

use std::sync::Arc;

use bytes::Bytes;
use http::request;
use runner_proto::runner::v1::{
    FetchTaskRequest, Result as TaskResult, TaskState, UpdateLogRequest, UpdateTaskRequest,
};

use super::stage::Cast;
use super::wire::Name;
use crate::gitea::{Request, read};

/// Names the calls of a scene.
pub(super) fn of_calls(cast: Arc<Cast>) -> Name {
    Arc::new(move |head: &request::Parts, body: &Bytes| match read(head, body) {
        Some((_, Request::FetchTask(request))) => fetch(&cast, &request),
        Some((_, Request::UpdateTask(request))) => update_task(&cast, &request),
        Some((_, Request::UpdateLog(request))) => update_log(&cast, &request),
        Some((method, _)) => method.name().to_owned(),
        None => format!("{} {}", head.method, head.uri.path()),
    })
}

/// Before it is answered nobody knows what it brings. Gitea looks for work when the version differs.
fn fetch(cast: &Cast, request: &FetchTaskRequest) -> String {
    let next = cast.waiting(request.tasks_version);
    next.map_or_else(|| "FetchTask, idle".to_owned(), |job| format!("FetchTask of {job}"))
}

fn update_task(cast: &Cast, request: &UpdateTaskRequest) -> String {
    let default = TaskState::default();
    let state = request.state.as_option().unwrap_or(&default);
    let job = cast.job_of_task(state.id);
    let count =
        |of: fn(&runner_proto::runner::v1::StepState) -> bool| state.steps.iter().filter(|step| of(step)).count();
    match state.result.as_known() {
        Some(result) if result != TaskResult::Unspecified => {
            format!("UpdateTask of {job}, {}", crate::stand_in::name(result))
        }
        _ if state.steps.is_empty() => format!("UpdateTask of {job}, empty"),
        _ => {
            let (started, stopped) = (count(|step| step.started_at.is_set()), count(|step| step.stopped_at.is_set()));
            format!("UpdateTask of {job}, {started} steps started, {stopped} stopped")
        }
    }
}

fn update_log(cast: &Cast, request: &UpdateLogRequest) -> String {
    let job = cast.job_of_task(request.task_id);
    let what = match (request.no_more, request.rows.is_empty()) {
        (true, _) => "last rows",
        (false, true) => "empty",
        (false, false) => "rows",
    };
    format!("UpdateLog of {job}, {what}")
}

/// `executors/gitea-task-7-abc-e1/meta.json` is `executors/JOB-e1/meta.json`.
pub(super) fn of_path(cast: &Cast, path: &str) -> String {
    path.split('/').map(|part| of_part(cast, part)).collect::<Vec<_>>().join("/")
}

fn of_part(cast: &Cast, part: &str) -> String {
    // Drafts carry the number of their process.
    if let Some((draft, number)) = part.rsplit_once('.')
        && draft.starts_with('.')
        && number.parse::<u32>().is_ok()
    {
        return format!("{draft}.N");
    }
    of_executor(cast, part).unwrap_or_else(|| part.to_owned())
}

/// `…gitea-task-7-abc-e1` is `…JOB-e1`; none where no executor is named.
fn of_executor(cast: &Cast, text: &str) -> Option<String> {
    let (before, name) = text.split_once("gitea-task-")?;
    let (task, rest) = name.split_once('-')?;
    let (_, epoch) = rest.rsplit_once("-e")?;
    Some(format!("{before}{}-e{epoch}", cast.job_of_task(task.parse().ok()?)))
}
