//! How long the built-in issuer's certificates live.

use std::time::Duration;

/// Shortest life of a leaf. Below it, renewal at half life leaves a busy host too little time (SPIRE renews such leaves
/// without pause).
const SHORTEST_LEAF: Duration = Duration::from_secs(30);
/// A leaf must end long before the authority that signed it, or it would be cut short at the authority's end.
const LEAVES_PER_AUTHORITY: u32 = 8;

/// Lives of leaves and authorities. The default is 30 minutes and 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Life of an X.509-SVID; it is renewed when half of it is over.
    pub(super) leaf: Duration,
    /// Life of an authority; its successor is made when half of it is over.
    pub(super) authority: Duration,
    /// How long a new authority is only announced in the bundle before it signs, so that every peer knows it first.
    pub(super) announcement: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            leaf: Duration::from_secs(30 * 60),
            authority: Duration::from_secs(30 * 24 * 3600),
            announcement: Duration::from_secs(30),
        }
    }
}

impl Lifetimes {
    /// The default with another life of leaves: at least 30 s, at most an eighth of an authority's 30 days.
    ///
    /// # Errors
    /// [`LifetimesError`] outside of that range.
    pub fn with_leaf(leaf: Duration) -> Result<Self, LifetimesError> {
        let default = Self::default();
        let longest = default.authority / LEAVES_PER_AUTHORITY;
        if leaf < SHORTEST_LEAF || leaf > longest {
            return Err(LifetimesError { leaf, longest });
        }
        Ok(Self { leaf, ..default })
    }
}

/// A life of leaves outside of what the issuer can keep.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an SVID lives {SHORTEST_LEAF:?} to {longest:?}, not {leaf:?}")]
pub struct LifetimesError {
    leaf: Duration,
    longest: Duration,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_leaf_lives_at_least_thirty_seconds_and_ends_before_its_authority() {
        assert!(Lifetimes::with_leaf(Duration::from_millis(29_999)).is_err());
        assert_eq!(Lifetimes::with_leaf(Duration::from_secs(30)).unwrap().leaf, Duration::from_secs(30));
        assert!(Lifetimes::with_leaf(Duration::from_secs(4 * 24 * 3600)).is_err());
        assert_eq!(Lifetimes::with_leaf(Duration::from_secs(1800)).unwrap(), Lifetimes::default());
    }
}
