//! Every reachable state × every event.

use std::collections::HashSet;

use super::*;

/// The incarnation that an event speaks of.
fn speaks_of(event: &Event) -> Option<Epoch> {
    match event {
        Event::LaunchFailed { epoch, .. }
        | Event::QuotaUsedUp { epoch, .. }
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
        | Event::ExecutorEnded { epoch, .. }
        | Event::Settled { epoch, .. } => Some(*epoch),
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
    let of_older: Vec<Event> = every_event(old).into_iter().filter(|event| speaks_of(event) == Some(old)).collect();
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

/// Of a life of this epoch, and of another one: an older one where there is any.
fn every_event(current: Epoch) -> Vec<Event> {
    let other = if current == Epoch::FIRST { current.next() } else { Epoch::FIRST };
    let mut events = vec![
        Event::Persisted,
        Event::Refused(Refusal { reason: Reason::Superseded, cause: "twice".to_owned(), remedy: "again".to_owned() }),
        Event::WaitsFor { what: "the queue".to_owned() },
        Event::LaunchBegun { epoch: current },
        Event::ExecutorPending { epoch: current },
        Event::ExecutorReady { epoch: current },
        Event::RowsSent { end: 7 },
        Event::LogStored { ack: 7 },
        Event::LogSealed,
        Event::CancelAsked,
        Event::TaskUnknown,
        Event::ExecutorAbsent,
        Event::PayloadFound,
        Event::MessageMissing,
        Event::Marked,
        Event::MarkFailed,
        Event::Stopping,
        Event::InLine { place: 2, slots: 4 },
        Event::Tick,
        Event::Rest,
    ];
    for permanent in [None, Some(Reason::ConfigError)] {
        let (cause, remedy) = ("no".to_owned(), "ask".to_owned());
        events.push(Event::LaunchFailed { epoch: current, permanent, cause, remedy, retry_at: at(5) });
    }
    events.push(Event::QuotaUsedUp { epoch: current, cause: "pods=4".to_owned(), retry_at: at(5) });
    for outcome in [None, Some(Outcome::Success), Some(Outcome::Failure), Some(Outcome::Cancelled)] {
        events.push(Event::Answered { outcome });
        events.push(Event::RunnerState { epoch: current, outcome, steps: steps(&ALL_GOOD) });
        events.push(Event::RunnerState { epoch: other, outcome, steps: steps(&ALL_GOOD) });
    }
    for (epoch, how) in [(current, Settlement::Removed), (current, Settlement::GivenBack), (other, Settlement::Removed)]
    {
        events.push(Event::Settled { epoch, how });
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
        if let Some(want) = wants.message {
            let how = match want {
                MessageWant::Remove => Settlement::Removed,
                MessageWant::GiveBack { .. } => Settlement::GivenBack,
            };
            let epoch = life.epoch();
            life = tick(life, Event::Settled { epoch, how });
        }
        if wants.removal {
            life = tick(life, Event::ExecutorAbsent);
        }
    }
    life
}

/// Every way in which a life begins, and how many events are brought to it: one that a new process makes of what it finds
/// stands where others come after many.
fn beginnings() -> Vec<(Life, u32)> {
    let refusal = Refusal { reason: Reason::InvalidJobKey, cause: "a.b".to_owned(), remedy: "rename".to_owned() };
    let claim = Some(Claim { at: at(0), log_shift: 2 });
    let unclaimed = Life::found_executor(&found_record(None), at(0));
    let claimed = Life::found_executor(&found_record(claim.clone()), at(0));
    let running = ExecutorRecord { steps: Some(Walk::running().life.steps_text()), ..found_record(claim.clone()) };
    let cut_off = ExecutorRecord { interrupted_at: Some(at(0)), ..running.clone() };
    let ended = |claim| ExecutorRecord { terminal: true, ..found_record(claim) };
    let waiting = |attempts| Walk::fetched().life.found_waiting(at(0), attempts, None);
    let fresh = [Walk::fetched().life, Life::refused(at(0), refusal, STEPS)].map(|life| (life, 7));
    let found = [
        waiting(0),
        waiting(2),
        Life::found_executor(&running, at(0)),
        Life::found_executor(&cut_off, at(0)),
        Life::found_executor(&ended(claim), at(0)),
        Life::found_executor(&ended(None), at(0)),
        Walk::fetched().life.in_place_of(&Walk::running().life),
        waiting(0).in_place_of(&claimed),
        unclaimed,
        claimed,
    ]
    .map(|life| (life, 3));
    fresh.into_iter().chain(found).collect()
}

/// What tells states apart: without the words, and of moments only whether they are known.
fn kind_of(life: &Life) -> Life {
    let mut key = life.clone();
    let known = |moment: Timestamp| if moment == Timestamp::UNIX_EPOCH { moment } else { at(0) };
    (key.since, key.last_call, key.not_before) = (at(0), at(0), at(0));
    (key.last_sign, key.last_beat) = (known(key.last_sign), known(key.last_beat));
    key.interrupted = key.interrupted.map(|_| at(0));
    key.waiting_for.clear();
    (key.last_error, key.found) = (None, key.found.map(|_| at(0)));
    (key.attempts, key.quota_waits, key.short_of_quota) = (key.attempts.min(1), 0, false);
    key.cancelled = key.cancelled.map(|_| at(0));
    (key.news, key.told, key.asked, key.milestones) = (None, None, false, Milestones::default());
    key.wait_told = false;
    key.deaths = key.deaths.min(4);
    if let Phase::Ending(ending) = &mut key.phase {
        ending.cause.clear();
    }
    key
}

/// NEW-30, NEW-58, NEW-163, PRC-9, PRC-10, T5, the model test: every reachable state × every event. From each result the world's ordinary
/// course leads to *gone*; a final state answers, and sends Gitea nothing but a missing end of its log; nothing that Gitea
/// has ended is ever revived; a task on which a runner works is handed to nobody; and its message leaves the queue by one rule.
#[test]
fn every_state_and_every_event() {
    let still_over = |life: &Life| matches!(life.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone);
    let mut seen = HashSet::new();
    let mut open: Vec<_> = beginnings().into_iter().map(|(life, left)| (life, 0_i64, left)).collect();
    while let Some((life, now, left)) = open.pop() {
        for event in every_event(life.epoch()) {
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
            let gone = matches!(event, Event::Settled { how: Settlement::Removed, .. } | Event::MessageMissing);
            assert!(after.settled == life.settled || gone, "{event:?} loses the message of {:?}", life.phase);
            // The one rule of the acknowledgement: a first update, or an end that Gitea has or that is left to it.
            let first_update = matches!(event, Event::RunnerLog { .. } | Event::RunnerState { .. });
            let has_end = matches!(event, Event::Answered { outcome: Some(_) } | Event::TaskUnknown | Event::Tick)
                && still_over(&after);
            let confirms = first_update || has_end || matches!(event, Event::MessageMissing);
            assert!(after.confirmed == life.confirmed || confirms, "{event:?} acknowledges in {:?}", life.phase);
            let leaves = after.wants(at(now + 1), &Limits::default()).message == Some(MessageWant::Remove);
            assert!(
                !leaves || after.confirmed,
                "unconfirmed, and it leaves the queue after {event:?} in {:?}",
                life.phase
            );
            assert!(!over || still_over(&after), "{event:?} revived {:?} to {:?}", life.phase, after.phase);
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
            assert!(!over || after.accepted == life.accepted, "{event:?} changes the result of {:?}", life.phase);
            let twice = life.confirmed && actions.contains(&Action::HandOut);
            assert!(!twice, "handed out although its runner works: {event:?} in {:?}", life.phase);
            assert!(!interrupted_success, "a SUCCESS passed after an interruption in {:?}", life.phase);
            if left > 0 && seen.insert(kind_of(&after)) {
                let newer = Walk::fetched().life.in_place_of(&after);
                assert!(
                    newer.next_epoch() > after.epoch,
                    "what is left of {:?} would speak for another life",
                    after.phase
                );
                let end = play_out(after.clone(), now + 1);
                assert_eq!(end.phase, Phase::Gone, "no way out after {event:?} in {:?}", life.phase);
                open.push((after, now + 1, left - 1));
            }
        }
    }
    assert!(seen.len() > 10_000, "only {} states were reached", seen.len());
}
