//! The life of one assignment, from the fetch until nothing of it is left: one pure state machine.
//!
//! [`Life::step`] is the only decision. The rooms of the controller translate what happened into an [`Event`], carry the
//! returned [`Action`]s out, and look at [`Life::wants`] for what is theirs to bring about. Nobody else decides, so
//! these hold everywhere (requirements §7.1; the model test walks every state × every event):
//!
//! - every state has a deadline and a way to *gone* (NEW-30);
//! - a task is handed out to one epoch only, and never again once that epoch sent an update (NEW-58, NEW-63);
//! - after Gitea answered with a result, nothing is sent for that task but a missing end of its log (NEW-163);
//! - no SUCCESS passes after an announced interruption, or against its own steps (NEW-158, NEW-168);
//! - the runner's row indexes are shifted by the rows we wrote before the claim, for ever (NEW-28).

mod certificate;
mod limits;
mod logbook;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod wants;

pub use certificate::{Certificate, certificate};
pub use limits::Limits;
pub use logbook::{LogBook, Row};
pub use steps::{StepRecord, StepRecords};
pub use wants::{MessageWant, Wants};

use jiff::Timestamp;

use crate::id::Epoch;
use crate::metadata::{Claim, ExecutorRecord};
use crate::reason::{Reason, Refusal};
use crate::workflow;

/// How a task ended (`runner.v1.Result` without "not yet").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every step that counts succeeded.
    Success,
    /// A step failed, or we ended the task with a reason.
    Failure,
    /// Somebody cancelled it.
    Cancelled,
    /// It never had to run.
    Skipped,
}

/// Where an assignment stands (requirements §7.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// In our memory only.
    Fetched,
    /// In the queue, without a slot.
    Waiting,
    /// The backend is making its executor.
    Creating,
    /// The executor's object exists.
    Bound,
    /// The executor runs; the task lies on the board for it.
    Offered,
    /// The executor was answered with the task.
    Claimed,
    /// Its runner sent a first update: it is confirmed, and its message leaves the queue.
    Running,
    /// We end it; the certificate is on its way to Gitea.
    Ending(Ending),
    /// Gitea accepted an end; the executor's object is not marked yet.
    Final(Outcome),
    /// Marked; the executor has its grace.
    Draining(Outcome),
    /// Nothing is left.
    Gone,
}

/// Why and how we end a task ourselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ending {
    /// The word of the closed list.
    pub reason: Reason,
    /// FAILURE or CANCELLED.
    pub outcome: Outcome,
    /// The cause with its numbers, for the job's log.
    pub cause: String,
    /// What the reader of the job page can do.
    pub remedy: String,
}

/// What is known of the executor of the current epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Executor {
    /// None was made, or it is provably gone.
    Absent,
    /// It exists, or may exist.
    Present,
    /// Its process has ended; the object is still there.
    Ended,
}

/// The state of one assignment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Life {
    pub(crate) phase: Phase,
    /// When `phase` was entered.
    pub(crate) since: Timestamp,
    pub(crate) fetched_at: Timestamp,
    /// The run deadline: no job runs beyond it.
    pub(crate) deadline: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) executor: Executor,
    /// How many executors died before they claimed.
    pub(crate) deaths: u32,
    /// Earliest moment of the next launch.
    pub(crate) not_before: Timestamp,
    /// What the last wait or failure was about, for the end's cause.
    pub(crate) waiting_for: String,
    pub(crate) said_hello: bool,
    /// The runner ended; its executor said so.
    pub(crate) said_goodbye: bool,
    pub(crate) interrupted: Option<Timestamp>,
    /// The runner sent its first UpdateTask: our heartbeat is no longer needed to hear a cancel.
    pub(crate) reporting: bool,
    /// The message may leave the queue (PRC-9): a first update came, or Gitea accepted an end.
    pub(crate) confirmed: bool,
    pub(crate) settled: bool,
    /// The launch room holds the message.
    pub(crate) leased: bool,
    pub(crate) marked: bool,
    /// The object of the current epoch must go before anything new is launched.
    pub(crate) discard: bool,
    /// This state was rebuilt from the executor's object by a new process.
    pub(crate) recovered: bool,
    pub(crate) asked_for_log: bool,
    /// Last call of the executor, its keep-alive included.
    pub(crate) last_call: Timestamp,
    /// Last UpdateTask that Gitea saw for this task.
    pub(crate) last_sign: Timestamp,
    pub(crate) log: LogBook,
    pub(crate) steps: StepRecords,
    pub(crate) definitions: Vec<workflow::Step>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The queue holds the task durably.
    Persisted,
    /// The queue did not take it (yet).
    PublishFailed {
        /// Without secrets.
        cause: String,
    },
    /// A slot is there and Gitea still wants the task: the backend is asked now.
    LaunchBegun {
        /// The incarnation that is made.
        epoch: Epoch,
    },
    /// The backend refused or failed.
    LaunchFailed {
        /// A reason of the closed list when repeating is useless.
        permanent: Option<Reason>,
        /// Without secrets.
        cause: String,
        /// What to do about it.
        remedy: String,
        /// When to try again.
        retry_at: Timestamp,
    },
    /// The object exists, the executor does not run yet.
    ExecutorPending,
    /// The executor runs, and the task lies on the board.
    ExecutorReady,
    /// The executor has its SVID and found the facade.
    Hello {
        /// Whose.
        epoch: Epoch,
    },
    /// The executor's keep-alive.
    KeepAlive {
        /// Whose.
        epoch: Epoch,
    },
    /// FetchTask at the facade.
    TaskAsked {
        /// Whose.
        epoch: Epoch,
    },
    /// The claim stands on the executor's object; the answer may carry the task.
    ClaimWritten {
        /// Whose.
        epoch: Epoch,
        /// The rows Gitea holds at this moment: K of NEW-28.
        log_shift: u64,
    },
    /// UpdateLog of the runner, with the runner's own index.
    RunnerLog {
        /// Whose.
        epoch: Epoch,
        /// The runner's index of the first row.
        index: u64,
        /// How many rows.
        count: u64,
        /// The last row, present when `no_more` came with rows.
        last: Option<Row>,
        /// The runner sends no further row.
        no_more: bool,
    },
    /// Gitea's answer to rows of anybody.
    LogStored {
        /// Rows Gitea holds.
        ack: u64,
    },
    /// Gitea closed the log.
    LogSealed,
    /// UpdateTask of the runner, with the runner's own log indexes.
    RunnerState {
        /// Whose.
        epoch: Epoch,
        /// None: not ended yet.
        outcome: Option<Outcome>,
        /// Every step as the runner sees it.
        steps: StepRecords,
    },
    /// The executor announced that a signal cuts the job off.
    Interrupted {
        /// Whose.
        epoch: Epoch,
    },
    /// The runner has ended.
    Goodbye {
        /// Whose.
        epoch: Epoch,
        /// How the runner ended, in words.
        how: String,
        /// A signal cut the job off.
        interrupted: bool,
        /// False: its final report could not be delivered.
        delivered: bool,
    },
    /// Gitea's answer to an UpdateTask of anybody.
    Answered {
        /// None: the task goes on.
        outcome: Option<Outcome>,
    },
    /// Gitea knows no such task of ours any more.
    TaskUnknown,
    /// The list shows the executor of this epoch running or about to.
    ExecutorSeen {
        /// Whose object.
        epoch: Epoch,
    },
    /// The list shows that its process has ended.
    ExecutorEnded {
        /// Whose object.
        epoch: Epoch,
        /// The word for it.
        reason: Reason,
        /// How, with numbers.
        how: String,
    },
    /// A complete list does not show it.
    ExecutorAbsent,
    /// The terminal mark holds, or there is nothing to mark.
    Marked,
    /// The payload of a task whose executor was found again lies on the board.
    PayloadFound,
    /// The queue holds no message for a task whose executor was found again.
    MessageMissing,
    /// The message left the queue, or was given back.
    Settled,
    /// An operator ends the task.
    OperatorEnds {
        /// Their words.
        why: String,
    },
    /// Time passed.
    Tick,
}

/// What whoever brought the event must do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer `unauthenticated`: there is nothing to do here.
    SendHome,
    /// Answer `unavailable`: ask again.
    AskAgain,
    /// Ask Gitea once more, write the waiting room's rows and the claim, then bring [`Event::ClaimWritten`].
    WriteClaim,
    /// Answer with the task.
    HandOut,
    /// Forward the rows from this index of Gitea's on.
    ForwardRows {
        /// Gitea's index of the first row.
        index: u64,
        /// Keep the last row and `no_more` back until the result is judged.
        hold_last: bool,
        /// Close the log with it.
        no_more: bool,
    },
    /// Answer the runner that this many of its rows are stored; forward nothing.
    AckRows {
        /// The runner's index.
        ack: u64,
    },
    /// Forward the runner's state, its log indexes shifted.
    ForwardState {
        /// Close the log first, with these rows from this index on; none: the state is not final, or the log is closed.
        seal: Option<Seal>,
    },
    /// Answer UpdateTask with this result; forward nothing.
    AnswerResult(Outcome),
    /// Write the interruption on the object before the announcement is answered.
    WriteInterrupted,
    /// Keep this text of the last steps on the object.
    RecordSteps(String),
    /// Answer the executor's report: go on.
    GoOn,
    /// Answer the executor's report: end the runner.
    Stop,
    /// Send Gitea an UpdateTask with the last steps seen.
    Heartbeat,
    /// [`Life::wants`] has something new for the rooms.
    Wake,
}

/// The closing rows of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Gitea's index of the first of `rows`.
    pub index: u64,
    /// At least one: Gitea 1.26 ignores `no_more` without a new row.
    pub rows: Vec<Row>,
}

impl Life {
    /// A task that was fetched just now.
    #[must_use]
    pub fn fetched(fetched_at: Timestamp, deadline: Timestamp, definitions: Vec<workflow::Step>) -> Self {
        Self {
            phase: Phase::Fetched,
            since: fetched_at,
            fetched_at,
            deadline,
            epoch: Epoch::FIRST,
            executor: Executor::Absent,
            deaths: 0,
            not_before: fetched_at,
            waiting_for: "a slot".to_owned(),
            said_hello: false,
            said_goodbye: false,
            interrupted: None,
            reporting: false,
            confirmed: false,
            settled: false,
            leased: false,
            marked: false,
            discard: false,
            recovered: false,
            asked_for_log: false,
            last_call: fetched_at,
            last_sign: fetched_at,
            log: LogBook::default(),
            steps: StepRecords::default(),
            definitions,
        }
    }

    /// A task that can never run here: it was never queued, and only its end has to be told (NEW-14).
    #[must_use]
    pub fn refused(fetched_at: Timestamp, refusal: Refusal, steps: usize) -> Self {
        let definitions = vec![workflow::Step { continue_on_error: workflow::ContinueOnError::Undecided }; steps];
        let mut life = Self::fetched(fetched_at, fetched_at, definitions);
        let Refusal { reason, cause, remedy } = refusal;
        life.phase = Phase::Ending(Ending { reason, outcome: Outcome::Failure, cause, remedy });
        life.settled = true;
        life
    }

    /// A task found in the queue by a new process; `attempts` launches failed so far.
    #[must_use]
    pub fn found_waiting(mut self, now: Timestamp, attempts: u32) -> Self {
        self.phase = Phase::Waiting;
        self.since = now;
        self.recovered = true;
        // The count of dead executors is not stored: leave room for at least one more launch.
        self.deaths = attempts.min(2);
        self.last_sign = Timestamp::UNIX_EPOCH;
        self
    }

    /// A task whose executor a new process found. What the object says is all that is known: enough to authorise and
    /// to report, never to run it again (ENV-8).
    #[must_use]
    pub fn found_executor(record: &ExecutorRecord, now: Timestamp) -> Self {
        let (definitions, steps) = record.steps.as_deref().and_then(StepRecords::parse).unwrap_or_default();
        let mut life = Self::fetched(record.fetched_at, record.deadline, definitions);
        life.steps = steps;
        life.since = now;
        life.epoch = record.epoch;
        life.executor = Executor::Present;
        life.recovered = true;
        life.last_call = now;
        life.last_sign = Timestamp::UNIX_EPOCH;
        life.interrupted = record.interrupted_at;
        life.phase = match &record.claim {
            Some(Claim { log_shift, .. }) => {
                life.log = LogBook::recovered(*log_shift);
                life.reporting = life.steps.any_started();
                life.said_hello = true;
                Phase::Claimed
            }
            None => Phase::Offered,
        };
        if record.terminal {
            // The outcome itself lives in Gitea; here it only means that nothing more is sent.
            life.phase = Phase::Draining(Outcome::Cancelled);
            life.confirmed = true;
            life.marked = true;
            life.log.close();
        }
        life
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The current incarnation.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// When Gitea handed it out.
    #[must_use]
    pub fn fetched_at(&self) -> Timestamp {
        self.fetched_at
    }

    /// Since when it stands there.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// What is known of its executor.
    #[must_use]
    pub fn executor(&self) -> Executor {
        self.executor
    }

    /// What it waits for, in words.
    #[must_use]
    pub fn waiting_for(&self) -> &str {
        &self.waiting_for
    }

    /// The earliest moment of its next launch.
    #[must_use]
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// The last steps seen, with Gitea's log indexes.
    #[must_use]
    pub fn steps(&self) -> &StepRecords {
        &self.steps
    }

    /// The text of steps and step definitions that belongs on the executor's object.
    #[must_use]
    pub fn steps_text(&self) -> String {
        self.steps.to_text(&self.definitions)
    }

    /// The log as Gitea holds it.
    #[must_use]
    pub fn log(&self) -> &LogBook {
        &self.log
    }

    /// What the runner is answered for its rows; see [`LogBook::runner_ack`].
    pub fn runner_ack(&mut self) -> u64 {
        self.log.runner_ack()
    }

    /// This incarnation may have, or get, something to do: it is let in by Declare.
    #[must_use]
    pub fn may_work(&self, epoch: Epoch) -> bool {
        let open =
            matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered | Phase::Claimed | Phase::Running);
        epoch == self.epoch && !self.discard && open
    }

    /// The payload may still have to be handed out; afterwards nobody keeps it (NEW-57).
    #[must_use]
    pub fn payload_needed(&self) -> bool {
        !self.confirmed
            && matches!(
                self.phase,
                Phase::Fetched | Phase::Waiting | Phase::Creating | Phase::Bound | Phase::Offered | Phase::Claimed
            )
    }

    /// Held, not started: counts against the look-ahead (NEW-9).
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Fetched | Phase::Waiting)
    }

    /// Its executor exists or may exist: counts against the capacity (NEW-55, ADM-6).
    #[must_use]
    pub fn occupies_slot(&self) -> bool {
        self.executor != Executor::Absent
    }
}
