//! In which order executors are met, and which of an earlier registration are removed.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

/// NEW-3, NEW-63: after a crash two executors of one number may be there; whatever they are called, the later one is met
/// first, and what cannot be read after all others.
#[test]
fn the_later_epoch_is_met_first() {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let object = |epoch: Epoch, task: &[u8]| Observed {
        name: executor_name("gitea-task-7".parse().unwrap(), &"f66f031b".parse().unwrap(), epoch),
        state: ExecutorState::Running,
        record: Ok(Arc::new(ExecutorRecord {
            id: "gitea-task-7".parse().unwrap(),
            instance: "f66f031b".parse().unwrap(),
            backend: Kind::Local,
            epoch,
            digest: domain::id::PayloadDigest::of(task),
            repository: "owner/name".parse().unwrap(),
            job_key: "build".parse().unwrap(),
            spiffe_id: "spiffe://example.org/ci/owner/name/build".parse().unwrap(),
            fetched_at: at,
            deadline: at,
            claim: None,
            interrupted_at: None,
            steps: None,
            terminal: false,
        })),
    };
    let newer = Epoch::FIRST.next();
    let mut objects = vec![object(Epoch::FIRST, b"older"), object(newer, b"newer")];
    newest_first(&mut objects);
    let epochs: Vec<_> = objects.iter().map(|object| object.record.as_ref().unwrap().epoch).collect();
    assert_eq!(epochs, [newer, Epoch::FIRST]);
}

/// NEW-2: of what an earlier registration left only a job that runs is left alone, and only until its run deadline.
#[test]
fn what_an_earlier_registration_left() {
    let deadline = Timestamp::from_second(1_000).unwrap();
    let moments = [999, 1_000, 1_001].map(|second| Timestamp::from_second(second).unwrap());
    let exit = Exit { code: Some(0), signal: None, at: deadline };
    for (state, expect) in [
        (ExecutorState::Running, [Fate::Kept, Fate::Removed, Fate::Removed]),
        (ExecutorState::Pending, [Fate::Removed; 3]),
        (ExecutorState::Ended(exit), [Fate::Removed; 3]),
        (ExecutorState::Vanished, [Fate::Removed; 3]),
    ] {
        assert_eq!(moments.map(|now| fate_of_earlier(&state, deadline, now)), expect, "{state:?}");
    }
}
