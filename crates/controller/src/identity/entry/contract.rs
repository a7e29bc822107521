//! What every [`IdentityIssuer`] keeps, whatever it writes through. Each implementation has one test that calls [`all`]
//! with a [`Site`] of its own.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::tests::pod;
use super::*;

/// A place where entries are, as somebody else than the issuer sees it.
pub(super) trait Site {
    /// An issuer of this instance that has written nothing yet.
    fn issuer(&self, instance: &str) -> Arc<dyn IdentityIssuer>;
    /// The entries that are there: `spiffeID, parentID, sorted selectors, seconds` by the UID of the Pod.
    fn entries(&self) -> BoxFuture<'_, BTreeMap<String, String>>;
    /// Changes the entry of this Pod that instance `one` made: its identity and its lifetime.
    fn edit(&self, pod: PodKey) -> BoxFuture<'_, ()>;
    /// Deletes the entry of this Pod that instance `one` made.
    fn lose(&self, pod: PodKey) -> BoxFuture<'_, ()>;
    /// Puts an entry in the way of this Pod's that is not ours, and takes it away again.
    fn obstruct(&self, pod: BoundPod) -> BoxFuture<'_, BoxFuture<'_, ()>>;
}

/// One that no test here binds is left as it is.
pub(super) async fn all(site: &impl Site) {
    an_entry_is_made_once(site).await;
    an_entry_with_other_content_is_replaced(site).await;
    somebody_elses_is_refused(site).await;
    a_release_takes_this_pods_entry(site).await;
    an_orphan_goes_when_seen_twice(site).await;
    what_others_did_is_told(site).await;
    another_instance_keeps_its_own(site).await;
    nothing_is_left(site).await;
}

fn uid(number: &str) -> String {
    pod(number).key.uid
}

fn keys(numbers: &[&str]) -> Vec<PodKey> {
    numbers.iter().map(|number| pod(number).key).collect()
}

/// Whoever writes a status may come between a look and a write: that is worth another call, and not many.
async fn bound(issuer: &Arc<dyn IdentityIssuer>, pod: &BoundPod) {
    let mut standing = issuer.bind(pod.clone()).await;
    for _ in 0..3 {
        if !matches!(standing, Err(IssueError::Later { .. })) {
            break;
        }
        standing = issuer.bind(pod.clone()).await;
    }
    assert!(matches!(standing, Ok(Standing::Bound | Standing::Pending)), "{standing:?}");
}

async fn uids(site: &impl Site) -> Vec<String> {
    site.entries().await.into_keys().collect()
}

async fn an_entry_is_made_once(site: &impl Site) {
    let issuer = site.issuer("one");
    for issuer in [&issuer, &issuer, &site.issuer("one")] {
        bound(issuer, &pod("1")).await;
        let entries = site.entries().await;
        assert_eq!(entries.len(), 1);
        let selectors = format!("k8s:container-name:executor k8s:ns:ci k8s:pod-uid:{} k8s:sa:executor", uid("1"));
        let expected = format!("spiffe://td.test/ci/acme/app/build spiffe://td.test/ci-nodes {selectors} 1800");
        assert_eq!(entries[&uid("1")], expected);
    }
    let stranger = BoundPod { spiffe_id: "spiffe://td.test/admin".parse().unwrap(), ..pod("2") };
    assert!(matches!(issuer.bind(stranger).await, Err(IssueError::Refused { .. })));
    assert_eq!(uids(site).await, [uid("1")]);
}

async fn an_entry_with_other_content_is_replaced(site: &impl Site) {
    let issuer = site.issuer("one");
    let before = site.entries().await;
    site.edit(pod("1").key).await;
    assert_ne!(site.entries().await, before);
    bound(&issuer, &pod("1")).await;
    assert_eq!(site.entries().await, before);
    let other = BoundPod { spiffe_id: "spiffe://td.test/ci-untrusted/acme/app/build".parse().unwrap(), ..pod("1") };
    bound(&issuer, &other).await;
    assert!(site.entries().await[&uid("1")].contains("/ci-untrusted/"));
    bound(&issuer, &pod("1")).await;
    assert_eq!(site.entries().await, before);
}

async fn somebody_elses_is_refused(site: &impl Site) {
    let issuer = site.issuer("one");
    let clear = site.obstruct(pod("3")).await;
    let refused = issuer.bind(pod("3")).await;
    assert!(matches!(&refused, Err(IssueError::Refused { cause, .. }) if cause.contains("not ours")), "{refused:?}");
    let there = site.entries().await;
    // It is not ours to take away either.
    issuer.release(pod("3").key).await.unwrap();
    for _ in 0..3 {
        assert_eq!(issuer.sweep(keys(&["1"])).await.unwrap().removed, 0);
    }
    assert_eq!(site.entries().await, there);
    clear.await;
    bound(&issuer, &pod("3")).await;
    issuer.release(pod("3").key).await.unwrap();
}

async fn a_release_takes_this_pods_entry(site: &impl Site) {
    let issuer = site.issuer("one");
    let successor = BoundPod { key: PodKey { name: pod("4").key.name, ..pod("5").key }, ..pod("4") };
    for pod in [&pod("4"), &successor] {
        bound(&issuer, pod).await;
    }
    for issuer in [&issuer, &issuer, &site.issuer("one")] {
        issuer.release(pod("4").key).await.unwrap();
        assert_eq!(uids(site).await, [uid("1"), uid("5")]);
    }
    // Also by one who has not made it.
    site.issuer("one").release(successor.key).await.unwrap();
    assert_eq!(uids(site).await, [uid("1")]);
}

async fn an_orphan_goes_when_seen_twice(site: &impl Site) {
    let issuer = site.issuer("one");
    for number in ["6", "7"] {
        bound(&issuer, &pod(number)).await;
    }
    let sweep = async |live: &[&str]| issuer.sweep(keys(live)).await.unwrap().removed;
    assert_eq!(sweep(&["1", "6"]).await, 0);
    // Once more, and this time it was the other one: neither is seen twice.
    assert_eq!(sweep(&["1", "7"]).await, 0);
    assert_eq!(uids(site).await, [uid("1"), uid("6"), uid("7")]);
    assert_eq!(sweep(&["1", "7"]).await, 1);
    assert_eq!(uids(site).await, [uid("1"), uid("7")]);
    // What was swept can be made again.
    bound(&issuer, &pod("6")).await;
    assert_eq!(sweep(&["1", "6", "7"]).await, 0);
    assert_eq!((sweep(&["1"]).await, sweep(&["1"]).await, sweep(&["1"]).await), (0, 2, 0));
    assert_eq!(uids(site).await, [uid("1")]);
}

/// An entry that somebody deleted or changed is told by each look at all of them until it was put right; of a Pod that nobody
/// wrote an entry for, and of one whose entry was taken away by us, nothing is told.
async fn what_others_did_is_told(site: &impl Site) {
    let issuer = site.issuer("one");
    let before = site.entries().await;
    for number in ["1", "6", "7", "9"] {
        bound(&issuer, &pod(number)).await;
    }
    let amiss = async || issuer.sweep(keys(&["1", "6", "7", "8", "9"])).await.unwrap().amiss;
    assert_eq!(amiss().await, keys(&[]));
    let whole = site.entries().await;
    site.lose(pod("6").key).await;
    site.edit(pod("7").key).await;
    issuer.release(pod("9").key).await.unwrap();
    assert_eq!((amiss().await, amiss().await), (keys(&["6", "7"]), keys(&["6", "7"])));
    for number in ["6", "7", "9"] {
        bound(&issuer, &pod(number)).await;
    }
    assert_eq!((amiss().await, site.entries().await), (keys(&[]), whole));
    // Whoever has compared them knows them as well.
    let later = site.issuer("one");
    bound(&later, &pod("6")).await;
    site.lose(pod("6").key).await;
    assert_eq!(later.sweep(keys(&["1", "6", "7", "9"])).await.unwrap().amiss, keys(&["6"]));
    for number in ["6", "7", "9"] {
        issuer.release(pod(number).key).await.unwrap();
    }
    assert_eq!(site.entries().await, before);
}

async fn another_instance_keeps_its_own(site: &impl Site) {
    let (one, another) = (site.issuer("one"), site.issuer("one-2"));
    bound(&another, &pod("8")).await;
    one.release(pod("8").key).await.unwrap();
    for _ in 0..3 {
        assert_eq!(one.sweep(keys(&["1"])).await.unwrap().removed, 0);
    }
    assert_eq!(uids(site).await, [uid("1"), uid("8")]);
    for _ in 0..2 {
        another.sweep(Vec::new()).await.unwrap();
    }
    assert_eq!(uids(site).await, [uid("1")]);
}

async fn nothing_is_left(site: &impl Site) {
    site.issuer("one").release(pod("1").key).await.unwrap();
    assert!(site.entries().await.is_empty());
}
