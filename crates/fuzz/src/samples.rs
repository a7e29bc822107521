//! Keys, rules and a task that several targets need.

use buffa::Message as _;
use domain::assignment::Rules;
use domain::capability::{Key, KeyRing};
use domain::id::{AssignmentId, Backend, InstanceId};
use domain::identity::{IdentityCase, IdentityRules};
use domain::policy::{LabelMap, TrustPolicy};
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::Task;

pub(crate) const PAYLOAD: &str =
    "name: ci\n\"on\": push\njobs:\n    publish:\n        runs-on: [pod]\n        steps:\n            - run: x\n";

#[expect(clippy::expect_used, reason = "a constant of 32 bytes is a key")]
pub(crate) fn ring() -> KeyRing {
    let key = |text: &[u8]| Key::new(text).expect("a key");
    KeyRing::new(key(b"0123456789abcdef0123456789abcdef"), Some(key(b"fedcba9876543210fedcba9876543210")))
}

#[expect(clippy::expect_used, reason = "a constant that is well-formed")]
pub(crate) fn instance() -> InstanceId {
    "f66f031b".parse().expect("an instance")
}

#[expect(clippy::expect_used, reason = "a constant that is well-formed")]
pub(crate) fn id() -> AssignmentId {
    "gitea-task-42".parse().expect("an assignment")
}

pub(crate) fn moment() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000)
}

#[expect(clippy::expect_used, reason = "constants that are well-formed")]
pub(crate) fn rules() -> Rules {
    Rules {
        instance: instance(),
        labels: LabelMap::new(&[Backend::Pod, Backend::Vm], "vm", &[]),
        default_backend: Some(Backend::Pod),
        identity: IdentityRules {
            trust_domain: "example.org".parse().expect("a trust domain"),
            prefix: None,
            case: IdentityCase::Lower,
        },
        trust: TrustPolicy::default(),
        run_limit: None,
        endless_limit: SignedDuration::from_hours(3),
    }
}

/// A push to `owner/repo`, with this payload.
#[expect(clippy::expect_used, reason = "a constant that is well-formed")]
pub(crate) fn task(payload: &str) -> Vec<u8> {
    let context = serde_json::json!({
        "repository": "owner/repo", "event_name": "push", "ref": "refs/heads/main", "workflow": "ci.yml",
        "event": {"repository": {"id": 4, "default_branch": "main", "owner": {"id": 2}}},
    });
    let context: buffa_types::google::protobuf::Struct = serde_json::from_value(context).expect("a structure");
    let secrets = [("TOKEN".to_owned(), "secret".to_owned())].into_iter().collect();
    Task {
        id: 42,
        workflow_payload: Some(payload.into()),
        context: Some(context).into(),
        secrets,
        ..Default::default()
    }
    .encode_to_vec()
}
