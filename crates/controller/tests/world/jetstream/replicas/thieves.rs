//! Somebody writes into the bucket of leadership.

use async_nats::jetstream;
use testkit::real::Signal;
use testkit::world::{SOON, job};

use super::KILLED;
use super::hall::Hall;

/// T16, SCH-11, NEW-59, NEW-60, F49: somebody overwrites the key of leadership while a job runs and another waits: the process ends
/// with an error and its text. The thief does nothing with it, so the next process leads when a lease has run out: the job
/// goes on, and what waited runs once.
#[tokio::test]
async fn a_stolen_lease_ends_the_process() {
    let hall = Hall::open().await;
    let mut first = hall.replica("first", "one");
    first.serves(SOON).await;
    let mut second = hall.replica("second", "one");
    second.stands_by().await;
    let runs = hall.gitea.push_one(job("runs", &["say before\ngate open\nsay after"]));
    hall.desk.arrived("open", 1, SOON).await;
    let waits = hall.gitea.push_one(job("waits", &["say here"]));
    hall.waits_in_the_stream(waits).await;
    let context = jetstream::new(hall.broker.client().await.unwrap());
    let bucket = context.get_key_value("CI_RUNNER_LEADER").await.unwrap();
    let record = r#"{"holder":"thief","session":"x"}"#;
    bucket.put("dynamic-runner-scheduler-replicas", record.into()).await.unwrap();
    let status = first.ended().await;
    assert!(!status.success(), "{status}");
    assert!(first.log().contains("scheduler leadership lost"), "{}", first.log());
    second.serves(KILLED + SOON).await;
    hall.desk.open_gate("open");
    for job in [runs, waits] {
        hall.ends_well(job).await;
        assert_eq!(hall.desk.told(hall.task_of(job), "task").len(), 1);
    }
    second.signal(Signal::Terminate);
    assert!(second.ended().await.success(), "{}", second.log());
    hall.assert_outcomes();
}
