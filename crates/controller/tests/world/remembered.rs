//! What a controller knows of its tasks outlives it and its executors: ends, reports, steps, and logs that are still open are
//! written down in time, and the next one tells them once.

use std::time::Duration;

use testkit::gitea::{Call, CallEnd, FaultSpec, Gitea, Latency, Method, Status};
use testkit::real::{Seen, Signal, eventually};
use testkit::world::{Note, Plan, SOON, World, job};

use crate::restart::{assert_nothing_lost, in_the_middle};
use crate::{planned, world};

/// NEW-163, CMP-10: the end that a call under way brings while the controller ends in order is written down: the next
/// controller asks nothing about it.
#[tokio::test]
async fn an_end_that_comes_during_the_end_is_noted() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    let task = world.task_of(job);
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(1)));
    world.desk.open_gate("middle");
    let told = |call: &Call| call.summary.starts_with("RESULT_SUCCESS");
    world.gitea_shows("its end is under way", |gitea| gitea.calls_of(task).iter().any(told)).await;
    let status = world.sigterm(SOON).await;
    assert!(status.success(), "{status}");
    world.gitea.set_latency(Latency::default());
    world.restart();
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// NEW-163, NEW-16: an end is written down while the controller, which ends in order, still waits for another call: it may
/// be killed in that time.
#[tokio::test]
async fn an_end_is_noted_beside_a_call_that_takes_its_time() {
    let mut world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1")).await;
    let long = in_the_middle(&world).await;
    let (task, waiting) = (world.task_of(long), world.push_one(job("waits", &["say here"])));
    world.gitea_shows("it is held", |gitea| gitea.state(waiting).task.is_some()).await;
    world.gitea.fail_next(Method::UpdateLog, FaultSpec::hang());
    let hangs = |call: &Call| call.method == Method::UpdateLog && call.end == CallEnd::Pending;
    let held = world.task_of(waiting);
    world.gitea_shows("a row about its wait hangs", |gitea| gitea.calls_of(held).iter().any(hangs)).await;
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(1)));
    world.desk.open_gate("middle");
    let told = |call: &Call| call.summary.starts_with("RESULT_SUCCESS");
    world.gitea_shows("the other's end is under way", |gitea| gitea.calls_of(task).iter().any(told)).await;
    world.ask_to_end();
    let noted = |world: &World| {
        let log = world.log();
        assert!(!log.contains("stopping: waiting for loops"), "not while it waits for the call: {log}");
        if log.contains("terminal_marked") { Ok(()) } else { Err("no mark".to_owned()) }
    };
    world.eventually("the end is noted", SOON, noted).await;
    world.kill9();
    world.gitea.set_latency(Latency::default());
    world.restart();
    assert_nothing_lost(&world, long).await;
    world.all_succeed(&[waiting], SOON).await;
    world.finish().await;
}

/// NEW-16, NEW-14: a task that was refused lies in no queue: an end in order waits until Gitea has heard why, also when the
/// first try got no answer.
#[tokio::test]
async fn a_refusal_is_told_before_the_end() {
    let mut world = world(1).await;
    world.gitea.fail_next(Method::UpdateLog, FaultSpec::answer(502, "text/html", "bad gateway").times(2));
    let refused = world.push_one(job("re.fused", &["say never"]));
    let failed =
        |gitea: &Gitea| gitea.state(refused).task.is_some_and(|task| gitea.calls_of(task).iter().any(refused_log));
    world.gitea_shows("it cannot be told", failed).await;
    let status = world.sigterm(SOON).await;
    assert!(status.success(), "{status}");
    assert_eq!(world.gitea.state(refused).status, Status::Failure, "{}", world.log());
    world.restart();
    world.finish().await;
}

/// NEW-166: a job is cancelled while it waits, and the controller is killed before Gitea took the end of its log: the next
/// one still knows of it.
#[tokio::test]
async fn an_open_log_is_remembered_through_a_kill() {
    let mut world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1")).await;
    let long = in_the_middle(&world).await;
    let waiting = world.push_one(job("waits", &["say never"]));
    world.gitea_shows("it is held", |gitea| gitea.state(waiting).task.is_some()).await;
    let task = world.task_of(waiting);
    world.gitea.fail_next(Method::UpdateLog, FaultSpec::answer(502, "text/html", "bad gateway").times(u32::MAX));
    world.gitea.cancel(waiting);
    let about_its_log = |gitea: &Gitea| gitea.calls_of(task).iter().filter(|call| refused_log(call)).count();
    world.gitea_shows("the end of its log was refused twice", |gitea| about_its_log(gitea) >= 2).await;
    world.kill9();
    world.gitea.clear_faults();
    world.restart();
    world.gitea_shows("its log is closed", |gitea| gitea.state(waiting).archived).await;
    world.desk.open_gate("middle");
    assert_nothing_lost(&world, long).await;
    world.finish().await;
}

fn refused_log(call: &Call) -> bool {
    call.method == Method::UpdateLog && matches!(call.end, CallEnd::Answered { status: 502, .. })
}

/// T9, NEW-112: the job ends while no controller is there; its last report waits in the executor.
#[tokio::test]
async fn a_job_that_ends_while_the_controller_is_away_is_reported() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    world.kill9();
    world.desk.open_gate("middle");
    world.eventually("the runner has gone", SOON, |world| none(world.runners().len())).await;
    assert!(!world.gitea.state(job).status.is_end());
    world.restart();
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// T9, NEW-112, F110: the job ends while the facade takes connections and answers nobody: its runner waits for the call that
/// is under way and for its first last one, no longer, and the end arrives when somebody answers again.
#[tokio::test]
async fn a_job_that_ends_while_the_controller_hangs_is_reported() {
    // How long the executor waits for the answer to a call in mid-job and to a last one.
    const TWO_CALLS: Duration = Duration::from_secs(75 + 30);
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    world.pause();
    world.desk.open_gate("middle");
    world.eventually("the runner has gone", TWO_CALLS + SOON, |world| none(world.runners().len())).await;
    assert_eq!(world.gitea.state(job).status, Status::Running);
    // It does not go because it gave up: it heard that its end is kept.
    let kept = |notes: &[Note]| notes.iter().any(|note| note.verb == "final");
    world.desk.until("the runner's report was taken", SOON, kept).await;
    world.go_on();
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// T9, NEW-112, F110: the same, and the executor is killed with its last report undelivered: the next controller finds it
/// in the executor's folder, which the job could not read, and says it.
#[tokio::test]
async fn a_report_outlives_its_executor() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    world.kill9();
    world.desk.open_gate("middle");
    world.eventually("the runner has gone", SOON, |world| none(world.runners().len())).await;
    let left = world.state().join("executors").join(&world.executors()[0]).join("own/last-report");
    let content = std::fs::read(&left).unwrap();
    assert!(!content.windows(6).any(|part| part == b"second"), "the job's rows can be read");
    world.signal_only(&world.executor_processes(), Signal::Kill);
    world.eventually("the executor has gone", SOON, |world| none(world.executor_processes().len())).await;
    assert!(!world.gitea.state(job).status.is_end());
    world.restart();
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// T9, NEW-112, F110: the same on a disk that takes no file of the executor's any more: what it keeps is in its memory, and
/// arrives all the same.
#[tokio::test]
async fn a_report_that_cannot_be_written_is_delivered_from_memory() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    world.kill9();
    let folder = world.state().join("executors").join(&world.executors()[0]);
    // Nothing can be written in the place of a folder.
    std::fs::create_dir(folder.join("own/last-report.new")).unwrap();
    world.desk.open_gate("middle");
    world.eventually("the runner has gone", SOON, |world| none(world.runners().len())).await;
    let told = std::fs::read_to_string(folder.join("executor.log")).unwrap();
    assert!(told.contains("the last report is in memory only") && !folder.join("own/last-report").exists(), "{told}");
    world.restart();
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// T5, NEW-148, NEW-163, NEW-26: Gitea has the result, the executor has gone, and the controller is killed before it could note the
/// end. The next one asks before it says anything of its own: no second outcome is told.
#[tokio::test]
async fn an_end_that_was_not_noted_is_asked_for() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    // Nothing can be marked on the executor any more.
    let blocked = world.state().join("executors").join(&world.executors()[0]).join("meta.json.tmp");
    std::fs::create_dir(&blocked).unwrap();
    world.desk.open_gate("middle");
    world.ends_as(job, Status::Success, SOON).await;
    world.eventually("its executor has gone", SOON, |world| none(world.executor_processes().len())).await;
    world.kill9();
    std::fs::remove_dir(&blocked).unwrap();
    world.restart();
    world.nothing_left().await;
    let ours = |call: &testkit::gitea::Call| call.summary.starts_with("RESULT_FAILURE");
    assert!(!world.gitea.calls_of(world.task_of(job)).iter().any(ours), "{:#?}", world.gitea.state(job));
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// NEW-27: a step that cannot be recorded on its executor is not told to Gitea either; when it can be, everything goes on.
#[tokio::test]
async fn steps_are_recorded_before_gitea_hears_of_them() {
    let world = world(1).await;
    let job = world.push_one(job("steps", &["gate first", "gate second"]));
    let step = |gitea: &Gitea, at: usize| gitea.state(job).steps[at].status;
    world.desk.arrived("first", 1, SOON).await;
    world.gitea_shows("the first step runs", |gitea| step(gitea, 0) == Status::Running).await;
    // Nothing can be written in the place of a folder.
    let in_the_way = world.state().join("executors").join(&world.executors()[0]).join("meta.loose");
    std::fs::create_dir(&in_the_way).unwrap();
    world.desk.open_gate("first");
    world.desk.arrived("second", 1, SOON).await;
    // Counted with the answer: by then Gitea would have heard it, and of the second call what the first one noted as well.
    let refused = eventually("two states were refused", SOON, async || {
        let metrics = world.metrics().await;
        let heard = step(&world.gitea, 0) != Status::Running;
        Ok(if refused_states(&metrics) > 1 || heard { Seen::Done(()) } else { Seen::NotYet(metrics) })
    });
    refused.await.unwrap();
    assert_eq!(step(&world.gitea, 0), Status::Running);
    assert!(world.log().contains("record of the steps"), "{}", world.log());
    std::fs::remove_dir(&in_the_way).unwrap();
    world.gitea_shows("the first step is over", |gitea| step(gitea, 0) == Status::Success).await;
    world.desk.open_gate("second");
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

/// How many states of runners the facade could not take so far.
fn refused_states(metrics: &str) -> u32 {
    let labels = "gdr_facade_requests_total{method=\"UpdateTask\",code=\"unavailable\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(labels)).map_or(0, |count| count.parse().unwrap())
}

fn none(count: usize) -> Result<(), String> {
    if count == 0 { Ok(()) } else { Err(format!("{count} left")) }
}
