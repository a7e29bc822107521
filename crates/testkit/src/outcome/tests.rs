//! For each rule a record that breaks it. These are tests of the judge: that the program keeps a rule is not shown here, so
//! no requirement is named.
#![expect(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;
use runner_proto::runner::v1::{
    FetchTaskRequest, LogRow, Result as TaskResult, TaskState, UpdateLogRequest, UpdateTaskRequest,
};

use super::*;
use crate::gitea::Request;

const TASK: i64 = 7;
const FIRST_ROW: &str = "executor(version:1.0.8) received task 7 of job";

/// A record of one task, with everything as it should be: one controller, a job of one row, SUCCESS.
struct Story {
    start: Instant,
    record: Record,
}

impl Story {
    fn good() -> Self {
        let start = Instant::now();
        let calls = vec![
            call(start, 1000, fetch(), None),
            call(start, 3000, update(TaskResult::Unspecified), Some(TaskResult::Unspecified)),
            call(start, 4000, update(TaskResult::Unspecified), Some(TaskResult::Unspecified)),
            call(start, 5000, rows(), None),
            call(start, 6000, update(TaskResult::Success), Some(TaskResult::Success)),
        ];
        let rows = format!("{:?}", [FIRST_ROW, "hello"]);
        let told = [("task", "executor"), ("rows", rows.as_str()), ("ended", "SUCCESS"), ("final", "SUCCESS")];
        let note = |(verb, rest): (&str, &str)| Note { task: TASK, verb: verb.to_owned(), rest: rest.to_owned() };
        let task = TaskRecord {
            task: TASK,
            status: Status::Success,
            log: ["Executor 1 took the task", FIRST_ROW, "hello"].map(str::to_owned).to_vec(),
            archived: true,
            calls,
            told: told.map(note).to_vec(),
        };
        let controllers = vec![Controller { started: start, ended: None, paused: vec![] }];
        Self { start, record: Record { tasks: vec![task], controllers, registrations: 1, ..Record::default() } }
    }

    /// The job was begun and its executor killed; we ended it with a reason.
    fn failed_by_us() -> Self {
        let mut story = Self::good();
        story.task().status = Status::Failure;
        story.task().log.push("##[error]executor_exited: was ended by signal 9".to_owned());
        story.task().told.retain(|note| ["task", "rows"].contains(&note.verb.as_str()));
        story.end(TaskResult::Failure, TaskResult::Failure);
        story
    }

    /// Handed out, and nothing more; its controller was killed so many milliseconds after the answer.
    fn unkept(killed_after: u64) -> Self {
        let mut story = Self::good();
        story.task().calls.truncate(1);
        story.task().told.clear();
        story.task().log.clear();
        story.task().archived = false;
        story.task().status = Status::Running;
        story.killed_at(1001 + killed_after);
        story
    }

    fn task(&mut self) -> &mut TaskRecord {
        &mut self.record.tasks[0]
    }

    /// The last call told `told` and was answered `heard`.
    fn end(&mut self, told: TaskResult, heard: TaskResult) {
        let call = self.task().calls.last_mut().unwrap();
        (call.request, call.result) = (update(told), Some(heard));
    }

    fn say(&mut self, at: u64, told: TaskResult, heard: TaskResult) {
        let call = call(self.start, at, update(told), Some(heard));
        self.task().calls.push(call);
    }

    /// The controller is killed then, and another is started at once.
    fn killed_at(&mut self, at: u64) {
        let at = self.start + Duration::from_millis(at);
        self.record.controllers.last_mut().unwrap().ended = Some((at, Death::Killed));
        self.record.controllers.push(Controller { started: at, ended: None, paused: vec![] });
    }

    /// The first controller ended in order, when it was killed before.
    fn end_in_order(&mut self) {
        let ended = &mut self.record.controllers[0].ended;
        *ended = ended.map(|(at, _)| (at, Death::InOrder));
    }

    #[track_caller]
    fn breaks(&self, rules: &[Rule]) {
        let judgement = judge(&self.record);
        let broken: Vec<Rule> = judgement.violations.iter().map(|violation| violation.rule).collect();
        assert_eq!(broken, rules, "{:#?}", judgement.violations);
        assert_eq!(judgement.lost, []);
    }
}

fn call(start: Instant, at: u64, request: Request, result: Option<TaskResult>) -> Call {
    let method = match request {
        Request::FetchTask(_) => Method::FetchTask,
        Request::UpdateLog(_) => Method::UpdateLog,
        _ => Method::UpdateTask,
    };
    Call {
        number: 0,
        at: Timestamp::UNIX_EPOCH,
        instant: start + Duration::from_millis(at),
        took: Some(Duration::from_millis(1)),
        method,
        runner: None,
        task: Some(TASK),
        summary: request.summary(),
        request,
        overlapping: false,
        timeout: None,
        result,
        headers: vec![],
        end: CallEnd::Answered { status: 200, message: String::new() },
    }
}

fn fetch() -> Request {
    Request::FetchTask(FetchTaskRequest::default())
}

fn update(result: TaskResult) -> Request {
    let state = TaskState { id: TASK, result: result.into(), ..Default::default() };
    Request::UpdateTask(UpdateTaskRequest { state: Some(state).into(), ..Default::default() })
}

fn rows() -> Request {
    let rows = vec![LogRow { content: "hello".to_owned(), ..Default::default() }];
    Request::UpdateLog(UpdateLogRequest { task_id: TASK, rows, no_more: true, ..Default::default() })
}

fn question() -> Request {
    Request::UpdateLog(UpdateLogRequest { task_id: TASK, ..Default::default() })
}

#[test]
fn good_records() {
    Story::good().breaks(&[]);
    Story::failed_by_us().breaks(&[]);
}

#[test]
fn a_second_start() {
    let mut story = Story::good();
    let again = story.task().told[0].clone();
    story.task().told.push(again);
    story.breaks(&[Rule::RunTwice]);
}

#[test]
fn a_task_without_an_end() {
    let mut story = Story::good();
    story.task().status = Status::Running;
    story.task().calls.pop();
    story.breaks(&[Rule::NoEnd]);
    // Gitea's time-out is an end that nobody told.
    story.task().status = Status::Failure;
    story.breaks(&[Rule::NoEnd]);
}

#[test]
fn a_second_outcome() {
    let mut story = Story::good();
    story.killed_at(6002);
    story.say(7000, TaskResult::Failure, TaskResult::Success);
    story.breaks(&[Rule::TwoOutcomes]);
    let mut story = Story::failed_by_us();
    story.task().log.push("##[error]interrupted: a signal cut the job off".to_owned());
    story.breaks(&[Rule::TwoOutcomes]);
    let mut story = Story::good();
    story.task().log.push("##[error]executor_exited: was ended by signal 9".to_owned());
    story.breaks(&[Rule::TwoOutcomes]);
}

#[test]
fn a_failure_without_a_reason() {
    let mut story = Story::failed_by_us();
    story.task().log.pop();
    story.breaks(&[Rule::NoReason]);
    story.task().log.push("##[error]bad_mood: no word of the list".to_owned());
    story.breaks(&[Rule::NoReason]);
    // The job's own failure needs none.
    story.task().told.push(Note { task: TASK, verb: "ended".to_owned(), rest: "FAILURE".to_owned() });
    story.breaks(&[]);
    // Nobody cancelled this one but us.
    let mut story = Story::failed_by_us();
    story.task().log.pop();
    story.task().status = Status::Cancelled;
    story.end(TaskResult::Cancelled, TaskResult::Cancelled);
    story.breaks(&[Rule::NoReason]);
    story.end(TaskResult::Unspecified, TaskResult::Cancelled);
    story.breaks(&[]);
}

#[test]
fn a_success_that_the_job_did_not_have() {
    let mut story = Story::good();
    story.task().told[2].rest = "CUT_OFF".to_owned();
    story.breaks(&[Rule::FalseSuccess]);
    story.task().told.remove(2);
    story.breaks(&[Rule::FalseSuccess]);
}

#[test]
fn a_result_that_was_taken_and_does_not_stand() {
    let mut story = Story::failed_by_us();
    for verb in ["ended", "final"] {
        story.task().told.push(Note { task: TASK, verb: verb.to_owned(), rest: "SUCCESS".to_owned() });
    }
    story.breaks(&[Rule::ResultLost]);
    story.task().log.pop();
    story.task().log.push("##[error]interrupted: a signal cut the job off".to_owned());
    story.breaks(&[]);
}

#[test]
fn rows_that_are_missing_doubled_or_out_of_order() {
    let hello = "hello".to_owned();
    let mut story = Story::good();
    story.task().log.pop();
    story.breaks(&[Rule::Rows]);
    let mut story = Story::good();
    story.task().log.push(hello.clone());
    story.breaks(&[Rule::Rows]);
    let mut story = Story::good();
    story.task().log.swap(1, 2);
    story.breaks(&[Rule::Rows]);
    // A killed runner's rows need not be there, unless they were acknowledged.
    let mut story = Story::failed_by_us();
    story.task().log.remove(2);
    story.breaks(&[]);
    // Its job had ended by itself, but nobody was told.
    story.task().told.push(Note { task: TASK, verb: "ended".to_owned(), rest: "FAILURE".to_owned() });
    story.breaks(&[]);
    story.task().told.push(Note { task: TASK, verb: "acked".to_owned(), rest: "2".to_owned() });
    story.breaks(&[Rule::Rows]);
    let mut story = Story::good();
    story.task().told.push(Note { task: TASK, verb: "rows-lost".to_owned(), rest: "ack 1 below 2".to_owned() });
    story.breaks(&[Rule::Rows]);
}

#[test]
fn an_open_log() {
    let mut story = Story::good();
    story.task().archived = false;
    story.breaks(&[Rule::LogOpen]);
}

#[test]
fn an_update_after_an_answered_end() {
    let mut story = Story::good();
    story.say(7000, TaskResult::Success, TaskResult::Success);
    story.breaks(&[Rule::UpdateAfterEnd]);
    // The controller was killed before it could note the end: the next one asks.
    let mut story = Story::good();
    story.killed_at(6100);
    story.say(7000, TaskResult::Unspecified, TaskResult::Success);
    story.breaks(&[]);
    // It had time to note it.
    let mut story = Story::good();
    story.killed_at(9000);
    story.say(9500, TaskResult::Unspecified, TaskResult::Success);
    story.breaks(&[Rule::UpdateAfterEnd]);
    // The time it was stopped for is no time.
    let moment = |at| story.start + Duration::from_millis(at);
    story.record.controllers[0].paused = vec![(moment(6050), moment(8950))];
    story.breaks(&[]);
    // An end in order leaves nothing unnoted.
    let mut story = Story::good();
    story.killed_at(6100);
    story.end_in_order();
    story.say(7000, TaskResult::Unspecified, TaskResult::Success);
    story.breaks(&[Rule::UpdateAfterEnd]);
    // A cancelled wait is known by its message until its log is closed.
    let mut story = Story::good();
    story.task().told.clear();
    story.task().status = Status::Cancelled;
    story.task().calls.truncate(2);
    story.say(4000, TaskResult::Unspecified, TaskResult::Cancelled);
    story.killed_at(9000);
    story.say(9500, TaskResult::Unspecified, TaskResult::Cancelled);
    let closing = call(story.start, 9900, rows(), None);
    story.task().calls.push(closing.clone());
    story.breaks(&[]);
    // The end in order could not close it either.
    story.end_in_order();
    story.breaks(&[]);
    let noted = Call { instant: story.start + Duration::from_secs(5), ..closing };
    story.task().calls.insert(3, noted);
    story.breaks(&[Rule::UpdateAfterEnd]);
    // A question about the log is as much; rows are none.
    for (rows, broken) in [(question(), &[Rule::UpdateAfterEnd][..]), (rows(), &[])] {
        let mut story = Story::good();
        let asked = call(story.start, 7000, rows, None);
        story.task().calls.push(asked);
        story.breaks(broken);
    }
    // An answer that never arrived is no answer.
    let mut story = Story::good();
    story.task().calls[4].end = CallEnd::Cut;
    story.say(7000, TaskResult::Success, TaskResult::Success);
    story.breaks(&[]);
}

#[test]
fn silence() {
    let mut story = Story::good();
    story.task().calls[4].instant += Duration::from_secs(61);
    story.breaks(&[Rule::Silence]);
    let moment = |at| story.start + Duration::from_secs(at);
    let (there, away) = (story.record.clone(), vec![(moment(10), moment(20))]);
    story.record.away = away;
    story.breaks(&[]);
    // Nobody beats while there is no controller.
    story.record = there;
    story.record.controllers[0].ended = Some((moment(10), Death::Killed));
    story.record.controllers.push(Controller { started: moment(20), ended: None, paused: vec![] });
    story.breaks(&[]);
}

#[test]
fn calls_that_meet() {
    let mut story = Story::good();
    story.task().calls[3].took = Some(Duration::from_secs(2));
    story.breaks(&[Rule::Overlap]);
    // The process that made the first is gone.
    story.killed_at(5500);
    story.breaks(&[]);
}

#[test]
fn two_fetches() {
    let mut story = Story::good();
    let mut first = call(story.start, 100, fetch(), None);
    first.took = Some(Duration::from_secs(1));
    story.record.fetches = vec![first, call(story.start, 200, fetch(), None)];
    story.breaks(&[Rule::TwoFetches]);
}

/// Lost only to a kill between the answer and the disk.
#[test]
fn a_task_that_nobody_kept() {
    let lost = |story: &Story| {
        let judgement = judge(&story.record);
        assert_eq!(judgement.violations, []);
        judgement.lost.len() == 1
    };
    assert!(lost(&Story::unkept(20)));
    // Gitea committed it after its client had been killed.
    let mut story = Story::unkept(0);
    (story.task().calls[0].end, story.task().calls[0].took) = (CallEnd::Left, Some(Duration::from_millis(10)));
    assert!(lost(&story));
    // Gitea's zombie rule has ended it, or its user.
    for status in [Status::Failure, Status::Cancelled] {
        story.task().status = status;
        assert!(lost(&story));
    }
    Story::unkept(1500).breaks(&[Rule::LostWithoutKill]);
    let mut story = Story::unkept(20);
    story.task().calls[0].end = CallEnd::Cut;
    story.breaks(&[Rule::LostWithoutKill]);
    let mut story = Story::unkept(20);
    story.end_in_order();
    story.breaks(&[Rule::LostWithoutKill]);
    // The next controller spoke of it: it was kept, and then it needs an end.
    let mut story = Story::unkept(20);
    story.say(2000, TaskResult::Unspecified, TaskResult::Unspecified);
    story.breaks(&[Rule::NoEnd]);
}

/// While the queue takes nothing a task is kept alive and not kept: the kill that loses it may come later.
#[test]
fn a_task_that_the_queue_did_not_take() {
    let unkept = || {
        let mut story = Story::unkept(5000);
        for beat in [2000, 4000] {
            story.say(beat, TaskResult::Unspecified, TaskResult::Unspecified);
        }
        story
    };
    unkept().breaks(&[Rule::NoEnd]);
    let mut story = unkept();
    let second = |seconds| story.start + Duration::from_secs(seconds);
    story.record.queue_away = vec![(second(1), second(6))];
    let judgement = judge(&story.record);
    assert_eq!((judgement.violations.as_slice(), judgement.lost.len()), (&[][..], 1));
    // It had time to be written before the queue went away.
    let mut story = unkept();
    let second = |seconds| story.start + Duration::from_secs(seconds);
    story.record.queue_away = vec![(second(4), second(6))];
    story.breaks(&[Rule::LostWithoutKill]);
}

#[test]
fn a_second_registration() {
    let mut story = Story::good();
    story.record.registrations = 2;
    story.breaks(&[Rule::RegisteredTwice]);
}

/// What the caller saw.
#[test]
fn what_is_left_and_what_was_seen() {
    let mut story = Story::good();
    story.record.left = vec!["folder executors/gitea-task-7".to_owned()];
    story.breaks(&[Rule::LeftOver]);
    let mut story = Story::good();
    story.record.slots = Some(Slots { used: 3, capacity: 4 });
    story.breaks(&[Rule::SlotLost]);
    story.record.slots = Some(Slots { used: 4, capacity: 4 });
    story.breaks(&[]);
    for rule in [Rule::OverCapacity, Rule::MessageLost] {
        let mut story = Story::good();
        story.record.seen = vec![(rule, "5 executors with capacity 4".to_owned())];
        story.breaks(&[rule]);
    }
}

/// Whoever reads a violation learns the task, the rule with its requirement, and the evidence.
#[test]
fn a_violation_in_words() {
    let violation = Violation { task: Some(7), rule: Rule::LogOpen, evidence: "the last rows".to_owned() };
    assert_eq!(violation.to_string(), "task 7: LogOpen (NEW-166): the last rows");
    let rules: std::collections::BTreeSet<Rule> = Rule::ALL.into_iter().collect();
    assert_eq!(rules.len(), Rule::ALL.len());
}
