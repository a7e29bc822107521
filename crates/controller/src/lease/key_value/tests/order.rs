//! Who leads when everything answers.

use std::io::Write as _;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};

use super::*;
use crate::lease::contract;

/// NEW-59, NEW-60, SCH-10, F48, F50: what every leadership keeps.
#[tokio::test]
async fn keeps_the_contract() {
    let server = server().await;
    contract::all(async |name: &str| {
        let instance = name.parse().unwrap();
        let lease = KeyValueLease::new(context(&server.url()).await, BUCKET, &instance, "same").with_times(LONG);
        Arc::new(lease) as Arc<dyn Leadership>
    })
    .await;
}

/// NEW-59, NEW-60, SCH-10, T16: what a holder of the same place left is taken at once, and nothing else is.
#[tokio::test]
async fn keeps_the_contract_of_places() {
    let server = server().await;
    contract::places(async |name: &str, place: Option<&str>| {
        let lease = KeyValueLease::new(context(&server.url()).await, BUCKET, &name.parse().unwrap(), "same");
        Arc::new(lease.at(place).with_times(LONG)) as Arc<dyn Leadership>
    })
    .await;
}

/// SCH-10, NEW-59, F50, T16: with the real times, a standby that has waited leads right after the release.
#[tokio::test]
async fn an_orderly_end_is_followed_at_once() {
    let server = server().await;
    let (a, b) =
        (replica(&server.url(), "a", Times::default()).await, replica(&server.url(), "b", Times::default()).await);
    let held = leads(&a).await;
    let tenure = held.tenure();
    let next = tokio::spawn(async move { leads(&b).await });
    writes(&server.url(), 2).await;
    assert!(!next.is_finished());
    let began = Instant::now();
    held.release().await;
    assert_eq!(tenure.over(), Some(Lost::Released));
    let next = next.await.unwrap();
    let took = began.elapsed();
    // Meant is 3 s (NEW-59); a machine that is busy enough misses that, but never the order of it.
    writeln!(std::io::stdout(), "led again {took:?} after the end").unwrap();
    assert!(took < Times::default().lease, "{took:?}");
    still_leads(&next.tenure());
}

/// SCH-10, F50: a release does not wait until the next renewal is due.
#[tokio::test]
async fn a_release_waits_for_nothing() {
    let server = server().await;
    let lazy = Times { retry: LONG.renew_deadline, ..LONG };
    let held = leads(&replica(&server.url(), "a", lazy).await).await;
    // Meanwhile the lease is asleep until its next renewal.
    assert_eq!(bucket(&server.url()).await.entry(KEY).await.unwrap().unwrap().revision, 1);
    timeout(SOON, held.release()).await.unwrap();
    leads(&replica(&server.url(), "b", lazy).await).await;
}

/// SCH-10, NEW-59, T16: a holder that is gone without a word is replaced when its lease has run out, and not before.
#[test]
fn a_killed_holder_is_replaced_after_its_lease() {
    const QUICK: Times = times(600, 400, 80);
    let here = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = here.block_on(server());
    // On a busy machine a holder of 400 ms may be late; it is killed long before it would notice.
    let held = there.block_on(async { leads(&replica(&server.url(), "a", QUICK).await).await });
    let b = here.block_on(replica(&server.url(), "b", QUICK));
    let tenure = held.tenure();
    let began = Instant::now();
    there.shutdown_background();
    here.block_on(async {
        let next = leads(&b).await;
        assert!(tenure.over().is_some());
        // It was seen to be written for the last time after this began, or at the first look.
        assert!(began.elapsed() >= QUICK.lease, "{:?}", began.elapsed());
        next.release().await;
    });
}

/// T15, NEW-1, F153: two instances share a bucket and nothing else.
#[tokio::test]
async fn two_instances_do_not_touch_each_other() {
    let server = server().await;
    let of = async |instance: &str| {
        let instance = instance.parse().unwrap();
        KeyValueLease::new(context(&server.url()).await, BUCKET, &instance, "same").with_times(SHORT)
    };
    let (one, another) = (of("one").await, of("another-1").await);
    let (held, other) = (leads(&one).await, leads(&another).await);
    bucket(&server.url()).await.delete("dynamic-runner-scheduler-another-1").await.unwrap();
    assert_eq!(lost(&other).await, Lost::Removed);
    writes(&server.url(), 3).await;
    still_leads(&held.tenure());
    held.release().await;
    let mut keys: Vec<_> = timeout(SOON, keys(&server.url())).await.unwrap();
    keys.sort();
    // One was deleted.
    assert_eq!(keys, [KEY]);
}

async fn keys(url: &str) -> Vec<String> {
    use futures::TryStreamExt as _;
    bucket(url).await.keys().await.unwrap().try_collect().await.unwrap()
}

/// NEW-59, CFG-12: a server of its own has nothing to spread over: what was made there is not changed at a later start.
#[tokio::test]
async fn a_server_of_its_own_is_enough() {
    let server = server().await;
    leads(&replica(&server.url(), "a", LONG).await).await.release().await;
    let watcher = async_nats::connect(server.url()).await.unwrap();
    let mut asked = watcher.subscribe("$JS.API.STREAM.*.KV_leases").await.unwrap();
    watcher.flush().await.unwrap();
    leads(&replica(&server.url(), "a", LONG).await).await.release().await;
    watcher.flush().await.unwrap();
    let asked: Vec<String> =
        std::iter::from_fn(|| asked.next().now_or_never().flatten()).map(|call| call.subject.to_string()).collect();
    assert!(!asked.is_empty() && asked.iter().all(|subject| subject == "$JS.API.STREAM.INFO.KV_leases"), "{asked:?}");
}

/// NEW-59: the bucket is made for what it holds: one value of each key, on the disk, without an age.
#[tokio::test]
async fn the_bucket_is_made_once() {
    let server = server().await;
    let (a, b) = (replica(&server.url(), "a", LONG).await, replica(&server.url(), "b", LONG).await);
    // Both find none; one makes it.
    let held = tokio::select! { held = leads(&a) => held, held = leads(&b) => held };
    let status = bucket(&server.url()).await.status().await.unwrap();
    assert_eq!((status.history(), status.max_age()), (1, Duration::ZERO));
    assert_eq!(status.info.config.storage, jetstream::stream::StorageType::File);
    assert_eq!(status.info.config.num_replicas, 1);
    held.release().await;
}
