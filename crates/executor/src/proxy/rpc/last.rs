//! Which calls are a runner's last ones, and the acknowledgement that the proxy gives for them. Pure.

use buffa::encoding::{Tag, decode_varint, skip_field};
use buffa::{DecodeError, Message as _, MessageField};
use runner_proto::runner::v1::{TaskState, UpdateLogResponse, UpdateTaskRequest, UpdateTaskResponse};

use crate::proxy::paths::Procedure;
use crate::spool::Item;

/// A last call with what its acknowledgement needs.
pub(super) enum Last {
    /// UpdateLog with `no_more`.
    Log(UpdateLogResponse),
    /// UpdateTask with a result.
    State(UpdateTaskResponse),
}

impl Last {
    /// None for every other call, and for what is no message at all: the facade refuses that.
    pub(super) fn of(procedure: Procedure, body: &[u8]) -> Option<Self> {
        match procedure {
            Procedure::UpdateLog => Self::of_log(&LogHead::read(body).ok()?),
            Procedure::UpdateTask => Self::of_state(UpdateTaskRequest::decode_from_slice(body).ok()?),
            Procedure::Register | Procedure::Declare | Procedure::FetchTask => None,
        }
    }

    /// What the spool calls it.
    pub(super) fn item(&self) -> Item {
        match self {
            Self::Log(_) => Item::Log,
            Self::State(_) => Item::State,
        }
    }

    /// Everything was stored: all rows; the result as reported and every output.
    pub(super) fn acknowledgement(&self) -> Vec<u8> {
        match self {
            Self::Log(response) => response.encode_to_vec(),
            Self::State(response) => response.encode_to_vec(),
        }
    }

    fn of_log(head: &LogHead) -> Option<Self> {
        let ack_index = head.index.saturating_add(head.rows);
        head.no_more.then(|| Self::Log(UpdateLogResponse { ack_index, ..Default::default() }))
    }

    fn of_state(request: UpdateTaskRequest) -> Option<Self> {
        let state = request.state.as_option()?;
        if state.result.to_i32() == 0 {
            return None;
        }
        let state = TaskState { id: state.id, result: state.result, ..Default::default() };
        let sent_outputs = request.outputs.keys().cloned().collect();
        let state = MessageField::some(state);
        Some(Self::State(UpdateTaskResponse { state, sent_outputs, ..Default::default() }))
    }
}

/// What matters of an UpdateLogRequest. Read without decoding the rows: after an outage there may be more of them than
/// a decoder's memory limit allows, and a last log that is not recognised would pass by the spool.
#[derive(Default)]
struct LogHead {
    index: i64,
    rows: i64,
    no_more: bool,
}

impl LogHead {
    fn read(mut body: &[u8]) -> Result<Self, DecodeError> {
        let mut head = Self::default();
        while !body.is_empty() {
            let tag = Tag::decode(&mut body)?;
            match tag.field_number() {
                2 => head.index = decode_varint(&mut body)?.cast_signed(),
                4 => head.no_more = decode_varint(&mut body)? != 0,
                field => {
                    skip_field(tag, &mut body)?;
                    head.rows += i64::from(field == 3);
                }
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use runner_proto::runner::v1::{LogRow, Result as TaskResult, UpdateLogRequest};

    use super::*;

    /// NEW-112: the last log is acknowledged to its end, whatever its start.
    #[test]
    fn log() {
        let rows = vec![LogRow::default(); 3];
        let mut request = UpdateLogRequest { task_id: 7, index: 5, rows, ..Default::default() };
        assert!(Last::of(Procedure::UpdateLog, &request.encode_to_vec()).is_none());
        request.no_more = true;
        let last = Last::of(Procedure::UpdateLog, &request.encode_to_vec()).unwrap();
        assert_eq!(last.item(), Item::Log);
        let response = UpdateLogResponse::decode_from_slice(&last.acknowledgement()).unwrap();
        assert_eq!(response.ack_index, 8);
    }

    /// NEW-112: the last state is echoed, and no output is missing in the acknowledgement.
    #[test]
    fn state() {
        let with = |result: TaskResult| {
            let state = TaskState { id: 7, result: result.into(), ..Default::default() };
            let mut request = UpdateTaskRequest { state: MessageField::some(state), ..Default::default() };
            request.outputs.insert("version".into(), "1".into());
            Last::of(Procedure::UpdateTask, &request.encode_to_vec())
        };
        assert!(with(TaskResult::default()).is_none());
        let last = with(TaskResult::RESULT_FAILURE).unwrap();
        let response = UpdateTaskResponse::decode_from_slice(&last.acknowledgement()).unwrap();
        assert_eq!(response.state.id, 7);
        assert_eq!(response.state.result.to_i32(), 2);
        assert_eq!(response.sent_outputs, ["version"]);
    }

    #[test]
    fn other_calls() {
        assert!(Last::of(Procedure::UpdateTask, b"\xff\xff").is_none());
        assert!(Last::of(Procedure::UpdateTask, b"").is_none());
        assert!(Last::of(Procedure::FetchTask, b"").is_none());
    }
}
