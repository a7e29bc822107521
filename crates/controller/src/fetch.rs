//! Asks Gitea for work: one loop per registration, a permit before every FetchTask, the very bytes into the queue before
//! the next one (requirements B).
//!
//! What can happen to a FetchTask: it *fails* before Gitea committed (nothing is lost), *hangs* (65 s, then as the
//! next), or was *committed without an answer* (Gitea has no redelivery: the job ends by Gitea's zombie rule; the
//! window is kept small and never entered on purpose: the call is not cancelled by us, SIGTERM or not).

mod admission;
mod pace;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::assignment::{Assignment, Rules, step_count, task_id};
use domain::id::AssignmentId;
use domain::lifecycle::{Event, Life, Phase};
use domain::reason::{Reason, Refusal};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use crate::backoff;
use crate::board::{Board, Card, Changes, Room, View};
use crate::clock;
use crate::gitea::{Declared, Gitea, GiteaError, Lane, Trouble};
use crate::grants;
use crate::ops::Ops;
use crate::queue::{Disposition, Key, Message, Published, Queue, QueueError};
use crate::sealing::Sealing;
use crate::telemetry::events::{AssignmentEvent, Detail, Subject, assignment_transition, scheduler_error};
use admission::came_before;
use pace::Pace;

/// What an operator does when Gitea no longer knows us.
const UNREGISTERED: &str = "; the entry of this runner in Gitea is gone or its token was changed: stop this program and register \
                            it again: in one-host mode delete registration.json in its state folder and start it with \
                            --registration-token-file, else give it new files GITEA_RUNNER_UUID_FILE and \
                            GITEA_RUNNER_TOKEN_FILE";

/// A round that takes longer than this is stuck (NEW-131): a FetchTask and a back-off, with room to spare.
const STUCK: Duration = Duration::from_secs(180);

/// For the last try of a publish at the end of the process.
const LAST_PUBLISH: Duration = Duration::from_secs(10);

/// What the loop needs.
pub struct Fetch {
    /// The registration.
    pub gitea: Arc<Gitea>,
    /// Where tasks become lives.
    pub board: Arc<Board>,
    /// Where they wait.
    pub queue: Arc<dyn Queue>,
    /// Closes and opens envelopes.
    pub sealing: Arc<Sealing>,
    /// What becomes of a task.
    pub rules: Arc<Rules>,
    /// Labels to declare, in order.
    pub labels: Vec<String>,
    /// How much may be held.
    pub room: Room,
    /// Gitea's capability header, for the facade's Declare (NEW-25).
    pub capabilities: Arc<std::sync::OnceLock<Option<String>>>,
    /// Readiness and metrics.
    pub ops: Ops,
    /// Publishes that are repeated in the background, and nothing else: the loop ends after them.
    pub tracker: TaskTracker,
    /// Tasks that the queue does not take now; while there are any nothing is fetched.
    pub unwritten: AtomicUsize,
}

impl Fetch {
    /// Runs until `stop`; the FetchTask in flight is awaited, and what it brings is persisted (NEW-10), as is what an earlier
    /// one brought and the queue did not take, if it takes it now.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut pace = Pace::new(backoff::seed());
        let (mut declared, mut changes) = (false, self.board.changes());
        let turn = self.ops.liveness.watch("scheduler", STUCK);
        while !stop.is_cancelled() {
            turn.turned();
            if !declared {
                declared = self.declare(&mut pace, &stop).await;
                continue;
            }
            if self.permits() == 0 {
                // Not asking is what should happen now: that is no failing fetch.
                self.ops.readiness.fetch_good(self.board.now());
                pace.room_may_grow();
                pause(Duration::from_secs(1), &mut changes, &stop).await;
                continue;
            }
            let asked = Instant::now();
            match self.gitea.fetch_task(pace.version(self.board.now())).await {
                Ok(fetched) => {
                    self.ops.readiness.fetch_good(self.board.now());
                    self.ops.metrics.fetched(asked.elapsed(), self.board.now(), u64::from(fetched.task.is_some()));
                    if let Some(task) = fetched.task {
                        pace.task_came();
                        self.accept(task, &stop).await;
                    } else {
                        let idle = pace.nothing_came(fetched.tasks_version);
                        let room = self.permits();
                        self.pause_until_room_grows(room, idle, &mut pace, &mut changes, &stop).await;
                    }
                }
                Err(error) => {
                    self.failed("fetch Gitea task", &error);
                    declared = error.trouble != Trouble::Unregistered;
                    back_off(pace.failed(error.trouble), &stop).await;
                }
            }
        }
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// The right to fetch. None while a task is in our memory only: the next one would be there as well, and a crash would
    /// lose both (NEW-15); none while the queue would not take it (NEW-40); and none while another process may lead.
    fn permits(&self) -> usize {
        if !self.board.may_decide() || self.unwritten.load(Ordering::SeqCst) > 0 || self.queue.trouble().is_some() {
            return 0;
        }
        self.board.permits(&self.room)
    }

    async fn declare(&self, pace: &mut Pace, stop: &CancellationToken) -> bool {
        match self.gitea.declare(self.labels.clone()).await {
            Ok(Declared { capabilities, skew }) => {
                let _already_known = self.capabilities.set(capabilities);
                if let Some(skew) = skew.filter(|skew| skew.abs() > clock::TOLERATED_SKEW) {
                    clock_differs(skew);
                }
                pace.declared();
                true
            }
            Err(error) => {
                self.failed("declare scheduler labels", &error);
                back_off(pace.failed(error.trouble), stop).await;
                false
            }
        }
    }

    fn failed(&self, what: &str, error: &GiteaError) {
        self.ops.readiness.fetch_failed(error.code, self.board.now());
        self.ops.metrics.fetch_failed(error.code);
        let remedy = match error.trouble {
            Trouble::Unregistered => UNREGISTERED,
            _ => "",
        };
        scheduler_error(&format!("{what}: {error}{remedy}"));
    }

    /// An empty answer stays true until room grows: then the version is 0 again (NEW-7).
    async fn pause_until_room_grows(
        &self,
        before: usize,
        idle: Duration,
        pace: &mut Pace,
        changes: &mut Changes,
        stop: &CancellationToken,
    ) {
        let until = Instant::now() + idle;
        while Instant::now() < until && !stop.is_cancelled() {
            pause(until.saturating_duration_since(Instant::now()), changes, stop).await;
            if self.permits() > before {
                pace.room_may_grow();
                return;
            }
        }
    }

    /// Makes a life of a task and persists it, or refuses it with a reason; never stops for one bad task.
    async fn accept(self: &Arc<Self>, task: Zeroizing<Vec<u8>>, stop: &CancellationToken) {
        let now = self.board.now();
        let assignment = match Assignment::from_task(&task, &self.rules, now) {
            Ok(assignment) => assignment,
            Err(refusal) => return self.refuse(&task, refusal).await,
        };
        let id = assignment.id;
        if self.board.card(id).is_some_and(|held| held.digest == assignment.digest) {
            scheduler_error(&format!("{id}: Gitea handed out a task that is held already; it goes on as it is"));
            return;
        }
        match self.admit(&assignment, &task) {
            Ok(sealed) => self.hold(assignment, sealed, stop).await,
            Err(refusal) => self.refuse(&task, refusal).await,
        }
    }

    async fn refuse(&self, task: &[u8], refusal: Refusal) {
        let Some(task_id) = task_id(task) else {
            scheduler_error(&format!("fetch Gitea task: a task without a usable id was dropped: {refusal}"));
            return;
        };
        let id = AssignmentId::of(task_id);
        grants::refused(task_id, task, &refusal);
        let detail = Detail::because(refusal.reason, &refusal.cause);
        assignment_transition(AssignmentEvent::Refused, &Subject::waiting(None, id), detail);
        self.put_on_board(id, None, Life::refused(self.board.now(), refusal, step_count(task))).await;
    }

    /// The same number again: Gitea was restored from a backup. The older life is over (NEW-3).
    async fn put_on_board(&self, id: AssignmentId, card: Option<Card>, life: Life) {
        let lane = || Lane::new(Arc::clone(&self.gitea), id.task());
        if self.board.insert(id, card.clone(), lane(), life.clone()) {
            return;
        }
        let older = self.board.message(id);
        let detail = Detail::because(Reason::Superseded, "the same task id came again with another payload");
        assignment_transition(AssignmentEvent::GaveUp, &Subject::waiting(None, id), detail);
        if let Some(message) = older {
            let _gone_or_said_by_the_publish =
                self.queue.settle(message, Disposition::Reject { reason: Reason::Superseded }).await;
        }
        self.board.supersede(id, card, lane(), life);
    }

    async fn hold(self: &Arc<Self>, assignment: Assignment, body: Vec<u8>, stop: &CancellationToken) {
        let id = assignment.id;
        let subject = Subject::waiting(Some(assignment.backend), id);
        assignment_transition(AssignmentEvent::Fetched, &subject, Detail::default());
        let life = Life::of_assignment(&assignment);
        self.put_on_board(id, Some(Card::of_assignment(&assignment)), life).await;
        let message = Message { id, digest: assignment.digest.clone(), backend: assignment.backend, body };
        if let Err(error) = self.publish(&message).await {
            // What is wrong with this one message is wrong with no other.
            let of_queue = !matches!(error, QueueError::Conflict { .. });
            let counted = usize::from(of_queue);
            self.unwritten.fetch_add(counted, Ordering::SeqCst);
            let (this, stop) = (Arc::clone(self), stop.clone());
            self.tracker.spawn(async move {
                this.publish_again(message, stop).await;
                // Written, or its job has ended; then the next task tries whether there is room.
                if this.unwritten.fetch_sub(counted, Ordering::SeqCst) == counted {
                    this.ops.readiness.set(|conditions| conditions.unwritten = None);
                }
            });
        }
    }

    async fn publish(&self, message: &Message) -> Result<(), QueueError> {
        match self.store(message).await {
            Ok(_new_or_the_same) => {
                self.board.apply(message.id, Event::Persisted);
                Ok(())
            }
            Err(QueueError::Ended { .. }) => {
                self.board.apply(message.id, Event::Refused(came_before()));
                Ok(())
            }
            Err(error) => {
                self.ops.readiness.set(|conditions| conditions.unwritten = Some(error.to_string()));
                scheduler_error(&format!("dispatch Gitea task {}: {error}", message.id.task()));
                self.board.apply(message.id, Event::WaitsFor { what: format!("room in the queue: {error}") });
                Err(error)
            }
        }
    }

    /// Of one number that task is genuine which Gitea handed out last (NEW-3): what else lies there gives way, or whoever may
    /// write to the queue could keep a task out of it (NEW-35). Not for a task that was replaced meanwhile, nor when another
    /// process may lead.
    async fn store(&self, message: &Message) -> Result<Published, QueueError> {
        let stored = self.queue.publish(message.clone()).await;
        let is_last = || self.board.card(message.id).is_some_and(|card| card.digest == message.digest);
        match stored {
            Err(QueueError::Conflict { id, stored: other, .. }) if self.board.may_decide() && is_last() => {
                scheduler_error(&format!(
                    "{id}: the queue has a message of another payload ({other}); it is taken out"
                ));
                let other = Key { id, digest: other };
                self.queue.settle(other, Disposition::Reject { reason: Reason::Superseded }).await?;
                self.queue.publish(message.clone()).await
            }
            stored => stored,
        }
    }

    /// The `publish` retry loop: the task stays under heartbeat meanwhile, and its life ends it at the wait limit
    /// (NEW-15). An end of the process ends the repeats with one more try, since the task is nowhere else. Whoever leads by
    /// then finds it in the queue, and we could not even tell Gitea of its end. Without success a process that still leads
    /// ends the task, which is told to Gitea (NEW-16).
    async fn publish_again(&self, message: Message, stop: CancellationToken) {
        let mut pauses = backoff::backoff(Duration::from_secs(1), Duration::from_secs(30));
        loop {
            back_off(pauses.pause(), &stop).await;
            let is_last = stop.is_cancelled();
            let ours = |view: &View| view.card.as_ref().is_some_and(|card| card.digest == message.digest);
            let view = self.board.view(message.id).filter(ours);
            let still_fetched = view.is_some_and(|view| *view.life.phase() == Phase::Fetched);
            if !still_fetched {
                return;
            }
            if is_last {
                // One that is cut off here is like one whose answer was lost.
                let _written_or_told = tokio::time::timeout(LAST_PUBLISH, self.publish(&message)).await;
                return;
            }
            if self.publish(&message).await.is_ok() {
                return;
            }
        }
    }
}

/// Deadlines do not depend on it (NEW-151), but times in a job's log and certificates of jobs do.
fn clock_differs(skew: SignedDuration) {
    let word = if skew.is_negative() { "behind" } else { "ahead of" };
    tracing::warn!(
        component = "scheduler",
        skew_seconds = skew.as_secs(),
        "Gitea's clock is {} s {word} this host's: let both follow a time server (NTP); times in logs will not fit together",
        skew.as_secs().abs()
    );
}

async fn pause(pause: Duration, changes: &mut Changes, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = changes.next() => {}
        () = stop.cancelled() => {}
    }
}

/// After an error a change on our side is no reason to ask earlier.
async fn back_off(pause: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = stop.cancelled() => {}
    }
}
