//! Two controllers, one registration: a Lease of Kubernetes says who works.

use std::time::{Duration, Instant};

use testkit::gitea::Status;
use testkit::world::SOON;

use crate::job;
use crate::site::Site;

/// Lease duration, the pause between tries, and what a loaded machine adds.
const FAIL_OVER: Duration = Duration::from_secs(40);

/// What a standby waits that saw somebody else's.
const LEASE: Duration = Duration::from_secs(15);

/// NEW-59, NEW-60, SCH-10, SCH-12, T16: the leader is killed in mid-job: the other one takes over when the Lease has run
/// out, and the job goes on to its end.
#[tokio::test]
async fn a_killed_leader_has_a_successor() {
    let mut site = Site::with_nats(1, &[]).await;
    site.start_replica(1);
    let first = site.leader().unwrap();
    let one = site.gitea.push_one(job("one", &["say before", "gate here", "say after"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kill9(0).await;
    site.succeeded();
    site.eventually("the other one leads", FAIL_OVER, |site| site.leader().is_some_and(|leader| leader != first)).await;
    site.desk.open_gate("here");
    let state = site.ends_as(one, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["before"], vec![], vec!["after"]]);
    site.finish().await;
}

/// NEW-59, NEW-60, SCH-10, T16: a leader that is killed and started again in its folder knows that nobody else wrote the Lease
/// it finds, and does not wait until that has run out; its job goes on.
#[tokio::test]
async fn a_killed_leader_that_is_started_again_does_not_wait() {
    let mut site = Site::with_nats(1, &[]).await;
    let first = site.leader().unwrap();
    let one = site.gitea.push_one(job("one", &["gate here", "say after"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kill9(0).await;
    let killed = Instant::now();
    site.restart();
    site.eventually("it leads again", FAIL_OVER, |site| site.leader().is_some_and(|leader| leader != first)).await;
    assert!(killed.elapsed() < LEASE, "it waited for its own Lease to run out: {:?}", killed.elapsed());
    site.desk.open_gate("here");
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// SCH-10, NEW-148: so does one that leads and cannot start: the next try does not wait for it.
#[tokio::test]
async fn a_start_that_fails_gives_the_lease_up() {
    let mut site = Site::with_nats(1, &[]).await;
    assert!(site.sigterm(0).await.success());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    site.set(&[("RUNNER_FACADE_LISTEN", &taken.local_addr().unwrap().to_string())]);
    site.start_replica(1);
    assert_eq!(site.exits(1).await.code(), Some(1));
    assert!(site.log().contains("is another process using the port?"), "{}", site.log());
    assert_eq!(site.leader(), None, "it keeps the Lease");
}

/// SCH-10, NEW-16: an orderly end gives the Lease up, so that nobody waits for it to run out.
#[tokio::test]
async fn an_orderly_end_hands_over_at_once() {
    let mut site = Site::with_nats(1, &[]).await;
    site.start_replica(1);
    let first = site.leader().unwrap();
    assert!(site.sigterm(0).await.success());
    let ended = Instant::now();
    site.succeeded();
    site.eventually("the other one leads", SOON, |site| site.leader().is_some_and(|leader| leader != first)).await;
    assert!(ended.elapsed() < Duration::from_secs(10), "it waited for the Lease to run out: {:?}", ended.elapsed());
    let one = site.gitea.push_one(job("one", &["say one"]));
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}
