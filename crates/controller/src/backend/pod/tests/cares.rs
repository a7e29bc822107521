//! What is kept of a Pod beside it, by the clock alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::backend::pod::care::{Chore, Secret as SecretOf};
use crate::backend::pod::trouble::Told;
use crate::backend::pod::upkeep::{SWEEP, Sweeps};

fn pod(spec: Value, status: Value) -> Seen {
    let pod = json!({"metadata": {"name": name(7), "uid": "u"}, "spec": spec, "status": status});
    Seen::of(serde_json::from_value(pod).unwrap()).unwrap()
}

/// NEW-66, NEW-11: what a Pod's events say is asked for after pauses that grow to a minute, since hundreds may stand still at
/// once, and anew when it waits for something else.
#[test]
fn events_are_asked_for_ever_less_often() {
    let begin = Instant::now();
    let (placing, preparing) = (pod(json!({}), json!({})), pod(json!({"nodeName": "n1"}), json!({})));
    let mut care = Care::new(begin);
    let mut asked = |from: u64, pod: &Seen| {
        let mut last = from;
        let mut pauses = Vec::new();
        for second in from..from + 600 {
            let now = begin + Duration::from_secs(second);
            care.watch(pod, now);
            if care.chores(pod, Some(&record(7)), now).contains(&Chore::ReadEvents) {
                care.events_read(Some(Vec::new()), now);
                pauses.push(second - last);
                last = second;
            }
        }
        pauses
    };
    for (from, pod) in [(0, &placing), (600, &preparing)] {
        let pauses = asked(from, pod);
        // A fifth more or less, and the second that is looked at next.
        for (pause, wanted) in pauses.iter().zip([8..=13, 16..=25, 32..=49].into_iter().chain(vec![48..=73; 20])) {
            assert!(wanted.contains(pause), "{pauses:?}");
        }
        assert!((8..=14).contains(&pauses.len()), "{pauses:?}");
    }
}

/// NEW-72, NEW-66: a Pod whose Secret was made is not given up for what its kubelet said before.
#[test]
fn a_secret_that_was_made_is_there() {
    let begin = Instant::now();
    let creating = pod(json!({"nodeName": "n1"}), json!({"phase": "Pending"}));
    let message = format!("MountVolume.SetUp failed for volume \"capability\" : secret \"{}\" not found", name(7));
    let missing = Told { reason: "FailedMount".to_owned(), message, at: None };
    let after_a_minute = |secret: SecretOf| {
        let mut care = Care::new(begin);
        care.secret = secret;
        care.events = vec![missing.clone()];
        care.watch(&creating, begin);
        let at = (begin + Duration::from_secs(60), Timestamp::now());
        care.state(&creating, Some(&record(7)), Duration::from_secs(900), at)
    };
    assert!(matches!(after_a_minute(SecretOf::Unknown), ExecutorState::Failed(_)));
    assert_eq!(after_a_minute(SecretOf::Written(None)), ExecutorState::Pending);
}

/// NEW-75: there is one sweep at a time, however long it takes.
#[tokio::test(start_paused = true)]
async fn sweeps_do_not_overlap() {
    let (begun, mut sweeps) = (Arc::new(AtomicUsize::new(0)), Sweeps::new());
    let long = SWEEP * 5 / 2;
    for _ in 0..5 {
        let begun = Arc::clone(&begun);
        sweeps.begin_due(async move {
            begun.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(long).await;
        });
        tokio::time::sleep(SWEEP).await;
    }
    // At 30 s and, after those at 60 s and 90 s were left out, at 120 s.
    assert_eq!(begun.load(Ordering::Relaxed), 2);
}
