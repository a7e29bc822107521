//! A task as Gitea hands it out (ENV-1…ENV-6, IDN-8).

use domain::assignment::{self, Assignment};
use domain::envelope;

use crate::samples::{PAYLOAD, instance, moment, ring, rules, task};

/// What is accepted has an identity of its own repository and job, is served with its own bytes, and comes back whole
/// out of the queue.
pub(crate) fn check(input: &[u8]) {
    let _ = assignment::evidence_of(input);
    let _ = (assignment::step_count(input), assignment::largest_part(input));
    let Ok(assignment) = Assignment::from_task(input, &rules(), moment()) else { return };
    assert_eq!(assignment::task_id(input), Some(assignment.id.task()), "two numbers");
    assert!(assignment.follows_from(input), "the same bytes say something else");

    let identity = assignment.spiffe_id.to_string();
    assert!(identity.starts_with("spiffe://example.org/ci"), "outside the prefix: {identity}");
    assert_eq!(
        identity.matches('/').count(),
        2 + 4,
        "more or fewer names than prefix, owner, repository, job: {identity}"
    );
    match assignment.served_task(input) {
        Ok(served) if assignment.unlabelled => assert!(served.len() > input.len(), "nothing was filled in"),
        Ok(served) => assert!(*served == input, "other bytes are served"),
        Err(refusal) => panic!("accepted, but it cannot be served: {}", refusal.cause),
    }
    if let Ok(sealed) = envelope::seal(&ring(), "subject", &assignment, input, [7; 12]) {
        match envelope::open(&ring(), "subject", &sealed, &instance()) {
            Ok(opened) => assert!(opened.assignment == assignment && *opened.task == *input, "another task came out"),
            Err(error) => panic!("sealed, but it does not open: {error}"),
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let without_labels = PAYLOAD.replace("        runs-on: [pod]\n", "");
    [PAYLOAD, &without_labels, &PAYLOAD.replace("[pod]", "[]"), &PAYLOAD.replace("publish", "a.b")].map(task).into()
}
