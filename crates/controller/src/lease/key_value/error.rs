//! What can be wrong with a lease in NATS.

use std::time::Duration;

/// Why a lease in NATS cannot be used. Until then it was tried again.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueError {
    /// NATS was connected, and this was not answered. It does not answer what a user may not do.
    #[error(
        "lease in the NATS bucket {bucket}: no good answer to {subject} within {} s though connected ({cause}). \
         Where that names no reason, the user of this connection needs JetStream, the right to publish to {subject}, and to subscribe to its inbox; \
         give it these, or make the server answer", waited.as_secs_f32()
    )]
    Unanswered {
        /// The bucket.
        bucket: String,
        /// The subjects.
        subject: String,
        /// How long it was tried.
        waited: Duration,
        /// What came last.
        cause: String,
    },
    /// The bucket is not fit for a lease, or JetStream refuses it.
    #[error("lease in the NATS bucket {bucket}: {cause}; {remedy}")]
    Unusable {
        /// The bucket.
        bucket: String,
        /// What is wrong.
        cause: String,
        /// What an operator can do.
        remedy: &'static str,
    },
}

/// Why one call brought nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// No answer in time, or one that is no word about the key. A write may be stored all the same.
    #[error("{0}")]
    Silent(String),
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoBucket,
    /// There are fewer servers than were asked for.
    #[error("there are too few servers")]
    TooFewServers,
    /// It will not do until somebody acts.
    #[error("{cause}; {remedy}")]
    Unusable { cause: String, remedy: &'static str },
}
