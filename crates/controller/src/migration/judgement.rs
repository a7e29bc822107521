//! What a message of the earlier controller is worth.

use domain::envelope::OpenError;
use domain::id::PayloadDigest;
use domain::lifecycle::Outcome;
use domain::reason::Refusal;
use jiff::SignedDuration;
use runner_proto::runner::v1 as proto;

use crate::gitea::{GiteaError, Trouble};
use crate::queue::Key;
use crate::wire::outcome_of;

pub(super) const HELD_HERE: &str = "it is held here already";
pub(super) const ENDED_HERE: &str = "it has begun or ended here before";
pub(super) const CANCELLED: &str = "Gitea says that it has ended: cancelled";
const UNKNOWN: &str = "Gitea knows no such task";

/// Why a message stays where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is no envelope of version 1.
    Unreadable { class: &'static str },
    /// Its envelope and its task, or its subject, disagree.
    Contradiction,
    /// It came after the start of this process.
    Late,
    /// Another task, or its refusal, is held here under its number.
    Contested,
    /// Gitea says that another registration has the task.
    OfAnotherRunner,
    /// Its task can never run here.
    Unfit { cause: String },
    /// Its job has written rows already.
    Begun { rows: u64 },
}

impl Rest {
    /// One sentence, with nothing in it that whoever wrote the message may have chosen.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Unreadable { class } => format!("it is no envelope of the earlier controller ({class})"),
            Self::Contradiction => "its envelope says otherwise than its task or its subject".to_owned(),
            Self::Late => "it came after this process had started: somebody still writes there".to_owned(),
            Self::Contested => "another message of this number is held here".to_owned(),
            Self::OfAnotherRunner => "its task belongs to another registration".to_owned(),
            Self::Unfit { cause } => format!("its task cannot run here: {cause}"),
            Self::Begun { rows } => format!("its job has begun under the earlier controller ({rows} rows in its log)"),
        }
    }

    /// What an operator can do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Contradiction => "find out who wrote it, then remove it",
            Self::Late => "stop the earlier controller, then start this one again",
            Self::Contested => "nothing is to be done: it goes when that one has ended",
            Self::OfAnotherRunner => {
                "use the registration of the earlier controller (GITEA_RUNNER_UUID_FILE, GITEA_RUNNER_TOKEN_FILE), or remove it"
            }
            Self::Unfit { .. } | Self::Begun { .. } => {
                "nothing is to be done: Gitea ends the task by its own time-out, and then the message goes"
            }
        }
    }

    /// Who is asked about it lives: a task that Gitea is to end must not be asked about more often than that takes.
    pub(super) fn asked_again_after(&self, silence: SignedDuration) -> SignedDuration {
        match self {
            // A message never changes.
            Self::Unreadable { .. } | Self::Contradiction | Self::Late => SignedDuration::MAX,
            Self::Contested => SignedDuration::ZERO,
            Self::OfAnotherRunner | Self::Unfit { .. } | Self::Begun { .. } => silence,
        }
    }
}

/// What this process knows of a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    No,
    /// This very task is held, or was.
    Here(&'static str),
    /// Something else is held under its number.
    Otherwise,
}

/// `held`: the message of the life under this number, where there is such a life.
pub(super) fn known(held: Option<Option<Key>>, digest: &PayloadDigest, ended: bool) -> Known {
    match held {
        Some(Some(key)) if key.digest == *digest => Known::Here(HELD_HERE),
        _ if ended => Known::Here(ENDED_HERE),
        Some(_) => Known::Otherwise,
        None => Known::No,
    }
}

/// What Gitea says of a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It runs, or waits for its end to be reported.
    Open,
    Over(&'static str),
    /// It was cancelled, and nobody may have closed its log.
    Cancelled,
    OfAnotherRunner,
}

/// What the answer to a status query proves. Gitea that waits for the report of a cancel (NEW-167) says CANCELLED as well:
/// such a task is taken in, and ends like every cancelled task that waits.
pub(super) fn status(
    answer: Result<proto::UpdateTaskResponse, GiteaError>,
    waits_for_cancelled: bool,
) -> Result<Status, GiteaError> {
    match answer {
        Ok(answer) => Ok(match outcome_of(&answer.state) {
            None => Status::Open,
            Some(Outcome::Cancelled) if waits_for_cancelled => Status::Open,
            Some(Outcome::Success) => Status::Over("Gitea says that it has ended: success"),
            Some(Outcome::Failure) => Status::Over("Gitea says that it has ended: failure"),
            Some(Outcome::Cancelled) => Status::Cancelled,
            Some(Outcome::Skipped) => Status::Over("Gitea says that it has ended: skipped"),
        }),
        Err(error) if error.is_of_another_runner() => Ok(Status::OfAnotherRunner),
        Err(error) if error.trouble == Trouble::TaskUnknown => Ok(Status::Over(UNKNOWN)),
        Err(error) => Err(error),
    }
}

/// What cannot be read.
pub(super) fn unread(error: &OpenError) -> Rest {
    match error {
        OpenError::UnknownVersion(_) => Rest::Unreadable { class: "unknown_version" },
        OpenError::Contradiction => Rest::Contradiction,
        OpenError::Malformed | OpenError::UnknownKey(_) | OpenError::ForeignInstance(_) | OpenError::NotAuthentic => {
            Rest::Unreadable { class: "malformed" }
        }
    }
}

/// What is read, and does not become what its envelope says.
pub(super) fn underived(refusal: Option<Refusal>) -> Rest {
    refusal.map_or(Rest::Contradiction, |refusal| Rest::Unfit { cause: refusal.reason.to_string() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use buffa::EnumValue;

    use super::*;

    /// NEW-41, NEW-167: what has no result is open, and so is a cancel whose report Gitea waits for.
    #[test]
    fn what_gitea_says() {
        let said = |result, waits| {
            let state = proto::TaskState { result: EnumValue::Known(result), ..Default::default() };
            status(Ok(proto::UpdateTaskResponse { state: Some(state).into(), ..Default::default() }), waits).unwrap()
        };
        assert_eq!(said(proto::Result::RESULT_UNSPECIFIED, false), Status::Open);
        assert_eq!(said(proto::Result::RESULT_CANCELLED, false), Status::Cancelled);
        assert_eq!(said(proto::Result::RESULT_CANCELLED, true), Status::Open);
        for result in [proto::Result::RESULT_SUCCESS, proto::Result::RESULT_FAILURE, proto::Result::RESULT_SKIPPED] {
            assert!(matches!(said(result, true), Status::Over(_)), "{result:?}");
        }
    }

    /// NEW-41, NEW-3, NEW-45: the same payload is the same task; another one under its number is not.
    #[test]
    fn what_is_known_here() {
        let digest = |text: &str| PayloadDigest::of(text.as_bytes());
        let key = |text: &str| Some(Key { id: "gitea-task-1".parse().unwrap(), digest: digest(text) });
        for (held, ended, expected) in [
            (None, false, Known::No),
            (None, true, Known::Here(ENDED_HERE)),
            (Some(key("a")), false, Known::Here(HELD_HERE)),
            (Some(key("b")), false, Known::Otherwise),
            (Some(key("b")), true, Known::Here(ENDED_HERE)),
            (Some(None), false, Known::Otherwise),
        ] {
            assert_eq!(known(held, &digest("a"), ended), expected);
        }
    }
}
