//! Faults that a test orders: errors, hanging calls, cut connections, latency.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use connectrpc::ErrorCode;
use serde_json::json;

use super::calls::Method;
use super::refusal::grpc_text;

/// Whether the server did what was asked before the fault struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing was done.
    BeforeCommit,
    /// It was done, and only the answer is lost.
    AfterCommit,
}

/// What the client sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Symptom {
    Answer { status: u16, content_type: &'static str, body: String },
    Hang,
    Cut,
}

/// One ordered fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    spared: u32,
    pub(crate) times: u32,
    pub(crate) moment: Moment,
    pub(crate) symptom: Symptom,
}

impl FaultSpec {
    /// An application error in Gitea's form: HTTP 500 `unknown` with a gRPC text.
    #[must_use]
    pub fn gitea(code: ErrorCode, text: &str) -> Self {
        let body = json!({"code": "unknown", "message": grpc_text(code, text)});
        Self::answer(500, "application/json", body.to_string())
    }

    /// A genuine Connect error, as a reverse proxy of ours or Forgejo sends it.
    #[must_use]
    pub fn connect(code: ErrorCode, message: &str) -> Self {
        let body = json!({"code": code.as_str(), "message": message});
        Self::answer(code.http_status().as_u16(), "application/json", body.to_string())
    }

    /// Any answer, for example a reverse proxy's page.
    #[must_use]
    pub fn answer(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self::new(Symptom::Answer { status, content_type, body: body.into() })
    }

    /// No answer until the client goes away.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(Symptom::Hang)
    }

    /// The connection is closed without an answer.
    #[must_use]
    pub fn cut() -> Self {
        Self::new(Symptom::Cut)
    }

    fn new(symptom: Symptom) -> Self {
        Self { spared: 0, times: 1, moment: Moment::BeforeCommit, symptom }
    }

    /// How many calls it strikes; `u32::MAX` is until [`super::Gitea::clear_faults`].
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// It lets so many calls pass before the first that it strikes.
    #[must_use]
    pub fn sparing(mut self, calls: u32) -> Self {
        self.spared = calls;
        self
    }

    /// It strikes after the server did what was asked.
    #[must_use]
    pub fn after_commit(mut self) -> Self {
        self.moment = Moment::AfterCommit;
        self
    }
}

/// How the whole server is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Away {
    /// It is there.
    #[default]
    No,
    /// A reverse proxy answers 503 with a page.
    Unavailable,
    /// Calls hang.
    Hanging,
    /// Connections are closed without an answer.
    Refusing,
}

/// Time that passes before a call takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    low: Duration,
    high: Duration,
    seed: u64,
}

impl Latency {
    /// The same for every call.
    #[must_use]
    pub fn fixed(each: Duration) -> Self {
        Self { low: each, high: each, seed: 1 }
    }

    /// Evenly spread over a range; the seed makes it repeatable.
    #[must_use]
    pub fn between(low: Duration, high: Duration, seed: u64) -> Self {
        Self { low, high, seed: seed | 1 }
    }

    pub(crate) fn next(&mut self) -> Duration {
        // xorshift64: enough to shuffle, and the same on every machine.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let span = self.high.saturating_sub(self.low);
        let part = u32::try_from(self.seed % 1000).unwrap_or_default();
        self.low + span * part / 1000
    }
}

/// The faults that wait for their calls.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: BTreeMap<Method, VecDeque<FaultSpec>>,
}

impl Faults {
    pub(crate) fn order(&mut self, method: Method, spec: FaultSpec) {
        self.waiting.entry(method).or_default().push_back(spec);
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The fault that strikes this call.
    pub(crate) fn take(&mut self, method: Method) -> Option<FaultSpec> {
        let queue = self.waiting.get_mut(&method)?;
        while queue.front().is_some_and(|spec| spec.times == 0) {
            queue.pop_front();
        }
        let spec = queue.front_mut()?;
        if spec.spared > 0 {
            spec.spared -= 1;
            return None;
        }
        if spec.times != u32::MAX {
            spec.times -= 1;
        }
        Some(spec.clone())
    }
}
