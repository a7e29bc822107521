//! Leadership between hosts: a key in a key-value bucket of NATS, which its holder writes anew every 2 s and a standby
//! takes over when it saw the same revision for 15 s (SCH-10, NEW-59, NEW-60).
//!
//! Every write names the revision it replaces, so of two that write only one succeeds. What is written names the holder
//! and the session: one call of `acquire`. Times are measured on this host alone; no time of another host is compared.
//!
//! | what happens | what follows |
//! |---|---|
//! | a write fails, or is not answered in time | it may be stored, even much later (the client sends again what waited for a connection): read, and compare the session; then written again on the revision that was read |
//! | a write is refused, and another session is read | not ours: lost at once, that is with the next renewal after it happened |
//! | a read fails, hangs, or shows less than what was confirmed | read again |
//! | nothing is confirmed for the renew deadline (10 s) | the holder rests ([`Unconfirmed::Rests`]), unless it holds by another proof too ([`Unconfirmed::GoesOn`]); it is tried on, for ever |
//! | a resting holder writes on its own revision, and that is stored | nobody led meanwhile: it leads again |
//! | nobody hears of the key for longer than the renew deadline | a standby begins its wait anew: it cannot know whether the holder was silent, and that one is to have its lease back |
//! | the key or its bucket is removed by hand | the holder has lost it with its next renewal; a standby that saw it held waits for the length of a lease all the same, one that is started anew does not |
//! | the holder is frozen past its deadline | [`super::Tenure::permits`] nothing before any timer runs; what it was about to send meanwhile is sent all the same, and fenced elsewhere |
//! | its holder was a process of the same place, which is gone | taken at once ([`KeyValueLease::at`]) |
//! | released in order | a record without a session is written, which a standby takes with its next look (every 2 s) |
//! | the release is not answered | tried again for a moment; then a standby waits for the length of a lease |
//!
//! What a user may not do, NATS does not answer. While nothing was ever answered, or no write is answered though reads
//! are, a standby gives up after the length of a lease and says what it may need ([`KeyValueError::Unanswered`]).

mod error;
mod store;
#[cfg(test)]
mod tests;

use async_nats::jetstream::Context;
use domain::id::InstanceId;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::boot_time::BootTime;
use super::renew::{self, Store as _};
use super::rules::{Heard, Move, Standby, Term, Times, Unconfirmed};
use super::{Held, Leadership, LeaseError, announce};
pub use error::KeyValueError;
use error::Trouble;
use store::{Bucket, Patience, Store};

/// The lease of one instance in NATS.
#[derive(Clone)]
pub struct KeyValueLease {
    bucket: Bucket,
    key: String,
    holder: String,
    place: Option<String>,
    unconfirmed: Unconfirmed,
    times: Times,
}

impl KeyValueLease {
    /// The lease `dynamic-runner-scheduler-<instance>` (requirements §1.3) in a bucket, which is made where it is missing,
    /// on three servers where there are as many. `holder` is for people: the name of this replica.
    ///
    /// Give it a context of its own: what waits for acknowledgements in one that others publish through holds up the
    /// renewals.
    #[must_use]
    pub fn new(context: Context, bucket: &str, instance: &InstanceId, holder: &str) -> Self {
        let bucket = Bucket { context, name: bucket.to_owned() };
        // What an instance is made of is legal in a key.
        let key = format!("dynamic-runner-scheduler-{instance}");
        Self {
            bucket,
            key,
            holder: holder.to_owned(),
            place: None,
            unconfirmed: Unconfirmed::Rests,
            times: Times::default(),
        }
    }

    /// With another rule for a time in which nothing is confirmed.
    #[must_use]
    pub fn when_unconfirmed(mut self, unconfirmed: Unconfirmed) -> Self {
        self.unconfirmed = unconfirmed;
        self
    }

    /// Names what at most one living process works on and the caller holds ([`Held::place`]): then a lease that was written
    /// at the same place is that of a process which is gone, and is not waited for.
    #[must_use]
    pub fn at(mut self, place: Option<&str>) -> Self {
        self.place = place.map(str::to_owned);
        self
    }

    /// With other times, for tests.
    #[must_use]
    pub fn with_times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    async fn lead(&self) -> Result<Held, KeyValueError> {
        let mut patience = Patience::new(self.times.lease);
        let mut store = self.open(&mut patience).await?;
        let mut standby = Standby::default();
        let (mut unread, mut unwritten) = (Patience::new(self.times.lease), Patience::new(self.times.lease));
        let mut announced = None;
        loop {
            let pause = match store.find().await {
                Ok(seen) => {
                    unread.answered();
                    announce(&seen, &mut announced);
                    match standby.see(seen, self.place.as_deref(), BootTime::now(), &self.times) {
                        Move::Take { expected } => match self.take(&store, expected, &mut unwritten).await? {
                            Some(term) => return Ok(renew::hold(store, term.when(self.unconfirmed))),
                            None => self.times.retry,
                        },
                        Move::Wait(pause) => pause,
                    }
                }
                Err(Trouble::NoBucket) => {
                    store = self.open(&mut patience).await?;
                    continue;
                }
                Err(trouble) => {
                    if unread.is_over(self.bucket.is_connected(), BootTime::now()) {
                        return Err(self.bucket.unanswered(self.bucket.look_subject(), &trouble, &unread));
                    }
                    self.times.pause()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The bucket, made where it is missing. Waits for a server that is away.
    async fn open(&self, patience: &mut Patience) -> Result<Store, KeyValueError> {
        loop {
            let trouble = match self.bucket.open(self).await {
                Ok(store) => {
                    patience.answered();
                    return Ok(store);
                }
                Err(Trouble::Unusable { cause, remedy }) => return Err(self.bucket.unusable(cause, remedy)),
                Err(trouble) => trouble,
            };
            if patience.is_over(self.bucket.is_connected(), BootTime::now()) {
                return Err(self.bucket.unanswered(self.bucket.open_subjects(), &trouble, patience));
            }
            tokio::time::sleep(self.times.pause()).await;
        }
    }

    /// Writes us in. None when somebody else was faster, or when nobody can say.
    async fn take(
        &self,
        store: &Store,
        expected: u64,
        unwritten: &mut Patience,
    ) -> Result<Option<Term>, KeyValueError> {
        let sent = BootTime::now();
        let trouble = match store.write(expected).await {
            Ok(Heard::Stored { revision }) => {
                // An answer that comes too late begins a leadership that rests.
                return Ok(Some(Term::new(self.times, revision, sent)));
            }
            Ok(_) => {
                unwritten.answered();
                return Ok(None);
            }
            Err(trouble) => trouble,
        };
        if unwritten.is_over(self.bucket.is_connected(), BootTime::now()) {
            return Err(self.bucket.unanswered(store.subject().to_owned(), &trouble, unwritten));
        }
        Ok(None)
    }
}

impl Leadership for KeyValueLease {
    fn acquire(&self) -> BoxFuture<'_, Result<Held, LeaseError>> {
        async move { Ok(self.lead().await?) }.boxed()
    }
}
