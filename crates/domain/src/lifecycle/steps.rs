//! The last steps seen of a running task, kept compactly on its executor's object so that no report, heartbeat or
//! restart sets a finished step back to running (NEW-27, Gitea contract §6).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::workflow::{ContinueOnError, Step};

/// One step as last reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StepRecord {
    /// None: not ended.
    pub outcome: Option<Outcome>,
    /// None: not started.
    pub started: Option<Timestamp>,
    /// None: not stopped.
    pub stopped: Option<Timestamp>,
    /// First row of its output.
    pub log_index: u64,
    /// Rows of its output.
    pub log_length: u64,
}

impl StepRecord {
    /// Started and not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.started.is_some() && self.outcome.is_none()
    }
}

/// All steps of the job, in order; the position is Gitea's step id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StepRecords(Vec<StepRecord>);

/// The compact form of a step: outcome number, start and stop in milliseconds, index, length.
#[derive(Serialize, Deserialize)]
struct Compact(u8, i64, i64, u64, u64);

/// The text on the object: one letter per step of the job (does it `continue-on-error`: `n`o, `y`es, `u`ndecided), so
/// that NEW-168 can be judged by a process that never saw the payload, and the steps last seen.
#[derive(Serialize, Deserialize)]
struct Text {
    c: String,
    s: Vec<Compact>,
}

impl StepRecords {
    /// Steps in the order of the job.
    #[must_use]
    pub fn new(steps: Vec<StepRecord>) -> Self {
        Self(steps)
    }

    /// The steps.
    #[must_use]
    pub fn as_slice(&self) -> &[StepRecord] {
        &self.0
    }

    /// At least one step has started.
    #[must_use]
    pub fn any_started(&self) -> bool {
        self.0.iter().any(|step| step.started.is_some())
    }

    /// The same steps with every log index moved by `shift`.
    #[must_use]
    pub fn shifted(mut self, shift: u64) -> Self {
        for step in &mut self.0 {
            step.log_index = step.log_index.saturating_add(shift);
        }
        self
    }

    /// A step changed its state, not only its row count or its times: worth keeping on the object, which costs a call of
    /// the backend and keeps the runner waiting (NEW-27: no finished step is set back to running). The official runner
    /// never moves a time that it has said.
    #[must_use]
    pub fn differs_in_state(&self, other: &Self) -> bool {
        let state = |step: &StepRecord| (step.outcome, step.started.is_some(), step.stopped.is_some());
        !self.0.iter().map(state).eq(other.0.iter().map(state))
    }

    /// The text kept on the object.
    #[must_use]
    pub fn to_text(&self, definitions: &[Step]) -> String {
        let millis = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_millisecond);
        let number = |outcome: Option<Outcome>| outcome.map_or(0, Outcome::number);
        let compact = |s: &StepRecord| {
            Compact(number(s.outcome), millis(s.started), millis(s.stopped), s.log_index, s.log_length)
        };
        let letter = |step: &Step| match step.continue_on_error {
            ContinueOnError::No => 'n',
            ContinueOnError::Yes => 'y',
            ContinueOnError::Undecided => 'u',
        };
        let text = Text { c: definitions.iter().map(letter).collect(), s: self.0.iter().map(compact).collect() };
        // Letters and numbers always serialise; an empty text means "nothing seen".
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Reads [`StepRecords::to_text`]; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Vec<Step>, Self)> {
        let time = |ms: i64| if ms == 0 { Some(None) } else { Timestamp::from_millisecond(ms).ok().map(Some) };
        let Text { c, s } = serde_json::from_str(text).ok()?;
        let steps = s.into_iter().map(|Compact(outcome, started, stopped, log_index, log_length)| {
            let outcome = Outcome::from_number(outcome)?;
            Some(StepRecord { outcome, started: time(started)?, stopped: time(stopped)?, log_index, log_length })
        });
        let definitions = c.chars().map(|letter| {
            let continue_on_error = match letter {
                'n' => ContinueOnError::No,
                'y' => ContinueOnError::Yes,
                'u' => ContinueOnError::Undecided,
                _ => return None,
            };
            Some(Step { continue_on_error })
        });
        Some((definitions.collect::<Option<_>>()?, Self(steps.collect::<Option<_>>()?)))
    }
}

impl Outcome {
    /// The number of `runner.v1.Result`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Success => 1,
            Self::Failure => 2,
            Self::Cancelled => 3,
            Self::Skipped => 4,
        }
    }

    /// The other way: `Some(None)` for 0, none for a number that is not a result.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Option<Self>> {
        match number {
            0 => Some(None),
            1 => Some(Some(Self::Success)),
            2 => Some(Some(Self::Failure)),
            3 => Some(Some(Self::Cancelled)),
            4 => Some(Some(Self::Skipped)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]
    use super::*;

    /// NEW-27: a step that starts, stops or ends is worth a record; rows that are added and a start that moves are not.
    #[test]
    fn a_state_is_no_time() {
        let at = |ms| Some(Timestamp::from_millisecond(ms).expect("in range"));
        let one = |outcome, started, stopped, log_length| {
            StepRecords::new(vec![StepRecord { outcome, started, stopped, log_index: 0, log_length }])
        };
        let runs = one(None, at(1), None, 2);
        assert!(!runs.differs_in_state(&one(None, at(2), None, 9)));
        let ended = one(Some(Outcome::Success), at(1), at(3), 2);
        for other in [one(None, None, None, 2), one(None, at(1), at(2), 2), ended, StepRecords::default()] {
            assert!(runs.differs_in_state(&other), "{other:?}");
        }
    }

    /// NEW-27: what is kept on the object comes back as it was, and garbage is no steps.
    #[test]
    fn the_compact_text_is_lossless() {
        let at = |ms| Some(Timestamp::from_millisecond(ms).expect("in range"));
        let steps = StepRecords::new(vec![
            StepRecord {
                outcome: Some(Outcome::Success),
                started: at(1),
                stopped: at(2500),
                log_index: 4,
                log_length: 16,
            },
            StepRecord { started: at(2501), log_index: 20, log_length: 1, ..StepRecord::default() },
            StepRecord::default(),
        ]);
        let definitions = [ContinueOnError::No, ContinueOnError::Yes, ContinueOnError::Undecided];
        let definitions: Vec<Step> =
            definitions.into_iter().map(|continue_on_error| Step { continue_on_error }).collect();
        assert_eq!(StepRecords::parse(&steps.to_text(&definitions)), Some((definitions, steps)));
        for bad in
            ["", "x", "{}", r#"{"c":"x","s":[]}"#, r#"{"c":"","s":[[9,0,0,0,0]]}"#, r#"{"c":"","s":[[1,0,0,-1,0]]}"#]
        {
            assert_eq!(StepRecords::parse(bad), None, "{bad}");
        }
    }
}
