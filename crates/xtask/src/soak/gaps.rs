//! What is known not to hold with Pods, as `docs/design/gaps.md` says it: told apart, and not counted.

use std::time::{Duration, Instant};

use testkit::kubernetes::Fate;
use testkit::outcome::{Record, Rule, Violation};
use testkit::real::Signal;

use super::course::Account;

/// A Pod that others remove is told on its job's page within this time, by whoever sees it go.
const TOLD: Duration = Duration::from_secs(10);

/// The gap that a violation comes from, if it does.
pub(super) fn known(violation: &Violation, account: &Account, record: &Record) -> Option<&'static str> {
    let task = violation.task?;
    let mut befallen = account.befallen.iter().filter(|blow| blow.task == task);
    match violation.rule {
        // What its executor had taken from the runner and Gitea had not heard went with the Pod.
        Rule::ResultLost | Rule::NoReason => {
            let killed = account.struck.iter().any(|blow| blow.task == task && blow.signal == Signal::Kill);
            (killed || befallen.next().is_some()).then_some("NEW-112: no last report outlives a Pod")
        }
        Rule::NoEnd | Rule::LogOpen | Rule::Silence => {
            let unseen = |at| nobody_looked((at, at + TOLD), record);
            let removed = |fate| matches!(fate, Fate::Deleted | Fate::Forced | Fate::Preempted);
            let lost = befallen.any(|blow| removed(blow.fate) && unseen(blow.at));
            lost.then_some("NEW-17: a Pod that is removed while nobody looks is not missed")
        }
        _ => None,
    }
}

/// Whether there was a moment without a controller.
fn nobody_looked((from, to): (Instant, Instant), record: &Record) -> bool {
    let ends = record.controllers.iter().map(|process| process.ended.map(|(at, _)| at));
    let nexts = record.controllers.iter().skip(1).map(|process| Some(process.started)).chain([None]);
    let between = |(end, next): (Option<Instant>, Option<Instant>)| {
        end.is_some_and(|end| end <= to) && next.is_none_or(|next| next >= from)
    };
    ends.zip(nexts).any(between)
}

#[cfg(test)]
mod tests {
    use testkit::outcome::{Controller, Death};

    use super::super::course::Befallen;
    use super::*;

    #[test]
    fn a_pod_that_went_is_excused_where_nobody_saw_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let one = Controller { started: start, ended: Some((at(100), Death::Killed)), paused: Vec::new() };
        let other = Controller { started: at(110), ended: None, paused: Vec::new() };
        let record = Record { controllers: vec![one, other], ..Record::default() };
        let excused = |rule, seconds, fate| {
            let befallen = vec![Befallen { at: at(seconds), fate, task: 7 }];
            let account = Account { befallen, ..Account::default() };
            let violation = Violation { task: Some(7), rule, evidence: String::new() };
            known(&violation, &account, &record).is_some()
        };
        assert!(excused(Rule::NoEnd, 105, Fate::Forced) && excused(Rule::NoEnd, 95, Fate::Deleted));
        assert!(!excused(Rule::NoEnd, 50, Fate::Forced) && !excused(Rule::NoEnd, 115, Fate::Forced));
        assert!(!excused(Rule::NoEnd, 105, Fate::Evicted), "its Pod stays and tells");
        assert!(excused(Rule::ResultLost, 50, Fate::Evicted) && !excused(Rule::RunTwice, 105, Fate::Forced));
    }
}
