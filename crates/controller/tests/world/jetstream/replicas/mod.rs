//! Two controllers for one registration: one leads, the other waits for its turn.

mod hall;
mod outages;
mod secrets;
mod thieves;

use std::time::{Duration, Instant};

use testkit::real::Signal;
use testkit::world::{SOON, job};

use hall::Hall;

/// NEW-59: after an orderly end the other serves within this time.
const ORDERLY: Duration = Duration::from_secs(3);

/// NEW-59: after a kill.
const KILLED: Duration = Duration::from_secs(20);

#[expect(clippy::print_stderr, reason = "a figure that a person may ask for with --nocapture")]
fn say(what: &str, took: Duration) {
    eprintln!("figure: {what}: {:.2} s", took.as_secs_f64());
}

/// T16, NEW-59, SCH-10, SCH-12, CMP-4, F48, F50: one of two asks Gitea; the other lives, is not ready, says why, and listens for
/// no executor. When the first ends in order, the other serves within 3 s, with what waited.
#[tokio::test]
async fn an_orderly_end_hands_over() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "two");
    second.stands_by().await;
    assert_eq!(second.ask("/livez").await.unwrap().0, 200);
    assert_eq!(hall.gitea.counters().declares, 1);
    assert!(first.has_a_facade() && !second.has_a_facade());
    let runs = hall.gitea.push_one(job("runs", &["say here"]));
    hall.ends_well(runs).await;
    assert!(std::fs::read_dir(second.state.join("executors")).map_or(true, |mut all| all.next().is_none()));
    assert_eq!(hall.gitea.counters().declares, 1);
    let asked = Instant::now();
    first.signal(Signal::Terminate);
    assert!(first.ended().await.success(), "{}", first.log());
    say("SIGTERM to the end", asked.elapsed());
    say("an orderly end until the other serves", second.serves(ORDERLY).await);
    let next = hall.gitea.push_one(job("next", &["say there"]));
    hall.ends_well(next).await;
    hall.assert_outcomes();
}

/// T16, NEW-59, NEW-53, SCH-10, F48, F05: killed while a job runs and another waits: within 20 s the other serves and runs what
/// waited. What ran on the host of the first comes to its own end when that one leads again.
#[tokio::test]
async fn a_kill_hands_over() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let mut second = hall.replica("second", "two");
    second.stands_by().await;
    let [runs, waits] = [("runs", "gate open"), ("waits", "say here")].map(|(key, step)| job(key, &[step]));
    let runs = hall.gitea.push_one(runs);
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(waits);
    hall.waits_in_the_stream(waits).await;
    first.kill9();
    say("a kill until the other serves", second.serves(KILLED).await);
    hall.ends_well(waits).await;
    let first = hall.replica("first", "one");
    first.stands_by().await;
    second.signal(Signal::Terminate);
    assert!(second.ended().await.success(), "{}", second.log());
    first.serves(SOON).await;
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    hall.assert_outcomes();
}

/// T16, SCH-11, NEW-59, NEW-60, F48, F49: frozen until the other leads. Thawed it ends with an error and its text before it says
/// anything to Gitea; nothing ran twice and no outcome changed.
#[tokio::test]
async fn one_that_was_frozen_fences_itself() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let mut second = hall.replica("second", "two");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["gate open"]));
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(job("waits", &["say here"]));
    hall.waits_in_the_stream(waits).await;
    first.signal(Signal::Stop);
    say("a freeze until the other serves", second.serves(KILLED).await);
    hall.ends_well(waits).await;
    let said = || hall.gitea.calls_of(hall.task_of(waits));
    let before = said().len();
    first.signal(Signal::Continue);
    let status = first.ended().await;
    assert!(!status.success(), "{status}");
    assert!(first.log().contains("scheduler leadership lost"), "{}", first.log());
    assert_eq!(said().len(), before, "the thawed one spoke of a task that is over: {:#?}", said().split_off(before));
    let first = hall.replica("first", "one");
    first.stands_by().await;
    second.signal(Signal::Terminate);
    assert!(second.ended().await.success(), "{}", second.log());
    first.serves(SOON).await;
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    hall.assert_outcomes();
}

/// NEW-59, SCH-10, CMP-4, F48: two in one state folder: the second waits for the folder, then needs not wait for the lease that
/// the first left behind, and goes on with its running job.
#[tokio::test]
async fn a_folder_has_one_at_a_time() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "one");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["gate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    assert!(second.log().contains("this process waits until that one has ended"), "{}", second.log());
    assert_eq!(hall.gitea.counters().declares, 1);
    first.kill9();
    let took = second.serves(KILLED).await;
    say("a kill until the next in the same folder serves", took);
    assert!(took < Duration::from_secs(10), "it waited for the lease: {took:?}");
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    hall.assert_outcomes();
}

/// CMP-7, CMP-10, NEW-59: a signal that comes between the turn and the rest of the start, when nobody looks for one, is heard
/// all the same: the process ends in order and has asked Gitea nothing.
#[tokio::test]
async fn a_signal_between_turn_and_start_is_heard() {
    let mut hall = Hall::open().await;
    let asked = hall.hesitating_runner();
    let mut only = hall.replica("only", "one");
    asked.await;
    assert!(only.log().contains(r#""event":"standby""#), "{}", only.log());
    only.signal(Signal::Terminate);
    hall.let_it_speak();
    assert!(only.ended().await.success(), "{}", only.log());
    assert_eq!(hall.gitea.counters().declares, 0);
}

/// NEW-122, F122, T21: pins lie where the queue does: they are shown and confirmed there with the settings of the controller,
/// while it runs, and nothing is made where there are none.
#[tokio::test]
async fn pins_are_confirmed_where_the_queue_is() {
    let hall = Hall::open().await;
    let (listed, text) = hall.pins(&["list"]).await;
    assert!(!listed && text.contains("there are no records"), "{text}");
    let first = hall.replica("first", "one");
    first.serves(SOON).await;
    let build = || job("build", &["say here"]).repository("acme/app");
    let (owner, other) = (build().ids(4, 2), build().ids(9, 2));
    hall.ends_well(hall.gitea.push_one(owner)).await;
    let refused = hall.gitea.push_one(other.clone());
    let failed = |gitea: &testkit::gitea::Gitea| gitea.state(refused).status == testkit::gitea::Status::Failure;
    hall.gitea.wait_for("it is refused", failed, SOON).await.unwrap();
    let (listed, text) = hall.pins(&["list"]).await;
    assert!(listed && text.contains("repository 4 of owner 2; REFUSED to repository 9 of owner 2"), "{text}");
    assert!(!hall.pins(&["confirm", "acme/other"]).await.0);
    let (confirmed, text) = hall.pins(&["confirm", "acme/app"]).await;
    assert!(confirmed && text.contains("repository 9 of owner 2\n"), "{text}");
    hall.ends_well(hall.gitea.push_one(other)).await;
}
