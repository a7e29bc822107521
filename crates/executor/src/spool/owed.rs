//! One debt of the spool and how it changes.

/// One debt. The last log stays known after it was accepted, because the state may ask for it again.
pub(super) enum Owed<T> {
    Nothing,
    Forwarding(T),
    Due(T),
    Accepted(T),
    Refused,
}

impl<T> Owed<T> {
    pub(super) fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    pub(super) fn value(&self) -> Option<&T> {
        match self {
            Self::Nothing | Self::Refused => None,
            Self::Forwarding(value) | Self::Due(value) | Self::Accepted(value) => Some(value),
        }
    }

    pub(super) fn accept(&mut self) {
        self.replace(Self::Accepted);
    }

    pub(super) fn fall_due(&mut self) {
        self.replace(Self::Due);
    }

    fn replace(&mut self, to: impl FnOnce(T) -> Self) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::Nothing,
            Self::Refused => Self::Refused,
            Self::Forwarding(value) | Self::Due(value) | Self::Accepted(value) => to(value),
        };
    }
}
