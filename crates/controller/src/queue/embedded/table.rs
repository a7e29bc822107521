//! The ledger of one host: a table in the file of the embedded queue, behind the same writer.

use futures::future::BoxFuture;
use rusqlite::{OptionalExtension as _, params};

use super::super::QueueError;
use super::super::ledger::{Entry, Kind, Ledger};
use super::store::{failure, micros, timestamp};
use super::writer::Writer;

impl Ledger for Writer {
    fn put(&self, kind: Kind, entry: Entry) -> BoxFuture<'_, Result<(), QueueError>> {
        const SQL: &str = "INSERT INTO ledger (kind, key, value, at) VALUES (?1, ?2, ?3, ?4)
                           ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, at = excluded.at";
        self.call(move |store| {
            let at = micros(entry.at);
            store.execute(SQL, params![kind.as_str(), entry.key, entry.value, at]).map(drop)
        })
    }

    fn put_if_absent(&self, kind: Kind, new: Entry) -> BoxFuture<'_, Result<Entry, QueueError>> {
        const PUT: &str = "INSERT INTO ledger (kind, key, value, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        const GET: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 AND key = ?2";
        self.call(move |store| {
            store.execute(PUT, params![kind.as_str(), new.key, new.value, micros(new.at)])?;
            let mut statement = store.prepare(GET)?;
            statement.query_row(params![kind.as_str(), new.key], entry).map_err(failure)
        })
    }

    fn get(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<Option<Entry>, QueueError>> {
        const SQL: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 AND key = ?2";
        let key = key.to_owned();
        self.call(move |store| {
            let mut statement = store.prepare(SQL)?;
            statement.query_row(params![kind.as_str(), key], entry).optional().map_err(failure)
        })
    }

    fn list(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<Entry>, QueueError>> {
        const SQL: &str = "SELECT key, value, at FROM ledger WHERE kind = ?1 ORDER BY key";
        self.call(move |store| {
            let mut statement = store.prepare(SQL)?;
            let rows = statement.query_map(params![kind.as_str()], entry).map_err(failure)?;
            rows.collect::<Result<_, _>>().map_err(failure)
        })
    }

    fn remove(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<(), QueueError>> {
        const SQL: &str = "DELETE FROM ledger WHERE kind = ?1 AND key = ?2";
        let key = key.to_owned();
        self.call(move |store| store.execute(SQL, params![kind.as_str(), key]).map(drop))
    }
}

fn entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry { key: row.get(0)?, value: row.get(1)?, at: timestamp(row, 2)? })
}
