//! How many executors one owner or one repository may have at a time (NEW-18, F19).

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::id::AssignmentId;
use crate::identity::Repository;

/// The limits; none: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    /// Of one owner.
    pub per_owner: Option<NonZeroU32>,
    /// Of one repository.
    pub per_repository: Option<NonZeroU32>,
}

/// A task that is held or has an executor.
#[derive(Debug, Clone, Copy)]
pub struct Holding<'a> {
    /// Its name.
    pub id: AssignmentId,
    /// Whose it is.
    pub repository: &'a Repository,
    /// Where it is.
    pub place: Place,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Its executor exists or may exist.
    Slot,
    /// It waits.
    Queue,
}

impl Shares {
    /// No limit at all.
    #[must_use]
    pub fn are_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// The waiting tasks that must leave their turn to those behind them, each with what it waits for. In the order of
    /// `holdings`; the ones before them take the places that are left.
    #[must_use]
    pub fn over(&self, holdings: &[Holding<'_>]) -> BTreeMap<AssignmentId, String> {
        let mut used: BTreeMap<String, u32> = BTreeMap::new();
        let mut over = BTreeMap::new();
        let (running, waiting): (Vec<&Holding<'_>>, Vec<_>) =
            holdings.iter().partition(|holding| holding.place == Place::Slot);
        for holding in running.into_iter().chain(waiting) {
            // Gitea's names are case-insensitive (NEW-123).
            let repository = holding.repository.to_string().to_ascii_lowercase();
            let owner = holding.repository.owner().as_str().to_ascii_lowercase();
            let full = [(&owner, "owner", self.per_owner), (&repository, "repository", self.per_repository)]
                .into_iter()
                .find_map(|(key, what, limit)| full(key, what, limit?.get(), &used));
            match full {
                Some(cause) if holding.place == Place::Queue => drop(over.insert(holding.id, cause)),
                _ => [owner, repository].into_iter().for_each(|key| *used.entry(key).or_default() += 1),
            }
        }
        over
    }
}

fn full(key: &str, what: &str, limit: u32, used: &BTreeMap<String, u32>) -> Option<String> {
    let running = used.get(key).copied().unwrap_or_default();
    (running >= limit).then(|| format!("an end among the jobs of the {what} {key}: {running} of {limit} are running"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::id::TaskId;
    use Place::{Queue, Slot};

    fn limit(n: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(n)
    }

    /// Who waits for a place, by number.
    fn over(shares: Shares, held: &[(i64, &str, Place)]) -> Vec<i64> {
        let repositories: Vec<Repository> = held.iter().map(|(_, name, _)| name.parse().unwrap()).collect();
        let holdings = held.iter().zip(&repositories).map(|((id, _, place), repository)| {
            let id = AssignmentId::of(TaskId::try_from(*id).unwrap());
            Holding { id, repository, place: *place }
        });
        shares.over(&holdings.collect::<Vec<_>>()).into_keys().map(|id| id.task().get()).collect()
    }

    /// NEW-18, F19, T37: who is over a limit leaves the turn to others; places that are left go to the first that wait;
    /// running ones are never judged.
    #[test]
    fn over_a_limit_leaves_the_turn() {
        let held = [(1, "a/x", Slot), (2, "A/y", Queue), (3, "b/z", Queue), (4, "a/x", Queue), (5, "b/z", Queue)];
        assert_eq!(over(Shares::default(), &held), [0; 0]);
        assert_eq!(over(Shares { per_owner: limit(1), per_repository: None }, &held), [2, 4, 5]);
        assert_eq!(over(Shares { per_owner: limit(2), per_repository: None }, &held), [4]);
        assert_eq!(over(Shares { per_owner: None, per_repository: limit(1) }, &held), [4, 5]);
        assert_eq!(over(Shares { per_owner: limit(2), per_repository: limit(1) }, &held), [4, 5]);
        let crowd = [(1, "a/x", Slot), (2, "a/x", Slot), (3, "a/x", Queue)];
        assert_eq!(over(Shares { per_owner: limit(1), per_repository: None }, &crowd), [3]);
    }
}
