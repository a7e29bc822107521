//! How jobs are asked for: the version gate, idle load, errors, and an end in the middle of a question.

use std::time::Duration;

use connectrpc::ErrorCode;
use futures::future::join_all;
use testkit::gitea::{Call, FaultSpec, Gitea, JobId, Latency, Method, Request, Scope, Settings, Status};
use testkit::world::{Plan, SOON, World, job};

use crate::{planned, world};

/// T1, SCH-4, NEW-7, F01: one bump, many jobs, room for all.
#[tokio::test]
async fn one_bump_and_room_for_all() {
    join_all([[(1, 8), (2, 5), (3, 8)], [(4, 5), (5, 8), (6, 8)]].map(|rounds| bumps(8, rounds))).await;
}

/// T1, NEW-6: one bump, three jobs, one slot.
#[tokio::test]
async fn one_bump_and_one_slot() {
    join_all([[(7, 3), (8, 3), (9, 3)], [(10, 3), (11, 3), (12, 3)]].map(|rounds| bumps(1, rounds))).await;
}

async fn bumps(capacity: u32, rounds: [(u64, usize); 3]) {
    let mut world = world(capacity).await;
    for (seed, jobs) in rounds {
        round(&mut world, seed, jobs).await;
    }
    world.finish().await;
}

/// One push of so many jobs once the controller knows Gitea's version. From the first that it gets to the last it never
/// asks in vain.
async fn round(world: &mut World, seed: u64, jobs: usize) {
    world.remember(format!("seed {seed}"));
    if world.gitea.tasks_version(&Scope::Global) > 0 {
        world.gitea_shows("the controller knows the version", knows_the_version).await;
    }
    world.gitea.set_latency(Latency::between(Duration::from_millis(5), Duration::from_millis(65), seed));
    let before = world.gitea.calls().len();
    let jobs = world.push((0..jobs).map(|number| job(&format!("shard{number}"), &["say here"])));
    world.all_succeed(&jobs, SOON).await;
    let fetches: Vec<Call> = world.gitea.calls().into_iter().skip(before).filter(is_fetch).collect();
    let brought: Vec<bool> = fetches.iter().map(|call| call.task.is_some()).collect();
    let first = brought.iter().position(|brought| *brought).unwrap();
    let last = brought.iter().rposition(|brought| *brought).unwrap();
    assert!(brought[first..=last].iter().all(|brought| *brought), "seed {seed}: asked in vain: {brought:?}");
}

fn is_fetch(call: &Call) -> bool {
    call.method == Method::FetchTask
}

fn version(call: &Call) -> Option<i64> {
    if let Request::FetchTask(request) = &call.request { Some(request.tasks_version) } else { None }
}

fn knows_the_version(gitea: &Gitea) -> bool {
    let last = gitea.calls().iter().rev().find_map(version);
    last == Some(gitea.tasks_version(&Scope::Global))
}

/// T1 step 4: an error right after the bump hides nothing.
#[tokio::test]
async fn an_error_after_the_bump() {
    let world = world(2).await;
    let first = world.push_one(job("first", &["say here"]));
    world.ends_as(first, Status::Success, SOON).await;
    world.gitea_shows("the controller knows the version", knows_the_version).await;
    world.gitea.fail_next(Method::FetchTask, FaultSpec::gitea(ErrorCode::Internal, "pick task: database is locked"));
    let jobs = world.push([job("second", &["say here"]), job("third", &["say here"])]);
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// T33, NEW-6, F12: an idle controller asks at 1, 2, 4 s and then about every 5 s, with version 0 once in 30 s.
#[tokio::test]
async fn idle_load() {
    let world = world(2).await;
    world.gitea_shows("four questions", |gitea| gitea.counters().fetches >= 4).await;
    let at: Vec<_> = world.gitea.calls().iter().filter(|call| is_fetch(call)).map(|call| call.instant).collect();
    for (pair, seconds) in at.windows(2).zip([1.0, 2.0, 4.0]) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= 0.8 * seconds, "{pause} s instead of {seconds} s");
    }
    assert_eq!(world.gitea.counters().zero_fetches, 1);
    world.finish().await;
}

/// T26, T33, NEW-10, NEW-16, SCH-9, F06, F14, F50: SIGTERM while Gitea holds a FetchTask. What it brings is kept, and
/// the next start runs it.
#[tokio::test]
async fn sigterm_with_a_fetch_in_flight() {
    let gitea = Settings { long_poll: Some(Duration::from_secs(50)), ..Settings::default() };
    let mut world = planned(Plan { gitea, ..Plan::capacity(1) }).await;
    world.gitea_shows("a FetchTask is held", |gitea| gitea.calls().iter().any(is_fetch)).await;
    world.ask_to_end();
    world.eventually("it drains", SOON, |world| says(world, "draining")).await;
    let job = world.push_one(job("late", &["say here"]));
    let status = world.ended(SOON).await;
    assert!(status.success(), "{status}");
    assert_eq!(world.gitea.state(job).status, Status::Running, "it was handed out");
    assert_eq!(world.gitea.counters().fetches, 1);
    world.gitea.configure(|settings| settings.long_poll = None);
    world.restart();
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}

/// T32, NEW-12: an unregistered runner in Gitea's own words: no herd of questions, not ready and why, and what runs
/// ends as it would.
#[tokio::test]
async fn an_unregistered_runner() {
    let world = world(2).await;
    let job = world.push_one(job("runs", &["gate here"]));
    world.desk.arrived("here", 1, SOON).await;
    let unregistered = FaultSpec::gitea(ErrorCode::Unauthenticated, "unregistered runner").times(u32::MAX);
    world.gitea.fail_next(Method::FetchTask, unregistered.clone());
    world.gitea.fail_next(Method::Declare, unregistered);
    let asks = |gitea: &Gitea| gitea.counters().fetches + gitea.counters().declares;
    world.gitea_shows("it was told", |gitea| refused(gitea) > 0).await;
    let before = asks(&world.gitea);
    let (ready, text) = world.status().await;
    assert!(!ready && text.contains("unauthenticated"), "{text}");
    world.desk.open_gate("here");
    world.ends_as(job, Status::Success, SOON).await;
    assert!(asks(&world.gitea) <= before + 1, "a herd of questions");
    world.finish().await;
}

fn refused(gitea: &Gitea) -> usize {
    let refusal = |call: &&Call| matches!(&call.end, testkit::gitea::CallEnd::Answered { status: 500, .. });
    gitea.calls().iter().filter(refusal).count()
}

/// A runner that an administrator disables finishes what it has, gets nothing new, and goes on when it is enabled.
#[tokio::test]
async fn a_disabled_runner() {
    let world = world(2).await;
    let jobs = world.push([job("runs", &["gate here"])]);
    world.desk.arrived("here", 1, SOON).await;
    let uuid = world.gitea.runners()[0].uuid.clone();
    world.gitea.disable_runner(&uuid);
    let waits = world.push_one(job("waits", &["say here"]));
    let before = world.gitea.counters().fetches;
    world.desk.open_gate("here");
    world.ends_as(jobs[0], Status::Success, SOON).await;
    world.gitea_shows("it has asked again", |gitea| gitea.counters().fetches > before + 1).await;
    assert_eq!(world.gitea.state(waits).status, Status::Waiting);
    world.gitea.enable_runner(&uuid);
    world.ends_as(waits, Status::Success, SOON).await;
    world.finish().await;
}

/// T3, ENV-2, NEW-161, F03: every legal way to ask for this backend, label-less jobs included.
#[tokio::test]
async fn labels_that_are_served() {
    let plan = Plan { labels: vec!["fast".to_owned()], ..Plan::capacity(3) };
    let world = planned(plan).await;
    let asks: [&[&str]; 6] =
        [&[], &["self-hosted"], &["local"], &["self-hosted", "local"], &["fast"], &["fast", "local"]];
    let jobs: Vec<JobId> = world.push(asks.map(|labels| job("asks", &["say here"]).runs_on(labels.iter().copied())));
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// T3, NEW-14: without a default backend a job that names none is refused with a hint, at once.
#[tokio::test]
async fn labels_that_name_no_backend() {
    let world = planned(Plan::capacity(2).set("DEFAULT_BACKEND", "none")).await;
    let jobs = world.push([
        job("bare", &["say never"]).runs_on([] as [&str; 0]),
        job("neutral", &["say never"]).runs_on(["self-hosted"]),
        job("named", &["say here"]),
    ]);
    for refused in &jobs[..2] {
        let state = world.ends_as(*refused, Status::Failure, SOON).await;
        assert!(state.rows().iter().any(|row| row.starts_with("##[error]unsupported_labels:")), "{:?}", state.rows());
        assert!(state.rows().iter().any(|row| row.contains("`local`")), "no hint: {:?}", state.rows());
    }
    world.ends_as(jobs[2], Status::Success, SOON).await;
    assert_eq!(world.desk.executions().len(), 1);
    world.finish().await;
}

/// T3, NEW-8: with `DECLARE_SELF_HOSTED=false` Gitea never offers a job that asks for `self-hosted`.
#[tokio::test]
async fn self_hosted_is_left_to_others() {
    let world = planned(Plan::capacity(1).set("DECLARE_SELF_HOSTED", "false")).await;
    let jobs = world.push([job("others", &["say never"]).runs_on(["self-hosted"]), job("ours", &["say here"])]);
    world.ends_as(jobs[1], Status::Success, SOON).await;
    assert_eq!(world.gitea.state(jobs[0]).status, Status::Waiting);
    world.finish().await;
}

/// NEW-28, F33: a job that waits behind a full pool says so in its log, with its place in line.
#[tokio::test]
async fn the_place_in_line() {
    let world = planned(Plan::capacity(1).set("LOOK_AHEAD", "2")).await;
    let jobs = world.push([job("runs", &["gate here"]), job("waits", &["say here"]), job("too", &["say here"])]);
    world.desk.arrived("here", 1, SOON).await;
    for (job, place) in [(jobs[1], 1), (jobs[2], 2)] {
        let row = format!("Waiting for a free slot, at place {place} in line (1 of 1 taken)");
        world.gitea_shows("the row of the wait", |gitea| gitea.state(job).rows().contains(&row.as_str())).await;
    }
    world.desk.open_gate("here");
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// NEW-18, F19, T37: an owner with more jobs than it may run at a time keeps nobody else waiting, not even with all slots
/// but one free and its jobs first in Gitea; they say what they wait for, and run in turn.
#[tokio::test]
async fn one_owner_does_not_fill_all_slots() {
    let world = planned(Plan::capacity(2).set("OWNER_LIMIT", "1")).await;
    let crowd = ["one", "two", "three"].map(|key| world.push_one(job(key, &["gate crowd"]).repository("crowd/app")));
    world.desk.arrived("crowd", 1, SOON).await;
    let other = world.push_one(job("other", &["say here"]).repository("other/app").ids(5, 3));
    world.ends_as(other, Status::Success, SOON).await;
    let running = world.desk.notes().iter().filter(|note| note.verb == "gate").count();
    assert_eq!(running, 1, "one at a time: {:?}", world.desk.notes());
    let waits = crowd[1];
    let told = |gitea: &Gitea| gitea.state(waits).rows().iter().any(|row| row.contains("of the owner crowd: 1 of 1"));
    // While all slots were taken it spoke of these, and then it is quiet for 30 s.
    world.gitea.wait_for("its log says what it waits for", told, SOON * 2).await.unwrap();
    let (_, status) = world.status().await;
    assert!(status.contains("an end among the jobs of the owner crowd: 1 of 1 are running"), "{status}");
    world.desk.open_gate("crowd");
    world.all_succeed(&crowd, SOON).await;
    world.finish().await;
}

/// NEW-18, NEW-34, T37, T4, F19, F20: the oldest message is pulled and not started, since its owner is over the limit, and the
/// queue fails at the next one. It is given back all the same: it starts when its owner has room.
#[tokio::test]
async fn what_was_pulled_when_the_queue_failed_is_given_back() {
    let world = planned(Plan::capacity(3).set("OWNER_LIMIT", "1").set("LOOK_AHEAD", "2").embedded()).await;
    let of_crowd = |key: &str, step: &str| world.push_one(job(key, &[step]).repository("crowd/app"));
    let of_other = |key: &str, step: &str| world.push_one(job(key, &[step]).repository("other/app").ids(5, 3));
    let run = [of_crowd("runs-of-crowd", "gate crowd"), of_other("runs-of-other", "gate other")];
    world.desk.arrived("crowd", 1, SOON).await;
    world.desk.arrived("other", 1, SOON).await;
    let older = of_crowd("older", "say here");
    lies_in_the_queue(&world, older).await;
    let newer = of_other("newer", "say here");
    lies_in_the_queue(&world, newer).await;
    let (task, queue) = (world.task_of(newer), rusqlite::Connection::open(world.state().join("queue.db")).unwrap());
    let digest: String = queue.query_row("SELECT digest FROM message WHERE id = ?1", [task], |row| row.get(0)).unwrap();
    let write = |digest: &str| {
        queue.execute("UPDATE message SET digest = ?1 WHERE id = ?2", rusqlite::params![digest, task]).unwrap()
    };
    write("no digest at all");
    world.desk.open_gate("other");
    world.ends_as(run[1], Status::Success, SOON).await;
    world.eventually("the queue failed", SOON, |world| says(world, "backend lifecycle error")).await;
    write(&digest);
    world.ends_as(newer, Status::Success, SOON).await;
    world.desk.open_gate("crowd");
    world.all_succeed(&[run[0], older], SOON).await;
    world.finish().await;
}

async fn lies_in_the_queue(world: &World, job: JobId) {
    let lies = |world: &World| {
        let (task, tasks) = (world.gitea.state(job).task, world.queue().tasks()?);
        task.filter(|task| tasks.contains(task)).map(drop).ok_or_else(|| format!("task {task:?} in {tasks:?}"))
    };
    world.eventually("it lies in the queue", SOON, lies).await;
}
