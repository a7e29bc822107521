//! Where the stand-in runners of a world tell what they do and wait at gates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One thing that a stand-in told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The task it was about.
    pub task: i64,
    /// What kind: `task` (handed out to the runner), `step`, `gate`, `tried`, `proxy`, `told`, `rows` (JSON: those that
    /// follow the ones told before), `acked` (so many of them while it ran), `ended` (the job, by itself or cut off), `final` (its report was taken),
    /// `final-lost`, `rows-lost`.
    pub verb: String,
    /// The rest of it.
    pub rest: String,
}

#[derive(Default)]
struct State {
    notes: Vec<Note>,
    open: BTreeSet<String>,
}

/// The desk of one world.
pub struct Desk {
    address: String,
    state: watch::Sender<State>,
    keeper: JoinHandle<()>,
}

impl Desk {
    /// Opens one on a port of loopback.
    ///
    /// # Errors
    /// There is none.
    pub async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let state = watch::Sender::new(State::default());
        let keeper = tokio::spawn(keep(listener, state.clone()));
        Ok(Self { address, state, keeper })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Lets everybody pass who waits at this gate or comes to it later.
    pub fn open_gate(&self, name: &str) {
        self.state.send_modify(|state| {
            state.open.insert(name.to_owned());
        });
    }

    /// The test itself has taken this task, in the place of its runner.
    pub fn plays(&self, task: i64) {
        let note = Note { task, verb: "task".to_owned(), rest: "the test".to_owned() };
        self.state.send_modify(|state| state.notes.push(note));
    }

    /// Everything told so far.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        self.state.borrow().notes.clone()
    }

    /// What was told about one task with this verb, in order.
    #[must_use]
    pub fn told(&self, task: i64, verb: &str) -> Vec<String> {
        let fits = |note: &&Note| note.task == task && note.verb == verb;
        self.state.borrow().notes.iter().filter(fits).map(|note| note.rest.clone()).collect()
    }

    /// How often each task was handed to a runner.
    #[must_use]
    pub fn executions(&self) -> BTreeMap<i64, usize> {
        let mut executions = BTreeMap::new();
        for note in self.state.borrow().notes.iter().filter(|note| note.verb == "task") {
            *executions.entry(note.task).or_default() += 1;
        }
        executions
    }

    /// Waits until what was told satisfies `condition`.
    ///
    /// # Panics
    /// When it does not within `limit`; the notes so far are in the text.
    pub async fn until(&self, what: &str, limit: Duration, condition: impl Fn(&[Note]) -> bool) {
        let mut state = self.state.subscribe();
        let reached = tokio::time::timeout(limit, state.wait_for(|state| condition(&state.notes))).await.is_ok();
        assert!(reached, "{what}: not within {limit:?}; the runners told {:#?}", self.notes());
    }

    /// Watches for a while that no runner tells a thing of this kind: for what must not happen, where no event says that
    /// it could have happened by now.
    ///
    /// # Panics
    /// One does.
    pub async fn nobody_tells(&self, verb: &str, window: Duration) {
        let mut state = self.state.subscribe();
        let told = state.wait_for(|state| state.notes.iter().any(|note| note.verb == verb));
        let told = tokio::time::timeout(window, told).await.is_ok();
        assert!(!told, "a runner told {verb:?}: {:#?}", self.notes());
    }

    /// Waits until `count` runners have come to a gate.
    pub async fn arrived(&self, gate: &str, count: usize, limit: Duration) {
        let here = |notes: &[Note]| notes.iter().filter(|note| note.verb == "gate" && note.rest == gate).count();
        self.until(&format!("{count} at gate {gate}"), limit, |notes| here(notes) >= count).await;
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(listener: TcpListener, state: watch::Sender<State>) {
    while let Ok((visitor, _)) = listener.accept().await {
        tokio::spawn(serve(visitor, state.clone()));
    }
}

async fn serve(visitor: TcpStream, state: watch::Sender<State>) {
    let (lines, mut back) = visitor.into_split();
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some(note) = note(&line) else { continue };
        let gate = (note.verb == "gate").then(|| note.rest.clone());
        state.send_modify(|state| state.notes.push(note));
        if let Some(gate) = gate {
            let passed = state.subscribe().wait_for(|state| state.open.contains(&gate)).await.is_ok();
            if !passed || back.write_all(format!("{gate}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn note(line: &str) -> Option<Note> {
    let mut parts = line.splitn(3, ' ');
    let task = parts.next()?.parse().ok()?;
    let verb = parts.next()?.to_owned();
    Some(Note { task, verb, rest: parts.next().unwrap_or_default().trim_end().to_owned() })
}
