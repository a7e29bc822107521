//! Between the messages of `runner.v1` and the words of `domain::lifecycle`.

use buffa::EnumValue;
use buffa_types::google::protobuf::Timestamp as ProtoTime;
use domain::lifecycle::{Outcome, Row, StepRecord, StepRecords};
use jiff::Timestamp;
use runner_proto::runner::v1 as proto;

/// The outcome of a state; none for "not ended" and for numbers this version does not know.
#[must_use]
pub fn outcome_of(state: &proto::TaskState) -> Option<Outcome> {
    known(state.result)
}

fn known(result: EnumValue<proto::Result>) -> Option<Outcome> {
    match result.as_known()? {
        proto::Result::RESULT_UNSPECIFIED => None,
        proto::Result::RESULT_SUCCESS => Some(Outcome::Success),
        proto::Result::RESULT_FAILURE => Some(Outcome::Failure),
        proto::Result::RESULT_CANCELLED => Some(Outcome::Cancelled),
        proto::Result::RESULT_SKIPPED => Some(Outcome::Skipped),
    }
}

/// The word of an outcome in metrics and logs.
#[must_use]
pub fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure => "failure",
        Outcome::Cancelled => "cancelled",
        Outcome::Skipped => "skipped",
    }
}

/// The wire result of an outcome.
#[must_use]
pub fn result_of(outcome: Option<Outcome>) -> EnumValue<proto::Result> {
    EnumValue::Known(match outcome {
        None => proto::Result::RESULT_UNSPECIFIED,
        Some(Outcome::Success) => proto::Result::RESULT_SUCCESS,
        Some(Outcome::Failure) => proto::Result::RESULT_FAILURE,
        Some(Outcome::Cancelled) => proto::Result::RESULT_CANCELLED,
        Some(Outcome::Skipped) => proto::Result::RESULT_SKIPPED,
    })
}

/// A wire time; none for one outside the calendar.
#[must_use]
pub fn time_of(time: &ProtoTime) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

/// A time on the wire.
#[must_use]
pub fn proto_time(time: Timestamp) -> ProtoTime {
    ProtoTime { seconds: time.as_second(), nanos: time.subsec_nanosecond(), ..Default::default() }
}

/// The steps of a runner's state, by step id; ids that are no position are left out.
#[must_use]
pub fn steps_of(state: &proto::TaskState) -> StepRecords {
    let mut steps: Vec<StepRecord> = Vec::with_capacity(state.steps.len());
    for step in &state.steps {
        let Ok(at) = usize::try_from(step.id) else { continue };
        // A hostile id must not become an allocation.
        if at > state.steps.len() {
            continue;
        }
        steps.resize(steps.len().max(at + 1), StepRecord::default());
        steps[at] = StepRecord {
            outcome: known(step.result),
            started: step.started_at.as_option().and_then(time_of),
            stopped: step.stopped_at.as_option().and_then(time_of),
            log_index: step.log_index.try_into().unwrap_or_default(),
            log_length: step.log_length.try_into().unwrap_or_default(),
        };
    }
    StepRecords::new(steps)
}

/// Steps on the wire, complete, so that Gitea sets none back to running (contract §6).
#[must_use]
pub fn proto_steps(steps: &StepRecords) -> Vec<proto::StepState> {
    let one = |(at, step): (usize, &StepRecord)| proto::StepState {
        id: wire_number(at as u64),
        result: result_of(step.outcome),
        started_at: step.started.map(proto_time).into(),
        stopped_at: step.stopped.map(proto_time).into(),
        log_index: wire_number(step.log_index),
        log_length: wire_number(step.log_length),
        ..Default::default()
    };
    steps.as_slice().iter().enumerate().map(one).collect()
}

/// A count on the wire, which knows signed numbers only.
#[must_use]
pub fn wire_number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A row on the wire.
#[must_use]
pub fn proto_row(row: &Row) -> proto::LogRow {
    proto::LogRow { time: Some(proto_time(row.time)).into(), content: row.content.clone(), ..Default::default() }
}

/// A row of the runner.
#[must_use]
pub fn row_of(row: &proto::LogRow) -> Row {
    let time = row.time.as_option().and_then(time_of).unwrap_or(Timestamp::UNIX_EPOCH);
    Row { time, content: row.content.clone() }
}
