//! A signal in mid-job.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::executor_api::{NeverStarted, Report};
use executor::StrayGraces;
use tokio::sync::Notify;

use crate::double::{Act, Facade, Seen, UNAVAILABLE};
use crate::world::{Run, limits, steps};

const SIGTERM: i32 = 15;

fn position(seen: &[Seen], like: impl Fn(&Seen) -> bool) -> usize {
    seen.iter().position(like).unwrap()
}

fn started(seen: &Seen) -> bool {
    matches!(seen, Seen::Log(log) if log.rows.iter().any(|row| row.content == "started"))
}

/// T79, T57, NEW-158, NEW-113, F156: the announcement is answered before the runner gets the signal, so before its end.
#[tokio::test]
async fn announced_first() {
    let answer = Arc::new(Notify::new());
    let permit = Arc::clone(&answer);
    let facade =
        Facade::start(steps(&["echo started; for i in $(seq 60); do sleep 1; done", "echo never"]), move |seen| {
            match seen.last() {
                Some(last) if last.is_announcement() => Act::Wait(Arc::clone(&permit)),
                _ => Act::Serve,
            }
        })
        .await;
    let run = Run::start(&facade, limits());
    facade.until(started).await;
    run.signal(SIGTERM);
    facade.until(Seen::is_announcement).await;
    // The runner ends within milliseconds of its signal; a keep-alive later it still runs, unless it got one.
    let alive = facade.reports().iter().filter(|report| **report == Report::KeepAlive).count();
    facade.until(|_| facade.reports().iter().filter(|report| **report == Report::KeepAlive).count() > alive + 1).await;
    assert!(!facade.seen().iter().any(|seen| seen.is_last_log() || seen.is_last_state()));
    answer.notify_one();
    assert_eq!(run.code().await, 0);
    let seen = facade.seen();
    assert!(position(&seen, Seen::is_announcement) < position(&seen, Seen::is_last_log));
    assert!(position(&seen, Seen::is_last_log) < position(&seen, Seen::is_last_state));
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(0), interrupted: true, delivered: true, never_started: None }
    );
}

/// NEW-158, NEW-112: without an answer the signal goes on after the grace; the end waits for the announcement, and
/// stands behind it once the facade is back, though RunnerService was never away.
#[tokio::test]
async fn announcement_unanswered() {
    static BACK: AtomicBool = AtomicBool::new(false);
    let facade =
        Facade::start(steps(&["echo started; for i in $(seq 60); do sleep 1; done"]), |seen| match seen.last() {
            Some(Seen::Report(Report::Interrupted { .. })) if !BACK.load(Ordering::Relaxed) => UNAVAILABLE,
            _ => Act::Serve,
        })
        .await;
    let mut limits = limits();
    limits.graces.announcement = Duration::from_millis(500);
    let run = Run::start(&facade, limits);
    facade.until(started).await;
    run.signal(SIGTERM);
    // Keep-alives stop when the runner has ended; from then on only announcements come.
    let ended = || {
        let reports = facade.reports();
        reports.iter().rev().take_while(|report| matches!(report, Report::Interrupted { .. })).count() >= 4
    };
    facade.until(|_| ended()).await;
    assert!(!facade.seen().iter().any(|seen| seen.is_last_log() || seen.is_last_state()));
    BACK.store(true, Ordering::Relaxed);
    assert_eq!(run.code().await, 0);
    let seen = facade.seen();
    let accepted = seen.iter().rposition(Seen::is_announcement).unwrap();
    assert!(accepted < position(&seen, Seen::is_last_log));
    assert!(position(&seen, Seen::is_last_log) < position(&seen, Seen::is_last_state));
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(0), interrupted: true, delivered: true, never_started: None }
    );
}

/// NEW-107: `go_on` false ends the runner in order, announced as every end that is not its own.
#[tokio::test]
async fn facade_ends_it() {
    let facade =
        Facade::start(steps(&["echo started; for i in $(seq 60); do sleep 1; done"]), |seen| match seen.last() {
            Some(Seen::Report(Report::KeepAlive)) if seen.iter().any(started) => Act::GoHome,
            _ => Act::Serve,
        })
        .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    let seen = facade.seen();
    assert!(position(&seen, Seen::is_announcement) < position(&seen, Seen::is_last_log));
}

/// T57: a signal before the runner was started: no runner, a goodbye, 128 and the signal.
#[tokio::test]
async fn before_the_runner() {
    let facade = Facade::start(steps(&["true"]), |seen| match seen.last() {
        Some(Seen::Ready) => UNAVAILABLE,
        _ => Act::Serve,
    })
    .await;
    let run = Run::start(&facade, limits());
    facade.until(|seen| matches!(seen, Seen::Ready)).await;
    run.signal(SIGTERM);
    assert_eq!(run.code().await, 143);
    let why = NeverStarted { reason: "interrupted_before_start".to_owned(), detail: String::new() };
    let goodbye = Report::Goodbye { runner_exit: None, interrupted: true, delivered: true, never_started: Some(why) };
    assert_eq!(facade.goodbye(), goodbye);
    assert!(!facade.seen().iter().any(|seen| matches!(seen, Seen::Declare(_))));
}

/// T57, NEW-113: what a killed step leaves behind holds the runner up for seconds and not until it is killed itself:
/// the final report comes. The orphan that ignores SIGTERM gets SIGKILL.
#[tokio::test]
async fn strays_do_not_hold_the_runner_up() {
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "--ignored", "interruption::executor_process"];
    let output = tokio::task::spawn_blocking(move || Command::new(own).args(arguments).output().unwrap());
    let output: Output = tokio::time::timeout(Duration::from_secs(120), output).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{log}");
}

#[tokio::test]
#[ignore = "a process of its own, started by another test"]
async fn executor_process() {
    let script = "sh -c 'trap \"\" TERM; sleep 300; sleep 300' &\necho started; sleep 300";
    let facade = Facade::start(steps(&[script]), |_| Act::Serve).await;
    let mut limits = limits();
    let strays = StrayGraces { terminate: Duration::from_secs(1), kill: Duration::from_secs(1) };
    limits.graces.strays = strays;
    limits.graces.shutdown = Duration::from_secs(100);
    let run = Run::start_alone(&facade, limits);
    facade.until(started).await;
    let asked = Instant::now();
    run.signal(SIGTERM);
    assert_eq!(run.code().await, 0);
    assert!(asked.elapsed() >= strays.terminate + strays.kill, "nobody held the runner up");
    let seen = facade.seen();
    assert!(seen.iter().any(Seen::is_last_log) && seen.iter().any(Seen::is_last_state));
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(0), interrupted: true, delivered: true, never_started: None }
    );
}
