//! A controller that ends takes nothing with it: the next one adopts what runs, and judges what does not.

use std::sync::Mutex;
use std::time::Duration;

use testkit::gitea::{FaultSpec, Gitea, JobId, JobState, Method, Status};
use testkit::outcome::Rule;
use testkit::real::Signal;
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::{planned, world};

const STEPS: [&str; 2] = ["burst 20\ngate middle\nsay after", "say second"];

/// A job that waits in the middle of its first step, with its rows and its step so far in Gitea.
pub(crate) async fn in_the_middle(world: &World) -> JobId {
    let job = world.push_one(job("long", &STEPS));
    let stored = |gitea: &Gitea| gitea.state(job).steps.first().is_some_and(|step| step.log_length >= 20);
    world.gitea_shows("the rows before the gate are stored", stored).await;
    job
}

/// SUCCESS, every row once and in order, under its own step.
pub(crate) async fn assert_nothing_lost(world: &World, job: JobId) -> JobState {
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
    let mut world = planned(Plan::capacity(1).embedded()).await;
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
