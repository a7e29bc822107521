//! Rename pins (NEW-122, F122): which repository stands behind an identity. A name can be given up and taken by somebody
//! else; the numbers behind it cannot. The first task of an identity records them, and a task with other numbers is
//! refused until an operator confirms the change.

use std::path::Path;
use std::sync::Arc;

use domain::assignment::{Assignment, RepositoryPin};
use domain::id::InstanceId;
use domain::reason::{Reason, Refusal};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::Nats;
use crate::nats::{Connection, Role, Times};
use crate::queue::QueueError;
use crate::queue::embedded::{Embedded, Settings};
use crate::queue::jetstream;
use crate::queue::ledger::{Entry, Kind, Ledger};

/// What is recorded for one identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    pinned: RepositoryPin,
    /// Other numbers came and were refused; the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<RepositoryPin>,
}

/// One pin as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// The identity.
    pub spiffe_id: String,
    /// Who stands behind it.
    pub pinned: RepositoryPin,
    /// Who wants to and is refused.
    pub asked: Option<RepositoryPin>,
    /// When this was written last.
    pub at: Timestamp,
}

/// The pins of one instance.
pub struct Pins {
    ledger: Arc<dyn Ledger>,
}

impl Pins {
    /// Those of this ledger.
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger }
    }

    /// Whether the repository of this task is the one behind its identity; the first one becomes it. A task that does
    /// not tell its numbers is untrusted by the policy and has nothing to compare. The outer error says that nothing
    /// is known now, the inner one is told to Gitea.
    ///
    /// # Errors
    ///
    /// See [`QueueError`].
    pub async fn check(&self, assignment: &Assignment, now: Timestamp) -> Result<Result<(), Refusal>, QueueError> {
        let Some(found) = assignment.pin else { return Ok(Ok(())) };
        let key = assignment.spiffe_id.to_string();
        let first = entry(&key, &Record { pinned: found, asked: None }, now);
        let kept = record(&self.ledger.put_if_absent(Kind::Pin, first).await?)?;
        if kept.pinned == found {
            return Ok(Ok(()));
        }
        if kept.asked != Some(found) {
            let asked = Record { asked: Some(found), ..kept.clone() };
            self.ledger.put(Kind::Pin, entry(&key, &asked, now)).await?;
        }
        Ok(Err(changed(assignment, kept.pinned, found)))
    }

    /// All of them, by identity.
    ///
    /// # Errors
    ///
    /// See [`QueueError`].
    pub async fn list(&self) -> Result<Vec<Pin>, QueueError> {
        self.ledger.list(Kind::Pin).await?.into_iter().map(shown).collect()
    }

    /// Gives identities to who asked for them; `of` is a SPIFFE ID or `owner/name`. Returns those that changed.
    ///
    /// # Errors
    ///
    /// See [`QueueError`].
    pub async fn confirm(&self, of: &str, now: Timestamp) -> Result<Vec<Pin>, QueueError> {
        let mut confirmed = Vec::new();
        for pin in self.list().await?.into_iter().filter(|pin| pin.is_of(of)) {
            let Some(pinned) = pin.asked else { continue };
            let record = Record { pinned, asked: None };
            self.ledger.put(Kind::Pin, entry(&pin.spiffe_id, &record, now)).await?;
            confirmed.push(Pin { pinned, asked: None, at: now, ..pin });
        }
        Ok(confirmed)
    }
}

impl Pin {
    fn is_of(&self, of: &str) -> bool {
        let path: Vec<&str> = self.spiffe_id.rsplitn(4, '/').collect();
        let repository = if let [_, name, owner, _] = path[..] { format!("{owner}/{name}") } else { String::new() };
        self.spiffe_id == of || repository.eq_ignore_ascii_case(of)
    }
}

/// `identity pins list`.
///
/// # Errors
/// They cannot be read; a text for people.
pub async fn told(pins: &Pins, json: bool) -> Result<String, String> {
    let pins = pins.list().await.map_err(|error| error.to_string())?;
    if json {
        return Ok(format!("{}\n", serde_json::json!({ "schema": 1, "pins": pins })));
    }
    Ok(if pins.is_empty() { "no pins\n".to_owned() } else { pins.iter().map(line).collect() })
}

/// `identity pins confirm`.
///
/// # Errors
/// They cannot be written, or nobody was refused that name; a text for people.
pub async fn confirmed(pins: &Pins, of: &str) -> Result<String, String> {
    let confirmed = pins.confirm(of, Timestamp::now()).await.map_err(|error| error.to_string())?;
    if confirmed.is_empty() {
        return Err(format!("nobody was refused {of}; `identity pins list` shows who was refused what"));
    }
    Ok(confirmed.iter().map(line).collect())
}

/// The pins of an instance whose queue is in NATS, whether a controller runs or not. Nothing is made there.
///
/// # Errors
/// NATS cannot be used, or there are no records; a text for people.
pub async fn of_nats(nats: &Nats, instance: &InstanceId) -> Result<Pins, String> {
    let worker = Connection::open(nats, Role::Worker, Times::default()).await.map_err(|error| error.to_string())?;
    let (stream, base) = (nats.stream.as_str(), nats.subject_base.as_str());
    let records = jetstream::records(worker.client().clone(), stream, base, instance.clone()).await;
    records.map(Pins::new).map_err(|error| error.to_string())
}

/// The pins of a state folder, whether its controller runs or not: the file takes several writers.
///
/// # Errors
/// There is no queue, or it cannot be opened; a text for people.
pub async fn of_state(state: &Path) -> Result<Pins, String> {
    let file = state.join("queue.db");
    if !file.is_file() {
        return Err(format!(
            "{}: no controller has its queue here; name its folder with --state, or where the queue is in NATS, give the \
             settings of its start",
            state.display()
        ));
    }
    let queue = Embedded::open(Settings::new(file)).await.map_err(|error| error.to_string())?;
    Ok(Pins::new(queue.ledger()))
}

fn line(pin: &Pin) -> String {
    let Pin { spiffe_id, pinned, asked, .. } = pin;
    let asked = asked.map_or_else(String::new, |asked| {
        format!("; REFUSED to repository {} of owner {}", asked.repository, asked.owner)
    });
    format!("{spiffe_id}  repository {} of owner {}{asked}\n", pinned.repository, pinned.owner)
}

fn changed(assignment: &Assignment, was: RepositoryPin, is: RepositoryPin) -> Refusal {
    Refusal {
        reason: Reason::IdentityPinChanged,
        cause: format!(
            "{} was pinned to repository {} of owner {}, and now stands for repository {} of owner {}",
            assignment.repository, was.repository, was.owner, is.repository, is.owner
        ),
        remedy: format!(
            "If the repository was moved or made anew on purpose, ask the operator of this runner to confirm it: \
             gitea-dynamic-runner identity pins confirm {}",
            assignment.repository
        ),
    }
}

fn entry(key: &str, record: &Record, at: Timestamp) -> Entry {
    // Numbers alone: serialising them cannot fail.
    Entry { key: key.to_owned(), value: serde_json::to_string(record).unwrap_or_default(), at }
}

fn record(entry: &Entry) -> Result<Record, QueueError> {
    serde_json::from_str(&entry.value).map_err(|error| QueueError::Unusable {
        cause: format!("the pin of {} cannot be read ({error})", entry.key),
        remedy: "restore queue.db, or the bucket in NATS, from before it was changed".to_owned(),
    })
}

fn shown(entry: Entry) -> Result<Pin, QueueError> {
    let Record { pinned, asked } = record(&entry)?;
    Ok(Pin { spiffe_id: entry.key, pinned, asked, at: entry.at })
}
