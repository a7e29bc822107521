//! What it costs to seal a task of 16 KiB and to open it again. Prints every time as one JSON row for
//! `cargo xtask bench`, which says what they come to.
#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::time::{Duration, Instant};

use buffa::Message as _;
use domain::assignment::{Assignment, Rules};
use domain::capability::{Key, KeyRing};
use domain::envelope;
use domain::id::Backend;
use domain::identity::{IdentityCase, IdentityRules};
use domain::policy::{LabelMap, TrustPolicy};
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::Task;

const ROUNDS: usize = 2000;
const SIZE: usize = 16 << 10;

fn main() {
    let (rules, at) = (rules(), "2026-11-29T12:00:00Z".parse::<Timestamp>().unwrap());
    let (task, ring) = (task(), KeyRing::new(Key::new(&[b'k'; 32]).unwrap(), None));
    let assignment = Assignment::from_task(&task, &rules, at).unwrap();
    let nanos: Vec<_> = (0..ROUNDS).map(|round| once(&ring, &rules, &assignment, &task, round).as_nanos()).collect();
    println!("{}", serde_json::json!({ "measure": "seal + open of a task of 16 KiB", "nanos": nanos }));
}

fn once(ring: &KeyRing, rules: &Rules, assignment: &Assignment, task: &[u8], round: usize) -> Duration {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&round.to_le_bytes());
    let started = Instant::now();
    let sealed = envelope::seal(ring, "subject", assignment, task, nonce).unwrap();
    let opened = envelope::open(ring, "subject", &sealed, &rules.instance).unwrap();
    let took = started.elapsed();
    assert!(*opened.task == *task);
    took
}

/// A task whose workflow does not compress to nothing.
fn task() -> Vec<u8> {
    let mut payload = "\"on\": push\njobs:\n    job:\n        runs-on: local\n        steps:\n".to_owned();
    let mut number = 1_u64;
    while payload.len() < SIZE {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        payload.push_str(&format!("            - run: echo {number:016x}\n"));
    }
    let context = serde_json::from_value(serde_json::json!({ "repository": "owner/repo", "event_name": "push" }));
    let context = buffa::MessageField::some(context.unwrap());
    Task { id: 42, workflow_payload: Some(payload.into()), context, ..Default::default() }.encode_to_vec()
}

fn rules() -> Rules {
    Rules {
        instance: "f66f031b".parse().unwrap(),
        labels: LabelMap::new(&[Backend::Local], "vm", &[]),
        default_backend: None,
        identity: IdentityRules {
            trust_domain: "example.org".parse().unwrap(),
            prefix: None,
            case: IdentityCase::Lower,
        },
        trust: TrustPolicy::default(),
        run_limit: None,
        endless_limit: SignedDuration::from_hours(3),
    }
}
