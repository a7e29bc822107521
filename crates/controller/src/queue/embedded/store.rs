//! The tables, and what each operation does to them. Synchronous; runs on the writer's thread only.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use domain::id::{AssignmentId, Backend, PayloadDigest, TaskId};
use jiff::{SignedDuration, Timestamp};
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, ErrorCode, Params, Row, params};

use super::super::ledger::{Kind, life};
use super::super::{Delivery, Disposition, Key, Message, Published, QueueError, Waiting};
use super::Settings;
use crate::clock::Clock;

/// The version of the tables below; a file of a higher one is refused.
const SCHEMA_VERSION: i64 = 1;

/// `id` is the task's number, times are microseconds since 1970, `next_try` is null until a try failed.
const SCHEMA: &str = "
    CREATE TABLE schema (version INTEGER NOT NULL) STRICT;
    INSERT INTO schema (version) VALUES (1);
    CREATE TABLE message (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id INTEGER NOT NULL UNIQUE CHECK (id > 0),
        digest TEXT NOT NULL CHECK (length(digest) = 16),
        backend TEXT NOT NULL CHECK (backend IN ('pod', 'vm', 'local')),
        body BLOB NOT NULL,
        enqueued_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
        next_try INTEGER,
        last_error TEXT
    ) STRICT;
    CREATE INDEX message_turn ON message (backend, seq);
    CREATE TABLE ledger (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (kind, key)
    ) STRICT, WITHOUT ROWID;
";

/// How long it is remembered that a task has ended, or was set aside: longer than any message may wait (NEW-45).
const REMEMBERED: SignedDuration = SignedDuration::from_hours(30 * 24);
const FORGET_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// The open database and the leases of this process.
pub(super) struct Store {
    connection: Connection,
    leased: BTreeSet<Key>,
    clock: Clock,
    /// When old tombstones were looked for last.
    forgot: Timestamp,
}

impl Store {
    pub(super) fn open(settings: &Settings) -> Result<Self, QueueError> {
        make_private_file(&settings.path)?;
        let connection = Connection::open(&settings.path).map_err(failure)?;
        connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(failure)?;
        pragma(&connection, "journal_mode", "WAL")?;
        pragma(&connection, "synchronous", "FULL")?;
        let mut store =
            Self { connection, leased: BTreeSet::new(), clock: settings.clock, forgot: Timestamp::UNIX_EPOCH };
        store.prepare_schema(&settings.path)?;
        let pages = settings.max_bytes / store.page_size()?;
        pragma(&store.connection, "max_page_count", &pages.to_string())?;
        Ok(store)
    }

    fn prepare_schema(&mut self, path: &Path) -> Result<(), QueueError> {
        let transaction = self.connection.transaction().map_err(failure)?;
        let exists: bool = transaction
            .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema')", [], |row| row.get(0))
            .map_err(failure)?;
        if !exists {
            transaction.execute_batch(SCHEMA).map_err(failure)?;
            return transaction.commit().map_err(failure);
        }
        let found: i64 = transaction.query_row("SELECT version FROM schema", [], |row| row.get(0)).map_err(failure)?;
        if found == SCHEMA_VERSION {
            return Ok(());
        }
        Err(QueueError::Unusable {
            cause: format!(
                "{} has schema version {found}, this program knows versions up to {SCHEMA_VERSION}",
                path.display()
            ),
            remedy: "start the version of the program that wrote it (or a later one) and let it drain the queue"
                .to_owned(),
        })
    }

    pub(super) fn publish(&mut self, message: &Message) -> Result<Published, QueueError> {
        if self.is_ended(message.id, &message.digest)? {
            return Err(QueueError::Ended { id: message.id, digest: message.digest.clone() });
        }
        const INSERT: &str = "INSERT INTO message (id, digest, backend, body, enqueued_at) VALUES (?1, ?2, ?3, ?4, ?5)
                              ON CONFLICT (id) DO NOTHING";
        let id = number(message.id);
        let row =
            params![id, message.digest.as_str(), message.backend.as_str(), message.body, micros(self.clock.now())];
        if self.execute(INSERT, row)? == 1 {
            return Ok(Published::New);
        }
        let stored = self
            .prepare("SELECT digest FROM message WHERE id = ?1")?
            .query_row(params![id], |row| digest(row, 0))
            .map_err(failure)?;
        if stored == message.digest {
            return Ok(Published::Duplicate);
        }
        Err(QueueError::Conflict { id: message.id, stored, offered: message.digest.clone() })
    }

    pub(super) fn list(&mut self, backend: Backend) -> Result<Vec<Waiting>, QueueError> {
        const SQL: &str = "SELECT id, digest, attempts, coalesce(next_try, enqueued_at), last_error, enqueued_at, body
                           FROM message WHERE backend = ?1 ORDER BY seq";
        let mut statement = self.prepare(SQL)?;
        let rows = statement.query_map(params![backend.as_str()], |row| {
            let key = key(row)?;
            Ok(Waiting {
                leased: self.leased.contains(&key),
                id: key.id,
                digest: key.digest,
                attempts: row.get(2)?,
                next_try: timestamp(row, 3)?,
                last_error: row.get(4)?,
                enqueued_at: timestamp(row, 5)?,
                body: row.get(6)?,
            })
        });
        rows.map_err(failure)?.collect::<Result<_, _>>().map_err(failure)
    }

    pub(super) fn pull(&mut self, backend: Backend, now: Timestamp) -> Result<Option<Delivery>, QueueError> {
        const SQL: &str = "SELECT id, digest, attempts, body FROM message
                           WHERE backend = ?1 AND (next_try IS NULL OR next_try <= ?2) ORDER BY seq";
        let free = {
            let mut statement = self.prepare(SQL)?;
            let mut rows = statement.query(params![backend.as_str(), micros(now)]).map_err(failure)?;
            loop {
                let Some(row) = rows.next().map_err(failure)? else { break None };
                let key = key(row).map_err(failure)?;
                if !self.leased.contains(&key) {
                    break Some(delivery(key, row).map_err(failure)?);
                }
            }
        };
        if let Some(delivery) = &free {
            self.leased.insert(delivery.key());
        }
        Ok(free)
    }

    pub(super) fn settle(&mut self, key: &Key, disposition: Disposition) -> Result<(), QueueError> {
        const RETRY: &str = "UPDATE message SET attempts = attempts + 1, next_try = ?3, last_error = ?4
                             WHERE id = ?1 AND digest = ?2";
        match disposition {
            Disposition::Ack => self.bury(key, "acknowledged", self.clock.now())?,
            Disposition::Reject { reason } => {
                tracing::info!(assignment = %key.id, %reason, "message rejected");
                self.bury(key, reason.as_str(), self.clock.now())?
            }
            Disposition::Retry { at, error } => {
                self.execute(RETRY, params![number(key.id), key.digest.as_str(), micros(at), error])?
            }
            Disposition::Release => 0,
        };
        // Only now: a message whose change failed stays leased, so that nobody else works on it before the repeat.
        self.release(key);
        Ok(())
    }

    /// Takes the message away and remembers which life of the id it was, both or neither (NEW-45). Without room for the
    /// record the message goes all the same: a full queue must be able to empty itself, and this engine delivers
    /// nothing that is gone.
    pub(super) fn bury(&mut self, key: &Key, outcome: &str, now: Timestamp) -> Result<usize, QueueError> {
        const REMEMBER: &str = "INSERT INTO ledger (kind, key, value, at)
                                SELECT ?3, ?4, ?5, ?6 FROM message WHERE id = ?1 AND digest = ?2
                                ON CONFLICT (kind, key) DO NOTHING";
        const REMOVE: &str = "DELETE FROM message WHERE id = ?1 AND digest = ?2";
        let transaction = self.connection.transaction().map_err(failure)?;
        let (id, digest, life) = (number(key.id), key.digest.as_str(), life(key.id, &key.digest));
        let row = params![id, digest, Kind::Tombstone.as_str(), life, outcome, micros(now)];
        match transaction.execute(REMEMBER, row).map_err(failure) {
            Ok(_) | Err(QueueError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        let removed = transaction.execute(REMOVE, params![id, digest]).map_err(failure)?;
        transaction.commit().map_err(failure)?;
        if now.duration_since(self.forgot) >= FORGET_EVERY {
            self.forget(now)?;
        }
        Ok(removed)
    }

    fn forget(&mut self, now: Timestamp) -> Result<(), QueueError> {
        const SQL: &str = "DELETE FROM ledger WHERE kind IN (?1, ?2) AND at < ?3";
        let before = now.saturating_sub(REMEMBERED).unwrap_or(Timestamp::MIN);
        self.execute(SQL, params![Kind::Tombstone.as_str(), Kind::SetAside.as_str(), micros(before)])?;
        self.forgot = now;
        Ok(())
    }

    pub(super) fn is_ended(&self, id: AssignmentId, digest: &PayloadDigest) -> Result<bool, QueueError> {
        const SQL: &str = "SELECT EXISTS (SELECT 1 FROM ledger WHERE kind = ?1 AND key = ?2)";
        let key = params![Kind::Tombstone.as_str(), life(id, digest)];
        self.prepare(SQL)?.query_row(key, |row| row.get(0)).map_err(failure)
    }

    pub(super) fn release(&mut self, key: &Key) {
        self.leased.remove(key);
    }

    fn page_size(&self) -> Result<u64, QueueError> {
        self.count("SELECT page_size FROM pragma_page_size()")
    }

    fn count(&self, sql: &str) -> Result<u64, QueueError> {
        let n: i64 = self.prepare(sql)?.query_row([], |row| row.get(0)).map_err(failure)?;
        Ok(n.unsigned_abs())
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, QueueError> {
        self.connection.prepare_cached(sql).map_err(failure)
    }

    /// One statement, one durable commit; returns how many rows it touched.
    pub(super) fn execute(&self, sql: &str, parameters: impl Params) -> Result<usize, QueueError> {
        self.prepare(sql)?.execute(parameters).map_err(failure)
    }
}

fn key(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok(Key { id: assignment(row, 0)?, digest: digest(row, 1)? })
}

fn delivery(Key { id, digest }: Key, row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery { id, digest, attempts: row.get(2)?, body: row.get(3)? })
}

/// SQLite gives its log and index files the mode of the database, so this one decides for all three.
fn make_private_file(path: &Path) -> Result<(), QueueError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map(drop).map_err(|error| QueueError::Unusable {
        cause: format!("{}: {error}", path.display()),
        remedy: "make the state folder exist and writable for this user".to_owned(),
    })
}

fn pragma(connection: &Connection, name: &str, value: &str) -> Result<(), QueueError> {
    connection.pragma_update(None, name, value).map_err(failure)
}

fn number(id: AssignmentId) -> i64 {
    id.task().get()
}

fn assignment(row: &Row<'_>, column: usize) -> rusqlite::Result<AssignmentId> {
    let task = TaskId::try_from(row.get::<_, i64>(column)?).map_err(|error| unreadable(column, error))?;
    Ok(AssignmentId::of(task))
}

fn digest(row: &Row<'_>, column: usize) -> rusqlite::Result<PayloadDigest> {
    PayloadDigest::try_from(row.get::<_, String>(column)?).map_err(|error| unreadable(column, error))
}

/// How a time is stored: whole microseconds since 1970.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_microsecond(row.get(column)?).map_err(|error| unreadable(column, error))
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Null, Box::new(error))
}

/// What an error of SQLite means for the caller.
pub(super) fn failure(error: rusqlite::Error) -> QueueError {
    let cause = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => QueueError::Full {
            cause: format!("no room left on the disk of the state folder, or its size limit is reached ({cause})"),
            remedy: "free space there, or let waiting jobs run; what is stored is safe".to_owned(),
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => QueueError::Unusable {
            cause: format!("its file is damaged or not ours ({cause})"),
            remedy: "restore it, or move queue.db, queue.db-wal and queue.db-shm away together: what waited is then \
                     lost to us and Gitea ends those tasks by itself"
                .to_owned(),
        },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => QueueError::Unusable {
            cause,
            remedy: "make queue.db, its companions and their folder writable for this user".to_owned(),
        },
        Some(_) => QueueError::Unavailable { cause },
    }
}
