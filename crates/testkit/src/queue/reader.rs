//! Reads a stream by position.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Names;
use super::wire::Wire;

/// JetStream's words for a stream and for a message that are not there.
const NO_STREAM: u64 = 10059;
const NO_MESSAGE: u64 = 10037;

/// Who reads one stream.
pub struct Reader {
    port: u16,
    login: (&'static str, &'static str),
    stream: String,
    subjects: String,
    open: Mutex<Option<Open>>,
}

struct Open {
    wire: Wire,
    /// What was read last, and the state that the stream had then.
    known: Option<(State, BTreeSet<i64>)>,
}

/// What changes whenever a message comes or goes: places are given once, and what goes does not come back.
#[derive(Clone, PartialEq, Eq, Deserialize)]
struct State {
    messages: u64,
    last_seq: u64,
}

/// Why nothing was read.
enum Trouble {
    Io(std::io::Error),
    Refused { code: u64, text: String },
    Strange(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Refused { text, .. } | Self::Strange(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(port: u16, login: (&'static str, &'static str), names: &Names) -> Self {
        let instance = names.instance.as_deref().unwrap_or("*");
        let subjects = format!("{}.{instance}.*", names.base);
        Self { port, login, stream: names.stream.clone(), subjects, open: Mutex::default() }
    }

    /// The tasks whose messages lie there.
    pub(super) fn tasks(&self) -> Result<BTreeSet<i64>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that was made before the server was started again is noticed when it is used.
        for last in [false, true] {
            match self.look(&mut open) {
                Err(Trouble::Io(_)) if !last => *open = None,
                Err(trouble) => {
                    *open = None;
                    return Err(trouble.to_string());
                }
                Ok(tasks) => return Ok(tasks),
            }
        }
        Err("not reached".to_owned())
    }

    fn look(&self, open: &mut Option<Open>) -> Result<BTreeSet<i64>, Trouble> {
        let open = match open {
            Some(open) => open,
            none => none.insert(Open { wire: Wire::connect(self.port, self.login)?, known: None }),
        };
        let info = match call(&mut open.wire, &format!("STREAM.INFO.{}", self.stream), &json!({})) {
            Err(Trouble::Refused { code: NO_STREAM, .. }) => return Ok(BTreeSet::new()),
            info => info?,
        };
        let state = State::deserialize(&info["state"]).map_err(|error| Trouble::Strange(error.to_string()))?;
        if let Some((then, tasks)) = &open.known
            && *then == state
        {
            return Ok(tasks.clone());
        }
        let tasks = self.read(&mut open.wire)?;
        open.known = Some((state, tasks.clone()));
        Ok(tasks)
    }

    fn read(&self, wire: &mut Wire) -> Result<BTreeSet<i64>, Trouble> {
        let (mut tasks, mut from) = (BTreeSet::new(), 1);
        loop {
            let which = json!({ "seq": from, "next_by_subj": self.subjects });
            let answer = match call(wire, &format!("STREAM.MSG.GET.{}", self.stream), &which) {
                Err(Trouble::Refused { code: NO_MESSAGE, .. }) => return Ok(tasks),
                answer => answer?,
            };
            let place = answer["message"]["seq"].as_u64().unwrap_or_default();
            let task = task_of(&answer["message"]);
            tasks.insert(task.ok_or_else(|| Trouble::Strange(format!("message {place} names no task")))?);
            from = place + 1;
        }
    }
}

/// From `<instance>.gitea-task-<number>.<digest>`.
fn task_of(message: &Value) -> Option<i64> {
    let headers = STANDARD.decode(message["hdrs"].as_str()?).ok()?;
    let headers = String::from_utf8(headers).ok()?;
    let id = headers.lines().find_map(|line| line.strip_prefix("Nats-Msg-Id:"))?;
    id.trim().split('.').nth(1)?.strip_prefix("gitea-task-")?.parse().ok()
}

fn call(wire: &mut Wire, name: &str, body: &Value) -> Result<Value, Trouble> {
    let answer = wire.ask(&format!("$JS.API.{name}"), body.to_string().as_bytes())?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| Trouble::Strange(error.to_string()))?;
    match &answer["error"] {
        Value::Null => Ok(answer),
        error => {
            let code = error["err_code"].as_u64().unwrap_or_default();
            Err(Trouble::Refused { code, text: error["description"].to_string() })
        }
    }
}
