//! A user cancels, and Gitea waits for the runner's word (NEW-25, Gitea 1.27 and newer).

use super::*;

fn cancelling() -> Walk {
    Walk::running().on(Event::CancelAsked)
}

/// NEW-24, NEW-163, NEW-167: one end follows, the runner's: what it says before is answered here, no heartbeat goes out, and
/// a SUCCESS over cancelled steps is the end of a cancelled job.
#[test]
fn the_runner_has_the_last_word() {
    let epoch = Epoch::FIRST;
    let recorded = Event::StepsRecorded { epoch, steps: steps(&[(Some(Outcome::Success), 3, 1)]) };
    assert_eq!(cancelling().on(recorded).last, [Action::AnswerResult(Outcome::Cancelled)]);
    let walk = cancelling().later(40);
    assert!(walk.last.is_empty(), "no heartbeat: {:?}", walk.last);
    let post = steps(&[(Some(Outcome::Cancelled), 3, 1), (None, 4, 1)]);
    let walk = walk.on(Event::RunnerState { epoch, outcome: None, steps: post });
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Cancelled)]);
    let walk = walk.on(Event::RunnerLog { epoch, index: 3, count: 2, end: LogEnd::Last(Some(row("post"))) });
    assert!(matches!(walk.last[0], Action::ForwardRows { tail: Tail::KeptBack, .. }), "{:?}", walk.last);
    let cut = [(Some(Outcome::Cancelled), 3, 1), (Some(Outcome::Success), 4, 1), (Some(Outcome::Skipped), 0, 0)];
    let walk = walk.state(Outcome::Success, &cut);
    assert!(matches!(walk.last[..], [Action::ForwardState { close: Some(_) }]), "{:?}", walk.last);
    let walk = walk.on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert_eq!(*walk.life.phase(), Phase::Final(Outcome::Cancelled));
    let walk = walk.state(Outcome::Success, &cut);
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Cancelled)], "nothing more is sent");
}

/// NEW-167, F08, T29: a runner that does not end is not waited for, and whatever ends the job ends it as cancelled.
#[test]
fn otherwise_the_end_is_ours() {
    let epoch = Epoch::FIRST;
    let grace = Limits::default().cancel_grace.as_secs();
    let walk = cancelling().later(grace - 1).on(Event::Tick);
    assert_eq!(walk.wants().certificate, None);
    let late = walk.later(1).on(Event::Tick);
    let died = Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() };
    let left = Event::Goodbye { epoch, how: "exit 0".to_owned(), parting: Parting::Clean };
    let ends = [
        (late, Reason::CancelDeadline),
        (cancelling().on(died), Reason::ExecutorExited),
        (cancelling().on(left), Reason::ExecutorExited),
        (cancelling().on(Event::ExecutorAbsent), Reason::ExecutorDeleted),
    ];
    for (walk, reason) in ends {
        let ending = walk.wants().certificate.unwrap();
        assert_eq!((ending.reason, ending.outcome), (reason, Outcome::Cancelled), "{}", ending.cause);
    }
}

/// NEW-22: where no runner has the task nobody else can say the end.
#[test]
fn before_the_claim_the_end_is_ours_at_once() {
    for walk in [Walk::fetched().on(Event::Persisted), Walk::offered()] {
        let walk = walk.on(Event::CancelAsked);
        let ending = walk.wants().certificate.unwrap();
        assert_eq!((ending.reason, ending.outcome), (Reason::Cancelled, Outcome::Cancelled));
        assert_eq!(walk.on(Event::TaskAsked { epoch: Epoch::FIRST }).last, [Action::SendHome]);
    }
}

/// NEW-163: an end that Gitea has is not asked for again.
#[test]
fn an_ended_task_is_not_cancelled() {
    let walk = Walk::running().on(Event::Answered { outcome: Some(Outcome::Success) });
    let before = walk.life.phase().clone();
    let walk = walk.on(Event::CancelAsked);
    assert_eq!((walk.life.phase(), walk.last.len()), (&before, 0));
    assert_eq!(walk.life.cancelled, None, "how long its executor stays is no matter of a cancel");
}
