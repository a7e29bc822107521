//! Where the books and reality do not agree (NEW-134): the lives on the board beside the last complete list.
//!
//! The rooms mend every difference by themselves, most of them within a second, so one that is seen here lasts: a removal
//! that fails, a create without an end, lists that do not come.

use domain::id::{AssignmentId, Epoch, InstanceId, executor_name};
use domain::lifecycle::{Executor, Life, Phase};
use jiff::{SignedDuration, Timestamp};

use crate::board::{Listed, Strays, View};
use crate::ops::status::Difference;

/// Longer than a create (90 s) and than the grace after an end (60 s) with what follows each.
const LASTS: SignedDuration = SignedDuration::from_secs(120);

/// What differs at this moment.
pub(super) fn differences(
    views: &[View],
    listed: Option<&Listed>,
    strays: &Strays,
    instance: &InstanceId,
    at: Timestamp,
) -> Vec<Difference> {
    let difference = |kind: &str, (id, epoch): (AssignmentId, Epoch), what: String| Difference {
        kind: kind.to_owned(),
        name: executor_name(id, instance, epoch),
        what,
    };
    let without_task = strays.fenced.iter().map(|stray| {
        let what = "it exists, and no task has it any more; it is being removed".to_owned();
        difference("executor_without_task", *stray, what)
    });
    // Before the first list nothing is known of what exists.
    let of_lives = listed.into_iter().flat_map(|listed| {
        views.iter().filter_map(move |view| {
            let (kind, what) = of_life(view.id, &view.life, view.wants.removal, listed, at)?;
            Some(difference(kind, (view.id, view.life.epoch()), what))
        })
    });
    without_task.chain(of_lives).collect()
}

fn of_life(
    id: AssignmentId,
    life: &Life,
    must_go: bool,
    listed: &Listed,
    at: Timestamp,
) -> Option<(&'static str, String)> {
    let stands = at.duration_since(life.since());
    if life.executor() == Executor::Absent || stands < LASTS {
        return None;
    }
    let seconds = stands.as_secs();
    match (listed.executors.contains(&(id, life.epoch())), life.phase()) {
        (true, _) if must_go => {
            Some(("executor_not_removed", format!("it exists, and nobody has needed it for {seconds} s")))
        }
        (true, _) => None,
        (false, Phase::Creating) => {
            Some(("task_without_executor", format!("it has been in the making for {seconds} s, and no list shows it")))
        }
        (false, _) => {
            let old = at.duration_since(listed.at).as_secs();
            let what = format!("its task counts on it, and the last list, {old} s ago, did not show it");
            Some(("task_without_executor", what))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use domain::lifecycle::{Event, Limits, Outcome};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + second).unwrap()
    }

    /// A task whose life took these steps, each in the first second.
    fn life(events: &[Event]) -> Life {
        let begin = Life::fetched(at(0), at(10_000), vec![]);
        events.iter().fold(begin, |life, event| life.step(event.clone(), at(0), &Limits::default()).0)
    }

    /// What is shown of it so many seconds later, when a list has just shown these executors of its task.
    fn shown(life: &Life, listed: &[Epoch], second: i64) -> Option<&'static str> {
        let id: AssignmentId = "gitea-task-7".parse().unwrap();
        let executors = listed.iter().map(|epoch| (id, *epoch)).collect();
        let must_go = life.wants(at(second), &Limits::default()).removal;
        of_life(id, life, must_go, &Listed { at: at(second), executors }, at(second)).map(|(kind, _)| kind)
    }

    /// NEW-134, F115: what does not agree for longer than it takes to agree is shown, each with its kind; nothing else is.
    #[test]
    fn what_lasts_is_shown() {
        let (epoch, none) = (Epoch::FIRST, None);
        let creating = life(&[Event::Persisted, Event::LaunchBegun { epoch }]);
        assert_eq!(shown(&creating, &[], 119), none);
        assert_eq!(shown(&creating, &[], 120), Some("task_without_executor"));
        assert_eq!(shown(&creating, &[epoch], 120), none);
        assert_eq!(shown(&creating, &[epoch.next()], 120), Some("task_without_executor"), "another one is no proof");
        let answered = Event::Answered { outcome: Some(Outcome::Cancelled) };
        let ready = Event::ExecutorReady { epoch };
        let over = life(&[Event::Persisted, Event::LaunchBegun { epoch }, ready.clone(), answered, Event::Marked]);
        assert_eq!(shown(&over, &[epoch], 119), none);
        assert_eq!(shown(&over, &[epoch], 120), Some("executor_not_removed"));
        let offered = life(&[Event::Persisted, Event::LaunchBegun { epoch }, ready]);
        assert_eq!(shown(&offered, &[epoch], 600), none);
        assert_eq!(shown(&offered, &[], 600), Some("task_without_executor"));
        assert_eq!(shown(&life(&[Event::Persisted]), &[], 600), none, "one that waits has none");
    }

    /// NEW-134, NEW-3: what no task has any more is shown as long as it exists, whether a list came or not.
    #[test]
    fn an_executor_without_a_task_is_shown() {
        let strays = Strays { fenced: [("gitea-task-7".parse().unwrap(), Epoch::FIRST)].into(), ..Strays::default() };
        let found = differences(&[], None, &strays, &"f66f031b".parse().unwrap(), at(0));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.kind.as_str(), one.name.as_str()), ("executor_without_task", "gitea-task-7-f66f031b-e1"));
    }
}
