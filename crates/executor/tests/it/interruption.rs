//! A signal in mid-job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::executor_api::Report;
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

/// NEW-158, NEW-113, F156, T79: the announcement is answered before the runner gets the signal, so before its end.
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
    assert_eq!(facade.goodbye(), Report::Goodbye { runner_exit: Some(0), interrupted: true, delivered: true });
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
    assert_eq!(facade.goodbye(), Report::Goodbye { runner_exit: Some(0), interrupted: true, delivered: true });
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

/// A signal before the runner was started: no runner, a goodbye, 128 and the signal.
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
    assert_eq!(facade.goodbye(), Report::Goodbye { runner_exit: None, interrupted: true, delivered: true });
    assert!(!facade.seen().iter().any(|seen| matches!(seen, Seen::Declare(_))));
}
