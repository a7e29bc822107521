//! The table of requirements §7.1, and the model test over every state × every event: here what they share.

#![expect(clippy::unwrap_used, reason = "tests")]

mod cancelling;
mod end;
mod executor;
mod model;
mod run;
mod start;
mod time;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::id::{Backend, Epoch, PayloadDigest};
use crate::metadata::{Claim, ExecutorRecord};
use crate::reason::Refusal;
use crate::workflow::{ContinueOnError, Step};

const STEPS: usize = 3;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds).unwrap()
}

fn row(text: &str) -> Row {
    Row { time: at(0), content: text.to_owned() }
}

fn steps(outcomes: &[(Option<Outcome>, u64, u64)]) -> StepRecords {
    let record = |&(outcome, log_index, log_length): &(Option<Outcome>, u64, u64)| StepRecord {
        outcome,
        started: (log_length > 0).then(|| at(10)),
        stopped: outcome.filter(|_| log_length > 0).map(|_| at(11)),
        log_index,
        log_length,
    };
    StepRecords::new(outcomes.iter().map(record).collect())
}

fn found_record(claim: Option<Claim>) -> ExecutorRecord {
    ExecutorRecord {
        id: "gitea-task-7".parse().unwrap(),
        instance: "f66f031b".parse().unwrap(),
        backend: Backend::Local,
        epoch: Epoch::FIRST,
        digest: PayloadDigest::of(b"task"),
        repository: "owner/name".parse().unwrap(),
        job_key: "build".parse().unwrap(),
        spiffe_id: "spiffe://example.org/ci/owner/name/build".parse().unwrap(),
        fetched_at: at(0),
        deadline: at(10_000),
        claim,
        interrupted_at: None,
        steps: None,
        terminal: false,
    }
}

/// A life and the clock it lives by.
struct Walk {
    life: Life,
    now: i64,
    last: Vec<Action>,
}

impl Walk {
    fn fetched() -> Self {
        let definitions = vec![Step { continue_on_error: ContinueOnError::No }; STEPS];
        Self { life: Life::fetched(at(0), at(10_000), definitions), now: 0, last: vec![] }
    }

    fn on(mut self, event: Event) -> Self {
        (self.life, self.last) = self.life.step(event, at(self.now), &Limits::default());
        self
    }

    fn later(mut self, seconds: i64) -> Self {
        self.now += seconds;
        self.on(Event::Tick)
    }

    fn offered() -> Self {
        let epoch = Epoch::FIRST;
        Self::fetched()
            .on(Event::Persisted)
            .on(Event::LaunchBegun { epoch })
            .on(Event::ExecutorReady { epoch })
            .on(Event::Hello { epoch })
    }

    fn claimed() -> Self {
        Self::offered()
            .on(Event::TaskAsked { epoch: Epoch::FIRST })
            .on(Event::ClaimWritten { epoch: Epoch::FIRST, log_shift: 2 })
    }

    fn running() -> Self {
        Self::claimed()
            .on(Event::RunnerLog { epoch: Epoch::FIRST, index: 0, count: 4, end: LogEnd::Open })
            .on(Event::LogStored { ack: 6 })
            .on(Event::RunnerState {
                epoch: Epoch::FIRST,
                outcome: None,
                steps: steps(&[(None, 3, 1), (None, 0, 0), (None, 0, 0)]),
            })
            .recorded()
    }

    /// The queue has done with the message what was wanted just now.
    fn settled(self, how: Settlement) -> Self {
        let epoch = self.life.epoch();
        self.on(Event::Settled { epoch, how })
    }

    /// The record that was asked for stands.
    fn recorded(self) -> Self {
        let Some(Action::RecordSteps { steps, .. }) = self.last.first().cloned() else { panic!("{:?}", self.last) };
        self.on(Event::StepsRecorded { epoch: Epoch::FIRST, steps })
    }

    fn state(self, outcome: Outcome, seen: &[(Option<Outcome>, u64, u64)]) -> Self {
        self.on(Event::RunnerState { epoch: Epoch::FIRST, outcome: Some(outcome), steps: steps(seen) })
    }

    fn wants(&self) -> Wants {
        self.life.wants(at(self.now), &Limits::default())
    }

    #[track_caller]
    fn ends_as(&self, reason: Reason) {
        match self.life.phase() {
            Phase::Ending(ending) => assert_eq!(ending.reason, reason),
            other => panic!("expected an end for {reason}, stands at {other:?}"),
        }
    }
}

impl Walk {
    #[track_caller]
    fn assert_cause(&self, text: &str) {
        let Phase::Ending(ending) = self.life.phase() else { panic!("{:?}", self.life.phase()) };
        assert!(ending.cause.contains(text), "{}", ending.cause);
    }
}

const ALL_GOOD: [(Option<Outcome>, u64, u64); STEPS] =
    [(Some(Outcome::Success), 3, 1), (Some(Outcome::Success), 4, 1), (Some(Outcome::Success), 5, 1)];
