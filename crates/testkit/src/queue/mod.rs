//! The queue of a controller, read from outside: never through the program, and never by taking a message out of it.

mod broker;
mod reader;
mod wire;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::real::NatsSettings;

pub use broker::{Broker, Names, Passwords};
pub use reader::Reader;

/// Which queue a controller is started with.
#[derive(Debug, Clone)]
pub enum Engine {
    /// A file in its state folder.
    Embedded,
    /// A stream on a server that is started for it.
    JetStream,
    /// These names on this server, which others may use too.
    On(Arc<Broker>, Names),
}

impl Default for Engine {
    /// What `GDR_WORLD_QUEUE` says, `embedded` or `jetstream`: so the same tests run on either.
    fn default() -> Self {
        match std::env::var("GDR_WORLD_QUEUE").as_deref() {
            Err(_) | Ok("embedded") => Self::Embedded,
            Ok("jetstream") => Self::JetStream,
            Ok(other) => panic!("GDR_WORLD_QUEUE is {other:?}, and must be embedded or jetstream"),
        }
    }
}

impl Engine {
    /// The server, started where there is none yet, and the names on it.
    ///
    /// # Panics
    /// It cannot be started.
    pub(crate) async fn broker(&self) -> (Option<Arc<Broker>>, Names) {
        match self {
            Self::Embedded => (None, Names::alone()),
            Self::JetStream => {
                let broker = Broker::start(NatsSettings::default()).await;
                (Some(broker.unwrap_or_else(|error| panic!("a NATS server: {error}"))), Names::alone())
            }
            Self::On(broker, names) => (Some(Arc::clone(broker)), names.clone()),
        }
    }
}

/// Where the messages of one controller lie.
#[derive(Debug, Clone)]
pub enum Queue {
    /// In `queue.db` of this state folder.
    Embedded(PathBuf),
    /// In a stream.
    JetStream(Arc<Reader>),
}

impl Queue {
    /// The tasks whose messages are in the queue; none where no controller has made it yet. Of a stream: those of one
    /// instance where its name is known, else of all. Waits for a server for at most a second.
    ///
    /// # Errors
    /// It cannot be read now.
    pub fn tasks(&self) -> Result<BTreeSet<i64>, String> {
        match self {
            Self::Embedded(state) => in_file(state).map_err(|error| error.to_string()),
            Self::JetStream(reader) => reader.tasks(),
        }
    }

    /// The messages that are still there, each in words by `told`. A queue that cannot be read is not empty: that is one
    /// more word.
    pub(crate) fn left(&self, told: impl Fn(i64) -> String) -> Vec<String> {
        match self.tasks() {
            Ok(tasks) => tasks.into_iter().map(told).collect(),
            Err(error) => vec![format!("a queue that cannot be read: {error}")],
        }
    }
}

fn in_file(state: &std::path::Path) -> rusqlite::Result<BTreeSet<i64>> {
    let file = state.join("queue.db");
    if !file.exists() {
        return Ok(BTreeSet::new());
    }
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    messages(&rusqlite::Connection::open_with_flags(file, flags)?)
}

/// The tasks whose messages are in an open queue of the embedded kind.
pub(crate) fn messages(queue: &rusqlite::Connection) -> rusqlite::Result<BTreeSet<i64>> {
    let mut rows = queue.prepare("SELECT id FROM message")?;
    rows.query_map([], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// NEW-64: what cannot be read is not taken for nothing.
    #[test]
    fn a_queue_that_cannot_be_read_is_left_over() {
        let state = tempfile::tempdir().unwrap();
        let queue = Queue::Embedded(state.path().to_owned());
        let left = || queue.left(|task| format!("message {task}"));
        assert_eq!(left(), [""; 0], "it was not made yet");
        let file = state.path().join("queue.db");
        let open = rusqlite::Connection::open(&file).unwrap();
        open.execute_batch("CREATE TABLE message (id INTEGER); INSERT INTO message VALUES (7)").unwrap();
        assert_eq!(left(), ["message 7"]);
        drop(open);
        std::fs::write(&file, "no database, and longer than the header of one".repeat(99)).unwrap();
        assert!(left()[0].contains("cannot be read"), "{:?}", left());
    }

    /// NEW-64: the same of a stream, which reading leaves as it is.
    #[tokio::test]
    async fn a_stream_is_read_by_position() {
        let broker = Broker::start(NatsSettings::default()).await.unwrap();
        let names = Names { stream: "S".to_owned(), base: "s".to_owned(), instance: Some("one".to_owned()) };
        let (one, all) = (broker.queue(&names), broker.queue(&Names { instance: None, ..names.clone() }));
        assert_eq!(one.tasks(), Ok(BTreeSet::new()), "it was not made yet");
        let client = broker.client().await.unwrap();
        let context = async_nats::jetstream::new(client);
        let config = async_nats::jetstream::stream::Config {
            name: names.stream.clone(),
            subjects: vec!["s.>".to_owned()],
            retention: async_nats::jetstream::stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        let stream = context.create_stream(config).await.unwrap();
        for (instance, task) in [("one", 7), ("two", 8), ("one", 9)] {
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Nats-Msg-Id", format!("{instance}.gitea-task-{task}.0123456789abcdef"));
            let stored = context.publish_with_headers(format!("s.{instance}.local"), headers, "sealed".into()).await;
            stored.unwrap().await.unwrap();
        }
        for _ in 0..2 {
            assert_eq!(one.tasks(), Ok(BTreeSet::from([7, 9])));
            assert_eq!(all.tasks(), Ok(BTreeSet::from([7, 8, 9])));
        }
        stream.delete_message(1).await.unwrap();
        assert_eq!(one.tasks(), Ok(BTreeSet::from([9])));
        broker.server().await.kill();
        assert!(one.left(|task| task.to_string())[0].contains("cannot be read"), "{:?}", one.tasks());
        broker.server().await.start_again().await.unwrap();
        assert_eq!(one.tasks(), Ok(BTreeSet::from([9])));
        context.publish("s.one.local", "who wrote this?".into()).await.unwrap().await.unwrap();
        assert!(one.tasks().unwrap_err().contains("message 4"), "{:?}", one.tasks());
    }
}
