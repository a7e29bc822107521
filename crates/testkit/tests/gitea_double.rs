//! The double beyond the contract's answers: what it counts, how it fails, what it shows of a job.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use connectrpc::ErrorCode;
use http::{HeaderMap, HeaderValue};
use runner_proto::runner::v1::{
    LogRow, RegisterRequest, RegisterResponse, Result as TaskResult, StepState, TaskState, UpdateLogRequest,
};
use testkit::gitea::{
    Action, CallEnd, Event, FaultSpec, Gitea, JobSpec, Latency, Method, Rules, Scope, Settings, Status, StepSpec,
};
use testkit::runner_client::{CallError, Encoding, RunnerClient};

const DEADLINE: Duration = Duration::from_secs(10);

fn client(gitea: &Gitea) -> RunnerClient {
    RunnerClient::new(&gitea.url(), gitea.register("r", ["self-hosted"]))
}

fn state(id: i64, result: TaskResult) -> TaskState {
    TaskState { id, result: result.into(), ..Default::default() }
}

fn rows(task_id: i64, index: i64, texts: &[&str]) -> UpdateLogRequest {
    let row = |text: &&str| LogRow { content: (*text).into(), ..Default::default() };
    UpdateLogRequest { task_id, index, rows: texts.iter().map(row).collect(), ..Default::default() }
}

async fn held(gitea: &Gitea, client: &RunnerClient) -> (testkit::gitea::JobId, i64) {
    let job = gitea.push_one(JobSpec::new("build").steps([StepSpec::run("a"), StepSpec::run("b")]));
    (job, client.take().await.unwrap().unwrap().id)
}

/// Contract §1: both encodings carry the same messages, and a long reply is zipped for who can read it.
#[tokio::test]
async fn json_proto_and_gzip() {
    let gitea = Gitea::start().await;
    let job = JobSpec::new("j").secret("S", "x".repeat(4000));
    gitea.push(vec![job.clone(), job.clone(), job]);
    let json = client(&gitea).encoding(Encoding::Json);
    let proto = client(&gitea);
    assert_eq!(json.take().await.unwrap().unwrap().secrets["S"].len(), 4000);
    assert_eq!(proto.take().await.unwrap().unwrap().secrets["S"].len(), 4000);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
    let answer = proto.raw(Method::FetchTask, headers, Bytes::from_static(b"{}")).await.unwrap();
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert!(answer.body.starts_with(&[0x1f, 0x8b]) && answer.body.len() < 3000);
}

/// ENV-5: fields of a later Gitea are in the task that is handed out.
#[tokio::test]
async fn unknown_fields_are_sent() {
    use buffa::Message as _;
    let gitea = Gitea::start().await;
    let future = [0xc2, 0x3e, 0x02, b'h', b'i']; // field 1000, two bytes
    gitea.push_one(JobSpec::new("j").unknown_fields(future));
    let task = client(&gitea).take().await.unwrap().unwrap();
    assert!(task.encode_to_vec().windows(future.len()).any(|bytes| bytes == future));
}

/// Contract §14: a token is of one scope, a replaced one is refused, and a scope sees its own jobs and version.
#[tokio::test]
async fn registration_tokens_and_scopes() {
    let gitea = Gitea::start().await;
    let scope = Scope::Repository("acme/app".into());
    let old = gitea.registration_token_for(&scope);
    let new = gitea.replace_registration_token(&scope);
    let anonymous = RunnerClient::anonymous(&gitea.url());
    let request = RegisterRequest { name: "r".into(), token: old, ..Default::default() };
    let refused = anonymous.call::<_, RegisterResponse>(Method::Register, &request).await.unwrap_err();
    assert!(refused.to_string().contains("has been invalidated"), "{refused}");
    let own = anonymous.register("r", &new, &["self-hosted"]).await.unwrap();
    gitea.push_one(JobSpec::new("elsewhere").repository("other/thing"));
    assert!(own.take().await.unwrap().is_none());
    assert_eq!(gitea.tasks_version(&scope), 1);
    gitea.push_one(JobSpec::new("here"));
    assert!(own.take().await.unwrap().is_some());
    assert_eq!(gitea.tasks_version(&scope), 2);
    assert_eq!(gitea.tasks_version(&Scope::Global), 2);
}

/// Contract §4.1.5: a fetch whose client leaves is committed all the same.
#[tokio::test]
async fn a_dropped_fetch_loses_the_job() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let job = gitea.push_one(JobSpec::new("j"));
    gitea.set_latency(Latency::fixed(Duration::from_millis(200)));
    let left = client.clone().deadline(Duration::from_millis(50)).take().await;
    assert!(matches!(left, Err(CallError::NoAnswer(_))), "{left:?}");
    gitea.wait_for("the job is claimed", |g| g.state(job).status == Status::Running, DEADLINE).await.unwrap();
    gitea.wait_for("the client left", |g| g.calls()[0].end == CallEnd::Left, DEADLINE).await.unwrap();
    assert!(client.take().await.unwrap().is_none());
}

/// Errors, cuts and hangs before or after the commit, each for exactly the ordered calls.
#[tokio::test]
async fn ordered_faults() {
    let gitea = Gitea::start().await;
    let client = client(&gitea).deadline(Duration::from_millis(300));
    let (job, task) = held(&gitea, &client).await;
    gitea.fail_next(Method::UpdateLog, FaultSpec::gitea(ErrorCode::Internal, "transfer logs: no space").times(2));
    gitea.fail_next(Method::UpdateLog, FaultSpec::cut().after_commit());
    gitea.fail_next(Method::UpdateLog, FaultSpec::hang());
    gitea.fail_next(Method::UpdateLog, FaultSpec::answer(502, "text/html", "<h1>bad gateway</h1>"));
    let log = rows(task, 0, &["a"]);
    for _ in 0..2 {
        assert_eq!(client.update_log(&log).await.unwrap_err().code(), Some(ErrorCode::Internal));
    }
    assert!(gitea.state(job).log.is_empty());
    assert!(matches!(client.update_log(&log).await, Err(CallError::NoAnswer(_))));
    assert_eq!(gitea.state(job).rows(), ["a"]);
    assert!(matches!(client.update_log(&rows(task, 1, &["b"])).await, Err(CallError::NoAnswer(_))));
    assert_eq!(client.update_log(&log).await.unwrap_err().code(), Some(ErrorCode::Unavailable));
    assert_eq!(client.update_log(&log).await.unwrap(), 1);
    assert_eq!(gitea.calls_of(task).len(), 7);
    assert_eq!(gitea.counters().overlapping_calls, 0, "a retry after a fault is no overlap");
}

/// F162: two calls of one task at once are counted; calls of two tasks are not.
#[tokio::test]
async fn overlapping_calls_of_a_task_are_counted() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let ((_, one), (_, two)) = (held(&gitea, &client).await, held(&gitea, &client).await);
    gitea.set_latency(Latency::fixed(Duration::from_millis(100)));
    let (first, second) = (rows(one, 0, &["a"]), rows(two, 0, &["a"]));
    let (a, b) = tokio::join!(client.update_log(&first), client.update_log(&second));
    a.and(b).unwrap();
    assert_eq!((gitea.counters().overlapping_logs, gitea.counters().overlapping_calls), (0, 0));
    let (a, b) = tokio::join!(client.update_log(&first), client.update(state(one, TaskResult::Unspecified)));
    a.map(drop).and(b.map(drop)).unwrap();
    assert_eq!((gitea.counters().overlapping_logs, gitea.counters().overlapping_calls), (0, 1));
    let (a, b) = tokio::join!(client.update_log(&first), client.update_log(&first));
    a.and(b).unwrap();
    assert_eq!((gitea.counters().overlapping_logs, gitea.counters().overlapping_calls), (1, 2));
    assert!(gitea.calls().last().unwrap().overlapping);
}

/// SCH-1, SCH-3: counts of calls, and the most fetches at one time.
#[tokio::test]
async fn counters() {
    let gitea = Gitea::start().await;
    let token = gitea.registration_token();
    let client = RunnerClient::anonymous(&gitea.url()).register("r", &token, &["self-hosted"]).await.unwrap();
    client.declare(&["self-hosted"], &[]).await.unwrap();
    gitea.set_latency(Latency::between(Duration::from_millis(80), Duration::from_millis(90), 7));
    let (a, b) = tokio::join!(client.fetch(0), client.fetch(5));
    a.and(b).unwrap();
    let counted = gitea.counters();
    assert_eq!((counted.registers, counted.declares), (1, 1));
    assert_eq!((counted.fetches, counted.zero_fetches, counted.max_concurrent_fetches), (2, 1, 2));
}

/// NEW-21: the largest gap between reports, from the fetch on, on Gitea's clock.
#[tokio::test]
async fn largest_gap() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let (_, task) = held(&gitea, &client).await;
    gitea.advance(Duration::from_secs(40));
    client.update(state(task, TaskResult::Unspecified)).await.unwrap();
    gitea.advance(Duration::from_secs(20));
    client.update(state(task, TaskResult::Success)).await.unwrap();
    gitea.advance(Duration::from_secs(3000));
    assert_eq!(gitea.largest_gap(task).unwrap().as_secs(), 40);
}

/// Contract §6: with a fast clock the zombie sweep comes by itself.
#[tokio::test]
async fn a_fast_clock_sweeps() {
    let gitea = Gitea::start_with(Rules::default(), Settings { clock_rate: 3600.0, ..Settings::default() }).await;
    let (job, _) = held(&gitea, &client(&gitea)).await;
    gitea.wait_for("the silent job has failed", |g| g.state(job).status == Status::Failure, DEADLINE).await.unwrap();
}

/// Contract §7: every update after the end sends the webhook again; a terminal one also that of the run.
#[tokio::test]
async fn webhooks_after_the_end() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let (job, task) = held(&gitea, &client).await;
    client.update(state(task, TaskResult::Success)).await.unwrap();
    client.update(state(task, TaskResult::Unspecified)).await.unwrap();
    assert_eq!(client.update(state(task, TaskResult::Failure)).await.unwrap(), TaskResult::Success);
    let sent: Vec<_> = gitea.webhooks().iter().map(|hook| (hook.event, hook.action)).collect();
    let (of_job, of_run) = ((Event::WorkflowJob, Action::Completed), (Event::WorkflowRun, Action::Completed));
    let begin = [(Event::WorkflowJob, Action::Queued), (Event::WorkflowJob, Action::InProgress)];
    assert_eq!(sent, [begin[0], begin[1], of_job, of_run, of_job, of_job, of_run]);
    assert_eq!((gitea.state(job).completed_webhooks, gitea.counters().updates_after_end), (3, 2));
}

/// Contract §8, newer servers: a cancel is a handshake, and even SUCCESS ends it as cancelled.
#[tokio::test]
async fn cancelling_handshake() {
    let gitea = Gitea::start_with(Rules { cancelling: true, ..Rules::default() }, Settings::default()).await;
    let client = client(&gitea);
    client.declare(&["self-hosted"], &["cancelling"]).await.unwrap();
    let (job, task) = held(&gitea, &client).await;
    gitea.cancel(job);
    assert_eq!(gitea.state(job).status, Status::Cancelling);
    assert_eq!(client.update(state(task, TaskResult::Unspecified)).await.unwrap(), TaskResult::Cancelled);
    assert_eq!(gitea.state(job).status, Status::Cancelling);
    assert_eq!(client.update(state(task, TaskResult::Success)).await.unwrap(), TaskResult::Cancelled);
    assert_eq!(gitea.state(job).status, Status::Cancelled);
}

/// Contract §10.1: rows before the first step, in a step, and after a failed one.
#[tokio::test]
async fn the_job_page() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let (job, task) = held(&gitea, &client).await;
    client.update_log(&rows(task, 0, &["ours", "step", "error", "after"])).await.unwrap();
    assert_eq!(gitea.state(job).page().set_up.len(), 4, "no step has begun: all rows are in the first part");
    let time = buffa_types::google::protobuf::Timestamp::from_unix_secs(1_780_000_000);
    let failed = StepState {
        result: TaskResult::Failure.into(),
        started_at: Some(time).into(),
        log_index: 1,
        log_length: 2,
        ..Default::default()
    };
    let skipped = StepState { id: 1, result: TaskResult::Skipped.into(), ..Default::default() };
    client.update(TaskState { steps: vec![failed, skipped], ..state(task, TaskResult::Failure) }).await.unwrap();
    let page = gitea.state(job).page();
    assert_eq!((page.set_up, page.complete), (vec!["ours".to_owned()], vec!["after".to_owned()]));
    assert_eq!(page.steps[0], ["step", "error"]);
}

/// Contract §3.2, §4.4: deleted runs, deleted runners and unparsable jobs have Gitea's words.
#[tokio::test]
async fn deleted_things_and_a_broken_job() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    let (job, task) = held(&gitea, &client).await;
    gitea.break_picks(Some("yaml: line 3"));
    let text = client.fetch(0).await.unwrap_err().to_string();
    assert!(text.contains("pick task: yaml: line 3"), "{text}");
    gitea.break_picks(None);
    gitea.delete_run(job);
    let text = client.update(state(task, TaskResult::Unspecified)).await.unwrap_err().to_string();
    assert!(text.contains("update task: resource does not exist"), "{text}");
    gitea.delete_runner(&client.credentials().unwrap().uuid);
    assert_eq!(client.fetch(0).await.unwrap_err().code(), Some(ErrorCode::Unauthenticated));
}

/// T33's variant: an empty answer is held for the whole time, or until a job comes.
#[tokio::test]
async fn long_poll() {
    let poll = Duration::from_millis(200);
    let settings = Settings { long_poll: Some(poll), ..Settings::default() };
    let gitea = Gitea::start_with(Rules::default(), settings).await;
    let begun = Instant::now();
    assert!(client(&gitea).take().await.unwrap().is_none());
    assert!(begun.elapsed() >= poll, "an empty answer was not held");
    let settings = Settings { long_poll: Some(Duration::from_secs(8)), ..Settings::default() };
    let gitea = Gitea::start_with(Rules::default(), settings).await;
    let client = client(&gitea);
    let push = async {
        gitea.wait_for("a fetch is open", |g| g.counters().fetches == 1, DEADLINE).await.unwrap();
        gitea.push_one(JobSpec::new("late"));
    };
    let (fetched, ()) = tokio::join!(client.take(), push);
    assert!(fetched.unwrap().is_some());
}

/// Contract §8, §12: what a job reaches beside RunnerService is recorded, and its token dies with it.
#[tokio::test]
async fn the_area_of_jobs() {
    let gitea = Gitea::start().await;
    let client = client(&gitea);
    gitea.push_one(JobSpec::new("j"));
    let task = client.take().await.unwrap().unwrap();
    let jobs = RunnerClient::anonymous(&gitea.url());
    let token = format!("token {}", task.secrets["GITEA_TOKEN"]);
    let mut headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_str(&token).unwrap())]);
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    let post = |path: &'static str| jobs.send(http::Method::POST, path, headers.clone(), Bytes::from_static(b"12345"));
    assert_eq!(post("/acme/app.git/git-upload-pack?a=b").await.unwrap().status, 200);
    let seen = &gitea.seen()[0];
    assert_eq!((seen.path.as_str(), seen.query.as_str()), ("/acme/app.git/git-upload-pack", "a=b"));
    assert_eq!((seen.body_bytes, seen.header("x-forwarded-proto")), (5, Some("https")));
    let artifact = "/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact";
    let answer = post(artifact).await.unwrap();
    let url = format!("https://{}/twirp", gitea.address());
    assert!(String::from_utf8_lossy(&answer.body).contains(&url), "{answer:?}");
    let answer = jobs.send(http::Method::GET, "/-/bytes/100000", HeaderMap::new(), Bytes::new()).await.unwrap();
    assert_eq!(answer.body.len(), 100_000);
    client.update(state(task.id, TaskResult::Success)).await.unwrap();
    assert_eq!(post("/api/v1/user").await.unwrap().status, 401);
}
