//! Secrets are replaced while a replica waits for its turn.

use testkit::real::Signal;
use testkit::world::{SOON, job};

use super::KILLED;
use super::hall::Hall;

/// NEW-140, NEW-59, NEW-47, T16, T24, F107, F48, F34: both passwords of NATS are replaced while one leads and one waits, and the
/// server cuts everybody. When the leader is killed the other takes over with the new ones, and tells none of them.
#[tokio::test]
async fn a_standby_reads_new_passwords() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let mut second = hall.replica("second", "two");
    second.stands_by().await;
    let passwords = hall.broker.change_passwords().await;
    hall.write_passwords();
    hall.broker.server().await.kill();
    hall.broker.server().await.start_again().await.unwrap();
    let runs = hall.gitea.push_one(job("runs", &["say here"]));
    hall.ends_well(runs).await;
    first.kill9();
    second.serves(KILLED + SOON).await;
    let next = hall.gitea.push_one(job("next", &["say there"]));
    hall.ends_well(next).await;
    assert!([passwords.producer, passwords.worker].iter().all(|password| !second.log().contains(password)));
    second.signal(Signal::Terminate);
    assert!(second.ended().await.success(), "{}", second.log());
    hall.assert_outcomes();
}

/// NEW-140, NEW-36, NEW-99, NEW-59, T16, T24, F28, F48: both keys are replaced while one leads and one waits in the same folder. A
/// job runs and a task waits with the new keys when the leader is killed: the other knows them before it reads anything.
#[tokio::test]
async fn a_standby_begins_with_the_newest_keys() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let mut second = hall.replica("second", "one");
    second.stands_by().await;
    ["capability.key", "envelope.key"].iter().for_each(|name| hall.write(name, &"n".repeat(64)));
    first.tells("a secret file changed and is used from now on", 2).await;
    let runs = hall.gitea.push_one(job("runs", &["gate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(job("waits", &["say here"]));
    hall.waits_in_the_stream(waits).await;
    first.kill9();
    second.serves(KILLED + SOON).await;
    hall.desk.open_gate("open");
    hall.ends_well(runs).await;
    hall.ends_well(waits).await;
    assert!(!second.log().contains("unknown_key"), "{}", second.log());
    second.signal(Signal::Terminate);
    assert!(second.ended().await.success(), "{}", second.log());
    hall.assert_outcomes();
}
