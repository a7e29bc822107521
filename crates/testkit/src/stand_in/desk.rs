//! The runner's line to the test: notes go out, a gate's opening comes back.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

/// One line per note: `<task> <verb> <rest>`.
pub(super) struct Desk {
    out: Mutex<OwnedWriteHalf>,
    back: Mutex<BufReader<OwnedReadHalf>>,
}

impl Desk {
    pub(super) async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (back, out) = stream.into_split();
        Ok(Self { out: Mutex::new(out), back: Mutex::new(BufReader::new(back)) })
    }

    /// The note is with the kernel when this returns: the end of this process does not lose it.
    pub(super) async fn say(&self, task: i64, verb: &str, rest: &str) {
        let line = format!("{task} {verb} {}\n", rest.replace('\n', " "));
        // The test is over; its world ends this process.
        let _ = self.out.lock().await.write_all(line.as_bytes()).await;
    }

    /// Waits until the test opens the gate; false when there is no test any more.
    pub(super) async fn pass(&self, task: i64, gate: &str) -> bool {
        let mut back = self.back.lock().await;
        self.say(task, "gate", gate).await;
        let mut line = String::new();
        matches!(back.read_line(&mut line).await, Ok(read) if read > 0) && line.trim_end() == gate
    }
}
