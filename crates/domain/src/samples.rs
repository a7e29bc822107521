//! Tasks and rules that the tests of several rooms share.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::LazyLock;

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
    task_of(payload, &context.into_iter().flat_map(entry).collect::<Vec<u8>>())
}

fn task_of(payload: &str, context: &[u8]) -> Vec<u8> {
    let secrets = [("TOKEN".to_owned(), SECRET.to_owned())].into_iter().collect();
    let mut task = Vec::new();
    wire::put_bytes(&mut task, 127, b"before");
    task.extend(Task { id: 42, workflow_payload: Some(payload.into()), ..Default::default() }.encode_to_vec());
    wire::put_bytes(&mut task, 3, context);
    task.extend(Task { secrets, ..Default::default() }.encode_to_vec());
    wire::put_bytes(&mut task, 127, b"behind");
    task
}

/// A push to `owner/repo`.
pub(crate) fn task(key: &str, runs_on: &str) -> Vec<u8> {
    // Maps inside a map have no order of their own: encoded once, so that the same input gives the same bytes.
    static PUSH: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let context: Struct = serde_json::from_value(push()).unwrap();
        context.encode_to_vec()
    });
    task_of(&payload(key, runs_on), &PUSH)
}

/// The context of a push to `owner/repo`.
pub(crate) fn push() -> Value {
    json!({
        "repository": "owner/repo", "event_name": "push", "ref": "refs/heads/main", "workflow": "ci.yml",
        "event": {"repository": {"id": 4, "default_branch": "main", "owner": {"id": 2}}},
    })
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
