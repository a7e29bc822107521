//! Executors that nobody needs.

use std::time::Duration;

use domain::executor_api::Report;

use crate::double::{Act, Facade, Seen, UNAUTHENTICATED, UNAVAILABLE};
use crate::world::{Run, limits, steps};

/// T65, NEW-160, F158, F111: runner 1.0.8 polls on after 401; the executor ends it with 12.
#[tokio::test]
async fn fetch_unauthenticated() {
    let facade = Facade::start(steps(&["true"]), |seen| match seen.last() {
        Some(Seen::Fetch) => UNAUTHENTICATED,
        _ => Act::Serve,
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 12);
    let fetches = facade.seen().iter().filter(|seen| matches!(seen, Seen::Fetch)).count();
    assert!(fetches > 1, "the runner ended by itself");
}

/// NEW-160: a 401 on Declare passes, the runner ends by itself, and the code is 12 all the same.
#[tokio::test]
async fn declare_unauthenticated() {
    let facade = Facade::start(steps(&["true"]), |seen| match seen.last() {
        Some(Seen::Declare(_)) => UNAUTHENTICATED,
        _ => Act::Serve,
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 12);
    assert_eq!(
        facade.goodbye(),
        Report::Goodbye { runner_exit: Some(1), interrupted: false, delivered: true, never_started: None }
    );
}

/// NEW-160: a 401 that the next fetch makes good, with the task, ends nobody, however long the job runs.
#[tokio::test]
async fn task_after_all() {
    let facade = Facade::start(steps(&["sleep 4; echo survived"]), |seen| {
        let fetches = seen.iter().filter(|seen| matches!(seen, Seen::Fetch)).count();
        match seen.last() {
            Some(Seen::Fetch) if fetches == 1 => UNAUTHENTICATED,
            _ => Act::Serve,
        }
    })
    .await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    assert!(facade.log().iter().any(|row| row == "survived"));
}

/// T50, EXE-4, §1.5: a facade that never finds us right, exit 11, and no runner.
#[tokio::test]
async fn never_ready() {
    let facade = Facade::start(steps(&["true"]), |_| UNAVAILABLE).await;
    let limits = executor::Limits { ready: Duration::from_secs(1), ..limits() };
    assert_eq!(Run::start(&facade, limits).code().await, 11);
    assert!(facade.seen().iter().all(|seen| matches!(seen, Seen::Ready)));
}
