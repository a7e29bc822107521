//! The names of things (requirements §1.3): task, assignment, instance, epoch, backend, payload digest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A name that does not obey its rule. The text names the thing, the value's problem and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct InvalidName {
    what: &'static str,
    problem: String,
}

impl InvalidName {
    fn new(what: &'static str, problem: impl Into<String>) -> Self {
        Self { what, problem: problem.into() }
    }
}

/// Gitea's number of a task; greater than 0 (ENV-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct TaskId(i64);

impl TaskId {
    /// The number as the wire carries it.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for TaskId {
    type Error = InvalidName;

    fn try_from(id: i64) -> Result<Self, InvalidName> {
        if id > 0 { Ok(Self(id)) } else { Err(InvalidName::new("task id", format!("{id} is not greater than 0"))) }
    }
}

impl From<TaskId> for i64 {
    fn from(id: TaskId) -> i64 {
        id.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `gitea-task-<task id>`: unique inside one instance (ENV-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AssignmentId(TaskId);

impl AssignmentId {
    const PREFIX: &str = "gitea-task-";

    /// The assignment made of this task.
    #[must_use]
    pub fn of(task: TaskId) -> Self {
        Self(task)
    }

    /// The task it was made of.
    #[must_use]
    pub fn task(self) -> TaskId {
        self.0
    }
}

impl fmt::Display for AssignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

impl FromStr for AssignmentId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let digits =
            text.strip_prefix(Self::PREFIX).filter(|d| !d.starts_with('0') && d.bytes().all(|b| b.is_ascii_digit()));
        let id = digits.and_then(|d| d.parse::<i64>().ok()).and_then(|id| TaskId::try_from(id).ok());
        id.map(Self).ok_or_else(|| InvalidName::new("assignment id", format!("{text:?} is not gitea-task-<task id>")))
    }
}

impl TryFrom<String> for AssignmentId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<AssignmentId> for String {
    fn from(id: AssignmentId) -> String {
        id.to_string()
    }
}

/// Names everything one controller owns (NEW-1): `[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

impl InstanceId {
    /// The default: the first 8 hex digits of SHA-256 over `<Gitea base URL>` LF `<runner UUID>`.
    #[must_use]
    pub fn derive(gitea_base_url: &str, runner_uuid: &str) -> Self {
        let digest = Sha256::digest(format!("{gitea_base_url}\n{runner_uuid}"));
        Self(data_encoding::HEXLOWER.encode(&digest[..4]))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InstanceId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = bytes.first().copied().is_some_and(plain) && bytes.last().copied().is_some_and(plain);
        if ends && bytes.len() <= 20 && bytes.iter().all(|&b| plain(b) || b == b'-') {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidName::new("instance id", format!("{text:?}: 1 to 20 of a-z, 0-9 and -, no - at either end")))
    }
}

impl TryFrom<String> for InstanceId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> String {
        id.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which life of an assignment's executor: 1, 2, …; a higher one fences every lower one (NEW-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Epoch(u32);

impl Epoch {
    /// The first life.
    pub const FIRST: Self = Self(1);

    /// The life after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number, from 1.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Epoch {
    type Error = InvalidName;

    fn try_from(n: u32) -> Result<Self, InvalidName> {
        if n > 0 { Ok(Self(n)) } else { Err(InvalidName::new("epoch", "0; epochs count from 1")) }
    }
}

impl From<Epoch> for u32 {
    fn from(epoch: Epoch) -> u32 {
        epoch.0
    }
}

impl FromStr for Epoch {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let decimal = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        let n: Option<u32> = decimal.then(|| text.parse().ok()).flatten();
        n.ok_or_else(|| InvalidName::new("epoch", format!("{text:?} is not a number from 1"))).and_then(Self::try_from)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where executors are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A Kubernetes Pod.
    Pod,
    /// An OpenSandbox Kata VM.
    Vm,
    /// A process on this host.
    Local,
}

impl Backend {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Pod, Self::Vm, Self::Local];

    /// The word in labels, subjects, settings and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Vm => "vm",
            Self::Local => "local",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Backend {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text {
            "pod" => Ok(Self::Pod),
            "vm" => Ok(Self::Vm),
            "local" => Ok(Self::Local),
            _ => Err(InvalidName::new("backend", format!("{text:?} is none of pod, vm, local"))),
        }
    }
}

/// The first 16 lower-case hex digits of SHA-256 over the task's protobuf bytes (requirements §1.2): tells two lives
/// of one task id apart (NEW-3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadDigest(String);

impl PayloadDigest {
    /// The digest of a task as Gitea sent it.
    #[must_use]
    pub fn of(task: &[u8]) -> Self {
        Self(data_encoding::HEXLOWER.encode(&Sha256::digest(task)[..8]))
    }

    /// The 16 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PayloadDigest {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        if text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(text));
        }
        Err(InvalidName::new("payload digest", format!("{text:?} is not 16 lower-case hex digits")))
    }
}

impl From<PayloadDigest> for String {
    fn from(digest: PayloadDigest) -> String {
        digest.0
    }
}

impl fmt::Display for PayloadDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an executor's object: `<assignment id>-<instance>-e<epoch>` (requirements §1.3).
#[must_use]
pub fn executor_name(id: AssignmentId, instance: &InstanceId, epoch: Epoch) -> String {
    format!("{id}-{instance}-e{epoch}")
}

/// The assignment that the name of an executor begins with; none for a name that is none of ours.
#[must_use]
pub fn assignment_of_name(executor: &str) -> Option<AssignmentId> {
    let task = executor.strip_prefix(AssignmentId::PREFIX)?.split('-').next()?;
    executor[..AssignmentId::PREFIX.len() + task.len()].parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_assignment() {
        let id = AssignmentId::of(TaskId::try_from(42).expect("positive"));
        let instance = "f66f031b".parse().expect("an instance");
        assert_eq!(assignment_of_name(&executor_name(id, &instance, Epoch::FIRST)), Some(id));
        assert_eq!(assignment_of_name("gitea-task-42"), Some(id));
        for foreign in ["", "gitea-task-", "gitea-task-x-f66f031b-e1", "other-42-f66f031b-e1"] {
            assert_eq!(assignment_of_name(foreign), None, "{foreign}");
        }
    }

    /// ENV-1: ids 0, −1 and 2^63−1.
    #[test]
    fn task_ids_are_positive() {
        assert!(TaskId::try_from(0).is_err());
        assert!(TaskId::try_from(-1).is_err());
        let last = AssignmentId::of(TaskId::try_from(i64::MAX).expect("positive"));
        assert_eq!(last.to_string().parse(), Ok(last));
        for bad in [
            "gitea-task-",
            "gitea-task-0",
            "gitea-task-007",
            "gitea-task-+1",
            "task-1",
            "gitea-task-9223372036854775808",
        ] {
            assert!(bad.parse::<AssignmentId>().is_err(), "{bad}");
        }
    }

    /// NEW-4: epochs count from 1 and have one spelling.
    #[test]
    fn epochs_have_one_spelling() {
        let second = Epoch::FIRST.next();
        assert_eq!(second.to_string().parse(), Ok(second));
        for bad in ["", "0", "01", "+1", "-1", " 1", "4294967296"] {
            assert!(bad.parse::<Epoch>().is_err(), "{bad:?}");
        }
    }

    /// Requirements §4.3, the derived instance id.
    #[test]
    fn the_default_instance_id_is_derived() {
        let id = InstanceId::derive("https://gitea.example.org", "11111111-2222-4333-8444-555555555555");
        assert_eq!(id.as_str(), "f66f031b");
        for bad in ["", "-a", "a-", "A", "a.b", "123456789012345678901"] {
            assert!(bad.parse::<InstanceId>().is_err(), "{bad}");
        }
    }
}
