//! A password that is replaced while we run (NEW-140).

use std::sync::{PoisonError, RwLock};

use zeroize::Zeroizing;

/// The newest password of one user. The NATS client asks for it at each connection; its own copies it only frees.
pub struct Password(RwLock<Zeroizing<String>>);

impl Password {
    /// This one, until another is known.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(RwLock::new(Zeroizing::new(text.to_owned())))
    }

    /// Another one, from the next connection on.
    pub fn replace(&self, text: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Zeroizing::new(text.to_owned());
    }

    /// The newest.
    pub(crate) fn now(&self) -> Zeroizing<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
