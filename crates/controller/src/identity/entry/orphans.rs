//! Which entries have lost their Pods: twice in a row in complete lists, and not once (NEW-75, IDR-7).

use std::collections::BTreeSet;

/// What the last look saw without a Pod.
#[derive(Debug, Default)]
pub(super) struct Orphans(BTreeSet<String>);

impl Orphans {
    /// Takes note of the entries that have no Pod in a complete list, and tells those of which the look before said the
    /// same.
    pub(super) fn again(&mut self, without_pod: BTreeSet<String>) -> Vec<String> {
        let twice = without_pod.intersection(&self.0).cloned().collect();
        self.0 = without_pod;
        twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-75, F71, T53: once is not evidence, and a Pod that was seen in between begins the count anew.
    #[test]
    fn an_orphan_is_seen_twice_in_a_row() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let mut orphans = Orphans::default();
        assert!(orphans.again(of(&["a", "b"])).is_empty());
        assert_eq!(orphans.again(of(&["b", "c"])), ["b"]);
        assert_eq!(orphans.again(of(&["a", "b"])), ["b"]);
        assert!(orphans.again(of(&[])).is_empty());
        assert!(orphans.again(of(&["a", "b"])).is_empty());
    }
}
