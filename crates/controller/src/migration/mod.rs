//! Takes over what the earlier controller left in the stream (`ENVELOPE_ACCEPT_V1`; NEW-41, F27): its messages are proven one
//! by one by a status query, and either go or become messages and lives of ours.
//!
//! Nothing of such a message is sealed, so nothing is believed of it but its number, and of that only what Gitea confirms: a
//! task of this registration that has not ended. Everything else is derived from the task's bytes by today's rules. Nothing
//! is ended on the word of such a message; all that Gitea is told is the end of a cancelled task's log. It is bounded: what comes after the start of this process is not
//! taken, and when nothing is left the room rests and says that the mode can be turned off.
//!
//! Each step may be the last one of this process. What was not proven lies where it lay. What was taken in is stored as a
//! message of ours before the earlier one goes, and a process that finds both knows by the payload that it has it already.
//! A task whose log has rows has begun under the earlier controller, so it is not begun again.

mod judgement;
mod progress;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use domain::assignment::{Assignment, Rules};
use domain::envelope::{Earlier, read_v1};
use domain::id::{AssignmentId, PayloadDigest};
use domain::lifecycle::Row;
use jiff::SignedDuration;
use runner_proto::runner::v1 as proto;
use tokio_util::sync::CancellationToken;

use self::judgement::{Known, Rest, Status, known, status, underived, unread};
use crate::board::{Board, Recovery};
use crate::gitea::{Gitea, GiteaError, Lane, Trouble, Turn as LaneTurn};
use crate::ops::Ops;
use crate::ops::liveness::Turn;
use crate::queue::jetstream::{EarlierSubject, JetStream, Left};
use crate::queue::ledger::Ledger;
use crate::queue::{Message, Queue, QueueError};
use crate::sealing::Sealing;
use crate::telemetry::events::{MigrationEvent, migration};
use crate::wire::{proto_row, wire_number};

pub use self::progress::Progress;

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_secs(10);

/// After something did not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// Until it is known what a former process of ours held.
const RECOVERED: Duration = Duration::from_millis(200);

/// A message that takes longer than this is stuck (NEW-131): some calls to Gitea, and some to the queue.
const STUCK: Duration = Duration::from_secs(180);

/// The index of a row that no log has.
const BEHIND_ANY_END: i64 = i64::MAX >> 8;

/// What the room needs.
pub struct Migration {
    /// Where the messages lie.
    pub subject: EarlierSubject,
    /// The registration, which must be that of the earlier controller.
    pub gitea: Arc<Gitea>,
    /// Where tasks become lives.
    pub board: Arc<Board>,
    /// Where they wait.
    pub queue: Arc<dyn Queue>,
    /// What ended here.
    pub ledger: Arc<dyn Ledger>,
    /// Seals them.
    pub sealing: Arc<Sealing>,
    /// What becomes of a task.
    pub rules: Arc<Rules>,
    /// After this long without a word Gitea has ended a task. A query is such a word.
    pub silence: SignedDuration,
    /// What is told of it.
    pub progress: Arc<Progress>,
    /// Liveness.
    pub ops: Ops,
}

/// What became of a message.
enum Fate {
    TakenIn,
    Removed(&'static str),
    Rests(Rest),
}

impl Migration {
    /// Runs until `stop`. Whatever it is at then is done again by the next process.
    pub async fn run(self, stop: CancellationToken) {
        let turn = self.ops.liveness.watch("migration", STUCK);
        tokio::select! {
            () = self.turns(&turn) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn turns(&self, turn: &Turn) {
        migration(MigrationEvent::Begun, &self.subject.subject(), None, None, "ENVELOPE_ACCEPT_V1 is on");
        loop {
            turn.turned();
            tokio::time::sleep(self.turn_once(turn).await).await;
        }
    }

    /// Returns the pause until the next one.
    async fn turn_once(&self, turn: &Turn) -> Duration {
        if self.progress.is_over() {
            return LOOK;
        }
        // What a former process has taken in is known by its message.
        if self.board.recovery() < Recovery::Complete || !self.board.may_decide() {
            return RECOVERED;
        }
        match self.pass(turn).await {
            Ok(()) => LOOK,
            Err(trouble) => {
                self.progress.stands_still(trouble);
                AGAIN
            }
        }
    }

    /// Judges every message that does not rest.
    ///
    /// # Errors
    /// What did not answer, in words. What was not judged is judged by the next pass.
    async fn pass(&self, turn: &Turn) -> Result<(), String> {
        if let Some(consumer) = self.subject.taker().await.map_err(|error| error.to_string())? {
            let stream = self.subject.stream();
            return Err(format!(
                "somebody waits for messages at the consumer {consumer} of stream {stream}: stop the earlier controller"
            ));
        }
        let (mut from, mut lying) = (1, Vec::new());
        while let Some(left) = self.subject.next(from).await.map_err(|error| error.to_string())? {
            turn.turned();
            from = left.place.saturating_add(1);
            if self.progress.rests(left.place, self.board.now()) || !self.settle(&left).await? {
                lying.push(left.place);
            }
        }
        self.progress.looked(&lying);
        Ok(())
    }

    /// Judges one message and carries that out. True: it is gone.
    async fn settle(&self, left: &Left) -> Result<bool, String> {
        let (id, fate) = match read_v1(&left.body) {
            _ if !left.in_time => (None, Fate::Rests(Rest::Late)),
            Err(error) => (None, Fate::Rests(unread(&error))),
            Ok(earlier) => (Some(earlier.id), self.judge(left, earlier).await?),
        };
        let (event, cause) = match fate {
            Fate::Rests(rest) => {
                let until = self.board.now().saturating_add(rest.asked_again_after(self.silence));
                self.progress.rests_from_now(left.place, id, rest, until.unwrap_or(jiff::Timestamp::MAX));
                return Ok(false);
            }
            Fate::TakenIn => (MigrationEvent::TakenIn, "Gitea says that it runs"),
            Fate::Removed(cause) => (MigrationEvent::Removed, cause),
        };
        self.subject.remove(left.place).await.map_err(|error| error.to_string())?;
        migration(event, &self.subject.subject(), Some(left.place), id, cause);
        self.progress.gone(event == MigrationEvent::TakenIn);
        Ok(true)
    }

    async fn judge(&self, left: &Left, earlier: Earlier) -> Result<Fate, String> {
        let id = earlier.id;
        if earlier.backend != self.subject.backend() {
            return Ok(Fate::Rests(Rest::Contradiction));
        }
        let digest = PayloadDigest::of(&earlier.task);
        let ended = self.ledger.is_ended(id, &digest).await.map_err(|error| error.to_string())?;
        match known(self.board.view(id).map(|view| view.message), &digest, ended) {
            Known::No => {}
            Known::Here(how) => return Ok(Fate::Removed(how)),
            Known::Otherwise => return Ok(Fate::Rests(Rest::Contested)),
        }
        let lane = Lane::new(Arc::clone(&self.gitea), id.task());
        if let Some(fate) = self.prove(&lane).await? {
            return Ok(fate);
        }
        let assignment = match earlier.assignment(&self.rules, left.stored_at) {
            Ok(assignment) => assignment,
            Err(_) => {
                let refusal = Assignment::from_task(&earlier.task, &self.rules, left.stored_at).err();
                return Ok(Fate::Rests(underived(refusal)));
            }
        };
        if let Some(rows) = begun(&lane).await? {
            return Ok(Fate::Rests(Rest::Begun { rows }));
        }
        self.take_in(assignment, &earlier.task, lane).await
    }

    /// What Gitea's word makes of it; none: it is a task of ours that has not ended.
    async fn prove(&self, lane: &Lane) -> Result<Option<Fate>, String> {
        let turn = lane.turn().await;
        let answer = turn.update_task(proto::UpdateTaskRequest::default()).await;
        Ok(match status(answer, turn.waits_for_cancelled()).map_err(|error| error.to_string())? {
            Status::Open => None,
            Status::Over(how) => Some(Fate::Removed(how)),
            Status::Cancelled => {
                self.close_log(&turn).await.map_err(|error| error.to_string())?;
                Some(Fate::Removed(judgement::CANCELLED))
            }
            Status::OfAnotherRunner => Some(Fate::Rests(Rest::OfAnotherRunner)),
        })
    }

    /// No sweep of Gitea closes the log of a task that was cancelled before anybody ran it (NEW-166). One that is closed stays
    /// as it is. Nothing is sent but a row with `no_more` (NEW-163): far behind the end it is not taken, and the answer tells
    /// where the end is.
    async fn close_log(&self, turn: &LaneTurn<'_>) -> Result<(), GiteaError> {
        let mut index = BEHIND_ANY_END;
        loop {
            let last = Row { time: self.board.now(), content: String::new() };
            let rows = vec![proto_row(&last)];
            let request = proto::UpdateLogRequest { index, rows, no_more: true, ..Default::default() };
            match turn.update_log(request).await {
                Ok(held) if index == BEHIND_ANY_END => index = wire_number(held),
                Ok(_closed) => return Ok(()),
                Err(error) if error.trouble == Trouble::LogArchived => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores it as a message of ours, and holds it like one that a former process left.
    async fn take_in(&self, assignment: Assignment, task: &[u8], lane: Lane) -> Result<Fate, String> {
        let id = assignment.id;
        let body = self.sealing.seal(&assignment, task).map_err(|error| error.to_string())?;
        let largest = self.queue.largest_message();
        if body.len() > largest {
            let cause = format!("sealed it has {} bytes, and the queue takes {largest}", body.len());
            return Ok(Fate::Rests(Rest::Unfit { cause }));
        }
        let message = Message { id, digest: assignment.digest.clone(), backend: assignment.backend, body };
        match self.queue.publish(message).await {
            // The same payload already: stored by a call of ours whose answer was lost.
            Ok(_new_or_the_same) => {}
            Err(QueueError::Conflict { .. }) => return Ok(Fate::Rests(Rest::Contested)),
            Err(QueueError::Ended { .. }) => return Ok(Fate::Removed(judgement::ENDED_HERE)),
            Err(error) => return Err(error.to_string()),
        }
        self.board.hold_waiting(&assignment, lane, 0, None);
        Ok(Fate::TakenIn)
    }
}

/// How many rows the task's log has, if any: whoever runs the job writes some at once, and the earlier controller wrote none
/// for a task that waited.
async fn begun(lane: &Lane) -> Result<Option<u64>, String> {
    let rows = lane.turn().await.update_log(proto::UpdateLogRequest::default()).await;
    rows.map(|rows| (rows > 0).then_some(rows)).map_err(|error| error.to_string())
}

/// With the mode off nothing is taken. Says what lies there, since its tasks are silent.
pub async fn tell_what_is_left(queue: &JetStream, backend: domain::id::Backend) -> Result<(), QueueError> {
    let subject = queue.earlier(backend).await?;
    if let Some(left) = subject.next(1).await? {
        let id: Option<AssignmentId> = read_v1(&left.body).ok().map(|earlier| earlier.id);
        migration(MigrationEvent::Left, &subject.subject(), Some(left.place), id, progress::MODE_IS_OFF);
    }
    Ok(())
}
