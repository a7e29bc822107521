//! Executors that no running job explains: found at a start, damaged, removed by hand, or of another life of their number.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::gitea::{Call, Gitea, JobId, Latency, Method, Status};
use testkit::outcome::Rule;
use testkit::real::Signal;
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::{planned, world};

fn none(count: usize) -> Result<(), String> {
    if count == 0 { Ok(()) } else { Err(format!("{count} left")) }
}

fn some(count: usize) -> Result<(), String> {
    if count > 0 { Ok(()) } else { Err("none".to_owned()) }
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}

fn folder(world: &World, job: JobId) -> PathBuf {
    let of_task = format!("gitea-task-{}-", world.task_of(job));
    world.state().join("executors").join(world.executors().into_iter().find(|name| name.starts_with(&of_task)).unwrap())
}

/// Waits until `status` says this.
async fn status_says(world: &World, words: &str) -> String {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let (_, status) = world.status().await;
        if status.contains(words) {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "no {words:?} in {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until Gitea has carried out what a killed controller had asked of it.
async fn carried_out(world: &World) {
    let done = |call: &Call| call.method != Method::UpdateTask || call.result.is_some();
    world.gitea_shows("all is carried out", |gitea| gitea.calls().iter().all(done)).await;
}

/// Jobs that run, each at a gate of its own key.
async fn running(world: &World, keys: &[&str]) -> Vec<JobId> {
    let jobs = keys.iter().map(|key| world.push_one(job(key, &[&format!("gate {key}")]))).collect();
    for key in keys {
        world.desk.arrived(key, 1, SOON).await;
    }
    let acked = |world: &World| match world.log().matches(r#""event":"acked""#).count() {
        count if count == keys.len() => Ok(()),
        count => Err(format!("{count} acked")),
    };
    world.eventually("their messages have left the queue", SOON, acked).await;
    jobs
}

/// `kill -9` to executors, and to all their processes with them.
async fn kill(world: &World, jobs: &[JobId]) {
    let folders: Vec<PathBuf> = jobs.iter().map(|job| folder(world, *job)).collect();
    let tasks: Vec<i64> = jobs.iter().map(|job| world.task_of(*job)).collect();
    let of_them = world
        .executor_processes()
        .into_iter()
        .filter(|process| process.task().is_some_and(|task| tasks.contains(&task)));
    of_them.for_each(|process| process.signal(Signal::Kill));
    let last_words = |_: &World| match folders.iter().filter(|folder| !folder.join("exit.json").exists()).count() {
        0 => Ok(()),
        count => Err(format!("{count} without a last word")),
    };
    world.eventually("they have ended", SOON, last_words).await;
}

/// Where in the log an event of a job stands.
fn at(world: &World, job: JobId, event: &str) -> Option<usize> {
    let (event, task) = (format!(r#""event":"{event}""#), format!(r#""task_id":{},"#, world.task_of(job)));
    world.log().lines().position(|line| line.contains(&event) && line.contains(&task))
}

/// T46, WRK-8, NEW-54, NEW-55, F44: executors that ended while no controller was there, half of them of jobs that Gitea has ended
/// meanwhile: those that run for Gitea are reported with a reason, all are removed, and their slots serve other jobs.
#[tokio::test]
async fn finished_ones_at_a_start() {
    let mut world = world(6).await;
    let jobs = running(&world, &["one", "two", "three", "four", "five", "six"]).await;
    let (lost, cancelled) = jobs.split_at(3);
    world.kill9();
    kill(&world, &jobs).await;
    carried_out(&world).await;
    cancelled.iter().for_each(|job| world.gitea.cancel(*job));
    world.restart();
    for job in lost {
        let state = world.ends_as(*job, Status::Failure, SOON).await;
        assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_")), "{:?}", state.rows());
        let deleted = |world: &World| at(world, *job, "executor_deleted").map(drop).ok_or("not yet".to_owned());
        world.eventually("its executor is deleted", SOON, deleted).await;
        assert!(at(&world, *job, "reported") < at(&world, *job, "executor_deleted"), "{}", world.log());
    }
    let next = ["seven", "eight", "nine", "ten", "eleven", "twelve"];
    let next = world.push(next.map(|key| job(key, &["gate next"])));
    world.desk.arrived("next", 6, SOON).await;
    world.desk.open_gate("next");
    world.all_succeed(&next, SOON).await;
    for job in cancelled {
        assert_eq!(world.gitea.state(*job).status, Status::Cancelled);
    }
    world.finish().await;
}

/// Writes a folder as an executor's, with this `meta.json`.
fn broken(executors: &Path, name: &str, meta: &str) {
    std::fs::create_dir(executors.join(name)).unwrap();
    std::fs::write(executors.join(name).join("meta.json"), meta).unwrap();
}

/// T22, NEW-56, ENV-8, ADM-5, F45: among good executors there are some that cannot be read, each in another way, and one
/// that has ended. The controller starts and is ready; the good ones go on, the ended one is reported, and each broken one is
/// told, shown, counted, and holds its slot until somebody removes it.
#[tokio::test]
async fn broken_ones_at_a_start() {
    let mut world = world(10).await;
    let jobs = running(&world, &["one", "two", "ended"]).await;
    world.kill9();
    kill(&world, &jobs[2..]).await;
    let good: Value =
        serde_json::from_slice(&std::fs::read(folder(&world, jobs[0]).join("meta.json")).unwrap()).unwrap();
    let executors = world.state().join("executors");
    let instance = good["labels"]["ci.ddupan.top/instance"].as_str().unwrap().to_owned();
    let with = |kind: &str, key: &str, value: Value| {
        let mut meta = good.clone();
        meta[kind][format!("ci.ddupan.top/{key}")] = value;
        meta.to_string()
    };
    let metas = [
        json!({"labels": {}, "annotations": good["annotations"]}).to_string(),
        with("labels", "task-id", json!("-7")),
        with("labels", "backend", json!("cloud")),
        with("annotations", "spiffe-id", json!("spiffe://other.example/ci/a/b/c")),
        with("annotations", "deadline", json!("soon")),
        good.to_string()[..40].to_owned(),
    ];
    let names: Vec<String> = (101..).take(metas.len()).map(|task| format!("gitea-task-{task}-{instance}-e1")).collect();
    names.iter().zip(&metas).for_each(|(name, meta)| broken(&executors, name, meta));
    world.restart();
    let state = world.ends_as(jobs[2], Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_")), "{:?}", state.rows());
    world.eventually("the ended one is removed", SOON, |world| none(world.executors().len() - 8)).await;
    let status = status_says(&world, "local: 8 of 10 slots used").await;
    assert!(status.contains(": ready, leads"), "{status}");
    let quarantined: Vec<&str> = status.lines().filter(|line| line.contains("quarantined")).collect();
    assert!(names.iter().all(|name| quarantined.iter().any(|line| line.contains(name))), "{status}");
    let metrics = world.metrics().await;
    let counted = metrics.lines().any(|line| line.starts_with("gdr_quarantined{") && line.ends_with(" 6"));
    assert!(counted, "{metrics}");
    assert_eq!(world.log().matches(r#""event":"executor_quarantined""#).count(), 6);
    let more = world.push(["three", "four", "five"].map(|key| job(key, &["gate more"])));
    world.desk.arrived("more", 2, SOON).await;
    let held = |gitea: &Gitea| more.iter().filter(|job| gitea.state(**job).task.is_some()).count();
    assert_eq!(held(&world.gitea), 2, "what cannot be read holds a slot");
    names.iter().for_each(|name| std::fs::remove_dir_all(executors.join(name)).unwrap());
    world.desk.arrived("more", 3, SOON).await;
    for gate in ["one", "two", "more"] {
        world.desk.open_gate(gate);
    }
    world.all_succeed(&more, SOON).await;
    world.all_succeed(&jobs[..2], SOON).await;
    world.finish().await;
}

/// T7, NEW-64, F41: the folder of a running executor is removed by hand: its job ends with a reason, what it left goes, and
/// its slot serves the next one.
#[tokio::test]
async fn removed_by_hand() {
    let world = world(1).await;
    let job_ = running(&world, &["gone"]).await[0];
    let folder = folder(&world, job_);
    // The executor writes there meanwhile.
    world
        .eventually("its folder is removed", SOON, |_| match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(()) => Ok(()),
        })
        .await;
    let state = world.ends_as(job_, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_deleted:")), "{:?}", state.rows());
    world.nothing_left().await;
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    world.finish().await;
}

/// Where the mark of an end is written first: a folder there keeps every mark from being written.
fn in_the_way_of_marks(world: &World, job: JobId) -> PathBuf {
    let in_the_way = folder(world, job).join("meta.json.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    in_the_way
}

fn marked(task: i64) -> String {
    format!(r#""event":"terminal_marked","backend":"local","assignment":"gitea-task-{task}""#)
}

/// T10, FAC-9, NEW-26, NEW-101, F25, F109: the end of a job cannot be marked on its executor, as on a disk that it has filled.
/// The runner has its answer at once and ends well, the executor goes without the mark, and its slot is free. Gitea is told
/// once.
#[tokio::test]
async fn a_mark_that_cannot_be_written() {
    let world = world(1).await;
    let first = running(&world, &["first"]).await[0];
    let task = world.task_of(first);
    in_the_way_of_marks(&world, first);
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    let told = |notes: &[testkit::world::Note]| notes.iter().any(|note| note.verb == "final" && note.rest == "SUCCESS");
    world.desk.until("the runner has its answer", SOON, told).await;
    world.eventually("the executor ends", SOON, |world| none(world.executor_processes().len())).await;
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    assert!(!world.log().contains(&marked(task)), "{}", world.log());
    let fetched = fetch_of(&world, next).instant;
    let end = world.gitea.calls_of(task).into_iter().rfind(|call| call.told().is_some()).unwrap();
    assert!(fetched > end.instant);
    let state = world.gitea.state(first);
    assert_eq!((state.updates_after_end, state.completed_webhooks), (0, 1));
    world.finish().await;
}

/// NEW-101, F109: as long as its runner tidies up, a mark that failed is tried again.
#[tokio::test]
async fn a_mark_is_tried_again_while_its_runner_is_there() {
    let mut world = planned(Plan::capacity(1).set("TERMINAL_GRACE", "15s")).await;
    // Its runner says itself how it ends, and stays.
    world.allow(Allowance::Breaks(Rule::FalseSuccess));
    world.allow(Allowance::Breaks(Rule::Rows));
    let stays = world.push_one(job("stays", &["gate first\non-cancel ignore\ntry success\nhang"]));
    world.desk.arrived("first", 1, SOON).await;
    let task = world.task_of(stays);
    let in_the_way = in_the_way_of_marks(&world, stays);
    world.desk.open_gate("first");
    world.ends_as(stays, Status::Success, SOON).await;
    world.eventually("the mark failed", SOON, |world| says(world, "terminal mark: ")).await;
    assert!(!world.log().contains(&marked(task)), "{}", world.log());
    std::fs::remove_dir(&in_the_way).unwrap();
    world.eventually("it is marked", SOON, |world| says(world, &marked(task))).await;
    assert_eq!(world.executors().len(), 1, "it has its grace");
    world.finish().await;
}

/// The FetchTask that brought a job.
fn fetch_of(world: &World, job: JobId) -> Call {
    let calls = world.gitea.calls_of(world.task_of(job));
    calls.into_iter().find(|call| call.method == Method::FetchTask).unwrap()
}

/// ADM-3: three jobs run when the controller is started again with one slot: they go on, and another job is fetched when
/// the last of them has ended, not before.
#[tokio::test]
async fn a_lower_capacity() {
    let mut world = world(3).await;
    let jobs = running(&world, &["one", "two", "three"]).await;
    assert!(world.sigterm(SOON).await.success());
    let declares = world.gitea.counters().declares;
    world.restart_with(1);
    world.gitea_shows("it has declared itself", |gitea| gitea.counters().declares > declares).await;
    let waits = world.push_one(job("waits", &["say here"]));
    for (at, gate) in ["one", "two", "three"].into_iter().enumerate() {
        status_says(&world, &format!("local: {} of 1 slots used", 3 - at)).await;
        world.desk.open_gate(gate);
        world.ends_as(jobs[at], Status::Success, SOON).await;
        world
            .eventually("its executor has gone", SOON, |world| none(world.executors().len().saturating_sub(2 - at)))
            .await;
    }
    world.ends_as(waits, Status::Success, SOON).await;
    let last = world.gitea.calls_of(world.task_of(jobs[2])).into_iter().rfind(|call| call.told().is_some()).unwrap();
    assert!(fetch_of(&world, waits).instant > last.instant, "fetched beyond the capacity");
    world.finish().await;
}

/// WRK-7, NEW-63: a kill between create and claim, and the executor with all it had is gone: the next controller makes it
/// again under its old name, with the very material that it had.
#[tokio::test]
async fn made_again() {
    let mut world = world(1).await;
    // The claim takes two calls, so there is time before it.
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(1)));
    let job = world.push_one(job("again", &["say here"]));
    world.eventually("its runner is up", SOON, |world| some(world.runners().len())).await;
    world.kill9();
    let (place, read) = (folder(&world, job), |place: &Path, name: &str| std::fs::read(place.join(name)).unwrap());
    let before = ["launch.json", "meta.json"].map(|name| read(&place, name));
    world.executor_processes().iter().for_each(|process| process.signal(Signal::Kill));
    world.eventually("the executor has gone", SOON, |world| none(world.executor_processes().len())).await;
    world.eventually("its last word is written", SOON, |_| some(usize::from(place.join("exit.json").exists()))).await;
    std::fs::remove_dir_all(&place).unwrap();
    carried_out(&world).await;
    world.restart();
    world.eventually("it is made again", SOON, |_| some(usize::from(place.join("meta.json").exists()))).await;
    let after = ["launch.json", "meta.json"].map(|name| read(&place, name));
    world.gitea.set_latency(Latency::default());
    for (before, after) in before.iter().zip(&after) {
        let [before, after] = [before, after].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(before, after);
    }
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

/// T14, NEW-3, F24, F75: Gitea is restored from a backup and counts from an older number. What comes under a number that a
/// running executor and a waiting message still have runs once, with its own payload; the old job and the old message end.
#[tokio::test]
async fn the_same_number_again() {
    let mut world = planned(Plan::capacity(2).set("LOOK_AHEAD", "2")).await;
    let jobs = running(&world, &["old", "other"]).await;
    let waiting = world.push_one(job("old-waiting", &["say never"]));
    world.gitea_shows("it is held", |gitea| gitea.state(waiting).task.is_some()).await;
    let stored = |world: &World| {
        says(
            world,
            &format!(r#""event":"dispatched","backend":"local","assignment":"gitea-task-{}""#, world.task_of(waiting)),
        )
    };
    world.eventually("it is in the queue", SOON, stored).await;
    let (first, third) = (world.task_of(jobs[0]), world.task_of(waiting));
    assert_eq!((first, third), (1, 3));
    world.gitea.restore_before(third);
    let again = world.push_one(job("new-waiting", &["say new three"]));
    world.gitea_shows("its number is given again", |gitea| gitea.state(again).task == Some(third)).await;
    world.desk.open_gate("other");
    let state = world.ends_as(again, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [["new three"]]);
    world.gitea.restore_before(first);
    let again = world.push_one(job("new", &["say new one"]));
    let state = world.ends_as(again, Status::Success, SOON).await;
    assert_eq!((state.task, state.page().steps), (Some(first), vec![vec!["new one".to_owned()]]));
    let over = |world: &World| if world.executors().is_empty() { Ok(()) } else { Err("executors".to_owned()) };
    world.eventually("the older executor has gone", SOON, over).await;
    world.allow(Allowance::Breaks(Rule::RunTwice));
    world.finish().await;
}

/// What lies in the queue, to be put back later.
fn queue_files(world: &World) -> Vec<(PathBuf, Vec<u8>)> {
    let files = ["queue.db", "queue.db-wal", "queue.db-shm"].map(|name| world.state().join(name));
    files.into_iter().filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?))).collect()
}

fn put_back(world: &World, files: &[(PathBuf, Vec<u8>)]) {
    queue_files(world).into_iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
    files.iter().for_each(|(path, content)| std::fs::write(path, content).unwrap());
}

/// T11, WRK-8, NEW-23, NEW-45, NEW-63, F32: the acknowledgement of a message is lost, so that it is there again for the next
/// controller, which knows nothing of it: once while its job runs, once when that has ended. The running one is joined, for
/// the ended one nothing is made; it is executed once, and its message goes.
#[tokio::test]
async fn a_message_that_comes_back() {
    let mut world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1").embedded()).await;
    let first = running(&world, &["first"]).await[0];
    let second = world.push_one(job("second", &["gate second\nsay after"]));
    let is_queued = |world: &World| match world.queue().tasks() {
        Ok(tasks) if tasks.len() == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    };
    world.eventually("it waits in the queue", SOON, is_queued).await;
    assert!(world.sigterm(SOON).await.success());
    let files = queue_files(&world);
    world.restart();
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    world.desk.arrived("second", 1, SOON).await;
    let task = world.task_of(second);
    let acked = |world: &World| at(world, second, "acked").map(drop).ok_or("not yet".to_owned());
    world.eventually("its message has left the queue", SOON, acked).await;
    world.kill9();
    put_back(&world, &files);
    world.restart();
    world.desk.open_gate("second");
    let state = world.ends_as(second, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [["after"]]);
    world.nothing_left().await;
    assert!(world.sigterm(SOON).await.success());
    put_back(&world, &files);
    let made = world.log().matches("executor_created").count();
    world.restart();
    world.nothing_left().await;
    assert_eq!(world.log().matches("executor_created").count(), made, "an executor for a job that has ended");
    assert_eq!(world.desk.told(task, "task").len(), 1);
    // Without a record the next controller asks once.
    world.allow(Allowance::Breaks(Rule::UpdateAfterEnd));
    world.finish().await;
}
