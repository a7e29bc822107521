//! The life of one assignment, from the fetch until nothing of it is left: one pure state machine.
//!
//! A life begins with a constructor ([`Life::fetched`], [`Life::refused`], [`Life::found_waiting`],
//! [`Life::found_executor`], [`Life::in_place_of`]) and changes by [`Life::step`] alone. The rooms of the controller
//! translate what happened into an [`Event`], carry the returned [`Action`]s out, and look at [`Life::wants`] for what
//! is theirs to bring about. Nobody else decides, so these hold everywhere (requirements §7.1; the model test walks
//! every state × every event):
//!
//! - every state has a deadline and a way to *gone* (NEW-30);
//! - a task is handed out to one epoch only, and never again once that epoch sent an update (NEW-58, NEW-63);
//! - after Gitea answered with a result, nothing is sent for that task but a missing end of its log (NEW-163);
//! - no SUCCESS passes after an announced interruption, or against its own steps (NEW-158, NEW-168);
//! - the runner's row indexes are shifted by the rows we wrote before the claim, for ever (NEW-28).

mod certificate;
mod event;
mod executor;
mod happening;
mod launching;
mod life;
mod limits;
mod logbook;
mod runner;
mod step;
mod steps;
mod time;

#[cfg(test)]
mod tests;
mod wants;

pub use certificate::{Certificate, certificate};
pub use event::{Action, Event, LogEnd, Parting, Settlement, Tail};
pub use happening::{Happening, Whose, happenings};
pub use life::{Life, Milestones};
pub use limits::Limits;
pub use logbook::{Closing, LogBook, Row};
pub use steps::{StepRecord, StepRecords};
pub use wants::{MessageWant, Wants};

use crate::reason::Reason;

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
