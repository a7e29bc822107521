//! The small keyed records beside the queue: what ended, which repository stands behind a name, and what was set aside
//! (NEW-45, NEW-51).
//!
//! Values are short JSON texts that their owners write and read; nothing here looks into them, and none may hold a
//! secret.

use domain::id::{AssignmentId, PayloadDigest};
use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use super::QueueError;
use super::embedded::store::{failure, micros, timestamp};
use super::embedded::writer::Writer;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A task that has begun or ended, written when its message goes; kept for longer than any redelivery can come
    /// (NEW-45).
    Tombstone,
    /// Which repository stands behind an identity.
    Pin,
    /// What could not be processed, without secrets: ids, digest, sizes, error class, times (NEW-51).
    SetAside,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Pin => "pin",
            Self::SetAside => "set_aside",
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unique within its kind.
    pub key: String,
    /// The owner's text, without secrets.
    pub value: String,
    /// When it was written last.
    pub at: Timestamp,
}

/// The ledger of one host: a table in the file of the embedded queue, behind the same writer.
#[derive(Clone)]
pub struct Ledger {
    writer: Writer,
}

impl Ledger {
    pub(super) fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// Writes a record, in place of an earlier one of the same key; durable when `Ok`.
    ///
    /// # Errors
    /// [`QueueError::Full`], [`QueueError::Unavailable`], [`QueueError::Unusable`].
    pub async fn put(&self, kind: Kind, entry: Entry) -> Result<(), QueueError> {
        const SQL: &str = "INSERT INTO ledger (kind, key, value, at) VALUES (?1, ?2, ?3, ?4)
                           ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, at = excluded.at";
        self.writer
            .call(move |store| {
                let at = micros(entry.at);
                store.execute(SQL, params![kind.as_str(), entry.key, entry.value, at]).map(drop)
            })
            .await
    }

    /// Writes a record unless one of this key is there; returns the one that holds, in one step.
    ///
    /// # Errors
    /// As [`Ledger::put`].
    pub async fn put_if_absent(&self, kind: Kind, new: Entry) -> Result<Entry, QueueError> {
        const PUT: &str = "INSERT INTO ledger (kind, key, value, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        const GET: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 AND key = ?2";
        self.writer
            .call(move |store| {
                store.execute(PUT, params![kind.as_str(), new.key, new.value, micros(new.at)])?;
                let mut statement = store.prepare(GET)?;
                statement.query_row(params![kind.as_str(), new.key], entry).map_err(failure)
            })
            .await
    }

    /// The record of this key.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    pub async fn get(&self, kind: Kind, key: &str) -> Result<Option<Entry>, QueueError> {
        const SQL: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 AND key = ?2";
        let key = key.to_owned();
        self.writer
            .call(move |store| {
                let mut statement = store.prepare(SQL)?;
                statement.query_row(params![kind.as_str(), key], entry).optional().map_err(failure)
            })
            .await
    }

    /// All records of a kind, by key.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    pub async fn list(&self, kind: Kind) -> Result<Vec<Entry>, QueueError> {
        const SQL: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 ORDER BY key";
        self.writer
            .call(move |store| {
                let mut statement = store.prepare(SQL)?;
                let rows = statement.query_map(params![kind.as_str()], entry).map_err(failure)?;
                rows.collect::<Result<_, _>>().map_err(failure)
            })
            .await
    }

    /// Takes a record away; one that is not there is `Ok`.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    pub async fn remove(&self, kind: Kind, key: &str) -> Result<(), QueueError> {
        const SQL: &str = "DELETE FROM ledger WHERE kind = ?1 AND key = ?2";
        let key = key.to_owned();
        self.writer.call(move |store| store.execute(SQL, params![kind.as_str(), key]).map(drop)).await
    }

    /// Whether this life of the assignment has ended; another digest under the same id is another life (NEW-3).
    ///
    /// # Errors
    /// As [`Ledger::get`].
    pub async fn is_ended(&self, id: AssignmentId, digest: &PayloadDigest) -> Result<bool, QueueError> {
        let digest = digest.clone();
        self.writer.call(move |store| store.is_ended(id, &digest)).await
    }
}

/// The key of a tombstone.
pub(super) fn life(id: AssignmentId, digest: &PayloadDigest) -> String {
    format!("{id}.{digest}")
}

fn entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry { key: row.get(0)?, value: row.get(1)?, at: timestamp(row, 2)? })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::queue::embedded::{Embedded, Settings};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(key: &str, value: &str, second: i64) -> Entry {
        Entry { key: key.to_owned(), value: value.to_owned(), at: at(second) }
    }

    async fn ledger(dir: &tempfile::TempDir) -> Ledger {
        Embedded::open(Settings::new(dir.path().join("queue.db"))).await.unwrap().ledger()
    }

    /// NEW-51: kinds do not see each other; the last value wins.
    #[tokio::test]
    async fn records_are_kept_by_kind_and_key() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger(&dir).await;
        ledger.put(Kind::Pin, entry("a", "1", 10)).await.unwrap();
        ledger.put(Kind::Pin, entry("a", "2", 20)).await.unwrap();
        ledger.put(Kind::SetAside, entry("a", "x", 10)).await.unwrap();
        ledger.put(Kind::SetAside, entry("b", "y", 30)).await.unwrap();
        assert_eq!(ledger.get(Kind::Pin, "a").await.unwrap(), Some(entry("a", "2", 20)));
        assert_eq!(ledger.get(Kind::Pin, "b").await.unwrap(), None);
        assert_eq!(ledger.list(Kind::SetAside).await.unwrap(), [entry("a", "x", 10), entry("b", "y", 30)]);
        assert_eq!(ledger.list(Kind::Pin).await.unwrap().len(), 1);
        ledger.remove(Kind::Pin, "a").await.unwrap();
        ledger.remove(Kind::Pin, "a").await.unwrap();
        assert_eq!(ledger.get(Kind::Pin, "a").await.unwrap(), None);
    }
}
