//! The facade call by call, to somebody who has an executor's identity and capability and asks whatever it likes.

use std::path::PathBuf;
use std::time::Duration;

use connectrpc::ErrorCode;
use domain::id::Epoch;
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, LogRow, RegisterRequest,
    Result as TaskResult, RunnerStatus, TaskState, UpdateLogRequest, UpdateLogResponse, UpdateTaskRequest,
    UpdateTaskResponse,
};
use testkit::gitea::{Away, Call, FaultSpec, Gitea, JobId, Latency, Method, Settings, Status};
use testkit::real::Signal;
use testkit::world::{Plan, SOON, World, job};
use tokio::io::AsyncWriteExt as _;

use crate::caller::{Answer, Caller, rpc, status};
use crate::{planned, world};

/// A job in its middle, which its gate ends.
async fn in_the_middle(world: &World) -> (JobId, i64) {
    let job = world.push_one(job("runs", &["say here\ngate middle\nsay there"]));
    let stored = |gitea: &Gitea| gitea.state(job).rows().contains(&"here");
    world.gitea_shows("its first row is stored", stored).await;
    (job, world.task_of(job))
}

/// A job whose executor is up and whose runner stands still before it has the task: the test takes its place.
async fn in_place_of_the_runner(world: &World) -> (JobId, i64, Caller) {
    // A claim takes two calls to Gitea, one after the other; the second one fails.
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(1)));
    let job = world.push_one(job("by-hand", &["say never"]));
    let runs = |world: &World| if world.runners().is_empty() { Err("no runner".to_owned()) } else { Ok(()) };
    world.eventually("its runner is up", SOON, runs).await;
    for method in [Method::UpdateTask, Method::UpdateLog] {
        world.gitea.fail_next(method, FaultSpec::gitea(ErrorCode::Unavailable, "locked").times(u32::MAX));
    }
    world.signal_only(&world.runners(), Signal::Stop);
    world.gitea.set_latency(Latency::default());
    let task = world.task_of(job);
    let caller = Caller::of(world, task).await;
    // Who hears of Gitea's refusal has had the task's turn: no claim of the runner's is on its way any more.
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let answer = caller.call(Method::FetchTask, &FetchTaskRequest::default()).await;
        if String::from_utf8_lossy(&answer.body).contains("Gitea gave no good answer") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{} {:?}", answer.head, answer.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.gitea.clear_faults();
    (job, task, caller)
}

/// Takes the task.
async fn taken(world: &World, caller: &Caller, task: i64) -> Answer {
    let answer = caller.fetch().await;
    assert_eq!(answer.message::<FetchTaskResponse>().task.id, task);
    world.desk.plays(task);
    answer
}

/// The end of such a job: its executor is killed.
async fn end(world: &World, job: JobId) {
    world.signal_only(&world.executor_processes(), Signal::Kill);
    world.ends_as(job, Status::Failure, SOON).await;
}

fn rows(task: i64, index: i64, texts: &[&str]) -> UpdateLogRequest {
    let row = |text: &&str| LogRow { content: (*text).to_owned(), ..Default::default() };
    UpdateLogRequest { task_id: task, index, rows: texts.iter().map(row).collect(), ..Default::default() }
}

fn state(task: i64, result: TaskResult) -> UpdateTaskRequest {
    let state = TaskState { id: task, result: result.into(), ..Default::default() };
    UpdateTaskRequest { state: Some(state).into(), ..Default::default() }
}

fn result_of(answer: &Answer) -> TaskResult {
    answer.message::<UpdateTaskResponse>().state.result.as_known().unwrap()
}

/// FAC-1, FAC-2, FAC-3, NEW-25, NEW-164, T30, F09: Register is refused, Declare is answered completely and with Gitea's
/// capability header, under `/api/actions` and nowhere else. We declare no `cancelling`, which the tested runner has not.
#[tokio::test]
async fn register_and_declare() {
    let gitea = Settings { capabilities_header: Some("job-summary"), ..Settings::default() };
    let world = planned(Plan { gitea, ..Plan::capacity(1) }).await;
    let (job, task) = in_the_middle(&world).await;
    let caller = Caller::of(&world, task).await;
    let register =
        RegisterRequest { name: "more".into(), token: world.gitea.registration_token(), ..Default::default() };
    let refused = caller.call(Method::Register, &register).await;
    assert_eq!(refused.status, 403, "{}", refused.head);
    assert!(String::from_utf8_lossy(&refused.body).contains("permission_denied"));
    let labels = vec!["self-hosted".to_owned(), "local".to_owned()];
    let declare = DeclareRequest { version: "9.9".into(), labels: labels.clone(), ..Default::default() };
    let declared = caller.call(Method::Declare, &declare).await;
    let runner = declared.message::<DeclareResponse>().runner.into_option().unwrap();
    let id = format!("gitea-task-{task}");
    assert_eq!((&runner.uuid, &runner.name, runner.version.as_str()), (&id, &id, "9.9"));
    assert_eq!((runner.labels, runner.ephemeral), (labels, true));
    assert_eq!(runner.status.as_known(), Some(RunnerStatus::Idle));
    assert!(declared.head.contains("\r\nx-gitea-actions-capabilities: job-summary\r\n"), "{}", declared.head);
    assert_eq!(world.gitea.runners()[0].capabilities, [""; 0]);
    let elsewhere = "POST /runner.v1.RunnerService/Declare HTTP/1.1";
    let answer = caller.exchange(elsewhere, "Host: h\r\nConnection: close\r\nContent-Length: 0\r\n", "").await;
    assert_eq!(status(&answer), 403, "{answer}");
    assert_eq!(world.gitea.counters().registers, 1);
    world.desk.open_gate("middle");
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

/// T50, NEW-105, F65: the readiness route is answered by the facade alone: Gitea is not asked, and may be away.
#[tokio::test]
async fn readiness() {
    let world = world(1).await;
    let (job, task) = in_the_middle(&world).await;
    let caller = Caller::of(&world, task).await;
    let ready = "GET /executor/v1/ready HTTP/1.1";
    let before = world.gitea.calls().len();
    for away in [Away::No, Away::Unavailable] {
        world.gitea.set_away(away);
        for _ in 0..10 {
            let answer = caller.exchange(ready, "Host: h\r\nConnection: close\r\n", "").await;
            assert_eq!(status(&answer), 200, "{answer}");
        }
    }
    // The job's own reports name its step.
    let others = world.gitea.calls()[before..].iter().filter(|call| call.summary == "heartbeat").count();
    assert_eq!((others, world.gitea.seen().len()), (0, 0), "Gitea was asked");
    world.gitea.set_away(Away::No);
    world.desk.open_gate("middle");
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

/// The folder of the only executor.
fn folder(world: &World) -> PathBuf {
    world.state().join("executors").join(world.executors().remove(0))
}

/// FAC-4, FAC-7, REG-2, T8, NEW-58, F47: the task is handed out when the claim is on the disk and not before; to this
/// executor again and again, byte for byte, until its first update; to no other incarnation; and no update of another task
/// passes.
#[tokio::test]
async fn one_claim() {
    let world = world(1).await;
    let (job, task, caller) = in_place_of_the_runner(&world).await;
    let fetch = FetchTaskRequest::default();
    let in_the_way = folder(&world).join("meta.json.tmp");
    // The controller may be writing this very file at the moment.
    let place = |_: &World| std::fs::create_dir(&in_the_way).map_err(|error| error.to_string());
    world.eventually("its place is taken", SOON, place).await;
    assert_eq!(caller.call(Method::FetchTask, &fetch).await.status, 503, "no claim, no task");
    std::fs::remove_dir(&in_the_way).unwrap();
    let other = caller.credentials_of(task, Epoch::FIRST.next(), caller.deadline);
    assert_eq!(caller.call_with(&other, Method::FetchTask, &fetch).await.status, 401);
    let first = taken(&world, &caller, task).await;
    let claim = std::fs::read_to_string(folder(&world).join("meta.json")).unwrap();
    assert!(claim.contains("/claimed"), "{claim}");
    for _ in 0..2 {
        assert!(caller.call(Method::FetchTask, &fetch).await.body == first.body, "other bytes");
    }
    assert_eq!(caller.call_with(&other, Method::FetchTask, &fetch).await.status, 401);
    let foreign = task + 1;
    assert_eq!(caller.call(Method::UpdateLog, &rows(foreign, 0, &["foreign"])).await.status, 403);
    assert_eq!(caller.call(Method::UpdateTask, &state(foreign, TaskResult::Success)).await.status, 403);
    assert!(world.gitea.calls().iter().all(|call| call.task != Some(foreign)), "Gitea heard of another task");
    let ack: UpdateLogResponse = caller.call(Method::UpdateLog, &rows(task, 0, &["by hand"])).await.message();
    assert_eq!(ack.ack_index, 1);
    let late = caller.call(Method::FetchTask, &fetch).await;
    assert_eq!(late.status, 401, "after the first update");
    end(&world, job).await;
    assert!(world.gitea.state(job).rows().contains(&"by hand"));
    world.finish().await;
}

/// REG-2, T8, T80, NEW-159, F157: an incarnation that was replaced, a capability that expired and one of a task that
/// nobody knows hear CANCELLED to every state and an ack to all rows, and `unauthenticated` when they ask for work; Gitea
/// hears nothing of them. A forged capability is refused on every call.
#[tokio::test]
async fn who_lost_its_right() {
    let world = world(1).await;
    let replaced = world.push_one(job("replaced", &["say here\ngate middle\nsay there"]));
    let running = |world: &World| if world.runners().is_empty() { Err("no runner".to_owned()) } else { Ok(()) };
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(1)));
    world.eventually("its first executor runs", SOON, running).await;
    world.signal_only(&world.executor_processes(), Signal::Kill);
    let second = |world: &World| {
        world.executors().iter().any(|name| name.ends_with("-e2")).then_some(()).ok_or("no -e2".to_owned())
    };
    world.eventually("another one takes its place", SOON, second).await;
    world.gitea.set_latency(Latency::default());
    world.desk.arrived("middle", 1, SOON).await;
    let task = world.task_of(replaced);
    let caller = Caller::of(&world, task).await;
    let now = Epoch::FIRST.next();
    let past = Timestamp::now() - SignedDuration::from_secs(1);
    let cases = [
        (task, caller.credentials_of(task, Epoch::FIRST, caller.deadline)),
        (task, caller.credentials_of(task, now, past)),
        (4711, caller.credentials_of(4711, now, caller.deadline)),
    ];
    for (task, credentials) in cases {
        for told in [TaskResult::Unspecified, TaskResult::Success] {
            let answer = caller.call_with(&credentials, Method::UpdateTask, &state(task, told)).await;
            assert_eq!(result_of(&answer), TaskResult::Cancelled, "{credentials}");
        }
        let answer = caller.call_with(&credentials, Method::UpdateLog, &rows(task, 7, &["forged", "forged"])).await;
        assert_eq!(answer.message::<UpdateLogResponse>().ack_index, 9, "{credentials}");
        assert_eq!(caller.call_with(&credentials, Method::Declare, &DeclareRequest::default()).await.status, 401);
        assert_eq!(caller.call_with(&credentials, Method::FetchTask, &FetchTaskRequest::default()).await.status, 401);
    }
    let forged = caller.credentials.replace("c2.", "c2.00000000.");
    assert_eq!(caller.call_with(&forged, Method::UpdateTask, &state(task, TaskResult::Success)).await.status, 401);
    assert_eq!(caller.call_with(&forged, Method::UpdateLog, &rows(task, 0, &["forged"])).await.status, 401);
    assert!(!world.gitea.state(replaced).rows().contains(&"forged"));
    assert!(
        !world.gitea.calls().iter().any(|call| call.task == Some(4711) || call.told().is_some()),
        "Gitea heard of it"
    );
    world.desk.open_gate("middle");
    world.ends_as(replaced, Status::Success, SOON).await;
    world.finish().await;
}

/// NEW-165, NEW-11, T82, F161: whatever deadline an executor names, Gitea is told ours; a call that was begun is finished
/// although the executor has gone.
#[tokio::test]
async fn deadlines_are_ours() {
    let world = world(1).await;
    let (job, task, caller) = in_place_of_the_runner(&world).await;
    taken(&world, &caller, task).await;
    world.gitea.set_latency(Latency::fixed(Duration::from_millis(300)));
    for (index, timeout) in (0..).zip(["1", "10800000", "garbage", ""]) {
        let named = if timeout.is_empty() { String::new() } else { format!("Connect-Timeout-Ms: {timeout}\r\n") };
        let call = rpc(&format!("{}{named}", caller.credentials), Method::UpdateLog, &rows(task, index, &["mine"]));
        let mut stream = caller.connect().await;
        stream.write_all(&call).await.unwrap();
        let begun = |gitea: &Gitea| logs(gitea, task).count() > usize::try_from(index).unwrap();
        world.gitea_shows("the call is under way", begun).await;
        drop(stream);
        let stored = |gitea: &Gitea| {
            gitea.state(job).rows().iter().filter(|row| **row == "mine").count() > usize::try_from(index).unwrap()
        };
        world.gitea_shows("the row is stored", stored).await;
    }
    let told: Vec<_> = logs(&world.gitea, task).map(|call| call.timeout).collect();
    assert_eq!(told, [Some(Duration::from_secs(55)); 4]);
    world.gitea.set_latency(Latency::default());
    end(&world, job).await;
    world.finish().await;
}

/// The calls that brought a row of the test's.
fn logs(gitea: &Gitea, task: i64) -> impl Iterator<Item = Call> {
    gitea.calls_of(task).into_iter().filter(|call| match &call.request {
        testkit::gitea::Request::UpdateLog(request) => request.rows.iter().any(|row| row.content == "mine"),
        _ => false,
    })
}

/// FAC-7, NEW-32, T83, F162: ten calls at once, each of them said again as a runner does that heard no answer: Gitea sees
/// one after the other, and every row once.
#[tokio::test]
async fn one_call_at_a_time() {
    let world = world(1).await;
    let (job, task, caller) = in_place_of_the_runner(&world).await;
    taken(&world, &caller, task).await;
    world.gitea.set_latency(Latency::fixed(Duration::from_millis(100)));
    let log = rows(task, 0, &["one", "two"]);
    let going_on = state(task, TaskResult::Unspecified);
    let calls = (0..5).map(|_| async {
        let (log, state) =
            tokio::join!(caller.call(Method::UpdateLog, &log), caller.call(Method::UpdateTask, &going_on));
        assert_eq!((log.message::<UpdateLogResponse>().ack_index, result_of(&state)), (2, TaskResult::Unspecified));
    });
    futures::future::join_all(calls).await;
    let state = world.gitea.state(job);
    let of_ours: Vec<_> = state.rows().into_iter().filter(|row| ["one", "two"].contains(row)).collect();
    assert_eq!(of_ours, ["one", "two"]);
    assert_eq!(world.gitea.counters().overlapping_calls, 0);
    world.gitea.set_latency(Latency::default());
    end(&world, job).await;
    world.finish().await;
}
