//! The task that keeps a lease, tells when it is lost, and gives it up.

use futures::FutureExt as _;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

use super::super::boot_time::BootTime;
use super::super::{Held, Lost, Standing, Tenure};
use super::Trouble;
use super::rules::{Call, Heard, Next, Seen, Term};
use super::store::Store;

/// Keeps the lease until the answer is dropped.
pub(super) fn hold(store: Store, term: Term) -> Held {
    let (standing, tenure) = Tenure::new(Standing::Until(term.end()));
    // Dropping the sender is the wish to give it up.
    let (wish, given_up) = oneshot::channel::<()>();
    let (over, released) = oneshot::channel::<()>();
    tokio::spawn(async move {
        keep_and_release(&store, term, &standing, given_up).await;
        drop(over);
    });
    Held::new(tenure, wish, released.map(drop).boxed())
}

async fn keep_and_release(
    store: &Store,
    mut term: Term,
    standing: &watch::Sender<Standing>,
    mut given_up: oneshot::Receiver<()>,
) {
    let lost = keep(store, &mut term, standing, &mut given_up).await;
    standing.send_replace(Standing::Over(lost.clone()));
    if lost != Lost::Released {
        // What is under way as the leader may take its time to end.
        let _ = given_up.await;
    }
    if !matches!(lost, Lost::Taken { .. } | Lost::Removed) {
        let _ = tokio::time::timeout(store.times.release(), release(store, term.revision())).await;
    }
}

/// Renews until the lease is lost or given up.
async fn keep(
    store: &Store,
    term: &mut Term,
    standing: &watch::Sender<Standing>,
    given_up: &mut oneshot::Receiver<()>,
) -> Lost {
    let mut failures = 0_u32;
    loop {
        match term.next(BootTime::now()) {
            Next::End(lost) => return lost,
            _ if given_up.try_recv().is_err_and(|error| error == TryRecvError::Closed) => return Lost::Released,
            Next::Sleep(pause) => tokio::select! {
                _ = &mut *given_up => return Lost::Released,
                () = tokio::time::sleep(pause) => {}
            },
            Next::Do(call) => {
                let sent = BootTime::now();
                // Bounded, and not cut short by a wish to give up: the release would not know its outcome.
                let answer = carry_out(store, call).await;
                let heard = answer.unwrap_or_else(|trouble| heard_of(&trouble, &mut failures));
                if matches!(heard, Heard::Stored { .. }) {
                    failures = 0;
                }
                term.hear(heard, sent, BootTime::now());
                standing.send_replace(Standing::Until(term.end()));
            }
        }
    }
}

async fn carry_out(store: &Store, call: Call) -> Result<Heard, Trouble> {
    match call {
        Call::Write { expected } => store.write(expected).await,
        Call::Look => store.look().await.map(Heard::Found),
    }
}

/// What a call without success says; the first one of a row is told.
fn heard_of(trouble: &Trouble, failures: &mut u32) -> Heard {
    if *trouble == Trouble::NoBucket {
        return Heard::Found(Seen::Nothing);
    }
    if *failures == 0 {
        tracing::warn!(component = "scheduler", "the lease was not renewed, trying again: {trouble}");
    }
    *failures += 1;
    Heard::Nothing
}

/// Writes that it is free, on what we wrote last. What somebody else wrote stays.
async fn release(store: &Store, mut revision: u64) {
    loop {
        match store.write_free(revision).await {
            Ok(Heard::Refused) => match store.look().await {
                Ok(Seen::Ours { revision: latest }) => revision = latest,
                Ok(_) | Err(Trouble::NoBucket) => return,
                Err(_) => tokio::time::sleep(store.times.pause()).await,
            },
            Ok(_) => return,
            Err(_) => tokio::time::sleep(store.times.pause()).await,
        }
    }
}
