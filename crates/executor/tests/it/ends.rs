//! Trouble at the end of a job: the spool.

use std::time::Duration;

use domain::executor_api::Report;

use crate::double::{Act, Facade, Seen, UNAVAILABLE};
use crate::world::{Run, limits, steps};

/// How often a call like this was seen.
fn count(seen: &[Seen], like: impl Fn(&Seen) -> bool) -> usize {
    seen.iter().filter(|seen| like(seen)).count()
}

fn last_calls(facade: &Facade) -> Vec<&'static str> {
    let name = |seen: &Seen| match seen {
        seen if seen.is_last_log() => Some("log"),
        seen if seen.is_last_state() => Some("state"),
        _ => None,
    };
    facade.seen().iter().filter_map(name).collect()
}

/// NEW-112, F110, T9: the facade is away from the last log on; the runner has gone meanwhile; log and state arrive in
/// order, and only then the executor ends.
#[tokio::test]
async fn facade_away_at_the_end() {
    for failure in [|| Act::Drop, || UNAVAILABLE] {
        let facade = Facade::start(steps(&["echo done"]), move |seen| match seen.last() {
            Some(last) if last.is_last_log() && count(seen, Seen::is_last_log) < 4 => failure(),
            _ => Act::Serve,
        })
        .await;
        assert_eq!(Run::start(&facade, limits()).ended().await, (0, None), "what was delivered leaves no file");
        assert_eq!(last_calls(&facade), ["log", "log", "log", "log", "state"]);
        assert_eq!(
            facade.goodbye(),
            Report::Goodbye { runner_exit: Some(0), interrupted: false, delivered: true, never_started: None }
        );
    }
}

/// NEW-112: `unavailable` on the state asks for the log again; both are delivered, log first.
#[tokio::test]
async fn state_asks_for_the_log() {
    let facade = Facade::start(steps(&["echo done"]), |seen| match seen.last() {
        Some(last) if last.is_last_state() && count(seen, Seen::is_last_state) < 3 => UNAVAILABLE,
        _ => Act::Serve,
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    assert_eq!(last_calls(&facade), ["log", "state", "log", "state", "log", "state"]);
    let seen = facade.seen();
    let bodies: Vec<_> = seen.iter().filter(|seen| seen.is_last_log()).map(|seen| format!("{seen:?}")).collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "a repetition differs");
}

/// NEW-112, §1.5: beyond the spool's patience the executor ends with 14 and says so.
#[tokio::test]
async fn given_up() {
    let facade = Facade::start(steps(&["echo done"]), |seen| match seen.last() {
        Some(last) if last.is_last_log() => Act::Drop,
        _ => Act::Serve,
    })
    .await;
    let mut limits = limits();
    limits.patience.away = Duration::from_secs(2);
    let (code, left) = Run::start(&facade, limits).ended().await;
    assert_eq!(code, 14);
    let left = left.expect("the report is left for the controller");
    assert!(left.starts_with(b"gitea-last-report/1 c2.00000000.1.1900000000\n"), "sealed under the capability's name");
    assert!(!left.windows(4).any(|part| part == b"done"), "the job's rows are not readable");
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(0), interrupted: false, delivered: false, never_started: None }
    );
    assert!(!facade.seen().iter().any(Seen::is_last_state));
}

/// NEW-107: a goodbye that the facade could not take is said again.
#[tokio::test]
async fn a_goodbye_is_said_until_it_is_heard() {
    let facade = Facade::start(steps(&["true"]), |seen| match seen.last() {
        Some(last) if last.is_goodbye() && count(seen, Seen::is_goodbye) < 3 => UNAVAILABLE,
        _ => Act::Serve,
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    assert_eq!(count(&facade.seen(), Seen::is_goodbye), 3);
}
