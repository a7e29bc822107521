//! Coming from the earlier controller: what it left in the stream.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use buffa::Message as _;
use runner_proto::runner::v1::{
    FetchTaskRequest, Result as TaskResult, TaskState, UpdateLogRequest, UpdateTaskRequest, UpdateTaskResponse,
};
use serde_json::{Value, json};
use testkit::gitea::{JobId, Latency, Method, Status};
use testkit::runner_client::{Credentials, RunnerClient};
use testkit::world::{Plan, SOON, World, job};

use super::{on_stream, ready};
use crate::caller::Caller;

const SUBJECT: &str = "ci.runner.local";
const MODE: &str = "ENVELOPE_ACCEPT_V1";

/// The earlier controller: it fetched with the registration that is ours now.
struct Earlier {
    client: RunnerClient,
    context: jetstream::Context,
}

impl Earlier {
    async fn of(world: &World) -> Self {
        let registration = std::fs::read(world.state().join("registration.json")).unwrap();
        let registration: Value = serde_json::from_slice(&registration).unwrap();
        let part = |name: &str| registration[name].as_str().unwrap().to_owned();
        let client = RunnerClient::new(&world.gitea.url(), Credentials::new(part("uuid"), part("token")));
        Self { client, context: jetstream::new(world.broker().client().await.unwrap()) }
    }

    /// Fetches this job's task and stores it, as version 1 (§4.4).
    async fn takes(&self, world: &World, key: &str) -> JobId {
        let job = world.push_one(job(key, &["say here"]));
        let task = self.client.take().await.unwrap().unwrap();
        assert_eq!(world.gitea.state(job).task, Some(task.id), "another job was handed out");
        let task_bytes = task.encode_to_vec();
        let repository = domain::assignment::evidence_of(&task_bytes).repository.unwrap();
        let envelope = json!({
            "version": 1, "id": format!("gitea-task-{}", task.id), "backend": "local", "task": STANDARD.encode(task_bytes),
            "identity": {
                "Repository": repository, "Task": key, "SPIFFEID": format!("spiffe://example.org/ci/{repository}/{key}"),
            },
        });
        self.stores(SUBJECT, &format!("gitea-task-{}", task.id), envelope.to_string()).await;
        job
    }

    async fn stores(&self, subject: &'static str, id: &str, body: String) -> u64 {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        self.context.publish_with_headers(subject, headers, body.into()).await.unwrap().await.unwrap().sequence
    }

    /// How many of its messages lie there.
    async fn left(&self) -> usize {
        let mut stream = self.context.get_stream("CI_RUNNER").await.unwrap();
        let subjects = stream.info_with_subjects(SUBJECT).await.unwrap();
        let mut left = 0;
        let mut subjects = std::pin::pin!(subjects);
        while let Some(Ok((_, count))) = futures::StreamExt::next(&mut subjects).await {
            left += count;
        }
        let _ = &mut stream;
        left
    }
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}

/// NEW-41, ENV-4, T13, F27: what lies on the earlier controller's subject is told and not touched while the mode is off. With the
/// mode on its tasks that have not ended run, each once, although the controller is killed in the middle and once more;
/// those that ended or are gone from Gitea start nothing, and their messages go. What cannot be read stays, with its
/// place in the log and in `status`; when somebody removed it the log says that the mode can be turned off.
#[tokio::test]
async fn what_was_left_is_taken_over_once() {
    let mut world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "4")).await;
    assert!(world.sigterm(SOON).await.success());
    let earlier = Earlier::of(&world).await;
    let runs = [earlier.takes(&world, "first").await, earlier.takes(&world, "second").await];
    let place = earlier.stores(SUBJECT, "damaged", r#"{"version":1,"id":"gitea-t"#.to_owned()).await;
    let over = [earlier.takes(&world, "cancelled").await, earlier.takes(&world, "deleted").await];
    let last = earlier.takes(&world, "last").await;
    let tasks_over = over.map(|job| world.task_of(job));
    world.gitea.cancel(over[0]);
    world.gitea.delete_run(over[1]);

    world.restart();
    world.operators_see("/readyz", SOON, ready).await;
    world.eventually("it is told", SOON, |world| says(world, "set ENVELOPE_ACCEPT_V1=true to take them over")).await;
    assert_eq!((earlier.left().await, world.executors().len()), (6, 0), "the mode is off");
    assert!(world.sigterm(SOON).await.success());

    world.gitea.set_latency(Latency::fixed(Duration::from_millis(300)));
    world.restart_set(MODE, "true");
    world.eventually("one was taken in", SOON, |world| says(world, r#""event":"taken_in""#)).await;
    world.kill9();
    assert!(earlier.left().await > 1, "it was not in the middle");
    world.restart();
    world.eventually("one was removed", SOON, |world| says(world, r#""event":"removed""#)).await;
    world.kill9();
    world.gitea.set_latency(Latency::default());
    world.restart();
    world.all_succeed(&[runs[0], runs[1], last], SOON).await;
    for job in [runs[0], runs[1], last] {
        assert_eq!(world.desk.told(world.task_of(job), "task").len(), 1, "{job} ran more than once");
    }
    assert_eq!(world.gitea.state(over[0]).status, Status::Cancelled);
    for task in tasks_over {
        assert!(world.desk.told(task, "task").is_empty(), "task {task} has ended");
    }
    assert_eq!(earlier.left().await, 1, "the damaged one stays");
    says(&world, &format!("nats stream rmm CI_RUNNER {place}")).unwrap();
    let (_, status) = world.status().await;
    assert!(status.contains(&format!("set aside message {place} on {SUBJECT}")), "{status}");
    assert!(status.contains("MIGRATION: ") && status.contains("1 left where they lie"), "{status}");

    earlier.context.get_stream("CI_RUNNER").await.unwrap().delete_message(place).await.unwrap();
    world.eventually("it is over", SOON, |world| says(world, r#""event":"drained""#)).await;
    let (_, status) = world.status().await;
    assert!(status.contains("set ENVELOPE_ACCEPT_V1=false"), "{status}");
    assert!(world.sigterm(SOON).await.success());
    world.restart_set(MODE, "false");
    world.operators_see("/readyz", SOON, ready).await;
    world.finish().await;
}

/// NEW-41, PRC-2, T13, F27: on our own subject nothing of version 1 is taken, whatever the mode: it stops everything, and
/// the remedy names the mode and the subject that it takes from.
#[tokio::test]
async fn on_our_own_subject_it_is_foreign() {
    let mut world = on_stream(Plan::capacity(1).set("INSTANCE_ID", "ours").set(MODE, "true")).await;
    assert!(world.sigterm(SOON).await.success());
    let earlier = Earlier::of(&world).await;
    let place = earlier.stores("ci.runner.ours.local", "gitea-task-42", r#"{"version":1}"#.to_owned()).await;
    world.restart();
    assert_eq!(world.ended(SOON).await.code(), Some(1));
    for told in
        [&format!("nats stream rmm CI_RUNNER {place}"), "ENVELOPE_ACCEPT_V1=true takes them from ci.runner.local"]
    {
        says(&world, told).unwrap();
    }
    earlier.context.get_stream("CI_RUNNER").await.unwrap().delete_message(place).await.unwrap();
    world.restart();
    world.operators_see("/readyz", SOON, ready).await;
    world.finish().await;
}

/// CAP-1, NEW-159, NEW-41, F107: form 1 of the specification's vectors is refused like any forged capability; while the mode is
/// on its holder is told that it is over, gets no task, and Gitea hears nothing of it.
#[tokio::test]
async fn an_executor_of_the_earlier_controller_is_told_that_it_is_over() {
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const FORM_1: &str =
        "x-runner-uuid: gitea-task-900\r\nx-runner-token: k_cTUvkLd40biaWM0iqqS0m0iSJcCBadK16cMt9h5iQ\r\n";
    let mut world = on_stream(Plan::capacity(1)).await;
    assert!(world.sigterm(SOON).await.success());
    std::fs::write(world.state().join("keys/capability.key"), KEY).unwrap();
    world.restart();
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let caller = Caller::of(&world, world.task_of(runs)).await;
    let state = TaskState { id: 900, ..Default::default() };
    let update = UpdateTaskRequest { state: Some(state).into(), ..Default::default() };
    let rows = UpdateLogRequest { task_id: 900, ..Default::default() };
    assert_eq!(caller.call_with(FORM_1, Method::UpdateTask, &update).await.status, 401);
    assert_eq!(caller.call_with(FORM_1, Method::UpdateLog, &rows).await.status, 401);
    assert!(world.sigterm(SOON).await.success());
    world.restart_set(MODE, "true");
    world.operators_see("/readyz", SOON, ready).await;
    let answer = caller.call_with(FORM_1, Method::UpdateTask, &update).await;
    let told = answer.message::<UpdateTaskResponse>().state.result.as_known();
    assert_eq!((answer.status, told), (200, Some(TaskResult::Cancelled)));
    assert_eq!(caller.call_with(FORM_1, Method::UpdateLog, &rows).await.status, 200);
    assert_eq!(caller.call_with(FORM_1, Method::FetchTask, &FetchTaskRequest::default()).await.status, 401);
    let forged = FORM_1.replace("k_cT", "k_cU");
    assert_eq!(caller.call_with(&forged, Method::UpdateTask, &update).await.status, 401);
    assert!(!world.gitea.calls().iter().any(|call| call.task == Some(900)), "Gitea heard of it");
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    world.finish().await;
}
