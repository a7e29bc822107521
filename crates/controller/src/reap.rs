//! Compares what exists with what we hold, and removes what must go. A pass takes no input: it lists, tells each life
//! what is seen of its executor, and carries out what the lives want. Restart recovery is its first pass (NEW-54).
//!
//! Only this room deletes executors. A failed list is no evidence of absence, and a list that was begun before an
//! executor was made proves nothing about it (NEW-62). One object's failure stops nothing for the others (NEW-74).

mod pace;
mod works;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::executor_api::ExecutorExit;
use domain::id::{AssignmentId, Backend as Kind, Epoch, InstanceId, assignment_of_name, executor_name};
use domain::lifecycle::{Event, Life, Wants};
use domain::metadata::{ExecutorRecord, Mark};
use domain::reason::Reason;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, BackendError, ExecutorState, Exit, Failure, Observed};
use crate::board::{BeingMade, Board, Card, Listed, Recovery, Strays};
use crate::facade::{Facade, Inherited};
use crate::gitea::{Gitea, Lane};
use crate::ops::Ops;
use crate::telemetry::events::{
    Detail, ExecutorEvent, Subject, assignment_processing_error, backend_lifecycle_error, executor_transition,
};

use pace::Pass;
use works::Work;

pub use works::Works;

const TICK: Duration = Duration::from_secs(2);
/// A pass that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(120);

/// What the room needs.
pub struct Reap {
    /// The registration, for the lanes of executors that are found.
    pub gitea: Arc<Gitea>,
    /// Lives.
    pub board: Arc<Board>,
    /// Where executors are.
    pub backend: Arc<dyn Backend>,
    /// Our name: what carries another is not ours (NEW-2).
    pub instance: InstanceId,
    /// Readiness and metrics.
    pub ops: Ops,
    /// Says what an executor left undelivered.
    pub facade: Arc<Facade>,
    /// What it serves.
    pub kind: Kind,
    /// Removals and marks under way.
    pub works: Arc<Works>,
}

/// To whom an object belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    /// To the life of its number.
    Known,
    /// To none any more.
    Stray,
}

/// What becomes of an executor that no life of ours decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Removed,
}

/// Which executor is removed.
enum Removed {
    /// Its life tells of it.
    Current,
    /// It belongs to no life any more.
    Fenced,
    /// It belongs to an earlier registration; with the words for that.
    Earlier(String),
}

impl Removed {
    /// What is counted and told of the removal, where no life tells of it: why, in the metric's word, and the cause.
    fn told(&self) -> Option<(&'static str, Option<&str>)> {
        match self {
            Self::Current => None,
            Self::Fenced => Some(("fenced", None)),
            Self::Earlier(cause) => Some(("earlier_registration", Some(cause))),
        }
    }
}

impl Reap {
    /// Runs until `stop`; executors are left alone from then on. Ends are written down for longer: calls that are under
    /// way bring some, and those of executors do until they are `drained`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken, drained: CancellationToken) {
        let brought = async {
            self.compare(&stop).await;
            self.works.done().await;
            drained.cancelled().await;
        };
        tokio::select! {
            () = self.note() => {}
            () = brought => {}
        }
        self.note_last().await;
    }

    /// Writes down at once that Gitea has an end, whoever leads and however long a pass takes: the next process asks again
    /// for what is not written down (NEW-163).
    async fn note(self: &Arc<Self>) {
        let mut changes = self.board.changes();
        loop {
            let pass = Pass::begin();
            self.mark_ends(|wants| wants.terminal_mark);
            pass.rest().await;
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// What failed a moment ago is tried once more, since nobody comes after this: a removal that was to tell of an end is
    /// not begun any more, so its mark is.
    async fn note_last(self: &Arc<Self>) {
        self.works.done().await;
        self.works.wake_all();
        self.mark_ends(|wants| wants.last_mark);
        self.works.done().await;
    }

    async fn compare(self: &Arc<Self>, stop: &CancellationToken) {
        let mut changes = self.board.changes();
        let turn = self.ops.liveness.watch("reap", STUCK);
        while !stop.is_cancelled() {
            turn.turned();
            let pass = Pass::begin();
            if self.board.may_decide()
                && let Err(error) = self.pass().await
            {
                backend_lifecycle_error(self.kind, &error);
            }
            pass.rest().await;
            tokio::select! {
                () = changes.next() => {}
                () = self.backend.changed() => {}
                () = tokio::time::sleep(TICK) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn pass(self: &Arc<Self>) -> Result<(), BackendError> {
        // Who existed before the list was begun; only of those can the list prove absence.
        let before = self.board.with_executors();
        let (fenced_before, begun) = (self.board.strays(), self.board.now());
        let mut objects = self.backend.list().await?;
        self.works.keep(&objects);
        newest_first(&mut objects);
        let mut seen = BTreeSet::new();
        let mut strays = Strays::default();
        for object in objects {
            match &object.record {
                Ok(record) if record.instance != self.instance => {
                    let why = self.meet_earlier(record, &object.name, &object.state);
                    strays.unreadable.insert(object.name.clone(), why);
                }
                Ok(record) => {
                    if self.meet(record, &object.name, object.state) == Met::Stray {
                        strays.fenced.insert((record.id, record.epoch));
                    }
                    seen.insert((record.id, record.epoch));
                }
                Err(problem) => {
                    let why = format!("{problem}; when its job is over, delete its {}", thing(self.kind));
                    strays.unreadable.insert(object.name.clone(), why);
                }
            }
        }
        // What cannot be read exists all the same.
        let exists = |id, epoch| {
            seen.contains(&(id, epoch)) || strays.unreadable.contains_key(&executor_name(id, &self.instance, epoch))
        };
        let absent: Vec<_> = before.into_iter().filter(|(id, epoch, _)| !exists(*id, *epoch)).collect();
        let unborn = absent.iter().filter(|(_, _, being_made)| *being_made == BeingMade::Yes);
        let unborn = unborn.map(|(id, epoch, _)| (*id, *epoch)).collect();
        self.note_strays(strays, &fenced_before);
        self.board.set_listed(Listed { at: begun, executors: seen });
        for (id, epoch, being_made) in absent {
            if being_made == BeingMade::No && self.board.epoch(id) == Some(epoch) {
                self.board.apply(id, Event::ExecutorAbsent);
            }
        }
        self.board.recovered(Recovery::ExecutorsKnown);
        self.remove_ended(&unborn);
        Ok(())
    }

    /// Tells the life of an object what is seen of it.
    fn meet(self: &Arc<Self>, record: &ExecutorRecord, name: &str, state: ExecutorState) -> Met {
        let id = record.id;
        let Some((card, epoch)) = self.board.incarnation(id) else {
            let lane = Lane::new(Arc::clone(&self.gitea), id.task());
            let life = Life::found_executor(record, self.board.now());
            self.board.insert(id, Some(Card::of_executor(record)), lane, life);
            executor_transition(ExecutorEvent::Adopted, &self.subject(id), name, None, Detail::default());
            // What its object says may be its end already: no event but this one would move it on before the next beat.
            self.board.apply(id, Event::ExecutorSeen { epoch: record.epoch });
            self.tell(record, name, state);
            return Met::Known;
        };
        // A life without a card was refused and never had an executor.
        let older_life = card.is_none_or(|card| card.digest != record.digest);
        if older_life || record.epoch != epoch {
            // A fenced incarnation, or an older life of this number: nothing of it is forwarded any more.
            if epoch > record.epoch || older_life {
                self.remove(self.subject_of(record), name.to_owned(), Removed::Fenced);
            }
            return Met::Stray;
        }
        self.tell(record, name, state);
        Met::Known
    }

    /// An executor of an earlier registration: nothing of it reaches Gitea any more, since its runner is not ours now. It
    /// holds its slot until it is gone; nobody but us removes it.
    fn meet_earlier(self: &Arc<Self>, record: &ExecutorRecord, name: &str, state: &ExecutorState) -> String {
        let whose =
            format!("it belongs to {}, an earlier registration, and this is {}", record.instance, self.instance);
        if fate_of_earlier(state, record.deadline, self.board.now()) == Fate::Kept {
            return format!("{whose}; it is removed when its job is over, at {} at the latest", record.deadline);
        }
        self.remove(self.subject_of(record), name.to_owned(), Removed::Earlier(whose.clone()));
        format!("{whose}; it is being removed")
    }

    fn tell(self: &Arc<Self>, record: &ExecutorRecord, name: &str, state: ExecutorState) {
        let (id, epoch) = (record.id, record.epoch);
        let event = match state {
            ExecutorState::Pending | ExecutorState::Running => {
                self.is_there(id, epoch);
                return;
            }
            ExecutorState::HeldUp(what) => {
                self.is_there(id, epoch);
                self.board.apply(id, Event::WaitsFor { what });
                return;
            }
            ExecutorState::Failed(Failure { reason, cause }) => Event::ExecutorEnded { epoch, reason, how: cause },
            ExecutorState::Ended(exit) => {
                Event::ExecutorEnded { epoch, reason: reason_of(&exit), how: exit.to_string() }
            }
            ExecutorState::Vanished => {
                Event::ExecutorEnded { epoch, reason: Reason::ExecutorLost, how: ExecutorState::VANISHED.to_owned() }
            }
        };
        if self.facade.may_inherit(record) {
            self.bury(record.clone(), name.to_owned(), event);
        } else {
            self.board.apply(id, event);
        }
    }

    fn is_there(&self, id: AssignmentId, epoch: Epoch) {
        if self.board.is_news(id, epoch) {
            self.board.apply(id, Event::ExecutorSeen { epoch });
        }
    }

    /// What it left is said before its end is judged (NEW-112); meanwhile the life's own limits hold.
    fn bury(self: &Arc<Self>, record: ExecutorRecord, name: String, ended: Event) {
        self.work_on(Work::LastReport(name), |this| async move {
            match this.facade.inherit(&record).await {
                Inherited::Settled => drop(this.board.apply(record.id, ended)),
                Inherited::NotYet => tokio::time::sleep(TICK).await,
            }
        });
    }

    fn subject(&self, id: AssignmentId) -> Subject {
        Subject { backend: Some(self.kind), assignment: id, epoch: self.board.epoch(id) }
    }

    /// Of the incarnation that an object says it is.
    fn subject_of(&self, record: &ExecutorRecord) -> Subject {
        Subject { backend: Some(self.kind), assignment: record.id, epoch: Some(record.epoch) }
    }

    /// What cannot be read is set apart and said once; it blocks nothing else (NEW-56).
    fn note_strays(&self, strays: Strays, before: &Strays) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.ops.metrics.orphans([("executor", count(strays.fenced.len()))]);
        self.ops.metrics.quarantined([("executor", count(strays.unreadable.len()))]);
        let known = self.board.set_strays(strays.clone(), before);
        for (name, problem) in strays.unreadable.iter().filter(|(name, _)| !known.unreadable.contains_key(*name)) {
            if let Some(id) = assignment_of_name(name) {
                let detail = Detail { cause: Some(problem), ..Detail::default() };
                let subject = Subject::waiting(Some(self.kind), id);
                executor_transition(ExecutorEvent::Quarantined, &subject, name, None, detail);
            }
            backend_lifecycle_error(self.kind, &format!("{name} is set apart and holds a slot: {problem}"));
        }
    }

    /// What is still being made and no list shows has nothing to be removed, however often it is asked: whoever makes it looks
    /// for it, and where it comes it is listed.
    fn remove_ended(self: &Arc<Self>, unborn: &BTreeSet<(AssignmentId, Epoch)>) {
        let ended = self.board.views_that(|wants| wants.removal).into_iter();
        for view in ended.filter(|view| !unborn.contains(&(view.id, view.life.epoch()))) {
            let name = executor_name(view.id, &self.instance, view.life.epoch());
            self.remove(self.subject(view.id), name, Removed::Current);
        }
    }

    fn mark_ends(self: &Arc<Self>, wanted: fn(&Wants) -> bool) {
        for view in self.board.views_that(wanted) {
            self.mark(view.id, executor_name(view.id, &self.instance, view.life.epoch()));
        }
    }

    /// The terminal mark is our own business: whoever reported the end has its answer already (NEW-101).
    fn mark(self: &Arc<Self>, id: AssignmentId, name: String) {
        self.work_on(Work::Object(name.clone()), |this| async move {
            match this.backend.mark(&name, Mark::Terminal).await {
                Ok(_written_or_gone) => {
                    this.works.succeeded(&name);
                    this.board.apply(id, Event::Marked);
                }
                Err(error) => {
                    this.works.failed(&name);
                    this.board.apply(id, Event::MarkFailed);
                    assignment_processing_error(&this.subject(id), &format!("terminal mark: {error}"));
                }
            }
        });
    }

    fn remove(self: &Arc<Self>, subject: Subject, name: String, whose: Removed) {
        self.work_on(Work::Object(name.clone()), move |this| async move {
            match this.backend.delete(&name).await {
                // Whether it is gone is for the next list to say.
                Ok(()) => {
                    if let Some((why, cause)) = whose.told() {
                        this.ops.metrics.reaped(why);
                        let detail = Detail { cause, ..Detail::default() };
                        executor_transition(ExecutorEvent::Deleted, &subject, &name, None, detail);
                    }
                    this.works.succeeded(&name);
                    this.board.wake();
                }
                Err(error) => {
                    this.works.failed(&name);
                    assignment_processing_error(&subject, &format!("removal: {error}"));
                }
            }
        });
    }

    fn work_on<F>(self: &Arc<Self>, work: Work, carry_out: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.works.begin(work, || carry_out(Arc::clone(self)));
    }
}

/// What an executor is to whoever removes one by hand.
fn thing(kind: Kind) -> &'static str {
    match kind {
        Kind::Local => "folder",
        Kind::Pod => "Pod",
        Kind::Vm => "sandbox",
    }
}

/// A new process makes the first executor that it meets the life of its number: of two, the later epoch is the life that
/// took the other's place (NEW-3, NEW-63).
fn newest_first(objects: &mut [Observed]) {
    objects.sort_by_key(|object| std::cmp::Reverse(object.record.as_ref().ok().map(|record| record.epoch)));
}

/// An executor of an earlier registration is left alone as long as its job runs, and at most to its run deadline; one that
/// never started has nothing to run, since nobody hands it a task (NEW-2).
fn fate_of_earlier(state: &ExecutorState, deadline: Timestamp, now: Timestamp) -> Fate {
    match state {
        ExecutorState::Running if now < deadline => Fate::Kept,
        _ => Fate::Removed,
    }
}

fn reason_of(exit: &Exit) -> Reason {
    match exit.code.and_then(ExecutorExit::of_code) {
        Some(ExecutorExit::ReportLost) => Reason::ResultLost,
        Some(ExecutorExit::NoIdentity) => Reason::IdentityTimeout,
        Some(ExecutorExit::NoFacade) => Reason::ClaimTimeout,
        Some(ExecutorExit::Usage | ExecutorExit::NothingToDo | ExecutorExit::NotStarted) | None => {
            Reason::ExecutorExited
        }
    }
}

#[cfg(test)]
mod tests;
