//! What an operator hears: one event per step of a task, and metrics that move (requirements §3, NEW-130).

use connectrpc::ErrorCode;
use serde_json::{Value, json};
use testkit::gitea::{FaultSpec, JobId, Method, Status};
use testkit::real::Signal;
use testkit::world::{Plan, SOON, World, job};

use crate::{planned, world};

/// The log lines of one task, without their times.
fn lines(world: &World, job: JobId) -> Vec<Value> {
    let task = world.task_of(job);
    let lines = world.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect::<Vec<_>>();
    let mut lines: Vec<_> = lines.into_iter().filter(|line| line["task_id"] == task).collect();
    for line in &mut lines {
        line.as_object_mut().unwrap().remove("timestamp");
    }
    lines
}

fn happened(world: &World, job: JobId, event: &str) -> Result<(), String> {
    let events: Vec<_> = lines(world, job).into_iter().map(|line| line["event"].clone()).collect();
    if events.iter().any(|told| told == event) { Ok(()) } else { Err(format!("{event} is not among {events:?}")) }
}

/// The sum of a metric's values over all label sets with these words in them.
fn sum(metrics: &str, name: &str, labels: &str) -> f64 {
    let of_it = |line: &&str| {
        let (before, after) = (line.split(['{', ' ']).next(), line.contains(labels));
        before == Some(name) && after
    };
    let values = metrics.lines().filter(of_it).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum()
}

async fn counts(world: &World, name: &str, labels: &str) {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let metrics = world.metrics().await;
        if sum(&metrics, name, labels) > 0.0 {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{name}{{{labels}}} did not move:\n{metrics}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// §3, NEW-26: what a killed executor said last is told once, before its folder goes; one that ended in order is no news.
#[tokio::test]
async fn the_last_words_of_a_killed_executor() {
    let world = world(1).await;
    let fine = world.push_one(job("fine", &["say here"]));
    world.ends_as(fine, Status::Success, SOON).await;
    world.nothing_left().await;
    let killed = world.push_one(job("killed", &["gate never"]));
    world.desk.arrived("never", 1, SOON).await;
    world.signal_only(&world.executor_processes(), Signal::Kill);
    world.ends_as(killed, Status::Failure, SOON).await;
    world.nothing_left().await;
    let of = |job| lines(&world, job).into_iter().filter(|line| line["message"] == "executor log").collect::<Vec<_>>();
    let told = of(killed);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["level"], &told[0]["cause"]), (&json!("WARN"), &json!("the executor was ended by signal 9")));
    assert!(told[0]["said"].as_str().unwrap().contains("the exact SVID is there"), "{told:?}");
    assert!(of(fine).is_empty());
    world.finish().await;
}

/// WRK-4, PRC-3, NEW-127, §3: every line of a task that succeeds, in order.
#[tokio::test]
async fn one_whole_task() {
    let world = world(1).await;
    let job = world.push_one(job("whole", &["gate here"]));
    world.desk.arrived("here", 1, SOON).await;
    // Two rooms go on beside the job: the message leaves the queue, and the end is marked while the executor ends.
    world.eventually("its message left the queue", SOON, |world| happened(world, job, "acked")).await;
    world.desk.open_gate("here");
    world.ends_as(job, Status::Success, SOON).await;
    world.nothing_left().await;
    let (marked, lines): (Vec<_>, _) = lines(&world, job).into_iter().partition(|l| l["event"] == "terminal_marked");
    assert_eq!(marked.len(), 1);
    let (audit, lines): (Vec<_>, _) = lines.into_iter().partition(|line| line["message"] == "identity audit");
    assert_eq!((audit.len(), &audit[0]["event"], &audit[0]["rule"]), (1, &json!("granted"), &json!("event")));
    let executor = lines.iter().find_map(|line| line["executor"].as_str()).unwrap().to_owned();
    let task = world.task_of(job);
    let assignment = |event: &str| {
        json!({"level": "INFO", "message": "assignment transition", "component": "worker", "event": event,
            "backend": "local", "assignment": format!("gitea-task-{task}"), "task_id": task})
    };
    let with = |mut line: Value, more: Value| {
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let launched = |event| with(assignment(event), json!({"epoch": 1}));
    let of_executor = |event| with(launched(event), json!({"message": "executor transition", "executor": executor}));
    let running = |event| with(of_executor(event), json!({"phase": "running"}));
    let expected = [
        assignment("fetched"),
        assignment("dispatched"),
        launched("received"),
        launched("capacity_acquired"),
        of_executor("executor_absent"),
        running("executor_created"),
        running("identity_bound"),
        launched("backend_ready"),
        launched("offered"),
        launched("runner_claimed"),
        launched("confirmed"),
        launched("acked"),
        with(launched("terminal_accepted"), json!({"cause": "success"})),
        with(of_executor("executor_finished"), json!({"phase": "succeeded"})),
        of_executor("identity_released"),
        with(of_executor("executor_deleted"), json!({"cause": "ended"})),
    ];
    assert_eq!(lines, expected, "{lines:#?}");
    world.finish().await;
}

/// NEW-28: the first row of a job's log tells what its start took: slot, executor, identity, claim, each with seconds; a
/// job that waited has a row about the wait before it.
#[tokio::test]
async fn the_start_of_a_job_in_its_log() {
    let world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1")).await;
    let jobs = [job("first", &["gate first"]), job("second", &["say here"])].map(|job| world.push_one(job));
    world.gitea_shows("the wait is told", |gitea| !gitea.state(jobs[1]).rows().is_empty()).await;
    world.desk.open_gate("first");
    for job in jobs {
        let state = world.ends_as(job, Status::Success, SOON).await;
        let rows = state.rows();
        let at = rows.iter().position(|row| row.starts_with("Executor 1 of gitea-task-")).unwrap();
        let told: Vec<&str> = rows[at].split(['(', ')', ',']).map(str::trim).collect();
        for step in
            ["until there was a slot", "until its executor ran", "until that had its identity", "until it asked"]
        {
            let seconds = told.iter().find_map(|part| part.strip_suffix(step)?.strip_suffix(" s "));
            assert!(seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok()), "no {step:?} in {rows:?}");
        }
        let waited = rows[..at].iter().any(|row| row.starts_with("Waiting for a free slot"));
        assert_eq!(waited, job == jobs[1], "{rows:?}");
    }
    world.finish().await;
}

/// CMP-11: the log for people names repository and job, and whoever writes it may ask for them at any time.
#[tokio::test]
async fn a_job_in_words_for_people() {
    let world = planned(Plan::capacity(1).set("LOG_FORMAT", "text").set("LOG_LEVEL", "info")).await;
    let job = world.push_one(job("plain", &["say hello"]));
    world.ends_as(job, Status::Success, SOON).await;
    world.nothing_left().await;
    let (task, log) = (world.task_of(job), world.log());
    for line in ["waiting", "started as spiffe://", "success in "] {
        let line = format!("task {task} acme/app `plain`: {line}");
        assert!(log.contains(&line), "no {line:?} in:\n{log}");
    }
    world.finish().await;
}

/// NEW-130, T69: what a job that succeeds, one that waits, one that is cancelled and an object that cannot be read move.
#[tokio::test]
async fn metrics_of_jobs() {
    let world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1").set("TERMINAL_GRACE", "1s")).await;
    let jobs = world.push([
        job("first", &["proxy GET /api/v1/version\ngate first"]),
        job("second", &["on-cancel obey\ngate second"]),
    ]);
    world.desk.arrived("first", 1, SOON).await;
    counts(&world, "gdr_admission_blocked_total", "reason=\"no_slot\"").await;
    counts(&world, "gdr_held_tasks", "state=\"waiting\"").await;
    counts(&world, "gdr_oldest_held_task_age_seconds", "").await;
    counts(&world, "gdr_heartbeat_lag_seconds", "").await;
    world.eventually("it says so", SOON, |world| happened(world, jobs[1], "capacity_wait")).await;
    assert!(!world.log().contains("ERROR"), "a full pool is no error");
    world.desk.open_gate("first");
    world.ends_as(jobs[0], Status::Success, SOON).await;
    world.desk.arrived("second", 1, SOON).await;
    std::fs::create_dir(world.state().join("executors/odd")).unwrap();
    for (name, labels) in [
        ("gdr_info", "instance="),
        ("gdr_leader", ""),
        ("gdr_tasks_fetched_total", ""),
        ("gdr_fetch_duration_seconds_count", ""),
        ("gdr_last_successful_fetch_timestamp_seconds", ""),
        ("gdr_queue_wait_seconds_count", ""),
        ("gdr_slots", "kind=\"used\""),
        ("gdr_executors", "phase=\"running\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"publish\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"queue\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"create\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"identity\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"claim\""),
        ("gdr_executor_start_phase_seconds_count", "phase=\"first_update\""),
        ("gdr_task_results_total", "result=\"success\",cause=\"job\""),
        ("gdr_reaped_total", "reason=\"ended\""),
        ("gdr_quarantined", "kind=\"executor\""),
        ("gdr_facade_requests_total", "method=\"FetchTask\""),
        ("gdr_proxy_bytes_total", "dir=\"down\""),
        ("gdr_identity_issue_seconds_count", ""),
        ("gdr_svid_expiry_timestamp_seconds", ""),
    ] {
        counts(&world, name, labels).await;
    }
    std::fs::remove_dir(world.state().join("executors/odd")).unwrap();
    world.gitea.cancel(jobs[1]);
    counts(&world, "gdr_cancel_latency_seconds_count", "").await;
    counts(&world, "gdr_task_results_total", "result=\"cancelled\",cause=\"gitea\"").await;
    world.eventually("it says so", SOON, |world| happened(world, jobs[1], "cancelled")).await;
    world.finish().await;
}

/// NEW-130, NEW-61: an executor that is killed before it takes its task, and one that is killed afterwards; and a Gitea
/// that is away meanwhile.
#[tokio::test]
async fn metrics_of_failures() {
    let world = world(1).await;
    // The launch asks Gitea, and so does the claim: nothing is taken as long as Gitea does not answer.
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away.clone().sparing(1));
    let job = world.push_one(job("long", &["gate here"]));
    world.eventually("its executor exists", SOON, running).await;
    world.gitea.fail_next(Method::FetchTask, away);
    world.signal_only(&world.executor_processes(), Signal::Kill);
    counts(&world, "gdr_executor_failures_total", "reason=\"executor_exited\"").await;
    world.gitea.clear_faults();
    counts(&world, "gdr_relaunch_total", "reason=\"executor_exited\"").await;
    for event in ["executor_lost", "executor_relaunched"] {
        world.eventually("it says so", SOON, |world| happened(world, job, event)).await;
    }
    world.desk.arrived("here", 1, SOON).await;
    world.signal_only(&world.executor_processes(), Signal::Kill);
    world.ends_as(job, Status::Failure, SOON).await;
    counts(&world, "gdr_task_results_total", "result=\"failure\",cause=\"executor_exited\"").await;
    for event in ["gave_up", "reported"] {
        world.eventually("it says so", SOON, |world| happened(world, job, event)).await;
    }
    world.gitea.fail_next(Method::FetchTask, FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(1));
    counts(&world, "gdr_fetch_errors_total", "code=\"unavailable\"").await;
    world.finish().await;
}

/// NEW-130, NEW-3, NEW-63: an executor of an older epoch that cannot be removed yet belongs to nothing: it is counted, and
/// gone as soon as nothing keeps it.
#[tokio::test]
async fn metrics_of_what_belongs_to_nothing() {
    let world = world(2).await;
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away.sparing(1));
    let job = world.push_one(job("long", &["gate here"]));
    world.eventually("its executor exists", SOON, running).await;
    let executors = world.state().join("executors");
    let name = world.executors().remove(0);
    let parts = ["meta.json", "launch.json", "lock"];
    let parts = parts.map(|part| (part, std::fs::read(executors.join(&name).join(part)).unwrap()));
    world.signal_only(&world.executor_processes(), Signal::Kill);
    counts(&world, "gdr_relaunch_total", "reason=\"executor_exited\"").await;
    world.gitea.clear_faults();
    world.desk.arrived("here", 1, SOON).await;
    let draft = executors.join(".draft");
    std::fs::create_dir(&draft).unwrap();
    for (part, content) in parts {
        std::fs::write(draft.join(part), content).unwrap();
    }
    // Who holds the lock of a folder keeps it from being removed.
    let lock = std::fs::File::open(draft.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::fs::rename(&draft, executors.join(&name)).unwrap();
    counts(&world, "gdr_orphans", "kind=\"executor\"").await;
    assert!(world.executors().contains(&name));
    drop(lock);
    counts(&world, "gdr_reaped_total", "reason=\"fenced\"").await;
    let gone = |world: &World| if world.executors().contains(&name) { Err(name.clone()) } else { Ok(()) };
    world.eventually("it is removed", SOON, gone).await;
    world.desk.open_gate("here");
    world.ends_as(job, Status::Success, SOON).await;
    world.finish().await;
}

fn running(world: &World) -> Result<(), String> {
    if world.executor_processes().is_empty() { Err("no process".to_owned()) } else { Ok(()) }
}
