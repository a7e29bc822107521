//! What the tests of every lease have in common: lengths, and what they wait for.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tokio::time::timeout;

use super::rules::Times;
use super::{Act, Fenced, Held, Leadership, Lost, Tenure};

/// For what must not wait for the end of a lease: far shorter than [`LONG`].
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Nothing expires within a test.
pub(super) const LONG: Times = times(60_000, 40_000, 100);

/// What a busy machine can hold, and a test can wait for.
pub(super) const SHORT: Times = times(3_000, 2_000, 100);

pub(super) const fn times(lease: u64, renew_deadline: u64, retry: u64) -> Times {
    let ms = Duration::from_millis;
    Times { lease: ms(lease), renew_deadline: ms(renew_deadline), retry: ms(retry) }
}

pub(super) async fn leads(replica: &impl Leadership) -> Held {
    timeout(SOON, replica.acquire()).await.unwrap().unwrap()
}

/// Becomes ready with what was lost.
pub(super) async fn lost(held: &Held) -> Lost {
    timeout(SOON, held.lost()).await.unwrap();
    held.tenure().over().unwrap()
}

pub(super) fn still_leads(tenure: &Tenure) {
    assert_eq!(tenure.permits(Act::Decide), Ok(()));
}

/// Waits until this may be done, or may not.
pub(super) async fn until(held: &Held, act: Act, permitted: Result<(), Fenced>) {
    let tenure = held.tenure();
    let asked = async {
        while tenure.permits(act) != permitted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, asked).await.unwrap_or_else(|_| panic!("{act:?}: {:?}", tenure.permits(act)));
}
