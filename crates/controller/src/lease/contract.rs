//! What every [`Leadership`] keeps, whatever its proof is.
//!
//! `make(name)` makes one more contender for the lease of that name. Each implementation has one test that calls [`all`],
//! with a proof that does not run out while the tests run: what they see is given up, not expired.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::*;

type Contender = Arc<dyn Leadership>;

/// Far below the length of the leases here.
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn all(make: impl AsyncFn(&str) -> Contender) {
    only_one_leads(&make).await;
    a_release_is_for_the_one_who_waits(&make).await;
    what_is_dropped_is_given_up(&make).await;
    who_stopped_waiting_takes_nothing(&make).await;
    other_names_are_other_leases(&make).await;
}

async fn leads(contender: &Contender) -> Held {
    timeout(SOON, contender.acquire()).await.unwrap().unwrap()
}

/// It is refused, or still waits.
async fn does_not_lead(contender: &Contender) {
    assert!(!matches!(timeout(Duration::from_millis(700), contender.acquire()).await, Ok(Ok(_))));
}

async fn only_one_leads(make: &impl AsyncFn(&str) -> Contender) {
    let [first, second] = [make("one").await, make("one").await];
    let held = leads(&first).await;
    does_not_lead(&second).await;
    // Not even another one of the same process and holder.
    does_not_lead(&first).await;
    assert_eq!(held.tenure().over(), None);
    assert!(held.lost().now_or_never().is_none());
}

async fn a_release_is_for_the_one_who_waits(make: &impl AsyncFn(&str) -> Contender) {
    let [first, second] = [make("release").await, make("release").await];
    let held = leads(&first).await;
    let (tenure, lost) = (held.tenure(), held.lost());
    let (next, ()) = tokio::join!(leads(&second), held.release());
    assert_eq!(tenure.over(), Some(Lost::Released));
    timeout(SOON, lost).await.unwrap();
    assert_eq!(next.tenure().over(), None);
}

async fn what_is_dropped_is_given_up(make: &impl AsyncFn(&str) -> Contender) {
    let held = leads(&make("drop").await).await;
    let tenure = held.tenure();
    drop(held);
    let next = leads(&make("drop").await).await;
    assert_eq!(tenure.over(), Some(Lost::Released));
    assert_eq!(next.tenure().over(), None);
}

async fn who_stopped_waiting_takes_nothing(make: &impl AsyncFn(&str) -> Contender) {
    let held = leads(&make("stopped").await).await;
    does_not_lead(&make("stopped").await).await;
    held.release().await;
    leads(&make("stopped").await).await;
}

async fn other_names_are_other_leases(make: &impl AsyncFn(&str) -> Contender) {
    let [one, another] = [leads(&make("a").await).await, leads(&make("b").await).await];
    one.release().await;
    assert_eq!(another.tenure().over(), None);
}

/// What those keep that can be told the place of their holder: `make(name, place)` makes a contender.
pub(crate) async fn places(make: impl AsyncFn(&str, Option<&str>) -> Contender) {
    let (here, elsewhere) = (Some("boot 1:2"), Some("boot 1:3"));
    let held = leads(&make("place", here).await).await;
    does_not_lead(&make("place", elsewhere).await).await;
    does_not_lead(&make("place", None).await).await;
    assert_eq!(held.tenure().over(), None);
    // It breaks the promise that its holder is gone, and so shows that nothing was waited for.
    let next = leads(&make("place", here).await).await;
    timeout(SOON, held.lost()).await.unwrap();
    assert!(matches!(held.tenure().over(), Some(Lost::Taken { .. })), "{:?}", held.tenure().over());
    does_not_lead(&make("place", elsewhere).await).await;
    next.release().await;
    let nowhere = leads(&make("place", None).await).await;
    does_not_lead(&make("place", here).await).await;
    nowhere.release().await;
}
