//! The table of requirements §7.1, and the model test over every state × every event.

#![expect(clippy::unwrap_used, reason = "tests")]

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

/// §7.1, the way of a job that succeeds: claim before the answer, `no_more` held back until the result is judged, the
/// mark, the grace, and gone only when the executor is (ADM-2, NEW-28, NEW-53, NEW-101).
#[test]
fn a_job_that_succeeds() {
    let epoch = Epoch::FIRST;
    let walk = Walk::offered().on(Event::TaskAsked { epoch });
    assert_eq!(walk.last, [Action::WriteClaim]);
    let walk = walk.on(Event::ClaimWritten { epoch, log_shift: 2 });
    assert_eq!(walk.last, [Action::HandOut]);
    assert_eq!(walk.wants().message, None, "the message stays until a first update");
    let walk = walk.on(Event::RunnerLog { epoch, index: 0, count: 3, end: LogEnd::Open });
    assert_eq!(walk.last[0], Action::ForwardRows { index: 2, tail: Tail::Open });
    assert_eq!(walk.wants().message, Some(MessageWant::Remove));
    let mut walk = walk.on(Event::Settled).on(Event::LogStored { ack: 5 });
    assert_eq!(walk.life.log.runner_ack(), 3);
    let walk =
        walk.on(Event::RunnerState { epoch, outcome: None, steps: steps(&[(None, 1, 2), (None, 0, 0), (None, 0, 0)]) });
    assert!(matches!(walk.last[..], [Action::RecordSteps { .. }]), "the record comes before the forward");
    let walk = walk.recorded();
    assert_eq!(walk.last, [Action::ForwardState { close: None }]);
    assert_eq!(walk.life.steps().as_slice()[0].log_index, 3, "shifted");
    let mut walk = walk
        .on(Event::RunnerLog { epoch, index: 3, count: 2, end: LogEnd::Last(Some(row("last"))) })
        .on(Event::LogStored { ack: 6 });
    assert_eq!(walk.life.log.runner_ack(), 5, "the runner is told that its held row is stored");
    let walk = walk.state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::ForwardState { close: Some(vec![]) }]);
    assert_eq!(walk.life.log().closing(&[], at(0)), Closing { index: 6, rows: vec![row("last")] });
    let walk = walk.on(Event::LogSealed).on(Event::Answered { outcome: Some(Outcome::Success) });
    assert!(walk.wants().terminal_mark && !walk.wants().removal);
    let walk = walk.on(Event::Marked);
    assert!(walk.life.occupies_slot() && !walk.wants().removal, "an accepted end frees no slot");
    let walk = walk.on(Event::Goodbye { epoch, how: "exit 0".to_owned(), parting: Parting::Clean });
    assert!(walk.wants().removal);
    let walk = walk.on(Event::ExecutorAbsent);
    assert_eq!(*walk.life.phase(), Phase::Gone);
}

/// NEW-58, NEW-63, F47: the same epoch gets the task again until its first update, never afterwards; another epoch never.
#[test]
fn handed_out_again_until_the_first_update() {
    let epoch = Epoch::FIRST;
    let walk = Walk::claimed().on(Event::TaskAsked { epoch });
    assert_eq!(walk.last, [Action::HandOut]);
    let walk = walk.on(Event::TaskAsked { epoch: epoch.next() });
    assert_eq!(walk.last, [Action::SendHome]);
    let walk =
        walk.on(Event::RunnerLog { epoch, index: 0, count: 1, end: LogEnd::Open }).on(Event::TaskAsked { epoch });
    assert_eq!(walk.last, [Action::SendHome]);
}

/// NEW-27: steps that could not be recorded reach Gitea neither with the runner's update nor with a heartbeat, and the
/// repetition of the update is recorded again.
#[test]
fn no_step_is_forwarded_before_it_is_recorded() {
    let epoch = Epoch::FIRST;
    let before = Walk::running().life.steps;
    let update = || Event::RunnerState { epoch, outcome: None, steps: steps(&[(Some(Outcome::Success), 3, 1)]) };
    let walk = Walk::running().on(update());
    assert!(matches!(walk.last[..], [Action::RecordSteps { .. }]));
    assert_eq!(walk.life.steps, before, "what a heartbeat would carry");
    let walk = walk.on(update());
    assert!(matches!(walk.last[..], [Action::RecordSteps { .. }]), "asked again, since nothing was recorded");
    let walk = walk.recorded().on(update());
    assert_eq!(walk.last, [Action::ForwardState { close: None }], "an unchanged state costs no record");
    let ended = Walk::running().on(update()).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    let late = ended.on(Event::StepsRecorded { epoch, steps: before });
    assert_eq!(late.last, [Action::AnswerResult(Outcome::Cancelled)]);
}

/// NEW-158, F156: after the announcement no SUCCESS passes; FAILURE and CANCELLED pass with a row that says why.
#[test]
fn an_announced_interruption_forbids_success() {
    let epoch = Epoch::FIRST;
    let walk = Walk::running().on(Event::Interrupted { epoch });
    assert_eq!(walk.last, [Action::WriteInterrupted, Action::GoOn]);
    let walk = walk.on(Event::RunnerLog { epoch, index: 4, count: 1, end: LogEnd::Last(Some(row("Job succeeded"))) });
    assert_eq!(walk.last[0], Action::ForwardRows { index: 6, tail: Tail::KeptBack });
    let walk = walk.state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last[0], Action::AnswerResult(Outcome::Cancelled));
    walk.ends_as(Reason::Interrupted);

    let walk = Walk::running().on(Event::Interrupted { epoch }).state(Outcome::Failure, &ALL_GOOD);
    let [Action::ForwardState { close: Some(rows) }] = &walk.last[..] else { panic!("{:?}", walk.last) };
    assert!(rows.iter().any(|row| row.content.contains("interrupted")));
}

/// NEW-168, F156: a SUCCESS over a cancelled step, over a failed one without `continue-on-error`, or over one that has not
/// ended is not believed.
#[test]
fn a_success_against_its_own_steps_is_not_believed() {
    let failed = [(Some(Outcome::Success), 3, 1), (Some(Outcome::Failure), 4, 1), (Some(Outcome::Success), 5, 1)];
    let cancelled = [(Some(Outcome::Success), 3, 1), (Some(Outcome::Success), 4, 1), (Some(Outcome::Cancelled), 0, 0)];
    let open = [(Some(Outcome::Success), 3, 1), (None, 4, 1), (None, 0, 0)];
    for seen in [&failed[..], &cancelled, &open, &[], &ALL_GOOD[..2]] {
        let walk = Walk::running().state(Outcome::Success, seen);
        assert_eq!(walk.last[0], Action::AnswerResult(Outcome::Cancelled));
        walk.ends_as(Reason::Interrupted);
    }
    for tolerant in [ContinueOnError::Yes, ContinueOnError::Undecided] {
        let mut walk = Walk::running();
        walk.life.definitions[1].continue_on_error = tolerant;
        let walk = walk.state(Outcome::Success, &failed);
        assert!(matches!(walk.last[..], [Action::ForwardState { close: Some(_) }]), "{tolerant:?}");
    }
    let skipped = [(Some(Outcome::Success), 3, 1), (Some(Outcome::Skipped), 0, 0), (Some(Outcome::Success), 5, 1)];
    assert!(matches!(Walk::running().state(Outcome::Success, &skipped).last[..], [Action::ForwardState { .. }]));
}

/// NEW-163, NEW-159, NEW-100, F160: after a result nothing passes but a missing end of the log; the runner is answered.
#[test]
fn quiet_after_the_end() {
    let epoch = Epoch::FIRST;
    let walk = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    let walk = walk.on(Event::RunnerState { epoch, outcome: None, steps: steps(&ALL_GOOD) });
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Cancelled)]);
    let walk = walk.on(Event::RunnerLog { epoch, index: 4, count: 2, end: LogEnd::Last(Some(row("x"))) });
    assert_eq!(walk.last, [Action::ForwardRows { index: 6, tail: Tail::Closing }]);
    let walk =
        walk.on(Event::LogSealed).on(Event::RunnerLog { epoch, index: 6, count: 2, end: LogEnd::Last(Some(row("x"))) });
    assert_eq!(walk.last, [Action::AckRows { ack: 8 }]);
    assert!(walk.later(3600).last.is_empty(), "no heartbeat after the end");

    let walk =
        Walk::running().on(Event::Answered { outcome: Some(Outcome::Success) }).state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Success)], "the accepted end may be repeated");
}

/// NEW-166, F163: Gitea cancelled at once and nobody closes the log: we do, at once without a runner, else after the grace.
#[test]
fn a_cancelled_log_is_closed_by_us() {
    let waiting = Walk::fetched().on(Event::Persisted).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert!(waiting.wants().closing_row);
    assert_eq!(waiting.wants().message, None, "a process that starts now knows of the log by the message only");
    assert_eq!(waiting.on(Event::LogSealed).wants().message, Some(MessageWant::Remove));
    let given_up = Walk::fetched().on(Event::Persisted).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert_eq!(given_up.later(3600).wants().message, Some(MessageWant::Remove));
    let running = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert!(!running.wants().closing_row);
    assert!(running.later(60).wants().closing_row);
    // The folder of one that was killed is removed when its log is closed.
    let killed = Event::ExecutorEnded { epoch: Epoch::FIRST, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let ended = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::Marked).on(killed);
    assert!(ended.wants().closing_row && !ended.wants().removal);
    assert!(ended.on(Event::LogSealed).wants().removal);
}

/// NEW-22: the grace is for a runner that has the task. An executor that did not hand it out goes at once.
#[test]
fn an_executor_without_the_task_gets_no_grace() {
    let cancelled = |walk: Walk| walk.on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::Marked);
    assert!(cancelled(Walk::offered()).wants().removal);
    let claimed = cancelled(Walk::claimed());
    assert!(!claimed.wants().removal, "its runner may still tidy up");
    assert!(claimed.later(60).wants().removal);
}

/// NEW-166, F163: a new process that finds an ended task within the grace neither swallows what its post steps write nor
/// leaves the log open.
#[test]
fn the_log_of_a_found_end_stays_open_for_the_grace() {
    let epoch = Epoch::FIRST;
    let record = ExecutorRecord { terminal: true, ..found_record(Some(Claim { at: at(0), log_shift: 2 })) };
    let walk = Walk { life: Life::found_executor(&record, at(0)), now: 0, last: vec![] };
    assert!(!walk.wants().closing_row, "the runner may still write");
    let walk = walk.on(Event::RunnerLog { epoch, index: 4, count: 1, end: LogEnd::Open });
    assert_eq!(walk.last, [Action::ForwardRows { index: 6, tail: Tail::Open }]);
    let walk = walk.later(59);
    assert!(!walk.wants().closing_row && !walk.wants().removal, "a whole grace from the start of this process");
    let wants = walk.later(1).wants();
    assert!(wants.closing_row && wants.removal, "nobody else closes it, and it goes: {wants:?}");
}

/// NEW-61, F53: an executor that ends before the claim is replaced three times, with pauses of 0, 5 and 20 s.
#[test]
fn executors_that_die_before_the_claim_are_replaced() {
    let mut walk = Walk::fetched().on(Event::Persisted);
    let mut epoch = Epoch::FIRST;
    for pause in [0, 5, 20] {
        walk = walk.on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
        walk = walk.on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() });
        assert!(walk.wants().removal && !walk.wants().launch, "the dead one goes first");
        assert_eq!(
            walk.wants().message,
            Some(MessageWant::GiveBack { at: at(walk.now + pause), error: walk.life.waiting_for.clone() })
        );
        walk = walk.on(Event::Settled).on(Event::ExecutorAbsent);
        assert_eq!(walk.wants().launch, pause == 0);
        walk = walk.later(pause);
        assert!(walk.wants().launch);
        epoch = epoch.next();
    }
    walk = walk.on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
    walk.on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() })
        .ends_as(Reason::ExecutorExited);
}

/// The incarnation that an event speaks of.
fn speaks_of(event: &Event) -> Option<Epoch> {
    match event {
        Event::LaunchFailed { epoch, .. }
        | Event::ExecutorPending { epoch }
        | Event::ExecutorReady { epoch }
        | Event::Hello { epoch }
        | Event::KeepAlive { epoch }
        | Event::TaskAsked { epoch }
        | Event::ClaimWritten { epoch, .. }
        | Event::RunnerLog { epoch, .. }
        | Event::RunnerState { epoch, .. }
        | Event::StepsRecorded { epoch, .. }
        | Event::Interrupted { epoch }
        | Event::Goodbye { epoch, .. }
        | Event::ExecutorSeen { epoch }
        | Event::ExecutorEnded { epoch, .. } => Some(*epoch),
        _ => None,
    }
}

/// NEW-3, NEW-4: the same number with another payload: nothing that an executor, a launch or a caller of the older life
/// brings is taken for the newer one, wherever that stands.
#[test]
fn a_life_in_place_of_an_older_one() {
    let old = Epoch::FIRST;
    let newer = Walk { life: Walk::fetched().life.in_place_of(&Walk::claimed().life), now: 0, last: vec![] };
    let epoch = newer.life.next_epoch();
    assert_eq!(epoch, old.next());
    let mut stages = vec![newer.life.clone()];
    let mut walk = newer;
    for event in [
        Event::Persisted,
        Event::LaunchBegun { epoch },
        Event::ExecutorPending { epoch },
        Event::ExecutorReady { epoch },
        Event::Hello { epoch },
        Event::ClaimWritten { epoch, log_shift: 2 },
        Event::RunnerLog { epoch, index: 0, count: 4, end: LogEnd::Open },
        Event::Answered { outcome: Some(Outcome::Success) },
    ] {
        walk = walk.on(event);
        stages.push(walk.life.clone());
    }
    let of_older: Vec<Event> = every_event().into_iter().filter(|event| speaks_of(event) == Some(old)).collect();
    assert!(of_older.len() > 20);
    for (life, event) in stages.iter().flat_map(|life| of_older.iter().map(move |event| (life, event))) {
        let (after, actions) = life.clone().step(event.clone(), at(1), &Limits::default());
        assert_eq!(after, *life, "{event:?} in {:?}", life.phase);
        let harmless = |action: &Action| {
            matches!(
                action,
                Action::SendHome
                    | Action::Stop
                    | Action::GoOn
                    | Action::AckRows { .. }
                    | Action::AnswerResult(Outcome::Cancelled)
                    | Action::Wake
            )
        };
        assert!(actions.iter().all(harmless), "{event:?} in {:?}: {actions:?}", life.phase);
    }
    let found = Walk::fetched().life.found_waiting(at(0), 2, None);
    assert_eq!(found.next_epoch(), old.next().next(), "two launches before this process");
}

/// NEW-46: a backend that refuses for ever: after 30 attempts the job fails with its words, also when a restart lies
/// between; one that waits too long after failures names them as well.
#[test]
fn attempts_are_limited() {
    let mut walk = Walk::fetched().on(Event::Persisted);
    let failed = |epoch, now| Event::LaunchFailed {
        epoch,
        permanent: None,
        cause: "no room on the disk".to_owned(),
        remedy: String::new(),
        retry_at: at(now),
    };
    for attempt in 1..30 {
        let epoch = walk.life.next_epoch();
        walk = walk.on(Event::LaunchBegun { epoch });
        let now = walk.now;
        walk = walk.on(failed(epoch, now)).on(Event::Settled).on(Event::ExecutorAbsent);
        assert!(walk.wants().launch, "attempt {attempt}");
        if attempt == 15 {
            let found = Walk::fetched().life.found_waiting(at(0), attempt, Some("no room on the disk".to_owned()));
            walk = Walk { life: found, now: 0, last: vec![] };
        }
    }
    let given_up = Walk { life: walk.life.clone(), now: 0, last: vec![] }.later(3600);
    given_up.ends_as(Reason::QueueTimeout);
    given_up.assert_cause("29 attempts to make an executor failed, the last one with: no room on the disk");
    let epoch = walk.life.next_epoch();
    let walk = walk.on(Event::LaunchBegun { epoch }).on(failed(epoch, 0));
    walk.ends_as(Reason::BackendUnavailable);
    walk.assert_cause("30 attempts to make an executor failed, the last one with: no room on the disk");
}

/// NEW-62: in the first 2 min of a process nobody is judged by its silence, however short the limits are.
#[test]
fn nobody_is_judged_right_after_a_start() {
    let limits = Limits {
        identity: SignedDuration::from_secs(5),
        first_update: SignedDuration::from_secs(5),
        silence: SignedDuration::from_secs(5),
        ..Limits::default()
    };
    for claim in [None, Some(Claim { at: at(0), log_shift: 2 })] {
        let found = Life::found_executor(&found_record(claim), at(0));
        let phase = found.phase().clone();
        let (life, _) = found.step(Event::Tick, at(119), &limits);
        assert_eq!(*life.phase(), phase);
        let (life, _) = life.step(Event::Tick, at(120), &limits);
        assert_ne!(*life.phase(), phase);
    }
}

/// NEW-30, §7.1: no state waits for ever. Each row: the state, how long it may last, what it ends with.
#[test]
fn every_state_has_a_deadline() {
    let epoch = Epoch::FIRST;
    Walk::fetched().later(3600).ends_as(Reason::QueueUnavailable);
    Walk::fetched().on(Event::Persisted).later(3600).ends_as(Reason::QueueTimeout);
    let mut short = Walk::fetched().on(Event::Persisted);
    short.life.deadline = at(60);
    let short = short.later(59);
    assert_eq!(*short.life.phase(), Phase::Waiting, "a short run limit is no limit of the wait");
    short.later(1).ends_as(Reason::QueueTimeout);
    Walk::claimed().later(120).ends_as(Reason::ExecutorLost);
    Walk::running().later(300).ends_as(Reason::ExecutorLost);
    let busy = (0..400).fold(Walk::running(), |walk, _| walk.later(29).on(Event::KeepAlive { epoch }));
    busy.ends_as(Reason::Deadline);
    let interrupted = Walk::running().on(Event::Interrupted { epoch });
    let interrupted = (0..13).fold(interrupted, |walk, _| walk.later(29).on(Event::KeepAlive { epoch }));
    interrupted.ends_as(Reason::Interrupted);
    let silent_before_the_claim = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch });
    assert!(silent_before_the_claim.later(900).wants().removal);
    assert!(Walk::offered().later(120).wants().removal, "claim deadline");
    let no_identity =
        Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
    assert!(no_identity.later(300).wants().removal, "identity deadline");
    let ended = Walk::running().on(Event::Answered { outcome: Some(Outcome::Success) }).on(Event::Marked);
    assert!(ended.later(60).wants().removal, "terminal grace");
    let ending = Walk::running().on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorLost, how: String::new() });
    let waiting = ending.later(3 * 3600 - 1);
    assert!(waiting.wants().certificate.is_some(), "repeated for as long as Gitea may let it run");
    let left = waiting.later(1).on(Event::Marked);
    let wants = left.wants();
    assert!(wants.certificate.is_none() && !wants.closing_row && wants.removal, "then it is left to Gitea: {wants:?}");
    let gone = left.on(Event::ExecutorAbsent).on(Event::Settled);
    assert_eq!(*gone.life.phase(), Phase::Gone);
}

/// NEW-31, NEW-30: Gitea's endless limit, not the run limit, decides whether a task that waited may still start.
#[test]
fn a_wait_is_judged_by_the_endless_limit_of_gitea() {
    let limits = Limits { endless: SignedDuration::from_mins(30), ..Limits::default() };
    let waiting = Walk::fetched().on(Event::Persisted).life;
    let (waiting, _) = waiting.step(Event::Tick, at(20 * 60), &limits);
    assert_eq!(*waiting.phase(), Phase::Waiting);
    let (ended, _) = waiting.step(Event::Tick, at(20 * 60 + 1), &limits);
    assert!(matches!(ended.phase(), Phase::Ending(ending) if ending.reason == Reason::QueueTimeout));
}

/// NEW-21, NEW-33, F05: every 5 s until the runner reports, then only into a silence of 30 s.
#[test]
fn the_pulse() {
    let walk = Walk::fetched().on(Event::Persisted).later(4);
    assert_eq!(walk.last, []);
    assert!(walk.later(1).last.contains(&Action::Heartbeat));
    let walk = Walk::running().on(Event::Answered { outcome: None }).later(29);
    assert_eq!(walk.last, []);
    assert_eq!(walk.later(1).last, [Action::Heartbeat]);
}

/// A process that found the executor again (NEW-54, REG-4, REG-5): the claim holds, and the final log is asked for once.
#[test]
fn a_found_executor_goes_on() {
    let mut walk = Walk::running();
    walk.life.found = Some(at(0));
    let walk = walk.state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::AskAgain], "the row kept back went down with the former process");
    assert!(matches!(walk.state(Outcome::Success, &ALL_GOOD).last[..], [Action::ForwardState { close: Some(_) }]));
}

/// NEW-28, F33: the wait is told in the job's log: not when it is short, changes only, at most every 30 s.
#[test]
fn the_waiting_room_speaks() {
    let told = |walk: &Walk| walk.last.iter().any(|action| matches!(action, Action::Tell(_)));
    let failed = |epoch, cause: &str| Event::LaunchFailed {
        epoch,
        permanent: None,
        cause: cause.to_owned(),
        remedy: String::new(),
        retry_at: at(0),
    };
    let walk = Walk::fetched().on(Event::Persisted).later(4);
    assert!(!told(&walk), "it may start yet");
    let walk = walk.later(1);
    let Some(Action::Tell(row)) = walk.last.first() else { panic!("{:?}", walk.last) };
    assert_eq!(row.content, "Waiting for a free slot");
    let walk = walk.later(60);
    assert!(!told(&walk), "nothing changed");
    let walk =
        walk.on(Event::LaunchBegun { epoch: Epoch::FIRST }).on(failed(Epoch::FIRST, "the backend is away")).later(1);
    assert!(told(&walk));
    let walk = walk.on(Event::Settled).on(Event::ExecutorAbsent).on(Event::LaunchBegun { epoch: Epoch::FIRST.next() });
    let walk = walk.on(failed(Epoch::FIRST.next(), "the backend is still away")).later(29);
    assert!(!told(&walk), "not more often than every 30 s");
    assert!(told(&walk.later(1)));
}

/// NEW-28: a start that takes long is told step by step, with seconds, at most every 30 s, and not any more once its claim
/// is being written: then the number of our rows must stand.
#[test]
fn a_slow_start_speaks() {
    let epoch = Epoch::FIRST;
    let told = |walk: &Walk| match walk.last.first() {
        Some(Action::Tell(row)) => Some(row.content.clone()),
        _ => None,
    };
    let walk = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).later(5);
    assert_eq!(told(&walk).unwrap(), "0 s after the fetch of this task: it has a slot, and its executor is being made");
    let walk = walk.later(7).on(Event::ExecutorPending { epoch }).later(3).on(Event::ExecutorReady { epoch }).later(19);
    assert_eq!(told(&walk), None, "not more often than every 30 s");
    let walk = walk.later(1);
    let latest = "15 s after the fetch of this task: its executor runs and waits for its identity";
    assert_eq!(told(&walk).unwrap(), latest, "the latest only");
    let walk = walk.later(10).on(Event::Hello { epoch });
    assert_eq!(
        walk.life.milestones(),
        Milestones { slot: Some(at(0)), runs: Some(at(15)), identity: Some(at(45)) },
        "what the row at the claim is made of"
    );
    let asked = Walk { life: walk.life.clone(), now: walk.now, last: vec![] }.on(Event::TaskAsked { epoch });
    assert!(told(&walk.later(30)).is_some());
    assert_eq!(told(&asked.later(30)), None);
}

/// NEW-28: who waits for a slot is told the place in line and how many slots there are, and hears of a change only.
#[test]
fn the_place_in_line() {
    let walk = Walk::fetched().on(Event::Persisted).on(Event::InLine { place: 2, slots: 4 }).later(5);
    let Some(Action::Tell(row)) = walk.last.first() else { panic!("{:?}", walk.last) };
    assert_eq!(row.content, "Waiting for a free slot, at place 2 in line (4 of 4 taken)");
    let walk = walk.on(Event::InLine { place: 2, slots: 4 }).later(60);
    assert!(!matches!(walk.last.first(), Some(Action::Tell(_))), "{:?}", walk.last);
    let walk = walk.on(Event::InLine { place: 1, slots: 4 }).later(1);
    assert!(matches!(walk.last.first(), Some(Action::Tell(_))), "{:?}", walk.last);
}

/// REG-4: a process that just started knows nothing of the rows Gitea holds; an ack below what the runner was told before
/// would end its job ("submitted logs are lost"), also where nothing is forwarded that could bring Gitea's own count.
#[test]
fn no_ack_falls_after_a_restart() {
    let epoch = Epoch::FIRST;
    let ends = [(1, LogEnd::Last(Some(row("last"))), 18), (0, LogEnd::Open, 17), (0, LogEnd::Last(None), 17)];
    for (count, end, ack) in ends {
        let mut walk = Walk::claimed();
        walk.life.found = Some(at(0));
        let mut walk = walk.on(Event::RunnerLog { epoch, index: 17, count, end: end.clone() });
        match walk.last[0] {
            Action::AckRows { ack: answered } => assert_eq!(answered, ack),
            _ => assert_eq!(walk.life.runner_ack(), ack, "{count} rows, {end:?}"),
        }
    }
}

/// NEW-26, NEW-162, Gitea contract §10.3: which step gets which end.
#[test]
fn the_certificate_closes_every_step() {
    use Outcome::{Cancelled, Failure, Skipped, Success};
    let check =
        |seen: &[(Option<Outcome>, u64, u64)], outcome, expect: [Outcome; STEPS], shown: Option<(usize, u64, u64)>| {
            let mut life = Walk::running().life;
            life.steps = steps(seen);
            let ending = Ending { outcome, ..Ending::new(Reason::ExecutorExited, "exit 1".to_owned()) };
            let made = certificate(&life, &ending, at(20));
            assert_eq!(life.log.closing(&made.rows, at(20)).index, 6);
            assert!(made.rows[0].content.starts_with("##[error]executor_exited: "));
            let ends: Vec<_> = made.steps.as_slice().iter().map(|s| s.outcome.unwrap()).collect();
            assert_eq!(ends, expect);
            if let Some((step, index, length)) = shown {
                let step = made.steps.as_slice()[step];
                assert_eq!((step.log_index, step.log_length), (index, length), "the page shows our rows there");
                assert!(step.started.is_some() && step.stopped.is_some());
            }
        };
    let none = (None, 0, 0);
    let done = (Some(Success), 3, 1);
    check(&[done, (None, 4, 1), none], Failure, [Success, Failure, Skipped], Some((1, 4, 4)));
    check(&[done, (None, 4, 1), none], Cancelled, [Success, Cancelled, Cancelled], Some((1, 4, 4)));
    check(&[done, none, none], Failure, [Success, Failure, Skipped], Some((1, 6, 2)));
    check(&[done, done, done], Failure, [Success, Success, Success], None);
    check(&[none, none, none], Failure, [Skipped, Skipped, Skipped], None);
    check(&[], Failure, [Skipped, Skipped, Skipped], None);
    check(&[], Cancelled, [Cancelled, Cancelled, Cancelled], None);
}

/// NEW-26, NEW-162: the answer to the state of a certificate was lost after its rows closed the log: the repetition shows
/// the same rows, and not a place behind them.
#[test]
fn a_certificate_that_is_sent_again_shows_the_same_rows() {
    let done = (Some(Outcome::Success), 3, 1);
    let mut life = Walk::running().life;
    life.steps = steps(&[done, (None, 0, 0), (None, 0, 0)]);
    let ending = Ending::new(Reason::ExecutorExited, "exit 1".to_owned());
    let first = certificate(&life, &ending, at(20));
    life.log.stored(8);
    life.log.close();
    let again = certificate(&life, &ending, at(20));
    assert_eq!(again, first);
    assert_eq!((again.steps.as_slice()[1].log_index, again.steps.as_slice()[1].log_length), (6, 2));
}

fn every_event() -> Vec<Event> {
    let (current, other) = (Epoch::FIRST, Epoch::FIRST.next());
    let mut events = vec![
        Event::Persisted,
        Event::WaitsFor { what: "the queue".to_owned() },
        Event::LaunchBegun { epoch: current },
        Event::ExecutorPending { epoch: current },
        Event::ExecutorReady { epoch: current },
        Event::RowsSent { end: 7 },
        Event::LogStored { ack: 7 },
        Event::LogSealed,
        Event::TaskUnknown,
        Event::ExecutorAbsent,
        Event::PayloadFound,
        Event::MessageMissing,
        Event::Marked,
        Event::Settled,
        Event::Stopping,
        Event::InLine { place: 2, slots: 4 },
        Event::Tick,
    ];
    for permanent in [None, Some(Reason::ConfigError)] {
        let (cause, remedy) = ("no".to_owned(), "ask".to_owned());
        events.push(Event::LaunchFailed { epoch: current, permanent, cause, remedy, retry_at: at(5) });
    }
    for outcome in [None, Some(Outcome::Success), Some(Outcome::Failure), Some(Outcome::Cancelled)] {
        events.push(Event::Answered { outcome });
        events.push(Event::RunnerState { epoch: current, outcome, steps: steps(&ALL_GOOD) });
        events.push(Event::RunnerState { epoch: other, outcome, steps: steps(&ALL_GOOD) });
    }
    for epoch in [current, other] {
        events.extend([Event::Hello { epoch }, Event::KeepAlive { epoch }, Event::TaskAsked { epoch }]);
        events.extend([
            Event::ClaimWritten { epoch, log_shift: 2 },
            Event::Interrupted { epoch },
            Event::StepsRecorded { epoch, steps: steps(&ALL_GOOD) },
            Event::ExecutorSeen { epoch },
        ]);
        events.push(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() });
        for parting in [Parting::Clean, Parting::CutOff, Parting::Undelivered] {
            events.push(Event::Goodbye { epoch, how: "exit 0".to_owned(), parting });
        }
        for (count, end) in [(2, LogEnd::Open), (2, LogEnd::Last(Some(row("x")))), (0, LogEnd::Last(None))] {
            events.push(Event::RunnerLog { epoch, index: 0, count, end });
        }
    }
    events
}

/// What the world does sooner or later: everything hangs until its deadline, Gitea answers, the list is complete.
fn play_out(mut life: Life, mut now: i64) -> Life {
    for _ in 0..60 {
        now += 700;
        let tick = |life: Life, event| life.step(event, at(now), &Limits::default()).0;
        life = tick(life, Event::Tick);
        let wants = life.wants(at(now), &Limits::default());
        if wants.certificate.is_some() {
            life = tick(life, Event::LogSealed);
            life = tick(life, Event::Answered { outcome: Some(Outcome::Failure) });
        }
        if wants.closing_row {
            life = tick(life, Event::LogSealed);
        }
        if wants.terminal_mark {
            life = tick(life, Event::Marked);
        }
        if wants.message.is_some() {
            life = tick(life, Event::Settled);
        }
        if wants.removal {
            life = tick(life, Event::ExecutorAbsent);
        }
    }
    life
}

/// NEW-30, NEW-163, the model test: every reachable state × every event. From each result the world's ordinary course
/// leads to *gone*; a final state answers, and sends Gitea nothing but a missing end of its log; nothing that Gitea has
/// ended is ever revived.
#[test]
fn every_state_and_every_event() {
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![(Walk::fetched().life, 0_i64, 0)];
    let refusal = Refusal { reason: Reason::InvalidJobKey, cause: "a.b".to_owned(), remedy: "rename".to_owned() };
    open.push((Life::refused(at(0), refusal, STEPS), 0, 0));
    while let Some((life, now, depth)) = open.pop() {
        for event in every_event() {
            let (after, actions) = life.clone().step(event.clone(), at(now + 1), &Limits::default());
            let over = matches!(life.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone);
            for action in &actions {
                let quiet = match action {
                    Action::ForwardRows { .. } => !life.log.is_closed(),
                    Action::ForwardState { .. }
                    | Action::Tell(_)
                    | Action::Heartbeat
                    | Action::HandOut
                    | Action::WriteClaim => false,
                    _ => true,
                };
                assert!(!over || quiet, "{action:?} after {event:?} in {:?}", life.phase);
            }
            let still_over = matches!(after.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone);
            assert!(!over || still_over, "{event:?} revived {:?} to {:?}", life.phase, after.phase);
            let (again, _) = life.clone().step(event.clone(), at(now + 1), &Limits::default());
            let repeated = again.step(event.clone(), at(now + 1), &Limits::default()).1;
            let listed =
                matches!(event, Event::ExecutorSeen { .. } | Event::ExecutorEnded { .. } | Event::ExecutorAbsent);
            let wakes = listed && repeated.contains(&Action::Wake);
            assert!(!wakes, "the second list with the same news wakes everybody: {event:?} in {:?}", life.phase);
            let interrupted_success = life.interrupted.is_some()
                && matches!(&event, Event::RunnerState { outcome: Some(Outcome::Success), .. })
                && actions.iter().any(|a| matches!(a, Action::ForwardState { .. }));
            let handed_out =
                life.interrupted.is_some() && life.phase == Phase::Offered && actions.contains(&Action::HandOut);
            assert!(!handed_out, "handed out after an interruption: {event:?}");
            assert!(!interrupted_success, "a SUCCESS passed after an interruption in {:?}", life.phase);
            let mut key = after.clone();
            (key.since, key.last_call, key.last_sign, key.not_before) = (at(0), at(0), at(0), at(0));
            key.last_beat = at(0);
            key.interrupted = key.interrupted.map(|_| at(0));
            key.waiting_for.clear();
            (key.last_error, key.found) = (None, key.found.map(|_| at(0)));
            key.attempts = key.attempts.min(1);
            key.cancelled = key.cancelled.map(|_| at(0));
            (key.news, key.told, key.milestones) = (None, None, Milestones::default());
            key.deaths = key.deaths.min(4);
            if let Phase::Ending(ending) = &mut key.phase {
                ending.cause.clear();
            }
            if depth < 7 && seen.insert(key) {
                let newer = Walk::fetched().life.in_place_of(&after);
                assert!(
                    newer.next_epoch() > after.epoch,
                    "what is left of {:?} would speak for another life",
                    after.phase
                );
                let end = play_out(after.clone(), now + 1);
                assert_eq!(end.phase, Phase::Gone, "no way out after {event:?} in {:?}", life.phase);
                open.push((after, now + 1, depth + 1));
            }
        }
    }
    assert!(seen.len() > 1000, "only {} states were reached", seen.len());
}

/// The limits of §1.4 as defaults.
#[test]
fn the_defaults_are_those_of_the_specification() {
    let limits = Limits::default();
    assert_eq!(limits.queue_wait, SignedDuration::from_mins(60));
    assert_eq!(limits.claim, SignedDuration::from_mins(2));
    assert_eq!(limits.silence, SignedDuration::from_mins(5));
    assert_eq!(limits.start_grace, SignedDuration::from_mins(2));
    assert_eq!((limits.launches, limits.relaunches), (30, 3));
    assert_eq!(Limits::relaunch_pause(3), SignedDuration::from_secs(20));
}
