//! Takes what waits in the queue and makes executors of it, a message for a slot in hand (NEW-34).
//!
//! A pass looks at everything and takes no input: it settles messages, brings the payloads of executors that a new
//! process found, and launches while there are slots. What can happen to a launch: the status query fails (retried),
//! the create fails (retried with back-off, or ended with its reason), hangs (90 s), or is carried out without an answer
//! (whatever exists is removed by `reap` before the next epoch is made). At most once holds because only the facade's
//! claim starts a job, never a create.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::assignment::Assignment;
use domain::envelope::Opened;
use domain::id::{AssignmentId, Backend as Kind, Epoch, InstanceId, PayloadDigest};
use domain::lifecycle::{Event, Life, MessageWant, Phase};
use domain::metadata::ExecutorRecord;
use domain::policy::Shares;
use jiff::Timestamp;
use runner_proto::runner::v1 as proto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use crate::backend::{Backend, BackendError, Ensured, Launch as Order};
use crate::backoff::backoff;
use crate::board::{Board, Card, Recovery};
use crate::correspondence::Correspondence;
use crate::gitea::{Gitea, GiteaError, Lane};
use crate::grants::{Grants, NotGranted};
use crate::ops::Ops;
use crate::queue::unopened::{RETRY, Unopened};
use crate::queue::{Delivery, Disposition, Queue, QueueError, Waiting};
use crate::rotation::Ring;
use crate::sealing::{Sealing, Unopenable};
use crate::telemetry::events::{Subject, assignment_processing_error, backend_lifecycle_error};
use crate::wire::outcome_of;

/// A create that takes longer counts as failed with unknown outcome.
const CREATE_DEADLINE: Duration = Duration::from_secs(90);
/// A pass that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(120);
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// What the room needs.
pub struct Launch {
    /// The registration, for the lanes of tasks found in the queue.
    pub gitea: Arc<Gitea>,
    /// Lives.
    pub board: Arc<Board>,
    /// What waits.
    pub queue: Arc<dyn Queue>,
    /// Opens envelopes.
    pub sealing: Arc<Sealing>,
    /// Gives identities to executors.
    pub grants: Grants,
    /// What does not open.
    pub unopened: Arc<Unopened>,
    /// Where executors are made.
    pub backend: Arc<dyn Backend>,
    /// Its kind.
    pub kind: Kind,
    /// Its slots.
    pub capacity: usize,
    /// Of one owner and of one repository.
    pub shares: Shares,
    /// Our name.
    pub instance: InstanceId,
    /// Capability keys.
    pub ring: Arc<Ring>,
    /// Readiness and metrics.
    pub ops: Ops,
    /// Launches under way.
    pub tracker: TaskTracker,
}

impl Launch {
    /// Runs until `stop`; messages that were not started are given back (CON-4).
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut rebuilt, mut changes) = (false, self.board.changes());
        let turn = self.ops.liveness.watch("launch", STUCK);
        while !stop.is_cancelled() {
            turn.turned();
            if self.board.recovery() >= Recovery::ExecutorsKnown {
                match self.pass(&mut rebuilt).await {
                    Ok(()) => self.ops.readiness.set(|conditions| conditions.queue_trouble = None),
                    Err(error) => {
                        self.ops.readiness.set(|conditions| conditions.queue_trouble = Some(error.to_string()));
                        backend_lifecycle_error(self.kind, &error);
                    }
                }
            }
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn pass(self: &Arc<Self>, rebuilt: &mut bool) -> Result<(), QueueError> {
        if !*rebuilt {
            self.rebuild().await?;
            *rebuilt = true;
            self.board.recovered(Recovery::Complete);
        }
        for view in self.board.views() {
            if let Some(want) = view.wants.message {
                self.settle(view.id, want).await?;
            }
        }
        self.unopened.pass(&*self.queue, self.board.now(), self.board.limits().queue_wait).await?;
        if self.free_slots() == 0 && self.board.views().iter().any(|view| view.wants.launch) {
            self.ops.metrics.admission_blocked("no_slot");
        }
        let mut unwanted = Vec::new();
        while self.free_slots() > 0 && self.somebody_may_start() {
            let Some(delivery) = self.queue.pull(self.kind, self.board.now()).await? else { break };
            let id = delivery.id;
            if !self.take(delivery).await? {
                unwanted.push(id);
            }
        }
        // Only now: given back in the loop they would be pulled again at once.
        for id in unwanted {
            self.queue.settle(id, Disposition::Release).await?;
        }
        Ok(())
    }

    /// Who is over a limit is told so, and keeps its place in the queue while others go before it (NEW-18).
    fn somebody_may_start(&self) -> bool {
        let over = self.board.over(&self.shares);
        let (held_back, free): (Vec<_>, Vec<_>) = (self.board.views().into_iter())
            .filter(|view| view.wants.launch)
            .partition(|view| over.contains_key(&view.id));
        for view in held_back {
            let what = over.get(&view.id).cloned().unwrap_or_default();
            if view.life.waiting_for() != what {
                self.board.apply(view.id, Event::WaitsFor { what });
                self.ops.metrics.admission_blocked("share");
            }
        }
        !free.is_empty()
    }

    /// What a former process held is known by reading the queue, without delivering it (NEW-157).
    async fn rebuild(&self) -> Result<(), QueueError> {
        let mut waiting = BTreeMap::new();
        for row in self.queue.list(self.kind).await? {
            if self.is_older_life(row.id, &row.digest) {
                // The queue has the newest of each number; the executor that was found is an older life's (NEW-3).
                match self.open(row.id, &row.body) {
                    Ok(Opened { assignment, .. }) => {
                        let life = self.waiting_life(&assignment, row.attempts, row.last_error);
                        self.board.supersede(row.id, Some(Card::of_assignment(&assignment)), self.lane(row.id), life);
                    }
                    Err(closed) => self.unopened.found(&row, closed.class),
                }
            } else {
                waiting.insert(row.id, row);
            }
        }
        for view in self.board.views().into_iter().filter(|view| view.wants.payload) {
            let Some(row) = waiting.remove(&view.id) else {
                self.board.apply(view.id, Event::MessageMissing);
                continue;
            };
            if let Ok(Opened { assignment, task }) = self.open(row.id, &row.body) {
                self.lay_out(&assignment, view.life.epoch(), &task);
            }
        }
        for row in waiting.into_values() {
            match self.open(row.id, &row.body) {
                Ok(opened) => self.make_known(&opened.assignment, row.attempts, row.last_error),
                Err(closed) if closed.proven => self.make_known_unopened(&row, &closed),
                Err(closed) => self.unopened.found(&row, closed.class),
            }
        }
        Ok(())
    }

    /// Its number is proven, so it is held like every other task: heard of as cancelled, or ended after the longest wait.
    fn make_known_unopened(&self, row: &Waiting, closed: &Unopenable) {
        let limits = self.board.limits();
        let wait = limits.queue_wait.saturating_add(limits.least_budget);
        let life =
            Life::fetched(row.enqueued_at, row.enqueued_at.saturating_add(wait).unwrap_or(Timestamp::MAX), vec![]);
        let life = life.found_waiting(self.board.now(), row.attempts, Some(closed.to_string()));
        self.board.insert(row.id, None, self.lane(row.id), life);
        self.board.apply(row.id, Event::WaitsFor { what: closed.to_string() });
    }

    /// A message in the queue is held, whoever put it there: by a former process, or by the fetch room a moment ago.
    fn make_known(&self, assignment: &Assignment, attempts: u32, last_error: Option<String>) {
        let life = self.waiting_life(assignment, attempts, last_error);
        let lane = self.lane(assignment.id);
        if !self.board.insert(assignment.id, Some(Card::of_assignment(assignment)), lane, life) {
            self.board.apply(assignment.id, Event::Persisted);
        }
    }

    fn waiting_life(&self, assignment: &Assignment, attempts: u32, last_error: Option<String>) -> Life {
        Life::fetched(assignment.fetched_at, assignment.deadline, assignment.steps.clone()).found_waiting(
            self.board.now(),
            attempts,
            last_error,
        )
    }

    /// The board holds another life of this number than the one with this payload.
    fn is_older_life(&self, id: AssignmentId, digest: &PayloadDigest) -> bool {
        self.board.card(id).is_some_and(|card| card.digest != *digest)
    }

    /// An executor that was found again gets its payload back on the board.
    fn lay_out(&self, assignment: &Assignment, epoch: Epoch, task: &[u8]) {
        match assignment.served_task(task) {
            Ok(served) => {
                self.board.offer(assignment.id, epoch, Arc::new(served));
                self.board.apply(assignment.id, Event::PayloadFound);
            }
            Err(refusal) => assignment_processing_error(&self.subject(assignment.id), &refusal),
        }
    }

    /// An envelope that does not open is neither lost nor run (ENV-7).
    fn open(&self, id: AssignmentId, body: &[u8]) -> Result<Opened, Unopenable> {
        let opened = self.sealing.open(self.kind, id, body);
        match &opened {
            Ok(_) => self.unopened.opened(id),
            Err(closed) => {
                self.unopened.failed(closed.class);
                assignment_processing_error(&self.subject(id), closed);
            }
        }
        opened
    }

    fn lane(&self, id: AssignmentId) -> Lane {
        Lane::new(Arc::clone(&self.gitea), id.task())
    }

    fn subject(&self, id: AssignmentId) -> Subject {
        Subject { backend: Some(self.kind), assignment: id, epoch: self.board.epoch(id) }
    }

    fn free_slots(&self) -> usize {
        self.capacity.saturating_sub(self.board.occupancy().executors)
    }

    async fn settle(&self, id: AssignmentId, want: MessageWant) -> Result<(), QueueError> {
        let disposition = match want {
            MessageWant::Remove => Disposition::Ack,
            MessageWant::GiveBack { at, error } => Disposition::Retry { at, error },
        };
        self.queue.settle(id, disposition).await?;
        self.board.apply(id, Event::Settled);
        Ok(())
    }

    /// Launches the delivery; false: its life does not want that now, since its executor exists or its end is under way.
    async fn take(self: &Arc<Self>, delivery: Delivery) -> Result<bool, QueueError> {
        let Opened { assignment, task } = match self.open(delivery.id, &delivery.body) {
            Ok(opened) => opened,
            Err(closed) => {
                let at = self.board.now().saturating_add(RETRY).unwrap_or_else(|_| self.board.now());
                self.board.apply(delivery.id, Event::WaitsFor { what: closed.to_string() });
                self.queue.settle(delivery.id, Disposition::Retry { at, error: closed.to_string() }).await?;
                return Ok(true);
            }
        };
        if self.is_older_life(delivery.id, &delivery.digest) {
            return Ok(false);
        }
        self.make_known(&assignment, delivery.attempts, None);
        let over = self.board.over(&self.shares).contains_key(&delivery.id);
        let Some(view) = self.board.view(delivery.id).filter(|view| view.wants.launch && !over) else {
            return Ok(false);
        };
        let epoch = view.life.next_epoch();
        self.board.apply(delivery.id, Event::LaunchBegun { epoch });
        let this = Arc::clone(self);
        self.tracker.spawn(async move { this.launch(assignment, task, epoch, delivery.attempts).await });
        Ok(true)
    }

    async fn launch(&self, assignment: Assignment, task: Zeroizing<Vec<u8>>, epoch: Epoch, attempts: u32) {
        let id = assignment.id;
        let failed = |permanent, cause: String, remedy: String, pause: Duration| {
            let retry_at = self.board.now().saturating_add(pause).unwrap_or_else(|_| self.board.now());
            self.board.apply(id, Event::LaunchFailed { epoch, permanent, cause, remedy, retry_at });
        };
        let pause = backoff(FIRST_RETRY, LONGEST_RETRY).after(attempts).pause();
        match self.still_wanted(id, epoch).await {
            Ok(true) => {}
            Ok(false) => return failed(None, "Gitea no longer wants it".to_owned(), String::new(), pause),
            Err(error) => return failed(None, error.to_string(), String::new(), pause),
        }
        match self.grants.grant(&assignment, &task, epoch, self.board.now()).await {
            Ok(()) => {}
            Err(NotGranted::Refused(refusal)) => {
                return failed(Some(refusal.reason), refusal.cause, refusal.remedy, pause);
            }
            Err(NotGranted::Later(error)) => return failed(None, error.to_string(), String::new(), pause),
        }
        match assignment.served_task(&task) {
            Ok(served) => self.board.offer(id, epoch, Arc::new(served)),
            Err(refusal) => return failed(Some(refusal.reason), refusal.cause, refusal.remedy, pause),
        }
        drop(task);
        match self.create(&assignment, epoch).await {
            Ok(()) => {}
            Err(BackendError::Permanent { reason, cause, remedy }) => failed(Some(reason), cause, remedy, pause),
            // Another life of this number is in the way; `reap` removes it, and the next epoch has another name.
            Err(error @ BackendError::Conflict { .. }) => failed(None, error.to_string(), String::new(), pause),
            Err(BackendError::Transient { cause, retry_after }) => {
                let pause = retry_after.map_or(pause, |least| least.max(pause));
                failed(None, cause, String::new(), pause);
            }
        }
    }

    /// Asks Gitea once more before anything is created (NEW-23).
    async fn still_wanted(&self, id: AssignmentId, epoch: Epoch) -> Result<bool, GiteaError> {
        let Some(lane) = self.board.lane(id) else { return Ok(false) };
        let turn = lane.turn().await;
        // Whoever had the turn before may have heard of its end: then nothing more is asked (NEW-163).
        let creating = |life: &Life| life.epoch() == epoch && *life.phase() == Phase::Creating;
        if !self.board.view(id).is_some_and(|view| creating(&view.life)) {
            return Ok(false);
        }
        let answer = Correspondence::new(&self.board, id, &turn).state(proto::UpdateTaskRequest::default()).await?;
        Ok(answer.is_some_and(|answer| outcome_of(&answer.state).is_none()))
    }

    async fn create(&self, assignment: &Assignment, epoch: Epoch) -> Result<(), BackendError> {
        let id = assignment.id;
        loop {
            let Some(view) = self.board.view(id) else { return Ok(()) };
            if view.life.epoch() != epoch || !matches!(view.life.phase(), Phase::Creating | Phase::Bound) {
                return Ok(());
            }
            let order = self.order(assignment, epoch, view.life.steps_text());
            let ensured =
                tokio::time::timeout(CREATE_DEADLINE, self.backend.ensure(order)).await.unwrap_or_else(|_| {
                    let cause = format!("the backend gave no answer within {} s", CREATE_DEADLINE.as_secs());
                    Err(BackendError::Transient { cause, retry_after: None })
                })?;
            match ensured {
                Ensured::Ready => {
                    self.board.apply(id, Event::ExecutorReady { epoch });
                    return Ok(());
                }
                Ensured::NotYet => {
                    self.board.apply(id, Event::ExecutorPending { epoch });
                    tokio::time::sleep(FIRST_RETRY).await;
                }
            }
        }
    }

    fn order(&self, assignment: &Assignment, epoch: Epoch, steps: String) -> Order {
        let record = ExecutorRecord {
            id: assignment.id,
            instance: self.instance.clone(),
            backend: assignment.backend,
            epoch,
            digest: assignment.digest.clone(),
            repository: assignment.repository.clone(),
            job_key: assignment.job_key.clone(),
            spiffe_id: assignment.spiffe_id.clone(),
            fetched_at: assignment.fetched_at,
            deadline: assignment.deadline,
            claim: None,
            interrupted_at: None,
            steps: Some(steps),
            terminal: false,
        };
        let capability = self.ring.now().issue(&self.instance, assignment.id, epoch, assignment.deadline);
        Order { record, labels: assignment.runs_on.clone(), capability }
    }
}
