//! Takes what waits in the queue and makes executors of it, a message for a slot in hand (NEW-34).
//!
//! A pass looks at everything and takes no input: it settles messages, brings the payloads of executors that a new
//! process found, and launches while there are slots. What can happen to a launch: the status query fails (retried),
//! the create fails (retried with back-off, or ended with its reason), hangs (90 s), or is carried out without an answer,
//! perhaps only after everybody has given it up ([`late`]; whatever exists is removed by `reap` before the next epoch is
//! made). At most once holds because only the facade's claim starts a job, never a create.

mod host;
mod late;
mod making;
mod rebuild;
mod taking;
mod unserved;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::envelope::Opened;
use domain::id::{AssignmentId, Backend as Kind, InstanceId, PayloadDigest};
use domain::lifecycle::{Event, MessageWant, Settlement};
use domain::policy::Shares;
use futures::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::board::{Board, Recovery, View};
use crate::gitea::{Gitea, Lane};
use crate::grants::Grants;
use crate::ops::Ops;
use crate::queue::unopened::{Tried, Unopened};
use crate::queue::{Disposition, Key, Queue, QueueError};
use crate::rotation::Ring;
use crate::sealing::{Sealing, Unopenable};
use crate::telemetry::events::{Subject, assignment_processing_error, backend_lifecycle_error};

pub use host::Host;

/// A pass that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(120);
/// The first pause before the queue is read for what a former leader wrote after we had read it, and the longest, which
/// Gitea's zombie limit bears: a reading costs as much as there is.
const LATE: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(240)];
/// Messages that are settled at a time.
const AT_ONCE: usize = 16;

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
    /// This host, where others share the queue.
    pub host: Option<Host>,
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

/// What a pass leaves for the next one.
#[derive(Default)]
struct Passes {
    /// The last try to open everything that waits; none before the queue was read for the first time.
    tried: Option<Tried>,
    /// Pulled, and neither launched nor settled: nobody gets these before they are given back.
    in_hand: Vec<Key>,
    /// When the queue was read last, and how long it is left alone.
    read: Option<(Instant, Duration)>,
}

impl Launch {
    /// Runs until `stop`; messages that were not started are given back (CON-4).
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut passes, mut changes) = (Passes::default(), self.board.changes());
        let turn = self.ops.liveness.watch("launch", STUCK);
        while !stop.is_cancelled() {
            turn.turned();
            if self.board.may_decide() && self.board.recovery() >= Recovery::ExecutorsKnown {
                match self.pass(&mut passes).await {
                    Ok(()) => self.ops.readiness.set(|conditions| conditions.queue_trouble = self.queue.trouble()),
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
        self.settle_last().await;
    }

    /// Calls under way may bring ends. What has ended leaves the queue with this process: the next one would take it for a
    /// task that waits, and ask again for its result (NEW-163).
    async fn settle_last(&self) {
        let (mut changes, calls) = (self.board.changes(), self.tracker.wait());
        tokio::pin!(calls);
        let mut over = false;
        loop {
            if self.board.may_decide()
                && let Err(error) = self.settle_all().await
            {
                backend_lifecycle_error(self.kind, &error);
            }
            if over {
                return;
            }
            over = tokio::select! {
                () = &mut calls => true,
                () = changes.next() => false,
            };
        }
    }

    async fn pass(self: &Arc<Self>, passes: &mut Passes) -> Result<(), QueueError> {
        self.give_back(&mut passes.in_hand).await?;
        // Before anything is read: what is sealed with a key that comes meanwhile is tried in another pass.
        let tries = Tried::now(self.board.now(), &self.sealing.keys());
        match &passes.tried {
            None => {
                self.rebuild().await?;
                self.refuse_unserved().await?;
                passes.tried = Some(tries);
                passes.read = Some((Instant::now(), LATE[0]));
                self.board.recovered(Recovery::Complete);
            }
            Some(tried) if self.unopened.is_waiting() && tried.is_past(&tries) => {
                self.open_again().await?;
                passes.tried = Some(tries);
            }
            Some(_) => {}
        }
        self.settle_all().await?;
        self.give_up_late();
        if let Some((_, pause)) = passes.read.filter(|(read, pause)| read.elapsed() >= *pause) {
            self.find_late().await?;
            passes.read = Some((Instant::now(), LATE[1].min(pause * 2)));
        }
        self.unopened.pass(&*self.queue, self.board.now(), self.board.limits().queue_wait).await?;
        if self.free_slots() == 0 && self.board.wants_launch(&BTreeMap::new()) {
            self.ops.metrics.admission_blocked("no_slot");
        }
        let taken = self.take_while_room(&mut passes.in_hand).await;
        // Only now: given back before, they would be pulled again at once. Whatever ended the loop, they are given back.
        let given_back = self.give_back(&mut passes.in_hand).await;
        taken.and(given_back)
    }

    /// Who is over a limit is told so, and keeps its place in the queue while others go before it (NEW-18).
    fn somebody_may_start(&self) -> bool {
        let over = self.board.over(&self.shares);
        for (id, what) in &over {
            let Some(view) = self.board.view(*id).filter(|view| view.wants.launch) else { continue };
            if view.life.waiting_for() != *what {
                self.board.apply(*id, Event::WaitsFor { what: what.clone() });
                self.ops.metrics.admission_blocked("share");
            }
        }
        self.board.wants_launch(&over)
    }

    /// The board holds another life of this number than the one with this payload.
    fn is_older_life(&self, id: AssignmentId, digest: &PayloadDigest) -> bool {
        self.board.card(id).is_some_and(|card| card.digest != *digest)
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

    /// Each is several calls to the queue, and tasks that wait for a slot wait for all of them. What cannot be settled holds up
    /// nothing else: a queue that has no room for a record must be able to empty itself.
    async fn settle_all(&self) -> Result<(), QueueError> {
        let wanted = self.board.views_that(|wants| wants.message.is_some()).into_iter();
        let wanted = wanted.filter_map(|view| Some((view.wants.message.clone()?, view)));
        let settling = stream::iter(wanted).map(|(want, view)| async move { self.settle(&view, want).await });
        let settled: Vec<_> = settling.buffer_unordered(AT_ONCE).collect().await;
        settled.into_iter().collect()
    }

    async fn settle(&self, view: &View, want: MessageWant) -> Result<(), QueueError> {
        let (disposition, how) = match want {
            MessageWant::Remove => (Disposition::Ack, Settlement::Removed),
            MessageWant::GiveBack { at, error } => (Disposition::Retry { at, error }, Settlement::GivenBack),
        };
        if let Some(message) = view.message.clone() {
            self.queue.settle(message, disposition).await?;
        }
        self.board.apply(view.id, Event::Settled { epoch: view.life.epoch(), how });
        Ok(())
    }
}
