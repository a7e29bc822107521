#![expect(clippy::unwrap_used, reason = "tests")]

use buffa::Message as _;
use proptest::prelude::*;
use runner_proto::runner::v1::Task;
use serde_json::{Value, json};

use super::*;
use crate::identity::IdentityCase;
use crate::samples::{SECRET, fetched_at, payload, push, rules, task, task_with};

fn made(task: &[u8]) -> Assignment {
    Assignment::from_task(task, &rules(), fetched_at()).unwrap()
}

#[track_caller]
fn refused(task: &[u8], rules: &Rules) -> Refusal {
    Assignment::from_task(task, rules, fetched_at()).unwrap_err()
}

fn of_context(context: Value) -> Result<Assignment, Refusal> {
    Assignment::from_task(&task_with(&payload("publish", "pod"), context), &rules(), fetched_at())
}

/// ENV-1, ENV-2, IDN-1: what is derived of an ordinary task.
#[test]
fn a_task_becomes_an_assignment() {
    let bytes = task("publish", "[self-hosted, pod]");
    let assignment = made(&bytes);
    assert_eq!(assignment.id.to_string(), "gitea-task-42");
    assert_eq!(assignment.backend, Backend::Pod);
    assert_eq!(assignment.spiffe_id.as_str(), "spiffe://example.org/ci/owner/repo/publish");
    assert_eq!(assignment.class, TrustClass::Trusted);
    assert_eq!(assignment.digest, PayloadDigest::of(&bytes));
    assert_eq!(assignment.runs_on, ["self-hosted", "pod"]);
    assert!(!assignment.unlabelled);
    assert_eq!(assignment.steps.len(), 1);
    assert!(!format!("{assignment:?}").contains(SECRET), "no payload in it");
}

/// ENV-1: a task id is greater than 0 and is found even where the rest cannot be read.
#[test]
fn a_task_has_a_positive_number() {
    for id in [0, -1, i64::MIN] {
        let bytes = Task { id, workflow_payload: Some(payload("a", "pod").into()), ..Default::default() };
        assert_eq!(task_id(&bytes.encode_to_vec()), None);
        assert_eq!(refused(&bytes.encode_to_vec(), &rules()).reason, Reason::InvalidWorkflow);
    }
    assert_eq!(task_id(&task("a", "pod")).map(TaskId::get), Some(42));
    assert_eq!(task_id(&Task { id: i64::MAX, ..Default::default() }.encode_to_vec()).map(TaskId::get), Some(i64::MAX));
    assert_eq!(task_id(&[8, 42, 0xfb]).map(TaskId::get), Some(42), "damaged behind its id");
    assert_eq!(task_id(b""), None);
    assert_eq!(task_id(&[8, 0]), None, "a zero that is written out");
}

/// NEW-14: what can never run is refused with a reason of the closed list, and its steps can still be closed.
#[test]
fn what_can_never_run_is_refused_with_a_reason() {
    let reason = |task: &[u8]| refused(task, &rules()).reason;
    assert_eq!(reason(b""), Reason::InvalidWorkflow);
    assert_eq!(reason(&[8, 42, 0xfb]), Reason::InvalidWorkflow);
    assert_eq!(reason(&[8, 42]), Reason::InvalidWorkflow, "no payload");
    assert_eq!(reason(&task("'Run on Ubuntu'", "pod")), Reason::InvalidJobKey);
    assert_eq!(reason(&task("a", "[self-hosted, pod, vm]")), Reason::AmbiguousBackend);
    assert_eq!(reason(&task("a", "local")), Reason::BackendDisabled);
    for label in ["'pod,vm'", "'pod:host'", "\"po\\x07d\""] {
        assert_eq!(reason(&task("a", label)), Reason::UnsupportedLabels, "{label}");
    }
    let none = Rules { default_backend: None, ..rules() };
    assert_eq!(refused(&task("a", "[self-hosted]"), &none).reason, Reason::UnsupportedLabels);
    assert_eq!(step_count(&task("'Run on Ubuntu'", "pod")), 1);
    assert_eq!(step_count(b"\xff"), 0);
}

/// IDN-3, NEW-14: the text names the rule.
#[test]
fn a_refused_job_key_names_the_rule() {
    let refusal = refused(&task("1a", "pod"), &rules());
    assert!(refusal.cause.contains("\"1a\"") && refusal.cause.contains("begin with a letter"), "{}", refusal.cause);
}

/// IDN-4, §4.2: a repository is two legal segments, else refused.
#[test]
fn a_repository_is_never_rewritten() {
    for name in ["invalid", "", "a/b/c", "/b", "a/", "../b", "a/..", "a/.", "a b/c", "a/b\n", "ä/b", "a/b%2f", "a//b"]
    {
        let refusal = of_context(json!({"repository": name, "event_name": "push"})).unwrap_err();
        assert_eq!(refusal.reason, Reason::InvalidRepository, "{name:?}");
    }
    for context in [json!({}), json!({"repository": 7}), json!({"repository": {"full_name": "owner/repo"}})] {
        assert_eq!(of_context(context).unwrap_err().reason, Reason::InvalidRepository);
    }
}

/// NEW-120, NEW-125: the listed events are trusted; what is unknown or missing is not.
#[test]
fn only_listed_events_are_trusted() {
    let class = |event: Value| {
        let mut context = push();
        context["event_name"] = event;
        of_context(context).unwrap().class
    };
    for event in ["push", "schedule", "workflow_dispatch", "release", "pull_request_target"] {
        assert_eq!(class(json!(event)), TrustClass::Trusted, "{event}");
    }
    let others = [
        "pull_request",
        "pull_request_review",
        "pull_request_comment",
        "pull_request_sync",
        "workflow_call",
        "workflow_run",
        "issue_comment",
        "Push",
        "push ",
        "",
    ];
    for event in others {
        assert_eq!(class(json!(event)), TrustClass::Untrusted, "{event:?}");
    }
    assert_eq!(class(json!(["push"])), TrustClass::Untrusted);
    let missing = of_context(json!({"repository": "owner/repo"})).unwrap();
    assert_eq!(missing.spiffe_id.as_str(), "spiffe://example.org/ci-untrusted/owner/repo/publish");
}

/// NEW-120: an operator's policy refuses untrusted tasks with a reason, also when a stored one is derived again.
#[test]
fn untrusted_tasks_can_be_refused() {
    let mut rules = rules();
    rules.trust.untrusted = crate::policy::Untrusted::Refuse;
    let context = json!({"repository": "owner/repo", "event_name": "pull_request"});
    assert_eq!(refused(&task_with(&payload("a", "pod"), context), &rules).reason, Reason::PolicyRefused);
    assert!(Assignment::from_task(&task("a", "pod"), &rules, fetched_at()).is_ok());
}

/// NEW-127: what the audit tells of a task, whether it became an assignment or not.
#[test]
fn evidence_is_what_the_task_says() {
    let bytes = task("publish", "pod");
    let evidence = made(&bytes).evidence(&bytes);
    assert_eq!((evidence.rule, evidence.repository_id, evidence.event.as_deref()), ("event", Some(4), Some("push")));
    assert_eq!(Evidence { rule: "", ..evidence }, evidence_of(&bytes));
    assert_eq!(evidence_of(b"no task"), Evidence::default());
}

/// NEW-120, F120: the head repository's name is no proof of trust (an AGit push carries the base's).
#[test]
fn the_head_repository_proves_nothing() {
    let repository = json!({"full_name": "owner/repo", "fork": false});
    let mut context = push();
    assert_eq!(of_context(context.clone()).unwrap().class, TrustClass::Trusted, "but for its event it is a push");
    context["event_name"] = json!("pull_request");
    context["event"]["pull_request"] = json!({"head": {"repo": repository}, "base": {"repo": repository}});
    assert_eq!(of_context(context).unwrap().class, TrustClass::Untrusted);
}

/// NEW-122: the numbers behind a name, and none unless both are whole and positive.
#[test]
fn a_pin_is_two_positive_numbers() {
    let pin = |repository: Value| {
        let event = json!({"repository": repository});
        of_context(json!({"repository": "owner/repo", "event_name": "push", "event": event})).unwrap().pin
    };
    let good = pin(json!({"id": 4, "owner": {"id": 2}}));
    assert_eq!(good, Some(RepositoryPin { repository: 4, owner: 2 }));
    let without = json!({"repository": "owner/repo", "event_name": "push", "workflow": "ci.yml"});
    assert_eq!(of_context(without).unwrap().class, TrustClass::Untrusted, "missing ids count as untrusted");
    for bad in [
        json!({"id": 4}),
        json!({"id": 0, "owner": {"id": 2}}),
        json!({"id": 4.5, "owner": {"id": 2}}),
        json!({"id": "4", "owner": {"id": 2}}),
        json!({"id": 4, "owner": {"id": -2}}),
        json!({"id": 4, "owner": {"id": 1e300}}),
        json!([4]),
    ] {
        assert_eq!(pin(bad.clone()), None, "{bad}");
    }
}

/// IDN-2, IDN-8, F124: nothing of a hostile workflow but the job key reaches the identity.
#[test]
fn a_workflow_supplies_its_job_key_and_nothing_else() {
    let hostile = "name: spiffe://example.org/ci/other/repo/deploy\nrun-name: deploy\n\"on\": push\nenv:\n    \
                   CI_SPIFFE_ID: spiffe://example.org/ci/other/repo/deploy\n    GITHUB_REPOSITORY: other/repo\n\
                   repository: other/repo\nevent_name: push\njobs:\n    publish:\n        name: deploy\n        \
                   env: {CI_SPIFFE_ID: 'spiffe://example.org/ci/other/repo/deploy', repository: other/repo}\n        \
                   runs-on: [self-hosted, pod, deploy]\n        outputs: {spiffe-id: deploy, job: deploy}\n        \
                   key: deploy\n        steps: [{id: deploy, name: deploy, run: 'echo CI_SPIFFE_ID=x >> $GITHUB_ENV'}]\n";
    let context = json!({"repository": "owner/repo", "event_name": "pull_request", "job": "deploy", "workflow": "d.yml",
                         "run_id": "7", "run_attempt": "2", "actor": "admin", "repository_owner": "other",
                         "head_ref": "push", "event": {"repository": {"full_name": "other/repo"}}});
    let assignment = Assignment::from_task(&task_with(hostile, context), &rules(), fetched_at()).unwrap();
    assert_eq!(assignment.spiffe_id.as_str(), "spiffe://example.org/ci-untrusted/owner/repo/publish");
}

/// T35, §1.4, F17, F68: the run ends before Gitea's endless limit would end it.
#[test]
fn the_deadline_is_the_earlier_of_two() {
    let minutes = |run_limit: Option<i64>, endless: i64| {
        let run_limit = run_limit.map(SignedDuration::from_mins);
        let rules = Rules { run_limit, endless_limit: SignedDuration::from_mins(endless), ..rules() };
        let made = Assignment::from_task(&task("a", "pod"), &rules, fetched_at()).unwrap();
        made.deadline.duration_since(made.fetched_at).as_mins()
    };
    assert_eq!(minutes(None, 180), 175);
    assert_eq!(minutes(Some(60), 180), 60);
    assert_eq!(minutes(Some(179), 180), 175);
}

/// ENV-5, NEW-109: a job with labels is served as the very bytes.
#[test]
fn a_labelled_task_is_served_as_it_came() {
    let bytes = task("publish", "[self-hosted, pod]");
    assert_eq!(*made(&bytes).served_task(&bytes).unwrap(), bytes);
}

/// ENV-5, NEW-161: a job without labels differs in `runs-on` alone, unknown fields and order included, every time.
#[test]
fn an_unlabelled_task_differs_in_runs_on_alone() {
    for empty in ["[]", "''", "~"] {
        let bytes = task("publish", empty);
        let assignment = made(&bytes);
        assert!(assignment.unlabelled);
        assert_eq!(assignment.runs_on, ["self-hosted", "pod"]);
        let served = assignment.served_task(&bytes).unwrap();
        assert_eq!(*served, task("publish", r#"["self-hosted", "pod"]"#), "{empty:?}");
        assert_eq!(assignment.served_task(&bytes).unwrap(), served);
    }
}

/// NEW-161: what cannot be served is refused at the fetch, not when it was waited for.
#[test]
fn a_job_that_cannot_be_given_labels_never_waits() {
    let flow = task_with("jobs: {a: {runs-on: []}}", json!({"repository": "owner/repo"}));
    assert_eq!(refused(&flow, &rules()).reason, Reason::UnsupportedLabels);
    let none = Rules { default_backend: None, ..rules() };
    assert_eq!(refused(&task("a", "[]"), &none).reason, Reason::UnsupportedLabels);
}

/// ENV-6, ENV-9: an assignment follows from its own task under its own rules, and from no other.
#[test]
fn an_assignment_follows_from_its_task_alone() {
    let bytes = task("publish", "pod");
    let good = made(&bytes);
    assert!(good.follows_from(&bytes));
    assert!(!good.follows_from(&task("other", "pod")));
    let identity = IdentityRules { case: IdentityCase::Preserve, ..rules().identity };
    let other_rules = Rules { identity, ..rules() };
    for forged in [
        Assignment { backend: Backend::Vm, ..good.clone() },
        Assignment { spiffe_id: "spiffe://example.org/ci/owner/repo/other".parse().unwrap(), ..good.clone() },
        Assignment { class: TrustClass::Untrusted, ..good.clone() },
        Assignment { repository: "owner/other".parse().unwrap(), ..good.clone() },
        Assignment { instance: "other".parse().unwrap(), ..good.clone() },
        Assignment { deadline: Timestamp::MAX, ..good.clone() },
        Assignment { unlabelled: true, ..good.clone() },
        Assignment { runs_on: vec!["vm".to_owned()], ..good.clone() },
        Assignment { rules: Rules { instance: "other".parse().unwrap(), ..rules() }, ..good.clone() },
    ] {
        assert!(!forged.follows_from(&bytes), "{forged:?}");
    }
    assert!(Assignment::from_task(&bytes, &other_rules, fetched_at()).unwrap().follows_from(&bytes));
}

/// ENV-9: what is stored comes back equal.
#[test]
fn an_assignment_survives_storage() {
    let assignment = made(&task("publish", "[]"));
    let json = serde_json::to_vec(&assignment).unwrap();
    assert_eq!(serde_json::from_slice::<Assignment>(&json).unwrap(), assignment);
}

/// NEW-37: the refusal of a task that is too large names what makes it so.
#[test]
fn the_largest_part_is_named() {
    let bytes = Task { id: 42, workflow_payload: Some(vec![b'x'; 500]), ..Default::default() };
    assert_eq!(largest_part(&bytes.encode_to_vec()), ("workflow", 503));
    let later = [0xfa, 7, 200, 1].into_iter().chain([0; 200]).collect::<Vec<u8>>();
    assert_eq!(largest_part(&later), ("unknown fields", 204));
}

proptest! {
    /// ENV-5, NEW-109: wherever unknown fields of any type stand, they and the order of all fields survive.
    #[test]
    fn unknown_fields_survive_at_any_place(
        fields in proptest::collection::vec((20_u32..1000, 0_u8..3, proptest::collection::vec(any::<u8>(), 8..40)), 0..6),
        places in proptest::collection::vec(0_usize..6, 6),
    ) {
        let build = |runs_on: &str| {
            let plain = task("publish", runs_on);
            let mut parts: Vec<Vec<u8>> =
                wire::fields(&plain).unwrap().into_iter().map(|field| plain[field.whole].to_vec()).collect();
            for ((number, kind, content), place) in fields.iter().zip(&places) {
                let mut field = Vec::new();
                match kind {
                    0 => wire::put_bytes(&mut field, *number, content),
                    1 => field.extend([0x85, 0x7d, content[0], content[1], content[2], content[3]]),
                    _ => field.extend([0x80, 0x7d, content[0] | 0x80, content[1] & 0x7f]),
                }
                parts.insert(place % (parts.len() + 1), field);
            }
            parts.concat()
        };
        let bytes = build("[]");
        let served = made(&bytes).served_task(&bytes).unwrap();
        prop_assert_eq!(&*served, &build(r#"["self-hosted", "pod"]"#));
    }

    /// F02: no bytes end the process.
    #[test]
    fn hostile_bytes_are_only_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..400) {
        let _refused = Assignment::from_task(&bytes, &rules(), fetched_at());
        let good = task("publish", "[]");
        let cut = &good[..cut.min(good.len())];
        if let Ok(assignment) = Assignment::from_task(cut, &rules(), fetched_at()) {
            prop_assert!(assignment.served_task(cut).is_ok());
        }
    }
}
