//! What every issuer is tested with.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use domain::identity::{IdentityCase, IdentityRules};

use super::content::AgentId;
use super::*;

/// The Pod of the task of this number, and its identity.
pub(super) fn pod(number: &str) -> BoundPod {
    BoundPod {
        key: PodKey {
            name: format!("gitea-task-{number}-one-e1"),
            uid: format!("00000000-0000-4000-8000-{number:0>12}"),
        },
        node: "node-a".to_owned(),
        assignment: format!("gitea-task-{number}").parse().unwrap(),
        spiffe_id: "spiffe://td.test/ci/acme/app/build".parse().unwrap(),
    }
}

pub(super) fn rules() -> EntryRules {
    let identity = IdentityRules { trust_domain: "td.test".parse().unwrap(), prefix: None, case: IdentityCase::Lower };
    EntryRules {
        identity,
        namespace: "ci".to_owned(),
        service_account: "executor".to_owned(),
        ttl: Duration::from_secs(30 * 60),
    }
}

/// The same for every node.
pub(super) fn alias() -> Parents {
    Parents::Fixed(AgentId::named(&"spiffe://td.test/ci-nodes".parse().unwrap()))
}

/// POD-5, F120, F124: an ID that is no job's under our rules, and a Pod that Kubernetes cannot have made, are refused
/// before anything is asked or written, with the rule and what to do.
#[test]
fn only_our_own_ids_are_bound() {
    let refusal = |pod: &BoundPod| match rules().permit(pod) {
        Err(IssueError::Refused { cause, remedy }) if !remedy.is_empty() => cause,
        other => panic!("{other:?}"),
    };
    rules().permit(&pod("7")).unwrap();
    for id in ["spiffe://td.test/ns/ci/sa/controller", "spiffe://other.test/ci/acme/app/build"] {
        let cause = refusal(&BoundPod { spiffe_id: id.parse().unwrap(), ..pod("7") });
        assert!(cause.contains(id) && cause.contains("spiffe://td.test/ci"), "{cause}");
    }
    for uid in ["", "..", "a/b", "a,b=c", "UPPER"] {
        let key = PodKey { uid: uid.to_owned(), ..pod("7").key };
        let cause = refusal(&BoundPod { key, ..pod("7") });
        assert!(cause.contains("UID"), "{cause}");
    }
}
