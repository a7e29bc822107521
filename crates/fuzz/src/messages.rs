//! Messages of RunnerService, from Gitea and from a runner (ENV-5, NEW-109).

use buffa::Message;
use runner_proto::runner::v1 as proto;

use crate::samples::{PAYLOAD, task};

/// A message that decodes keeps all it says when it is written and read again, and its task is found byte for byte.
pub(crate) fn check(input: &[u8]) {
    let Some((&which, bytes)) = input.split_first() else { return };
    match which % 6 {
        0 => stays::<proto::FetchTaskResponse>(bytes),
        1 => stays::<proto::Task>(bytes),
        2 => stays::<proto::UpdateTaskRequest>(bytes),
        3 => stays::<proto::UpdateTaskResponse>(bytes),
        4 => stays::<proto::UpdateLogRequest>(bytes),
        _ => stays::<proto::DeclareRequest>(bytes),
    }
    if let Ok(Some(found)) = domain::wire::task_bytes(bytes) {
        let response = domain::wire::fetch_response(found);
        assert_eq!(domain::wire::task_bytes(&response), Ok(Some(found)), "the task changed on its way");
    }
}

fn stays<M: Message + PartialEq>(bytes: &[u8]) {
    let Ok(message) = M::decode_from_slice(bytes) else { return };
    let written = message.encode_to_vec();
    match M::decode_from_slice(&written) {
        // A number that is not one equals nothing, not even itself.
        Ok(again) => assert!(again == message || message != message.clone(), "what was written says something else"),
        Err(error) => panic!("what was written cannot be read: {error}"),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let task = task(PAYLOAD);
    let step = proto::StepState { id: 0, log_index: 1, log_length: 2, ..Default::default() };
    let state = proto::TaskState { id: 42, steps: vec![step], ..Default::default() };
    let update = proto::UpdateTaskRequest { state: Some(state.clone()).into(), ..Default::default() };
    let answer = proto::UpdateTaskResponse { state: Some(state).into(), ..Default::default() };
    let row = proto::LogRow { content: "a line".to_owned(), ..Default::default() };
    let log = proto::UpdateLogRequest { task_id: 42, rows: vec![row], ..Default::default() };
    let declare = proto::DeclareRequest { version: "1.0.8".to_owned(), ..Default::default() };
    let bytes = [
        domain::wire::fetch_response(&task),
        task,
        update.encode_to_vec(),
        answer.encode_to_vec(),
        log.encode_to_vec(),
        declare.encode_to_vec(),
    ];
    (0u8..).zip(bytes).map(|(which, bytes)| [&[which][..], &bytes].concat()).collect()
}
