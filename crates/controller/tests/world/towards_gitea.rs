//! What Gitea sees of us: every call of our own, and none without need.

use std::time::Duration;

use testkit::gitea::{Call, CallEnd, FaultSpec, Gitea, JobId, Method, Status};
use testkit::world::{Plan, SOON, World, job};

use crate::{planned, world};

fn header<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.headers.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str())
}

/// SCH-13, NEW-11, NEW-165, F10: each of the four calls carries UUID, token and User-Agent of the registration, and a
/// deadline of ours.
#[tokio::test]
async fn every_call_names_us_and_has_a_deadline() {
    let world = world(1).await;
    let job = world.push_one(job("plain", &["say here"]));
    world.ends_as(job, Status::Success, SOON).await;
    let registration = std::fs::read(world.state().join("registration.json")).unwrap();
    let registration: serde_json::Value = serde_json::from_slice(&registration).unwrap();
    let agent = format!("gitea-dynamic-runner/{}", env!("CARGO_PKG_VERSION"));
    for (method, seconds) in
        [(Method::Declare, 25), (Method::FetchTask, 60), (Method::UpdateTask, 25), (Method::UpdateLog, 55)]
    {
        let calls: Vec<Call> = world.gitea.calls().into_iter().filter(|call| call.method == method).collect();
        assert!(!calls.is_empty(), "no {method:?}");
        for call in calls {
            assert_eq!(header(&call, "x-runner-uuid"), registration["uuid"].as_str(), "{call:?}");
            assert_eq!(header(&call, "x-runner-token"), registration["token"].as_str(), "{method:?}");
            assert_eq!(header(&call, "user-agent"), Some(agent.as_str()), "{method:?}");
            assert_eq!(call.timeout, Some(Duration::from_secs(seconds)), "{method:?}");
        }
    }
    world.finish().await;
}

/// SCH-14, T28, F04, F13: as long as all slots are taken and the look-ahead is used up nothing is asked for, whatever the
/// capacity of a backend that does not run here.
#[tokio::test]
async fn no_question_without_room() {
    let plan = Plan::capacity(1).set("LOOK_AHEAD", "1").set("VM_CAPACITY", "9").set("POD_CAPACITY", "9");
    let world = planned(plan).await;
    let jobs = ["runs", "held", "left", "too"].map(|key| world.push_one(job(key, &["gate open"])));
    world.gitea_shows("two are held", |gitea| gitea.held().len() == 2).await;
    let held = world.task_of(jobs[1]);
    let fetches = world.gitea.counters().fetches;
    let beats = |gitea: &Gitea| gitea.calls_of(held).iter().filter(|call| call.method == Method::UpdateTask).count();
    // Two heartbeats of a waiting task are 5 s apart; an idle loop asks more often.
    world.gitea_shows("time has passed", |gitea| beats(gitea) >= 3).await;
    assert_eq!((world.gitea.counters().fetches, world.gitea.held().len()), (fetches, 2));
    world.desk.open_gate("open");
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// NEW-11, T31, F10: a call that Gitea never answers costs its deadline and its own task; another job begins, reports and
/// ends meanwhile, and afterwards the first one goes on.
#[tokio::test]
async fn a_call_that_hangs() {
    let world = world(2).await;
    let hangs = world.push_one(job("hangs", &["gate first\nsay after"]));
    world.desk.arrived("first", 1, SOON).await;
    let task = world.task_of(hangs);
    let unanswered = |gitea: &Gitea| gitea.calls_of(task).into_iter().find(|call| call.end == CallEnd::Pending);
    world.gitea.fail_next(Method::UpdateTask, FaultSpec::hang());
    world
        .gitea_shows("a call hangs", |gitea| unanswered(gitea).is_some_and(|call| call.method == Method::UpdateTask))
        .await;
    let hanging = unanswered(&world.gitea).unwrap();
    let other = world.push_one(job("other", &["burst 50", "say done"]));
    world.ends_as(other, Status::Success, Duration::from_secs(20)).await;
    assert!(unanswered(&world.gitea).is_some(), "the other job waited for it");
    world.desk.open_gate("first");
    world.ends_as(hangs, Status::Success, SOON * 2).await;
    let took = world.gitea.calls()[hanging.number].took.unwrap();
    assert!((25..40).contains(&took.as_secs()), "{took:?}");
    world.finish().await;
}

/// NEW-104, T68, F114: proxy variables in our environment change nothing: Gitea and the facade are reached directly.
#[tokio::test]
async fn proxy_variables_are_ignored() {
    let nobody = "http://127.0.0.1:1";
    let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
    let environment = names.map(|name| (name, nobody)).to_vec();
    let world = planned(Plan { environment, ..Plan::capacity(1) }).await;
    let job = world.push_one(job("direct", &["proxy GET /api/v1/version"]));
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert_eq!(world.desk.told(state.task.unwrap(), "proxy"), ["GET /api/v1/version 200"]);
    world.finish().await;
}

/// The rows of one table of the queue.
fn attempts(world: &World) -> Vec<i64> {
    let queue = rusqlite::Connection::open(world.state().join("queue.db")).unwrap();
    let mut rows = queue.prepare("SELECT attempts FROM message ORDER BY seq").unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// One job that runs until gate `open`, and three that wait behind it for the only slot.
pub(crate) async fn one_runs_and_three_wait(world: &World) -> [JobId; 4] {
    let jobs = ["runs", "first", "unwanted", "last"].map(|key| {
        let script = if key == "runs" { "gate open".to_owned() } else { format!("say {key}") };
        world.push_one(job(key, &[&script]))
    });
    world.gitea_shows("all are held", |gitea| gitea.held().len() == 4).await;
    world.desk.arrived("open", 1, SOON).await;
    jobs
}

/// Kills the controller: the next one keeps alive in Gitea what waits, and shows it.
pub(crate) async fn the_next_process_knows(world: &mut World, jobs: [JobId; 4]) {
    world.kill9();
    let before = world.gitea.calls().len();
    world.restart();
    for job in &jobs[1..] {
        let task = world.task_of(*job);
        let beats = |gitea: &Gitea| gitea.calls()[before..].iter().filter(|call| call.task == Some(task)).count();
        world.gitea_shows("it is kept alive", |gitea| beats(gitea) >= 2).await;
        let gap = world.gitea.largest_gap(task).unwrap();
        assert!(gap <= Duration::from_secs(60), "silent for {gap:?}");
    }
    let (_, status) = world.status().await;
    for key in ["first", "unwanted", "last"] {
        let line = status.lines().find(|line| line.contains(&format!("acme/app/{key} ")));
        assert!(line.is_some_and(|line| line.contains("a free slot, at place")), "{key}: {status}");
    }
    assert!(status.contains("local: 1 of 1 slots used, 3 waiting"), "{status}");
}

/// Cancels one of those that wait.
pub(crate) async fn one_is_cancelled(world: &World, jobs: [JobId; 4]) {
    world.gitea.cancel(jobs[2]);
    world.gitea_shows("the log of the cancelled one is closed", |gitea| gitea.state(jobs[2]).archived).await;
}

/// The others run in the order of their arrival.
pub(crate) async fn the_rest_runs_in_order(world: &World, jobs: [JobId; 4]) {
    world.desk.open_gate("open");
    world.all_succeed(&[jobs[0], jobs[1], jobs[3]], SOON).await;
    let order: Vec<i64> = world.desk.notes().iter().filter(|note| note.verb == "task").map(|note| note.task).collect();
    assert_eq!(order, [jobs[0], jobs[1], jobs[3]].map(|job| world.task_of(job)));
}

/// T4, NEW-34, NEW-157, NEW-21, PRC-5, F05, F52, F20, F22: what waits behind a full slot costs no delivery, also when
/// the controller is killed meanwhile: the next one knows it from the queue, keeps it alive in Gitea, shows it, hears
/// its cancel, and runs the rest in the order of their arrival.
#[tokio::test]
async fn what_waits_is_known_to_the_next_process() {
    let mut world = planned(Plan::capacity(1).set("LOOK_AHEAD", "3").embedded()).await;
    let jobs = one_runs_and_three_wait(&world).await;
    let untouched = |world: &World, count: usize| match attempts(world) {
        rows if rows == vec![0; count] => Ok(()),
        rows => Err(format!("{rows:?}")),
    };
    world.eventually("three wait in the queue", SOON, |world| untouched(world, 3)).await;
    the_next_process_knows(&mut world, jobs).await;
    assert_eq!(attempts(&world), [0; 3]);
    one_is_cancelled(&world, jobs).await;
    world.eventually("its message has gone", SOON, |world| untouched(world, 2)).await;
    the_rest_runs_in_order(&world, jobs).await;
    world.finish().await;
}

/// T4, NEW-31, NEW-34: who waits longer than the limit fails with the cause, and nobody is made for it.
#[tokio::test]
async fn a_wait_has_its_limit() {
    let world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", "3s")).await;
    let jobs = ["runs", "waits"].map(|key| world.push_one(job(key, &["gate open"])));
    let state = world.ends_as(jobs[1], Status::Failure, SOON).await;
    let rows = state.rows();
    assert!(rows.iter().any(|row| row.starts_with("##[error]queue_timeout:")), "{rows:?}");
    world.desk.open_gate("open");
    world.ends_as(jobs[0], Status::Success, SOON).await;
    assert_eq!(world.desk.executions().len(), 1);
    world.finish().await;
}
