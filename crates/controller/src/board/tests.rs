//! What the board counts while lives take each other's place.
#![expect(clippy::unwrap_used, reason = "tests")]

use domain::id::{Backend, PayloadDigest};
use domain::lifecycle::{LogEnd, Outcome, Settlement};
use domain::metadata::{Claim, ExecutorRecord};
use domain::policy::Shares;

use super::*;

fn record(epoch: Epoch, task: &[u8]) -> ExecutorRecord {
    let at = Timestamp::from_second(1_900_000_000).unwrap();
    ExecutorRecord {
        id: "gitea-task-7".parse().unwrap(),
        instance: "f66f031b".parse().unwrap(),
        backend: Backend::Local,
        epoch,
        digest: PayloadDigest::of(task),
        repository: "owner/name".parse().unwrap(),
        job_key: "build".parse().unwrap(),
        spiffe_id: "spiffe://example.org/ci/owner/name/build".parse().unwrap(),
        fetched_at: at,
        deadline: at,
        claim: Some(Claim { at, log_shift: 0 }),
        interrupted_at: None,
        steps: None,
        terminal: false,
    }
}

fn board() -> Board {
    let instance: domain::id::InstanceId = "f66f031b".parse().unwrap();
    let metrics = crate::ops::metrics::Metrics::new(&instance);
    Board::new(Limits::default(), Clock::start(), Chronicle::new(metrics, instance))
}

fn lane(record: &ExecutorRecord) -> Lane {
    let token = Zeroizing::new(String::new());
    let credential = crate::gitea::Credential { uuid: String::new(), token };
    let gitea =
        Arc::new(crate::gitea::Gitea::new("http://127.0.0.1:9", credential, crate::gitea::OnCancel::Stops).unwrap());
    Lane::new(gitea, record.id.task())
}

fn insert(board: &Board, record: &ExecutorRecord) {
    let life = Life::found_executor(record, board.now());
    assert!(board.insert(record.id, Some(Card::of_executor(record)), lane(record), life));
}

/// ADM-5, NEW-55, NEW-3: the executor of a life that another takes the place of holds its slot until a list that was begun
/// afterwards does not show it.
#[test]
fn the_executor_of_a_superseded_life_holds_its_slot() {
    let board = board();
    let older = record(Epoch::FIRST, b"older");
    insert(&board, &older);
    let begun_before = board.strays();
    let newer = Life::fetched(board.now(), Timestamp::MAX, vec![]);
    let card = Card::of_executor(&record(Epoch::FIRST, b"newer"));
    board.supersede(older.id, Some(card.clone()), lane(&older), newer.clone());
    let full = Occupancy { executors: 1, held: 1 };
    assert_eq!(board.occupancy(), full);
    let _known = board.set_strays(Strays::default(), &begun_before);
    assert_eq!(board.occupancy(), full, "a list that was begun before knows nothing of it");
    let shown = Strays { fenced: [(older.id, Epoch::FIRST)].into(), ..Strays::default() };
    let _known = board.set_strays(shown, &board.strays());
    assert_eq!(board.occupancy(), full, "still there, and counted once");
    let _known = board.set_strays(Strays::default(), &board.strays());
    assert_eq!(board.occupancy(), Occupancy { executors: 0, held: 1 });
    // One that takes the place of a life that has just gone is there all the same.
    let empty = self::board();
    empty.supersede(older.id, Some(card), lane(&older), newer);
    assert_eq!(empty.occupancy(), Occupancy { executors: 0, held: 1 });
}

/// NEW-5, NEW-9: the right to fetch, as the fetch room uses it and `status` shows it.
#[test]
fn permits_are_free_slots_and_look_ahead_less_what_is_held() {
    let board = board();
    let room = Room { capacity: 2, look_ahead: 1, shares: Shares::default() };
    assert_eq!(board.permits(&room), 0, "nothing is known yet");
    board.recovered(Recovery::Complete);
    assert_eq!(board.permits(&room), 3);
    let older = record(Epoch::FIRST, b"older");
    insert(&board, &older);
    assert_eq!(board.permits(&room), 2);
    board.supersede(older.id, None, lane(&older), Life::fetched(board.now(), Timestamp::MAX, vec![]));
    assert_eq!(board.permits(&room), 1);
}

/// NEW-57, T47, F46: the payload of a task is on the board from the offer to its executor's first update, and nothing of the
/// task is there when its executor and its message have gone.
#[test]
fn nothing_of_a_task_is_kept_longer_than_it_is_needed() {
    let board = board();
    let record = record(Epoch::FIRST, b"task");
    let (id, epoch) = (record.id, Epoch::FIRST);
    let deadline = board.now() + jiff::SignedDuration::from_hours(1);
    board.insert(id, Some(Card::of_executor(&record)), lane(&record), Life::fetched(board.now(), deadline, vec![]));
    let on = |events: Vec<Event>| events.into_iter().for_each(|event| drop(board.apply(id, event).unwrap()));
    let payload: Payload = Arc::new(Zeroizing::new(b"task".to_vec()));
    board.offer(id, epoch, Arc::clone(&payload));
    assert!(board.payload(id).is_none(), "who waits has it in the queue");
    on(vec![Event::Persisted, Event::LaunchBegun { epoch }]);
    board.offer(id, epoch, payload);
    on(vec![Event::ExecutorReady { epoch }, Event::Hello { epoch }, Event::TaskAsked { epoch }]);
    on(vec![Event::ClaimWritten { epoch, log_shift: 1 }]);
    assert!(board.payload(id).is_some(), "its answer may be lost");
    on(vec![Event::RunnerLog { epoch, index: 0, count: 1, end: LogEnd::Last(None) }]);
    assert!(board.payload(id).is_none(), "it has reported");
    on(vec![Event::Settled { epoch, how: Settlement::Removed }, Event::LogSealed]);
    on(vec![Event::Answered { outcome: Some(Outcome::Success) }, Event::Marked, Event::ExecutorAbsent]);
    assert!(board.view(id).is_none() && board.card(id).is_none() && board.lane(id).is_none());
}
