//! The state of one assignment: what it is made from, and what may be read off it.

use jiff::Timestamp;

use super::{Ending, Executor, LogBook, Outcome, Phase, StepRecords};
use crate::assignment::Assignment;
use crate::id::Epoch;
use crate::metadata::ExecutorRecord;
use crate::reason::{Reason, Refusal};
use crate::workflow;

/// When the current executor reached what lies before the claim; none: not yet, or a former process saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Milestones {
    /// There was a slot for it, and it was begun.
    pub slot: Option<Timestamp>,
    /// It ran.
    pub runs: Option<Timestamp>,
    /// It had its identity and found the facade.
    pub identity: Option<Timestamp>,
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
    /// The current incarnation; before the first launch, the next one.
    pub(crate) epoch: Epoch,
    pub(crate) launched: bool,
    pub(crate) executor: Executor,
    /// How many launches were begun, those of former processes included.
    pub(crate) attempts: u32,
    /// What the last of them failed with.
    pub(crate) last_error: Option<String>,
    /// The word for it.
    pub(crate) last_failure: Option<Reason>,
    /// The runner's own end, on its way to Gitea.
    pub(crate) said: Option<Outcome>,
    /// The result that Gitea has.
    pub(crate) accepted: Option<Outcome>,
    /// When Gitea was first heard to have cancelled it.
    pub(crate) cancelled: Option<Timestamp>,
    /// How many of these launches found a quota of the backend used up; none of former processes.
    pub(crate) quota_waits: u32,
    /// It waits for such a quota now.
    pub(crate) short_of_quota: bool,
    /// How many executors died before they claimed.
    pub(crate) deaths: u32,
    /// Earliest moment of the next launch.
    pub(crate) not_before: Timestamp,
    /// What the last wait or failure was about, for the end's cause.
    pub(crate) waiting_for: String,
    pub(crate) milestones: Milestones,
    /// What the job's log does not say yet about the time before the claim.
    pub(crate) news: Option<String>,
    /// The log says what it waits for.
    pub(crate) wait_told: bool,
    /// When it was last told something.
    pub(crate) told: Option<Timestamp>,
    /// The current executor asked for the task.
    pub(crate) asked: bool,
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
    /// The mark could not be written: the removal does not wait for it.
    pub(crate) unmarkable: bool,
    /// The object of the current epoch must go before anything new is launched.
    pub(crate) discard: bool,
    /// When a new process rebuilt this state from the queue or the executor's object.
    pub(crate) found: Option<Timestamp>,
    pub(crate) asked_for_log: bool,
    /// Last call of the executor, its keep-alive included.
    pub(crate) last_call: Timestamp,
    /// Last UpdateTask that Gitea answered for this task.
    pub(crate) last_sign: Timestamp,
    /// Last heartbeat that was asked for, answered or not.
    pub(crate) last_beat: Timestamp,
    pub(crate) log: LogBook,
    pub(crate) steps: StepRecords,
    pub(crate) definitions: Vec<workflow::Step>,
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
            launched: false,
            executor: Executor::Absent,
            attempts: 0,
            last_error: None,
            last_failure: None,
            said: None,
            accepted: None,
            cancelled: None,
            quota_waits: 0,
            short_of_quota: false,
            deaths: 0,
            not_before: fetched_at,
            waiting_for: "a slot".to_owned(),
            milestones: Milestones::default(),
            news: None,
            wait_told: false,
            told: None,
            asked: false,
            said_hello: false,
            said_goodbye: false,
            interrupted: None,
            reporting: false,
            confirmed: false,
            settled: false,
            leased: false,
            marked: false,
            unmarkable: false,
            discard: false,
            found: None,
            asked_for_log: false,
            last_call: fetched_at,
            last_sign: fetched_at,
            last_beat: fetched_at,
            log: LogBook::default(),
            steps: StepRecords::default(),
            definitions,
        }
    }

    /// A task as its assignment tells it.
    #[must_use]
    pub fn of_assignment(assignment: &Assignment) -> Self {
        Self::fetched(assignment.fetched_at, assignment.deadline, assignment.steps.clone())
    }

    /// A task that can never run here: it was never queued, and only its end has to be told (NEW-14).
    #[must_use]
    pub fn refused(fetched_at: Timestamp, refusal: Refusal, steps: usize) -> Self {
        let definitions = vec![workflow::Step { continue_on_error: workflow::ContinueOnError::Undecided }; steps];
        let mut life = Self::fetched(fetched_at, fetched_at, definitions);
        life.phase = Phase::Ending(Ending::refused(refusal));
        life.settled = true;
        life
    }

    /// A task found in the queue by a new process; `attempts` launches failed so far.
    #[must_use]
    pub fn found_waiting(mut self, now: Timestamp, attempts: u32, last_error: Option<String>) -> Self {
        self.last_error = last_error;
        self.phase = Phase::Waiting;
        self.since = now;
        self.epoch = (0..attempts).fold(Epoch::FIRST, |epoch, _| epoch.next());
        self.found = Some(now);
        self.attempts = attempts;
        self.log = LogBook::recovered(0);
        // The count of dead executors is not stored: leave room for at least one more launch.
        self.deaths = attempts.min(2);
        (self.last_sign, self.last_beat) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        self
    }

    /// A task found in the queue by a process that can never run it: only its end has to be told, and its message goes then
    /// (NEW-49).
    #[must_use]
    pub fn found_unserved(self, now: Timestamp, attempts: u32, refusal: Refusal) -> Self {
        let mut life = self.found_waiting(now, attempts, None);
        life.phase = Phase::Ending(Ending::refused(refusal));
        life
    }

    /// The same number came again, with another payload: whatever carries an epoch of the older life is fenced (NEW-3).
    #[must_use]
    pub fn in_place_of(mut self, older: &Self) -> Self {
        self.epoch = self.epoch.max(older.epoch.next());
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
        life.launched = true;
        life.executor = Executor::Present;
        life.found = Some(now);
        life.last_call = now;
        (life.last_sign, life.last_beat) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        life.interrupted = record.interrupted_at;
        life.log = LogBook::recovered(record.claim.as_ref().map_or(0, |claim| claim.log_shift));
        life.phase = match &record.claim {
            Some(_) => {
                life.reporting = life.steps.any_started();
                life.said_hello = true;
                Phase::Claimed
            }
            None => Phase::Offered,
        };
        if record.terminal {
            // The outcome itself lives in Gitea; here it only means that no state is sent. Whether the log was closed
            // is not known: post steps may still write rows (NEW-166), and closing it twice changes nothing.
            life.phase = Phase::Draining(Outcome::Cancelled);
            life.confirmed = true;
            life.marked = true;
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

    /// Its epoch belongs to a launch already.
    #[must_use]
    pub fn was_launched(&self) -> bool {
        self.launched
    }

    /// The incarnation that the next launch makes.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        if self.launched { self.epoch.next() } else { self.epoch }
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

    /// When Gitea last heard of this task.
    #[must_use]
    pub fn last_sign(&self) -> Timestamp {
        self.last_sign
    }

    /// Whether Gitea must be asked before it is told an end of ours: [`Life::end_may_be_known`], or a former leader knows its
    /// executor too, and may live: cut off from us and not from its runner, it is told the result (NEW-59).
    #[must_use]
    pub fn is_asked_before_its_end(&self) -> bool {
        self.end_may_be_known() || self.found.is_some()
    }

    /// Whether Gitea may know of an end that nobody here has heard of: a former process may have heard a result and not lived
    /// to note it (NEW-163), and no answer has come to this one; or the runner said an end, and its answer was lost (NEW-102).
    #[must_use]
    pub fn end_may_be_known(&self) -> bool {
        (self.found.is_some() && self.last_sign == Timestamp::UNIX_EPOCH) || self.said.is_some()
    }

    /// A user cancelled it, Gitea waits for its end, and its runner is about to say it: no sign of life may keep the task
    /// from ending (NEW-167).
    #[must_use]
    pub fn is_cancelling(&self) -> bool {
        self.cancelled.is_some() && !self.is_over()
    }

    /// What it waits for, in words.
    #[must_use]
    pub fn waiting_for(&self) -> &str {
        &self.waiting_for
    }

    /// How far its executor came, and when.
    #[must_use]
    pub fn milestones(&self) -> Milestones {
        self.milestones
    }

    /// Rows of ours may go into its log: the runner has not been promised how many there are (NEW-28).
    #[must_use]
    pub fn is_before_its_claim(&self) -> bool {
        self.is_held() || matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered)
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
        !self.confirmed && matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered | Phase::Claimed)
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
