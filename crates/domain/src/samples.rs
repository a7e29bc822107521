//! Tasks and rules that the tests of several rooms share.
#![expect(clippy::unwrap_used, reason = "tests")]

use buffa::Message as _;
use buffa_types::google::protobuf::Struct;
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::Task;
use serde_json::{Value, json};

use crate::assignment::Rules;
use crate::id::Backend;
use crate::identity::{IdentityCase, IdentityRules};
use crate::policy::{LabelMap, TrustPolicy};
use crate::wire;

pub(crate) const SECRET: &str = "secret-of-the-repository";

pub(crate) fn payload(key: &str, runs_on: &str) -> String {
    format!(
        "name: ci\n\"on\": push\njobs:\n    {key}:\n        runs-on: {runs_on}\n        steps:\n            - run: x\n"
    )
}

/// Task 42 with this payload and context, a secret, and a field of a later Gitea before and behind all others. The
/// same input gives the same bytes: a map's entries are written one by one.
pub(crate) fn task_with(payload: &str, context: Value) -> Vec<u8> {
    let entry = |(key, value): (String, Value)| {
        let one: Struct = serde_json::from_value(json!({ key: value })).unwrap();
        one.encode_to_vec()
    };
    let Value::Object(context) = context else { panic!("a context is an object") };
    let context: Vec<u8> = context.into_iter().flat_map(entry).collect();
    let secrets = [("TOKEN".to_owned(), SECRET.to_owned())].into_iter().collect();
    let mut task = Vec::new();
    wire::put_bytes(&mut task, 127, b"before");
    task.extend(Task { id: 42, workflow_payload: Some(payload.into()), ..Default::default() }.encode_to_vec());
    wire::put_bytes(&mut task, 3, &context);
    task.extend(Task { secrets, ..Default::default() }.encode_to_vec());
    wire::put_bytes(&mut task, 127, b"behind");
    task
}

/// A push to `owner/repo`.
pub(crate) fn task(key: &str, runs_on: &str) -> Vec<u8> {
    task_with(&payload(key, runs_on), json!({"repository": "owner/repo", "event_name": "push"}))
}

pub(crate) fn rules() -> Rules {
    Rules {
        instance: "f66f031b".parse().unwrap(),
        labels: LabelMap::new(&[Backend::Pod, Backend::Vm], "vm", &[]),
        default_backend: Some(Backend::Pod),
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

pub(crate) fn fetched_at() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}
