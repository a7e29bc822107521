//! The text of a job (ENV-2, ENV-3, NEW-161).

use domain::workflow::{Job, with_runs_on};

use crate::samples::PAYLOAD;

/// A job that has no labels gets exactly these, and nothing else of it changes; one that has some keeps them.
pub(crate) fn check(input: &[u8]) {
    let Ok(job) = Job::parse(input) else { return };
    let labels = ["pod".to_owned(), "a \"label\" # of: [odd] {letters}".to_owned()];
    let Ok(edited) = with_runs_on(input, &labels) else { return };
    assert!(job.runs_on.is_empty(), "its own labels were replaced");
    match Job::parse(&edited) {
        Ok(after) => assert_eq!(after, Job { runs_on: labels.to_vec(), ..job }, "something else changed"),
        Err(refusal) => panic!("the edited text cannot be read: {}", refusal.cause),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let steps = "jobs:\n  a:\n    runs-on:\n      group: g\n      labels: [x, y]\n    steps:\n      - run: |\n          x\n        continue-on-error: ${{ true }}\n";
    let anchors = "a: &a {runs-on: &l [x]}\njobs: {b: {<<: *a, steps: [{run: 'x', continue-on-error: true}]}}\n";
    let bare = PAYLOAD.replace("        runs-on: [pod]\n", "");
    [PAYLOAD, &bare, &PAYLOAD.replace("[pod]", "[]"), steps, anchors].map(|text| text.as_bytes().to_vec()).into()
}
