//! The entries that this process wrote or compared: what each said then, so that a later look at all of them finds what
//! others did to it (NEW-75). It is no evidence of anything else: who is not in it may have an entry.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

/// By the name of the entry, with something of the issuer's own.
pub(super) struct Known<T> {
    notes: BTreeMap<String, Note<T>>,
    /// How many were ever made: the time, as far as anybody here asks for it.
    made: u64,
}

struct Note<T> {
    own: T,
    said: u64,
    at: u64,
}

/// Before a list is begun. What is noted after it says nothing of what that list shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(u64);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { notes: BTreeMap::new(), made: 0 }
    }
}

impl<T> Known<T> {
    /// The entry is there and says this.
    pub(super) fn note(&mut self, name: &str, own: T, said: u64) {
        self.made += 1;
        self.notes.insert(name.to_owned(), Note { own, said, at: self.made });
    }

    pub(super) fn forget(&mut self, name: &str) -> Option<T> {
        self.notes.remove(name).map(|note| note.own)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.notes.contains_key(name)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment(self.made)
    }

    /// Whether a complete list that was begun at `moment` shows this entry otherwise than it was known by then; `shown` is what
    /// it says there, if it is there.
    pub(super) fn is_amiss(&self, name: &str, moment: Moment, shown: Option<u64>) -> bool {
        self.notes.get(name).is_some_and(|note| note.at <= moment.0 && shown != Some(note.said))
    }
}

/// Short for what an entry says.
pub(super) fn short(said: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    said.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-75, T53: gone or changed since it was noted; what is noted while a list is read, or was taken away by us, is not
    /// judged by that list.
    #[test]
    fn a_list_judges_what_was_known_before_it() {
        let mut known = Known::default();
        for name in ["same", "changed", "gone", "replaced", "released"] {
            known.note(name, (), short(&name));
        }
        let moment = known.moment();
        known.note("replaced", (), short(&"anew"));
        known.note("made", (), short(&"made"));
        known.forget("released");
        let shown = |name: &str| match name {
            "gone" | "released" | "made" => None,
            "changed" => Some(short(&"otherwise")),
            _ => Some(short(&name)),
        };
        let names = ["same", "changed", "gone", "replaced", "released", "made", "foreign"];
        let amiss = |moment| names.into_iter().filter(|name| known.is_amiss(name, moment, shown(name))).collect();
        let judged: Vec<&str> = amiss(moment);
        assert_eq!(judged, ["changed", "gone"]);
        let judged: Vec<&str> = amiss(known.moment());
        assert_eq!(judged, ["changed", "gone", "replaced", "made"]);
    }
}
