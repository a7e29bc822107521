//! A controller that ends takes nothing with it: the next one adopts what runs, and judges what does not.

use std::sync::Mutex;
use std::time::Duration;

use testkit::gitea::{Call, CallEnd, FaultSpec, Gitea, JobId, JobState, Latency, Method, Status};
use testkit::outcome::Rule;
use testkit::real::{Seen, Signal, eventually};
use testkit::world::{Allowance, Note, Plan, SOON, World, job};

use crate::{planned, world};

const STEPS: [&str; 2] = ["burst 20\ngate middle\nsay after", "say second"];

/// A job that waits in the middle of its first step, with its rows and its step so far in Gitea.
async fn in_the_middle(world: &World) -> JobId {
    let job = world.push_one(job("long", &STEPS));
    let stored = |gitea: &Gitea| gitea.state(job).steps.first().is_some_and(|step| step.log_length >= 20);
    world.gitea_shows("the rows before the gate are stored", stored).await;
    job
}

/// SUCCESS, every row once and in order, under its own step.
async fn assert_nothing_lost(world: &World, job: JobId) -> JobState {
    let state = world.ends_as(job, Status::Success, SOON).await;
    let first: Vec<_> = (1..=20).map(|row| format!("row {row}")).chain(["after".to_owned()]).collect();
    assert_eq!(state.page().steps, [first, vec!["second".to_owned()]], "{state:#?}");
    assert_eq!(state.steps.iter().map(|step| step.status).collect::<Vec<_>>(), [Status::Success; 2]);
    state
}

/// T5, NEW-53, NEW-54: `kill -9` in mid-job and a new start.
#[tokio::test]
async fn a_killed_controller_adopts_its_job() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    world.kill9();
    world.restart();
    world.desk.open_gate("middle");
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

/// NEW-2, NEW-62: what an earlier registration left holds its slot while it runs, and is removed with a reason when it has
/// ended; nobody has to delete a folder.
#[tokio::test]
async fn an_executor_of_an_earlier_registration_goes_when_it_has_ended() {
    let mut world = world(1).await;
    let earlier = world.push_one(job("earlier", &["gate never"]));
    world.desk.arrived("never", 1, SOON).await;
    world.allow(Allowance::Unended(earlier));
    world.allow(Allowance::Breaks(Rule::RegisteredTwice));
    let acked = |world: &World| world.log().contains(r#""event":"acked""#).then_some(()).ok_or(world.log());
    world.eventually("its message left the queue", SOON, acked).await;
    world.kill9();
    std::fs::remove_file(world.state().join("registration.json")).unwrap();
    world.restart();
    let says = |word: &'static str| {
        move |world: &World| if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?}")) }
    };
    world.eventually("it is told", SOON, says("an earlier registration, and this is")).await;
    assert!(world.log().contains("it is removed when its job is over, at "), "{}", world.log());
    assert_eq!(world.runners().len(), 1, "the job lives on");
    let (_, status) = world.status().await;
    assert!(status.contains("local: 1 of 1 slots used"), "{status}");
    world.signal_only(&world.executor_processes(), Signal::Kill);
    let gone = |world: &World| if world.executors().is_empty() { Ok(()) } else { Err("still there".to_owned()) };
    world.eventually("it is removed", SOON, gone).await;
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    world.finish().await;
}

/// CMP-10: the end in order leaves the job alone and says success itself.
#[tokio::test]
async fn a_controller_ended_in_order_adopts_its_job() {
    let mut world = world(1).await;
    let job = in_the_middle(&world).await;
    let status = world.sigterm(SOON).await;
    assert!(status.success(), "{status}");
    assert_eq!(world.runners().len(), 1, "the job lives on");
    world.restart();
    world.desk.open_gate("middle");
    assert_nothing_lost(&world, job).await;
    world.finish().await;
}

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

/// T6, NEW-53, NEW-54, ADM-1, REG-1, REG-5, F40: the controller is killed, once and twice, when an executor exists that
/// has not asked for its task: it is adopted and gets it.
#[tokio::test]
async fn a_kill_between_create_and_claim() {
    let mut world = world(1).await;
    for kills in [1, 2] {
        let gate = format!("{kills}-kills");
        let job = world.push_one(job("early", &[&format!("gate {gate}")]));
        world.eventually("its executor exists", SOON, |world| some(world.executors().len())).await;
        for _ in 0..kills {
            world.kill9();
            let declared = world.gitea.counters().declares;
            world.restart();
            world.gitea_shows("it declared itself", |gitea| gitea.counters().declares > declared).await;
        }
        world.desk.open_gate(&gate);
        world.ends_as(job, Status::Success, SOON).await;
        world.nothing_left().await;
    }
    assert!(!world.log().contains(r#""epoch":2"#), "a second executor was made");
    world.finish().await;
}

/// T5, T83, NEW-53, NEW-62, F162: three jobs that report all the time, through four kills: whatever a new controller is
/// asked before it knows what exists, no row is swallowed and no job is stopped.
#[tokio::test]
async fn chatty_jobs_through_four_kills() {
    let mut world = world(3).await;
    let steps: Vec<String> = (0..40).map(|step| format!("say step {step}\nsleep 15")).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let jobs = world.push(["one", "two", "three"].map(|key| job(key, &steps)));
    for _ in 0..4 {
        let logs = world.gitea.counters().update_logs + 12;
        let enough = |gitea: &Gitea| gitea.counters().update_logs >= logs || all_over(gitea, &jobs);
        world.gitea_shows("some more rows", enough).await;
        world.kill9();
        world.restart();
    }
    let expected: Vec<Vec<String>> = (0..40).map(|step| vec![format!("step {step}")]).collect();
    for job in &jobs {
        let state = world.ends_as(*job, Status::Success, SOON).await;
        assert_eq!(state.page().steps, expected, "{:#?}", state.rows());
    }
    world.finish().await;
}

/// NEW-54, NEW-62: a new controller whose first look at its executors takes long: until it is over, a job that reports is
/// neither stopped nor robbed of its rows.
#[tokio::test]
async fn a_slow_first_list() {
    let mut world = world(1).await;
    let steps: Vec<String> = (0..60).map(|step| format!("say step {step}\nsleep 15")).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let job = world.push_one(job("chatty", &steps));
    world.gitea_shows("some rows", |gitea| gitea.counters().update_logs > 5).await;
    world.kill9();
    // The list reads every folder; nobody writes into this pipe.
    let stuck = world.state().join("executors/stuck");
    std::fs::create_dir(&stuck).unwrap();
    let blocked = stuck.join("meta.json");
    pipe(&blocked);
    world.restart();
    world.eventually("its executor calls", SOON, |world| some(connections(world))).await;
    world.desk.nobody_tells("told", Duration::from_secs(1)).await;
    let writer = std::fs::OpenOptions::new().write(true).open(&blocked).unwrap();
    std::fs::remove_dir_all(&stuck).unwrap();
    drop(writer);
    let state = world.ends_as(job, Status::Success, SOON).await;
    let expected: Vec<Vec<String>> = (0..60).map(|step| vec![format!("step {step}")]).collect();
    assert_eq!(state.page().steps, expected, "{:#?}", state.rows());
    world.finish().await;
}

/// NEW-148, NEW-149: the program's file is replaced while it runs, as the first step of an upgrade: what it starts until it
/// is stopped is still the program that runs, and its jobs succeed.
#[tokio::test]
async fn a_program_whose_file_was_replaced_still_starts_jobs() {
    let world = world(1).await;
    let (file, new) = (world.program(), world.state().join("../bin/new"));
    std::fs::copy(&file, &new).unwrap();
    std::fs::rename(&new, &file).unwrap();
    let job = world.push_one(job("meanwhile", &["say here"]));
    world.ends_as(job, Status::Success, SOON * 2).await;
    assert!(!world.log().contains(r#""epoch":2"#), "{}", world.log());
    world.finish().await;
}

/// A pipe that nobody writes into or reads from: whoever opens it waits.
fn pipe(path: &std::path::Path) {
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
}

/// So long a signal that ends at once may take on a busy machine; every other limit of an end is longer.
const AT_ONCE: Duration = Duration::from_secs(8);

/// CMP-10: a second signal ends at once, whatever is stuck: a FetchTask that Gitea does not answer, and a disk.
#[tokio::test]
async fn a_second_signal_waits_for_nothing() {
    let mut world = world(1).await;
    let fetches = world.gitea.counters().fetches;
    world.gitea.fail_next(Method::FetchTask, FaultSpec::hang());
    world.gitea_shows("a FetchTask hangs", |gitea| gitea.counters().fetches > fetches).await;
    let stuck = world.state().join("executors/stuck");
    std::fs::create_dir(&stuck).unwrap();
    let blocked = stuck.join("meta.json");
    pipe(&blocked);
    // Succeeds as soon as somebody reads; as long as it is open, the reader waits for more.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let writer = Mutex::new(None);
    let is_read = |_: &World| {
        let opened = rustix::fs::open(&blocked, flags, rustix::fs::Mode::empty()).map_err(|error| error.to_string())?;
        *writer.lock().unwrap() = Some(opened);
        Ok(())
    };
    world.eventually("a list is stuck", SOON, is_read).await;
    world.ask_to_end();
    let waits = "stopping: waiting for the FetchTask under way, at most 70s";
    world.eventually("it waits", SOON, |world| world.log().contains(waits).then_some(()).ok_or(world.log())).await;
    world.ask_to_end();
    let status = world.ended(AT_ONCE).await;
    assert!(status.success(), "{status}");
    std::fs::remove_dir_all(&stuck).unwrap();
    world.restart();
    world.finish().await;
}

/// CMP-7, CMP-10: a signal that comes before anything runs ends the start, in order and at once.
#[tokio::test]
async fn a_signal_ends_a_start() {
    let mut world = crate::planned(Plan::capacity(1).embedded()).await;
    assert!(world.sigterm(SOON).await.success());
    // The start waits 5 s for whoever holds the file, and then fails.
    let holder = rusqlite::Connection::open(world.state().join("queue.db")).unwrap();
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let starts = |world: &World| world.log().matches(r#""event":"starting""#).count();
    let before = starts(&world);
    world.restart();
    let begun = |world: &World| (starts(world) > before).then_some(()).ok_or(world.log());
    world.eventually("it starts", SOON, begun).await;
    world.ask_to_end();
    let status = world.ended(AT_ONCE).await;
    assert!(status.success(), "{status}");
    drop(holder);
    world.restart();
    world.finish().await;
}

/// Connections that the facade holds.
fn connections(world: &World) -> usize {
    let port = std::fs::read_to_string(world.state().join("facade.port")).unwrap();
    let local = format!("0100007F:{:04X}", port.trim().parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let established = |line: &&str| line.split_whitespace().nth(3) == Some("01");
    table.lines().filter(established).filter(|line| line.split_whitespace().nth(1) == Some(&local)).count()
}

/// T5, F06, NEW-53: `kill -9` after any call: every task is executed once with its true result, but for one whose
/// FetchTask was answered to a process that died before it could keep it.
#[tokio::test]
async fn kills_at_random_moments() {
    let mut world = world(4).await;
    let jobs = world.push((0..12).map(|number| job(&format!("job{number}"), &["say here", "sleep 60"])));
    let mut seed: u64 = std::env::var("GDR_SEED").map_or(0x2545_f491_4f6c_dd1d, |seed| seed.parse().unwrap());
    world.remember(format!("GDR_SEED={seed}"));
    for _ in 0..8 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let calls = world.gitea.calls().len() + 1 + usize::try_from(seed % 12).unwrap();
        let enough = |gitea: &Gitea| gitea.calls().len() >= calls || all_over(gitea, &jobs);
        world.gitea_shows("some more calls", enough).await;
        world.kill9();
        world.restart();
    }
    world.eventually("all have ended or were lost", SOON * 2, |world| unsettled(world, &jobs)).await;
    for job in jobs {
        let state = world.gitea.state(job);
        let executed = world.desk.executions().contains_key(&state.task.unwrap());
        assert_eq!(executed, state.status == Status::Success, "{state:#?}");
        if state.status == Status::Running {
            world.allow(Allowance::Unended(job));
        }
    }
    world.finish().await;
}

fn all_over(gitea: &Gitea, jobs: &[JobId]) -> bool {
    jobs.iter().all(|job| gitea.state(*job).status.is_end())
}

/// A fetched task of which no controller ever said that it keeps it is lost for good.
fn unsettled(world: &World, jobs: &[JobId]) -> Result<(), String> {
    let log = world.log();
    let kept = |task: i64| {
        let about = format!(r#""assignment":"gitea-task-{task}""#);
        log.lines().any(|line| line.contains(&about) && !line.contains(r#""event":"fetched""#))
    };
    let open = jobs.iter().map(|job| world.gitea.state(*job)).filter(|state| !state.status.is_end());
    let open: Vec<_> = open.filter(|state| state.task.is_none_or(kept)).map(|state| state.job).collect();
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?}")) }
}

/// T7, NEW-26, F62, F41: `kill -9` of an executor or its runner: FAILURE, the cause on the page, steps closed, slot
/// free.
#[tokio::test]
async fn a_killed_executor_fails_its_job_with_a_reason() {
    let world = world(1).await;
    for process in [World::executor_processes, World::runners] {
        let job = in_the_middle(&world).await;
        world.signal_only(&process(&world), Signal::Kill);
        let state = world.ends_as(job, Status::Failure, SOON).await;
        assert!(state.page().steps[0].iter().any(|row| row.starts_with("##[error]executor_")), "{:?}", state.page());
        assert!(state.steps.iter().all(|step| step.status.is_end()), "{:?}", state.steps);
    }
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    world.finish().await;
}

fn some(count: usize) -> Result<(), String> {
    if count > 0 { Ok(()) } else { Err("none".to_owned()) }
}

fn none(count: usize) -> Result<(), String> {
    if count == 0 { Ok(()) } else { Err(format!("{count} left")) }
}

/// How many states of runners the facade could not take so far.
fn refused_states(metrics: &str) -> u32 {
    let labels = "gdr_facade_requests_total{method=\"UpdateTask\",code=\"unavailable\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(labels)).map_or(0, |count| count.parse().unwrap())
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
