//! Work for a backend that is not served any more.

use testkit::gitea::{JobId, Status};
use testkit::kubernetes::{Fault, On, Resource, Verb};
use testkit::world::SOON;

use crate::site::Site;
use crate::{job, site};

/// A job whose Pod cannot be made, so that its message lies in the queue; then this host makes executors, and no Pods.
async fn pods_are_given_up(site: Site) {
    let (site, waits) = given_up(site, |_| {}).await;
    ends_with_its_reason(&site, waits).await;
    site.finish().await;
}

/// With something that happens while no controller is there.
async fn given_up(mut site: Site, between: impl FnOnce(&Site)) -> (Site, JobId) {
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::internal().always());
    let waits = site.gitea.push_one(job("waits", &["say here"]));
    site.eventually("a Pod was tried", SOON, |site| !site.kubernetes.calls_of(Verb::Create, Resource::Pods).is_empty())
        .await;
    site.kill9(0).await;
    between(&site);
    let runner = site.dir.path().join("runner").display().to_string();
    site.set(&[
        ("COMPONENTS", "scheduler,local-worker"),
        ("DEFAULT_BACKEND", "local"),
        ("IDENTITY_ISSUER", "built-in"),
        ("LOCAL_ISOLATION", "none"),
        ("GITEA_RUNNER_BINARY", &runner),
    ]);
    site.restart();
    (site, waits)
}

async fn ends_with_its_reason(site: &Site, waits: JobId) {
    let state = site.ends_as(waits, Status::Failure, SOON).await;
    let said = state.rows().iter().any(|row| row.starts_with("##[error]backend_disabled: ") && row.contains("pod"));
    assert!(said, "{:?}", state.rows());
    assert_eq!((state.updates_after_end, state.archived), (0, true));
}

/// NEW-49, T48, F54: what waits for a backend that was taken away ends with a reason, and does not rot.
#[tokio::test]
async fn in_a_file() {
    pods_are_given_up(site(1).await).await;
}

/// NEW-49, T48, F54: the same in NATS, where each backend has a subject and a consumer of its own.
#[tokio::test]
async fn in_nats() {
    pods_are_given_up(Site::with_nats(1, &[]).await).await;
}

/// NEW-163, NEW-49, T48, T81, F54, F160: the queue gives what waits for Pods and fails at what waits for another backend, again
/// and again: what was read is ended once, however often it is read.
#[tokio::test]
async fn read_again_and_ended_once() {
    let database = |site: &Site| rusqlite::Connection::open(site.dir.path().join("state0/queue.db")).unwrap();
    let unreadable = "INSERT INTO message (id, digest, backend, body, enqueued_at)
                      VALUES (999999, 'no digest at all', 'vm', x'00', 0)";
    let (site, waits) = given_up(site(1).await, |site| {
        database(site).execute(unreadable, []).unwrap();
    })
    .await;
    ends_with_its_reason(&site, waits).await;
    let calls = || site.gitea.calls_of(site.gitea.state(waits).task.unwrap()).len();
    let before = calls();
    // Several readings: after an error there is one in each second.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(calls(), before, "Gitea was asked about a task that has ended");
    database(&site).execute("DELETE FROM message WHERE id = 999999", []).unwrap();
    let empty = |site: &Site| {
        let count = database(site).query_row("SELECT count(*) FROM message", [], |row| row.get::<_, i64>(0));
        count.is_ok_and(|count| count == 0)
    };
    site.eventually("its message has left the queue", SOON, empty).await;
    let state = site.gitea.state(waits);
    assert_eq!((state.updates_after_end, state.archived), (0, true));
    site.finish().await;
}
