//! A job from start to end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::executor_api::Report;

use crate::double::{Act, Facade, Seen, UNAVAILABLE};
use crate::world::{Run, limits, steps};

/// EXE-4, EXE-5, EXE-6, NEW-107: ready before hello, hello before the runner, the log's end before the state, goodbye
/// last; exit 0.
#[tokio::test]
async fn two_steps() {
    let facade = Facade::start(steps(&["echo first", "echo second"]), |_| Act::Serve).await;
    let run = Run::start(&facade, limits());
    assert_eq!(run.code().await, 0);
    let seen = facade.seen();
    let at = |like: &dyn Fn(&Seen) -> bool| seen.iter().position(like).unwrap();
    let order = [
        at(&|seen| matches!(seen, Seen::Ready)),
        at(&|seen| matches!(seen, Seen::Report(Report::Hello))),
        at(&|seen| matches!(seen, Seen::Declare(_))),
        at(&|seen| matches!(seen, Seen::Fetch)),
        at(&|seen| matches!(seen, Seen::Log(_))),
        at(&Seen::is_last_log),
        at(&Seen::is_last_state),
        at(&Seen::is_goodbye),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.last(), Some(&(seen.len() - 1)));
    assert!(facade.reports().contains(&Report::RunnerStarted));
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(0), interrupted: false, delivered: true, never_started: None }
    );
    let log = facade.log();
    assert!(log.iter().any(|row| row == "first") && log.iter().any(|row| row == "second"), "{log:#?}");
    assert!(log.iter().any(|row| row == "Job succeeded"), "{log:#?}");
}

/// BST-3, NEW-118: the declared labels are the assignment's.
#[tokio::test]
async fn declared_labels() {
    let facade = Facade::start(steps(&["true"]), |_| Act::Serve).await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    let seen = facade.seen();
    let declared = seen.iter().find_map(|seen| if let Seen::Declare(request) = seen { Some(request) } else { None });
    assert_eq!(declared.unwrap().labels, ["self-hosted", "local"]);
}

/// NEW-116, F82, T52: a step sees its identity and nothing of ours; the registration is gone before it starts.
#[tokio::test]
async fn what_a_step_sees() {
    let script = "env | sed 's/^/env: /'\nls -A /proc/$PPID/cwd | sed 's/^/file: /'";
    let facade = Facade::start(steps(&[script]), |_| Act::Serve).await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    let log = facade.log();
    let has = |row: &str| log.iter().any(|have| have == row);
    assert!(has("env: CI_SPIFFE_ID=spiffe://example.org/ci/lab/once/j"), "{log:#?}");
    assert!(has("env: SPIFFE_ENDPOINT_SOCKET=unix:///run/example.sock"), "{log:#?}");
    assert!(has("env: CI_RUNNER_BACKEND=local"), "{log:#?}");
    // Set by cargo for this test, so in the executor's environment, and on no list.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!log.iter().any(|row| row.starts_with("env: CARGO")), "{log:#?}");
    assert!(!log.iter().any(|row| row.contains("CAPABILITY") || row.contains(crate::double::CAPABILITY)), "{log:#?}");
    assert!(has("file: config.yaml") && !has("file: .runner"), "{log:#?}");
}

/// NEW-164: a Declare that cannot be answered yet never reaches the runner as an error.
#[tokio::test]
async fn declare_is_repeated() {
    let facade = Facade::start(steps(&["true"]), |seen| {
        let declares = seen.iter().filter(|seen| matches!(seen, Seen::Declare(_))).count();
        match seen.last() {
            Some(Seen::Declare(_)) if declares == 2 => Act::Drop,
            Some(Seen::Declare(_)) if declares <= 3 => UNAVAILABLE,
            _ => Act::Serve,
        }
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    assert_eq!(facade.seen().iter().filter(|seen| matches!(seen, Seen::Declare(_))).count(), 4);
    assert!(facade.seen().iter().any(Seen::is_last_state));
}

/// NEW-164, §1.5: a Declare that is never accepted ends with 11, as an unreachable facade does.
#[tokio::test]
async fn declare_in_vain() {
    let facade = Facade::start(steps(&["true"]), |seen| match seen.last() {
        Some(Seen::Declare(_)) => UNAVAILABLE,
        _ => Act::Serve,
    })
    .await;
    let limits = executor::Limits { declare: Duration::from_secs(1), ..limits() };
    assert_eq!(Run::start(&facade, limits).code().await, 11);
}

/// NEW-112, F110: an outage in mid-job loses no row, doubles none, and the runner never says that its logs are lost.
#[tokio::test]
async fn outage_in_mid_job() {
    static LOGS: AtomicUsize = AtomicUsize::new(0);
    static STATES: AtomicUsize = AtomicUsize::new(0);
    let script = "for i in 1 2 3 4 5 6 7 8; do echo row-$i; sleep 1; done";
    // Of each kind the second call fails, and so do its repetitions, in turn with and without an answer.
    let facade = Facade::start(steps(&["echo start", script, "echo end"]), |seen| {
        let nth = match seen.last() {
            Some(Seen::Log(log)) if !log.no_more => LOGS.fetch_add(1, Ordering::Relaxed),
            Some(Seen::State(state)) if state.state.result.to_i32() == 0 => STATES.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        match nth {
            1 | 3 | 5 => UNAVAILABLE,
            2 | 4 => Act::Drop,
            _ => Act::Serve,
        }
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    assert!(LOGS.load(Ordering::Relaxed) > 5 && STATES.load(Ordering::Relaxed) > 5, "both met the outage");
    let log = facade.log();
    let rows: Vec<_> = log.iter().filter(|row| row.starts_with("row-")).collect();
    assert_eq!(rows, ["row-1", "row-2", "row-3", "row-4", "row-5", "row-6", "row-7", "row-8"]);
    assert!(!log.iter().any(|row| row.contains("lost")), "{log:#?}");
}

/// T58, NEW-115, F81: the runner uses the configuration that was made for it: what the base configuration says reaches the
/// job, in its folder and in its environment.
#[tokio::test]
async fn the_configuration_is_in_use() {
    let facade = Facade::start(steps(&["echo \"base $FROM_BASE in $PWD\""]), |_| Act::Serve).await;
    let run = Run::start(&facade, limits());
    let place = run.workspace();
    assert_eq!(run.code().await, 0);
    let (log, told) = (facade.log(), format!("base seen in {}/", place.display()));
    assert!(log.iter().any(|row| row.starts_with(&told)), "no {told:?} in {log:#?}");
}
