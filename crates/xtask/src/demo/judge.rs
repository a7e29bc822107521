//! From what Gitea stored about a job to a row of the table: a pure judgement.

use serde::Serialize;
use testkit::real::{Job, Status};

use super::workflows::{Expected, MARK, Wanted};

/// One job of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) workflow: &'static str,
    pub(super) job: &'static str,
    pub(super) backend: Option<String>,
    pub(super) spiffe_id: Option<String>,
    pub(super) queue_seconds: Option<i64>,
    pub(super) run_seconds: Option<i64>,
    pub(super) result: String,
    pub(super) expected: String,
    pub(super) passed: bool,
    /// Why it did not pass.
    pub(super) complaint: Option<String>,
}

/// What is known of a job in the end.
pub(super) struct Evidence<'a> {
    /// `owner/name`.
    pub(super) repository: &'a str,
    /// All jobs of the run.
    pub(super) run: &'a [Job],
    pub(super) job: &'a Job,
    pub(super) log: &'a str,
}

/// The row of a job that the push never made.
pub(super) fn absent(wanted: &Wanted) -> Row {
    Row {
        workflow: wanted.file,
        job: wanted.job,
        backend: None,
        spiffe_id: None,
        queue_seconds: None,
        run_seconds: None,
        result: "absent".to_owned(),
        expected: expectation(wanted.expected),
        passed: false,
        complaint: Some("Gitea knows no such job".to_owned()),
    }
}

/// Judges a job.
pub(super) fn judge(wanted: &Wanted, evidence: &Evidence<'_>) -> Row {
    let job = evidence.job;
    let (backend, spiffe_id) = seen(evidence.log).unzip();
    // A job that waits for others can only be served from the end of the last of them on.
    let ended_before = evidence.run.iter().map(|other| other.stopped).filter(|end| *end > 0 && *end <= job.started);
    let ready = ended_before.fold(job.created, i64::max);
    let ready = if wanted.file == "needs.yml" { ready } else { job.created };
    let complaint = complaint(wanted.expected, evidence, spiffe_id.as_deref());
    Row {
        workflow: wanted.file,
        job: wanted.job,
        backend,
        spiffe_id,
        queue_seconds: (job.started > 0).then(|| job.started - ready),
        run_seconds: (job.started > 0 && job.stopped > 0).then(|| job.stopped - job.started),
        result: format!("{:?}", job.status).to_lowercase(),
        expected: expectation(wanted.expected),
        passed: complaint.is_none(),
        complaint,
    }
}

fn expectation(expected: Expected) -> String {
    match expected {
        Expected::Success { .. } => "success".to_owned(),
        Expected::Failure { .. } => "failure".to_owned(),
        Expected::Refused { reason } => format!("failure: {reason}"),
    }
}

fn complaint(expected: Expected, evidence: &Evidence<'_>, spiffe_id: Option<&str>) -> Option<String> {
    let (status, says) = match expected {
        Expected::Success { says } => (Status::Success, says),
        Expected::Failure { says } => (Status::Failure, says),
        Expected::Refused { reason } => (Status::Failure, reason),
    };
    if evidence.job.status != status {
        return Some(format!("it ended as {:?}", evidence.job.status));
    }
    if !evidence.log.contains(says) {
        return Some(format!("its log does not say {says:?}"));
    }
    let path = format!("/ci/{}/{}", evidence.repository, evidence.job.key);
    match (expected, spiffe_id) {
        (Expected::Refused { .. }, None) => None,
        (Expected::Refused { .. }, Some(_)) => Some("it ran".to_owned()),
        (_, Some(id)) if id.starts_with("spiffe://") && id.ends_with(&path) => None,
        (_, Some(id)) => Some(format!("it saw {id}, not spiffe://TRUST-DOMAIN{path}")),
        (_, None) => Some("it saw no identity".to_owned()),
    }
}

/// Backend and identity as the job itself wrote them.
fn seen(log: &str) -> Option<(String, String)> {
    let mut said = log.lines().filter_map(|line| line.split_once(MARK)).filter_map(|(_, rest)| {
        let (backend, id) = rest.strip_prefix("backend ")?.split_once(", identity ")?;
        // The runner may also show the script itself, with its variables.
        (!backend.contains('$')).then(|| (backend.to_owned(), id.trim().to_owned()))
    });
    said.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "x echo \"demo: backend ${CI_RUNNER_BACKEND:-?}, identity $id\"\n\
        x demo: backend local, identity spiffe://td/ci/acme/demo/build\nx hello from acme/demo\n";
    const WANTED: Wanted = Wanted { file: "success.yml", job: "build", expected: Expected::Success { says: "hello" } };

    fn job(status: Status) -> Job {
        Job {
            id: 1,
            name: "build".to_owned(),
            key: "build".to_owned(),
            labels: vec!["local".to_owned()],
            task_id: 1,
            status,
            created: 100,
            started: 103,
            stopped: 110,
        }
    }

    fn judged(wanted: &Wanted, status: Status, log: &str) -> Row {
        let job = job(status);
        judge(wanted, &Evidence { repository: "acme/demo", run: std::slice::from_ref(&job), job: &job, log })
    }

    #[test]
    fn a_job_that_ends_as_expected_passes() {
        let row = judged(&WANTED, Status::Success, LOG);
        assert_eq!(row.complaint, None);
        assert_eq!((row.queue_seconds, row.run_seconds), (Some(3), Some(7)));
        assert_eq!(row.backend.as_deref(), Some("local"));
        assert_eq!(row.spiffe_id.as_deref(), Some("spiffe://td/ci/acme/demo/build"));
    }

    #[test]
    fn every_other_end_is_complained_about() {
        let refused = Wanted { expected: Expected::Refused { reason: "invalid_job_key" }, ..WANTED };
        let cases = [
            (judged(&WANTED, Status::Failure, LOG), "it ended as Failure"),
            (judged(&WANTED, Status::Success, &LOG.replace("hello", "")), "its log does not say \"hello\""),
            (judged(&WANTED, Status::Success, &LOG.replace("ci/acme", "ci/evil")), "it saw spiffe://td/ci/evil"),
            (judged(&WANTED, Status::Success, "hello"), "it saw no identity"),
            (judged(&refused, Status::Failure, "##[error]"), "its log does not say \"invalid_job_key\""),
            (judged(&refused, Status::Failure, &format!("{LOG} invalid_job_key")), "it ran"),
        ];
        for (row, expected) in cases {
            let complaint = row.complaint.unwrap_or_default();
            assert!(!row.passed && complaint.starts_with(expected), "{complaint}");
        }
        assert!(judged(&refused, Status::Failure, "##[error]invalid_job_key: a.b").passed);
    }
}
