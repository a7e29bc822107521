//! NATS is away for whoever leads: for everybody, or for him alone; or Gitea is, for him alone.

use std::time::Duration;

use testkit::gitea::{Settings, Status};
use testkit::wires::Cable;
use testkit::world::{SOON, job};

use super::KILLED;
use super::hall::Hall;

/// How long Gitea bears a silent task here.
const ZOMBIE: Duration = Duration::from_secs(45);

/// Longer than that, and than any lease.
const LONG: Duration = Duration::from_secs(60);

/// Seconds of an outage instead of [`LONG`], for whoever has the time; Gitea is as patient as it is then.
const AT_LENGTH: &str = "GDR_TEST_OUTAGE_SECONDS";

/// How long NATS is away, and a Gitea that does not bear it.
fn outage() -> (Duration, Settings) {
    match std::env::var(AT_LENGTH) {
        Ok(seconds) => (Duration::from_secs(seconds.parse().unwrap()), Settings::default()),
        Err(_) => (LONG, impatient()),
    }
}

fn impatient() -> Settings {
    Settings { zombie_timeout: ZOMBIE, zombie_sweep: Duration::from_secs(1), ..Settings::default() }
}

fn url(cable: &Cable) -> String {
    format!("nats://{}", cable.address())
}

/// How NATS goes away.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Away {
    Killed,
    Frozen,
}

/// Longer than Gitea bears a silent task: the leader fetches nothing and starts nothing, keeps alive what waits, and brings
/// what runs to its end. When NATS is back it leads on, and nothing is lost or run twice.
async fn outlasts(away: Away) {
    let (long, settings) = outage();
    let hall = Hall::open_in(settings).await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "two");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["say before\ngate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(job("waits", &["say here"]));
    hall.waits_in_the_stream(waits).await;
    match away {
        Away::Killed => hall.broker.server().await.kill(),
        Away::Frozen => hall.broker.server().await.pause().unwrap(),
    }
    first.misses_its_queue().await;
    let fetches = || hall.gitea.counters().fetches;
    let (before, unfetched) = (fetches(), hall.gitea.push_one(job("unfetched", &["say here"])));
    tokio::time::sleep(long).await;
    let states = [runs, waits].map(|job| hall.gitea.state(job).status);
    assert_eq!((states, fetches()), ([Status::Running; 2], before), "{}", first.log());
    assert!(first.log().contains("nobody confirms the lease"), "{}", first.log());
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    match away {
        Away::Killed => hall.broker.server().await.start_again().await.unwrap(),
        Away::Frozen => hall.broker.server().await.resume(),
    }
    first.serves(SOON).await;
    hall.ends_well(waits).await;
    hall.ends_well(unfetched).await;
    second.stands_by().await;
    first.signal(testkit::real::Signal::Terminate);
    assert!(first.ended().await.success(), "{}", first.log());
    hall.assert_outcomes();
}

/// T43, NEW-47, NEW-59, SCH-10, SCH-11, F34, F05: killed, and started again.
#[tokio::test]
async fn a_leader_outlasts_a_server_that_was_killed() {
    outlasts(Away::Killed).await;
}

/// T43, NEW-47, NEW-59, SCH-10, SCH-11, F34, F05: frozen, and thawed.
#[tokio::test]
async fn a_leader_outlasts_a_server_that_is_frozen() {
    outlasts(Away::Frozen).await;
}

/// T16, NEW-59, NEW-47, SCH-11, F48, F49: cut off alone, for longer than Gitea bears a silent task: the other leads and runs what
/// waited, once. The one that is cut off brings its own job to its end, starts nothing, and ends when it hears of the other.
#[tokio::test]
async fn a_leader_that_is_cut_off_starts_nothing() {
    let hall = Hall::open_in(impatient()).await;
    let cable = hall.cable().await;
    let mut first = hall.replica_by(&url(&cable), "first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "two");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["say before\ngate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(job("waits", &["say first\ngate other\nsay last"]));
    hall.waits_in_the_stream(waits).await;
    cable.cut();
    second.serves(KILLED + SOON).await;
    hall.desk.arrived("other", 1, SOON).await;
    tokio::time::sleep(LONG).await;
    let states = [runs, waits].map(|job| hall.gitea.state(job).status);
    assert_eq!(states, [Status::Running; 2], "{}", first.log());
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    hall.desk.open_gate("other");
    hall.ends_well(waits).await;
    cable.mend();
    assert!(!first.ended().await.success());
    assert!(first.log().contains("scheduler leadership lost"), "{}", first.log());
    assert_eq!(hall.desk.told(hall.task_of(waits), "task").len(), 1);
    hall.assert_outcomes();
}

/// T16, NEW-15, NEW-59, SCH-11, F49: cut off alone, just before it fetched a task: that one is in its memory only. When it hears
/// of the other it brings the task into the stream all the same, and the other finds it there and runs it.
#[tokio::test]
async fn a_task_in_memory_only_is_handed_over() {
    let hall = Hall::open().await;
    let cable = hall.cable().await;
    let mut first = hall.replica_by(&url(&cable), "first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "two");
    second.stands_by().await;
    cable.cut();
    let late = hall.gitea.push_one(job("late", &["say here"]));
    let fetched = |gitea: &testkit::gitea::Gitea| gitea.state(late).task.is_some();
    hall.gitea.wait_for("the task is fetched", fetched, SOON).await.unwrap();
    second.serves(KILLED + SOON).await;
    assert!(first.log().contains("dispatch Gitea task"), "another one fetched it: {}", first.log());
    cable.mend();
    assert!(!first.ended().await.success());
    assert!(first.log().contains("scheduler leadership lost"), "{}", first.log());
    hall.ends_well(late).await;
    assert_eq!(hall.desk.told(hall.task_of(late), "task").len(), 1);
    hall.assert_outcomes();
}

/// T16, NEW-59, NEW-13: the leader alone is cut off from Gitea, for longer than a lease: it leads on, as nobody could say for another
/// one that he does better. Its job comes to its end meanwhile, and what Gitea has in store is fetched by nobody. When the
/// wire is there again Gitea hears the true end, once, and the leader fetches the next job.
#[tokio::test]
async fn a_leader_without_gitea_leads_on() {
    let hall = Hall::open().await;
    let cable = hall.cable_to_gitea().await;
    let first = hall.replica_at(hall.broker.url(), &format!("http://{}", cable.address()), "first", "one");
    first.serves(SOON).await;
    let second = hall.replica("second", "two");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["say before\ngate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    cable.cut();
    hall.desk.open_gate("open");
    let comes = hall.gitea.push_one(job("comes", &["say here"]));
    // Nothing comes through and nobody says so: a call is given up when its time is over.
    first.tells_within(LONG * 2, "fetch Gitea task", 1).await;
    tokio::time::sleep(KILLED).await;
    second.stands_by().await;
    assert_eq!(hall.gitea.state(runs).status, Status::Running, "Gitea was told");
    assert_eq!(hall.gitea.state(comes).task, None, "somebody fetched it");
    assert_eq!(hall.gitea.counters().declares, 1);
    cable.mend();
    for job in [runs, comes] {
        hall.ends_well(job).await;
        assert_eq!(hall.desk.told(hall.task_of(job), "task").len(), 1);
    }
    first.serves(SOON).await;
    second.stands_by().await;
    hall.assert_outcomes();
}
