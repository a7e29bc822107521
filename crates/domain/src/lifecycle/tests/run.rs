//! From the claim to the end: what passes between runner and Gitea.

use super::*;

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
    let mut walk = walk.settled(Settlement::Removed).on(Event::LogStored { ack: 5 });
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

/// NEW-57, NEW-58, NEW-63, F47: the same epoch gets the task again until its first update, never afterwards, and nobody keeps
/// it; another epoch never.
#[test]
fn handed_out_again_until_the_first_update() {
    let epoch = Epoch::FIRST;
    let walk = Walk::claimed().on(Event::TaskAsked { epoch });
    assert_eq!(walk.last, [Action::HandOut]);
    assert!(walk.life.payload_needed());
    let walk = walk.on(Event::TaskAsked { epoch: epoch.next() });
    assert_eq!(walk.last, [Action::SendHome]);
    let walk =
        walk.on(Event::RunnerLog { epoch, index: 0, count: 1, end: LogEnd::Open }).on(Event::TaskAsked { epoch });
    assert_eq!(walk.last, [Action::SendHome]);
    assert!(!walk.life.payload_needed());
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

/// A process that found the executor again (NEW-54, REG-4, REG-5): the claim holds, and the final log is asked for once.
#[test]
fn a_found_executor_goes_on() {
    let mut walk = Walk::running();
    walk.life.found = Some(at(0));
    let walk = walk.state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::AskAgain], "the row kept back went down with the former process");
    assert!(matches!(walk.state(Outcome::Success, &ALL_GOOD).last[..], [Action::ForwardState { close: Some(_) }]));
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

/// NEW-28: the claim that was written first counts: what comes from a second writing of it shifts nothing.
#[test]
fn the_number_of_our_rows_is_frozen_at_the_claim() {
    let epoch = Epoch::FIRST;
    let walk = Walk::claimed().on(Event::ClaimWritten { epoch, log_shift: 3 });
    assert_eq!((walk.last.as_slice(), walk.life.log().shift()), (&[Action::HandOut][..], 2));
}

/// NEW-63, PRC-9: the message of a claimed task leaves the queue with the first update only; where it is gone the task is
/// confirmed, and nobody gets it any more. One that was never handed out is lost.
#[test]
fn a_claim_without_its_message_is_confirmed() {
    let epoch = Epoch::FIRST;
    let walk = Walk::claimed().on(Event::MessageMissing);
    assert_eq!(*walk.life.phase(), Phase::Running);
    assert_eq!(walk.on(Event::TaskAsked { epoch }).last, [Action::SendHome]);
    Walk::offered().on(Event::MessageMissing).ends_as(Reason::Internal);
}
