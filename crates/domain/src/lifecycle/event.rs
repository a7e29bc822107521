//! The words between the rooms and the machine: what happened, and what must be done now.

use jiff::Timestamp;

use super::{Outcome, Row, StepRecords};
use crate::id::Epoch;
use crate::reason::{Reason, Refusal};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The queue holds the task durably.
    Persisted,
    /// The queue knows that this very task has begun or ended before: it is not taken again (NEW-45).
    Refused(Refusal),
    /// What keeps it from going on: the queue did not take it yet, its message does not open, its owner has enough running.
    WaitsFor {
        /// In words, without secrets.
        what: String,
    },
    /// A slot is there and Gitea still wants the task: the backend is asked now.
    LaunchBegun {
        /// The incarnation that is made.
        epoch: Epoch,
    },
    /// The backend refused or failed.
    LaunchFailed {
        /// Of which incarnation.
        epoch: Epoch,
        /// A reason of the closed list when repeating is useless.
        permanent: Option<Reason>,
        /// Without secrets.
        cause: String,
        /// What to do about it.
        remedy: String,
        /// When to try again.
        retry_at: Timestamp,
    },
    /// The backend makes no executor now, because others use up what it may have: a wait, and no failure (NEW-66).
    QuotaUsedUp {
        /// Of which incarnation.
        epoch: Epoch,
        /// Which quota, with its numbers.
        cause: String,
        /// When to try again.
        retry_at: Timestamp,
    },
    /// The object exists, the executor does not run yet.
    ExecutorPending {
        /// Whose.
        epoch: Epoch,
    },
    /// The executor runs, and the task lies on the board.
    ExecutorReady {
        /// Whose.
        epoch: Epoch,
    },
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
        /// Whether more will come.
        end: LogEnd,
    },
    /// Rows of anybody are on their way to Gitea: their answer may be lost, they may be not.
    RowsSent {
        /// Gitea's index behind the last of them.
        end: u64,
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
    /// These steps stand on the executor's object.
    StepsRecorded {
        /// Whose.
        epoch: Epoch,
        /// As [`Action::RecordSteps`] brought them.
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
        /// What is left of its job.
        parting: Parting,
    },
    /// Gitea's answer to an UpdateTask of anybody.
    Answered {
        /// None: the task goes on.
        outcome: Option<Outcome>,
    },
    /// Gitea said CANCELLED to a state that was no end, and it waits for the end of a job that a user cancels: either it
    /// waits for the one of this task, or the task was cancelled at once. One end is owed (NEW-163, NEW-167).
    CancelAsked,
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
    /// The terminal mark could not be written. It is tried again as long as somebody runs; what it is written on may be
    /// what takes the room for it, so an executor that has done its work goes without.
    MarkFailed,
    /// The payload of a task whose executor was found again lies on the board.
    PayloadFound,
    /// The queue holds no message for a task whose executor was found again.
    MessageMissing,
    /// The queue has carried out what a life wanted for its message.
    Settled {
        /// Of the life as it stood when it wanted that: meanwhile another may have taken its place.
        epoch: Epoch,
        /// What was done.
        how: Settlement,
    },
    /// All slots are taken, and so many tasks with this one wait for one (NEW-28).
    InLine {
        /// From 1 on.
        place: usize,
        /// How many slots there are.
        slots: usize,
    },
    /// The process ends in order: what is nowhere durable is ended with a reason (NEW-16).
    Stopping,
    /// Time passed.
    Tick,
    /// Time passed in which nobody may be judged: another process may lead.
    Rest,
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
        /// What becomes of their end.
        tail: Tail,
    },
    /// Answer the runner that this many of its rows are stored; forward nothing.
    AckRows {
        /// The runner's index.
        ack: u64,
    },
    /// Forward the runner's state, its log indexes shifted.
    ForwardState {
        /// Close the log first, with these rows of ours at its end; none: the state is not final, or the log is closed.
        close: Option<Vec<Row>>,
    },
    /// Answer UpdateTask with this result; forward nothing.
    AnswerResult(Outcome),
    /// Write the interruption on the object before the announcement is answered.
    WriteInterrupted,
    /// Keep these steps on the object, then bring [`Event::StepsRecorded`]; forward nothing when that fails.
    RecordSteps {
        /// What is written.
        text: String,
        /// The steps it says.
        steps: StepRecords,
    },
    /// Answer the executor's report: go on.
    GoOn,
    /// Answer the executor's report: end the runner.
    Stop,
    /// Send Gitea an UpdateTask with the last steps seen.
    Heartbeat,
    /// Write this row into the job's log: what the task waits for (NEW-28).
    Tell(Row),
    /// [`super::Life::wants`] has something new for the rooms.
    Wake,
}

/// What was done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It left the queue.
    Removed,
    /// It lies in the queue again, for another launch.
    GivenBack,
}

/// What comes behind the rows of an UpdateLog of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEnd {
    /// More rows.
    Open,
    /// Nothing (`no_more`); the last of its rows, if it has any.
    Last(Option<Row>),
}

/// What becomes of the end of rows that are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the log stays open.
    Open,
    /// The last row is kept back, and `no_more` with it, until the result is judged.
    KeptBack,
    /// It closes the log.
    Closing,
}

/// How an executor leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// It owes nothing.
    Clean,
    /// A signal cut its job off.
    CutOff,
    /// Its final report could not be delivered.
    Undelivered,
}
