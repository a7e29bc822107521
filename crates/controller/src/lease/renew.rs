//! The task that keeps a lease, tells when it is lost, and gives it up.

use std::fmt::Display;

use futures::FutureExt as _;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

use super::boot_time::BootTime;
use super::rules::{Call, Heard, Next, Seen, Term, Times};
use super::{Held, Lost, Standing, Tenure};

/// Where a lease is written, by one session. Every call is bounded by [`Times::call`] and tries nothing again; an error
/// means that nothing is known: what was to be written may be stored, now or later.
pub(super) trait Store: Send + Sync + 'static {
    /// What happened, for people.
    type Trouble: Display + Send;

    /// What is there.
    fn look(&self) -> impl Future<Output = Result<Seen, Self::Trouble>> + Send;

    /// Writes us in, if this revision is the latest: [`Heard::Stored`] or [`Heard::Refused`].
    fn write(&self, expected: u64) -> impl Future<Output = Result<Heard, Self::Trouble>> + Send;

    /// Writes that nobody holds it, if this revision is the latest.
    fn write_free(&self, expected: u64) -> impl Future<Output = Result<Heard, Self::Trouble>> + Send;

    /// How long what takes.
    fn times(&self) -> &Times;
}

/// Keeps the lease until the answer is dropped.
pub(super) fn hold(store: impl Store, term: Term) -> Held {
    let (standing, tenure) = Tenure::new(term.standing());
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
    store: &impl Store,
    mut term: Term,
    standing: &watch::Sender<Standing>,
    mut given_up: oneshot::Receiver<()>,
) {
    let lost = keep(store, &mut term, standing, &mut given_up).await;
    standing.send_replace(Standing::Over(lost.clone()));
    if lost == Lost::Released {
        let _ = tokio::time::timeout(store.times().release(), release(store, term.revision())).await;
    } else {
        // What is under way as the leader may take its time to end.
        let _ = given_up.await;
    }
}

/// Renews until the lease is lost or given up.
async fn keep(
    store: &impl Store,
    term: &mut Term,
    standing: &watch::Sender<Standing>,
    given_up: &mut oneshot::Receiver<()>,
) -> Lost {
    let (mut failures, mut rests) = (0_u32, false);
    loop {
        let next = term.next(BootTime::now());
        if !matches!(next, Next::End(_)) {
            tell(&mut rests, term.rests(BootTime::now()));
        }
        match next {
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
                standing.send_replace(term.standing());
            }
        }
    }
}

/// Said once when it begins and once when it is over.
fn tell(before: &mut bool, rests: bool) {
    match (*before, rests) {
        (false, true) => tracing::error!(
            component = "scheduler",
            "nobody confirms the lease: nothing is fetched, started or ended until somebody does"
        ),
        (true, false) => tracing::info!(component = "scheduler", "the lease is confirmed again"),
        _ => {}
    }
    *before = rests;
}

async fn carry_out<S: Store>(store: &S, call: Call) -> Result<Heard, S::Trouble> {
    match call {
        Call::Write { expected } => store.write(expected).await,
        Call::Look => store.look().await.map(Heard::Found),
    }
}

/// What a call without success says; the first one of a row is told.
fn heard_of(trouble: &impl Display, failures: &mut u32) -> Heard {
    if *failures == 0 {
        tracing::warn!(component = "scheduler", "the lease was not renewed, trying again: {trouble}");
    }
    *failures += 1;
    Heard::Nothing
}

/// Writes that it is free, on what we wrote last. What somebody else wrote stays.
async fn release(store: &impl Store, mut revision: u64) {
    loop {
        match store.write_free(revision).await {
            Ok(Heard::Refused) => match store.look().await {
                Ok(Seen::Ours { revision: latest }) => revision = latest,
                Ok(_) => return,
                Err(_) => tokio::time::sleep(store.times().pause()).await,
            },
            Ok(_) => return,
            Err(_) => tokio::time::sleep(store.times().pause()).await,
        }
    }
}
