//! What lies in the queue (requirements §4.4; ENV-4, ENV-6, NEW-35).

use domain::assignment::Assignment;
use domain::envelope;

use crate::samples::{PAYLOAD, instance, moment, ring, rules, task};

const SUBJECT: &str = "ci.f66f031b.pod";

/// What opens was sealed with our key, and says the same on its outside and inside. An earlier envelope that is read
/// says one number.
pub(crate) fn check(input: &[u8]) {
    if let Ok(opened) = envelope::open(&ring(), SUBJECT, input, &instance()) {
        assert_eq!(envelope::claims(input), Some(opened.assignment.id), "two numbers");
        assert!(opened.assignment.follows_from(&opened.task), "opened, but it does not follow from its task");
    }
    if let Ok(earlier) = envelope::read_v1(input) {
        assert_eq!(domain::assignment::task_id(&earlier.task), Some(earlier.id.task()), "two numbers");
        if let Ok(assignment) = earlier.assignment(&rules(), moment()) {
            assert_eq!(assignment.id, earlier.id, "two numbers");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let task = task(PAYLOAD);
    let sealed = Assignment::from_task(&task, &rules(), moment())
        .ok()
        .and_then(|assignment| envelope::seal(&ring(), SUBJECT, &assignment, &task, [7; 12]).ok());
    let earlier = r#"{"version":1,"id":"gitea-task-42","backend":"pod","task":"CCoSP2pvYnM6CiAgcHVibGlzaDoKICAgIHJ1bnMtb246IFtzZWxmLWhvc3RlZCwgcG9kXQogICAgc3RlcHM6IFtdChocChoKCnJlcG9zaXRvcnkSDBoKb3duZXIvcmVwbw==","identity":{"Repository":"owner/repo","Task":"publish","SPIFFEID":"spiffe://example.org/ci/owner/repo/publish"}}"#;
    sealed.into_iter().chain([earlier.into()]).collect()
}
