//! What is read off an executor's object (requirements §4.5; ENV-8, NEW-87).

use domain::assignment::Assignment;
use domain::id::Epoch;
use domain::lifecycle::StepRecords;
use domain::metadata::chunks::{self, Kind};
use domain::metadata::{Claim, ExecutorRecord, Map};

use crate::samples::{PAYLOAD, moment, rules, task};

/// A record that can be read is written as it was read; chunks as well; so is the text of steps.
///
/// The input is a JSON list of two maps of texts: labels and annotations.
pub(crate) fn check(input: &[u8]) {
    let Ok([labels, annotations]) = serde_json::from_slice::<[Map; 2]>(input) else { return };
    if let Ok(record) = ExecutorRecord::parse(&labels, &annotations) {
        let again = ExecutorRecord::parse(&record.labels(), &record.annotations());
        assert_eq!(again.as_ref(), Ok(&record), "written otherwise than it was read");
    }
    for kind in [Kind::Record, Kind::Grant] {
        let written = chunks::encode(kind, &annotations);
        assert_eq!(chunks::decode(kind, &written), Ok(Some(annotations.clone())), "other chunks");
        assert!(written.values().all(|value| value.len() <= 63), "longer than a label value");
        let _ = chunks::decode(kind, &labels);
    }
    for text in annotations.values() {
        if let Some((definitions, records)) = StepRecords::parse(text) {
            assert_eq!(StepRecords::parse(&records.to_text(&definitions)), Some((definitions, records)), "other steps");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let Ok(assignment) = Assignment::from_task(&task(PAYLOAD), &rules(), moment()) else { return vec![] };
    let mut record = ExecutorRecord {
        id: assignment.id,
        instance: assignment.instance,
        backend: assignment.backend,
        epoch: Epoch::FIRST,
        digest: assignment.digest,
        repository: assignment.repository,
        job_key: assignment.job_key,
        spiffe_id: assignment.spiffe_id,
        fetched_at: assignment.fetched_at,
        deadline: assignment.deadline,
        claim: None,
        interrupted_at: None,
        steps: None,
        terminal: false,
    };
    let fresh = record.clone();
    record.claim = Some(Claim { at: moment(), log_shift: 2 });
    record.interrupted_at = Some(moment());
    record.steps = Some(StepRecords::default().to_text(&assignment.steps));
    record.terminal = true;
    let text = |record: &ExecutorRecord| serde_json::to_vec(&[record.labels(), record.annotations()]);
    let chunked = serde_json::to_vec(&[chunks::encode(Kind::Record, &record.annotations()), Map::new()]);
    [text(&fresh), text(&record), chunked].into_iter().filter_map(Result::ok).collect()
}
