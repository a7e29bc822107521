//! Two controllers, one registration: a Lease of Kubernetes says who works.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use testkit::gitea::{JobId, Status};
use testkit::outcome::Rule;
use testkit::wires::{Cable, Switchboard};
use testkit::world::SOON;

use crate::job;
use crate::site::Site;

/// Lease duration, the pause between tries, and what a loaded machine adds.
const FAIL_OVER: Duration = Duration::from_secs(40);

/// NEW-59: the other one leads within this time after an orderly end, and works a moment later.
const ORDERLY: Duration = Duration::from_secs(3);

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

/// SCH-10, NEW-16, NEW-59: an orderly end gives the Lease up, so that nobody waits for it to run out.
#[tokio::test]
async fn an_orderly_end_hands_over_at_once() {
    let mut site = Site::with_nats(1, &[]).await;
    site.start_replica(1);
    let first = site.leader().unwrap();
    assert!(site.sigterm(0).await.success());
    let ended = Instant::now();
    site.succeeded();
    site.eventually("the other one leads", SOON, |site| site.leader().is_some_and(|leader| leader != first)).await;
    assert!(ended.elapsed() < ORDERLY, "it waited for {:?}", ended.elapsed());
    let one = site.gitea.push_one(job("one", &["say one"]));
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// NEW-59, NEW-62, NEW-159, NEW-163, SCH-11, SCH-12, F48, F49, T16: a leader that alone cannot reach the API listens on,
/// behind the one address of both. Executors of which it cannot know are told to ask again, which brings them to the other
/// one, and not that they are over; what it began itself goes on through either, and it ends when it hears of the other one.
#[tokio::test]
async fn a_leader_that_is_cut_off_sends_nobody_home() {
    let mut site = Site::with_nats(2, &[("LOOK_AHEAD", "1")]).await;
    let (facade, cable) = two_behind_one_address(&mut site).await;
    let first = site.leader();
    let two = ["runs", "leaves"].map(|key| (key, format!("gate {key}")));
    let two = two.map(|(key, gate)| site.gitea.push_one(job(key, &["say before", &gate, "say after"])));
    for gate in ["runs", "leaves"] {
        site.desk.arrived(gate, 1, SOON).await;
    }
    let waits = site.gitea.push_one(job("waits", &["say here", "gate a", "say and", "gate b", "say there"]));
    site.check(site.gitea.wait_for("it is held", |gitea| gitea.state(waits).task.is_some(), SOON).await);
    cable.cut();
    site.succeeded();
    site.eventually("the other one leads", FAIL_OVER, |site| site.leader() != first).await;
    site.desk.open_gate("leaves");
    ends_whole(&site, two[1], &["before", "", "after"]).await;
    let comes = site.gitea.push_one(job("comes", &["say here", "gate c", "say and", "gate d", "say there"]));
    for (job, gates) in [(waits, ["a", "b"]), (comes, ["c", "d"])] {
        for gate in gates {
            site.desk.arrived(gate, 1, FAIL_OVER).await;
            // Its next connections are to both, in turns.
            facade.hang_up();
            site.desk.open_gate(gate);
        }
        ends_whole(&site, job, &["here", "", "and", "", "there"]).await;
    }
    facade.hang_up();
    site.desk.open_gate("runs");
    ends_whole(&site, two[0], &["before", "", "after"]).await;
    cable.mend();
    assert!(!site.exits(0).await.success());
    assert!(site.log().contains("scheduler leadership lost"), "{}", site.log());
    assert!(!site.log().contains("the lease is confirmed again"), "{}", site.log());
    // Two living processes have a lane each, and of an end that one of them heard the other one has to ask.
    site.finish_but_for(&[Rule::Overlap, Rule::UpdateAfterEnd]).await;
}

/// A leader and a standby, which executors reach by one address, and the leader's wire to the API.
async fn two_behind_one_address(site: &mut Site) -> (Switchboard, Cable) {
    assert!(site.sigterm(0).await.success());
    let facades = [(); 2].map(|()| free_address());
    let facade = Switchboard::at(Ipv4Addr::LOCALHOST.into(), facades.to_vec()).await.unwrap();
    let cable = Cable::to(site.kubernetes.url().strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap();
    site.set(&[("RUNNER_FACADE_URL", &format!("https://{}", facade.address()))]);
    let [first, second] = facades.map(|address| ("RUNNER_FACADE_LISTEN", address.to_string()));
    site.start_replica_with(0, &[first, ("KUBERNETES_API", format!("http://{}", cable.address()))]);
    site.eventually("it leads", FAIL_OVER, |site| site.leader().is_some()).await;
    site.start_replica_with(1, &[second]);
    (facade, cable)
}

/// With what each step said.
async fn ends_whole(site: &Site, job: JobId, words: &[&str]) {
    let state = site.ends_as(job, Status::Success, FAIL_OVER).await;
    assert_eq!(state.page().steps.into_iter().map(|said| said.join(" ")).collect::<Vec<_>>(), words);
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
