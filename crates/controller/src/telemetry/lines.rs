//! A log that a test reads.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::dispatcher::{DefaultGuard, Dispatch};
use tracing::subscriber::{NoSubscriber, set_default};
use tracing_subscriber::fmt::MakeWriter;

/// What this thread logs goes to `subscriber`, until the guard goes.
///
/// A process that has one subscriber asks the current thread's alone (tracing-core 0.1) whether a line is wanted: a test
/// beside this one that reaches the line first has none, says no, and nobody hears that line any more. So there is
/// always a second one, and all are asked.
pub(crate) fn hear(subscriber: impl tracing::Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
    LazyLock::force(&SECOND);
    set_default(subscriber)
}

/// What was written; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// All of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A line that another thread reaches first is heard all the same.
#[test]
fn nobody_is_deaf_to_a_line_that_others_reach_first() {
    let line = || tracing::info!("a line of two threads");
    let lines = Lines::default();
    let _log = hear(tracing_subscriber::fmt().with_writer(lines.clone()).finish());
    std::thread::spawn(line).join().unwrap();
    line();
    assert_eq!(lines.text().lines().count(), 1, "{}", lines.text());
}
