//! The log for a person at a terminal: one plain line per thing that matters to whoever waits for a job.
//!
//! It is made of the same events as the JSON log, so neither can say what the other does not. What an event leaves out
//! on purpose (whose job it is, as whom it runs) is looked up where it is known, and appears on the terminal only.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::Colours;

/// Whose job a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobName {
    /// `owner/name`.
    pub repository: String,
    /// The job's key in its workflow.
    pub job: String,
    /// The identity of its executor.
    pub spiffe_id: String,
}

type Lookup = Box<dyn Fn(i64) -> Option<JobName> + Send + Sync>;

/// Where the names of jobs are looked up, once somebody knows them. Clones share it.
#[derive(Clone, Default)]
pub struct Names(Arc<OnceLock<Lookup>>);

impl Names {
    /// From now on `lookup` is asked by task id; it must be quick, and write no log. Only the first one counts.
    pub fn learn(&self, lookup: impl Fn(i64) -> Option<JobName> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(lookup));
    }

    fn of(&self, task: i64) -> Option<JobName> {
        self.0.get().and_then(|lookup| lookup(task))
    }
}

/// How a line is meant; decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Good,
    Strange,
    Bad,
}

impl Tone {
    /// The SGR code.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Good => "32",
            Self::Strange => "33",
            Self::Bad => "31",
        }
    }
}

/// Writes events as lines for people.
pub(super) struct Human {
    colours: Colours,
    names: Names,
    /// When the jobs that run were handed out.
    started: Mutex<HashMap<i64, Instant>>,
}

impl Human {
    pub(super) fn new(colours: Colours, names: Names) -> Self {
        Self { colours, names, started: Mutex::default() }
    }

    /// What to say about an event; none when it is of no interest here.
    fn line(&self, level: Level, fields: &Fields) -> Option<(Tone, String)> {
        let said = match fields.text("message") {
            "assignment transition" => self.assignment(fields)?,
            "executor transition" => executor(fields)?,
            "controller transition" => (Tone::Plain, controller(fields)?.to_owned()),
            "leader transition" | "identity audit" if level != Level::ERROR => return None,
            "executor log" => (Tone::Strange, last_words(fields)),
            message => (tone(level), failure(message, level, fields)),
        };
        let subject = fields.task.map(|task| format!("{}: ", self.subject(task))).unwrap_or_default();
        let repeated = fields.text("repeated");
        let again =
            if matches!(repeated, "" | "0") { String::new() } else { format!(" ({repeated} times more before)") };
        Some((said.0, format!("{subject}{}{again}", said.1)))
    }

    fn subject(&self, task: i64) -> String {
        match self.names.of(task) {
            Some(JobName { repository, job, .. }) => format!("task {task} {repository} `{job}`"),
            None => format!("task {task}"),
        }
    }

    fn assignment(&self, fields: &Fields) -> Option<(Tone, String)> {
        let task = fields.task?;
        let cause = fields.text("cause");
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match fields.text("event") {
            "dispatched" => (Tone::Plain, "waiting".to_owned()),
            "capacity_wait" => (Tone::Plain, "waits for a free slot".to_owned()),
            "backend_retry" => (Tone::Strange, format!("not started yet: {cause}")),
            "runner_claimed" => {
                started.insert(task, Instant::now());
                let id = self.names.of(task).map(|name| format!(" as {}", name.spiffe_id)).unwrap_or_default();
                (Tone::Plain, format!("started{id}"))
            }
            "terminal_accepted" => {
                let tone = if cause == "success" { Tone::Good } else { Tone::Bad };
                (tone, format!("{cause}{}", took(started.remove(&task).map(|at| at.elapsed()))))
            }
            "refused" => (Tone::Bad, format!("cannot run: {cause}")),
            "reported" => (Tone::Bad, format!("ended{}: {cause}", took(started.remove(&task).map(|at| at.elapsed())))),
            "interrupted" => (Tone::Strange, format!("interrupted: {cause}")),
            "cancelled" => (Tone::Strange, "cancelled".to_owned()),
            "gave_up" => (Tone::Strange, format!("given up: {cause}")),
            _ => return None,
        })
    }
}

fn took(time: Option<Duration>) -> String {
    let whole = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    time.map(|time| format!(" in {}", whole(time))).unwrap_or_default()
}

fn executor(fields: &Fields) -> Option<(Tone, String)> {
    match fields.text("event") {
        "executor_adopted" => Some((Tone::Plain, "goes on: its executor was found again".to_owned())),
        "executor_lost" | "executor_relaunched" => Some((Tone::Strange, "its executor was lost".to_owned())),
        _ => None,
    }
}

fn last_words(fields: &Fields) -> String {
    match (fields.text("cause"), fields.text("said")) {
        (cause, "") => format!("{cause}; it said nothing"),
        (cause, said) => format!("{cause}; it said last: {said}"),
    }
}

fn controller(fields: &Fields) -> Option<&'static str> {
    match fields.text("event") {
        "ready" => Some("ready for jobs"),
        "draining" => Some("stopping; jobs that run go on"),
        _ => None,
    }
}

fn tone(level: Level) -> Tone {
    match level {
        Level::ERROR => Tone::Bad,
        Level::WARN => Tone::Strange,
        _ => Tone::Plain,
    }
}

/// Everything else: its error, or its message and what it names.
fn failure(message: &str, level: Level, fields: &Fields) -> String {
    let word = match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        _ => "",
    };
    let mut line = match fields.text("error") {
        "" => format!("{word}{message}"),
        // The family of an error is for machines; other messages say what was tried.
        error if message.ends_with(" error") || message == "runner stopped" => format!("{word}{error}"),
        error => format!("{word}{message}: {error}"),
    };
    for name in ["executor", "setting", "remedy"] {
        let value = fields.text(name);
        if !value.is_empty() {
            let _ = write!(line, "; {}{value}", if name == "remedy" { String::new() } else { format!("{name} ") });
        }
    }
    line
}

impl<S, N> FormatEvent<S, N> for Human
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some((tone, line)) = self.line(*event.metadata().level(), &fields) else { return Ok(()) };
        let time = jiff::ZonedDateTime::now().strftime("%H:%M:%S").to_string();
        match self.colours {
            Colours::On if tone == Tone::Plain => writeln!(writer, "\u{1b}[2m{time}\u{1b}[0m {line}"),
            Colours::On => writeln!(writer, "\u{1b}[2m{time}\u{1b}[0m \u{1b}[{}m{line}\u{1b}[0m", tone.code()),
            Colours::Off => writeln!(writer, "{time} {line}"),
        }
    }
}

/// The fields of one event as text. What comes from elsewhere cannot move the cursor or begin a line of its own.
#[derive(Default)]
struct Fields {
    task: Option<i64>,
    texts: Vec<(&'static str, String)>,
}

impl Fields {
    fn text(&self, name: &str) -> &str {
        self.texts.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text.as_str())
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "task_id" {
            self.task = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").replace(|c: char| c.is_control(), " ");
        self.texts.push((field.name(), text));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use domain::id::{AssignmentId, Backend, Epoch, TaskId};
    use domain::reason::Reason;

    use super::*;
    use crate::config::{Log, LogFormat, LogLevel};
    use crate::telemetry::events::*;
    use crate::telemetry::lines::{Lines, hear};
    use crate::telemetry::speaking;

    fn told(colours: Colours, what: impl FnOnce()) -> String {
        let (lines, names) = (Lines::default(), Names::default());
        names.learn(|task| {
            (task == 42).then(|| JobName {
                repository: "me/repo".into(),
                job: "build".into(),
                spiffe_id: "spiffe://x.gdr.internal/ci/me/repo/build".into(),
            })
        });
        let log = Log { format: LogFormat::Text, level: LogLevel::Info };
        let _log = hear(speaking(log, lines.clone(), colours, names));
        what();
        lines.text()
    }

    /// The lines without their time of day.
    #[track_caller]
    fn check(expect: &str, what: impl FnOnce()) {
        let text = told(Colours::Off, what);
        let times = text.lines().all(|line| line.len() > 9 && line.as_bytes()[2] == b':' && line.as_bytes()[8] == b' ');
        assert!(times, "{text}");
        let lines: Vec<_> = text.lines().map(|line| &line[9..]).collect();
        assert_eq!(lines.join("\n"), expect);
    }

    fn subject(task: i64) -> Subject {
        let assignment = AssignmentId::of(TaskId::try_from(task).unwrap());
        Subject { backend: Some(Backend::Local), assignment, epoch: Some(Epoch::FIRST) }
    }

    fn say(event: AssignmentEvent, task: i64, cause: Option<&str>) {
        assignment_transition(event, &subject(task), Detail { cause, ..Detail::default() });
    }

    /// One job, told for a person: three lines, with its name and its identity.
    #[test]
    fn a_job_in_three_lines() {
        let expect = "\
ready for jobs
task 42 me/repo `build`: waiting
task 42 me/repo `build`: started as spiffe://x.gdr.internal/ci/me/repo/build
task 42 me/repo `build`: success in 0s
stopping; jobs that run go on";
        check(expect, || {
            leader_transition(LeaderEvent::Acquired, None);
            controller_transition(ControllerEvent::Starting, "x", "scheduler");
            controller_transition(ControllerEvent::Ready, "x", "scheduler");
            for event in [AssignmentEvent::Fetched, AssignmentEvent::Dispatched, AssignmentEvent::Received] {
                say(event, 42, None);
            }
            executor_transition(ExecutorEvent::Created, &subject(42), "e", Some(Phase::Pending), Detail::default());
            for event in [AssignmentEvent::BackendReady, AssignmentEvent::Offered, AssignmentEvent::RunnerClaimed] {
                say(event, 42, None);
            }
            say(AssignmentEvent::TerminalAccepted, 42, Some("success"));
            say(AssignmentEvent::Acked, 42, None);
            controller_transition(ControllerEvent::Draining, "x", "scheduler");
        });
    }

    /// What goes wrong, with its cause; a task whose job is not known has its number.
    #[test]
    fn trouble() {
        let expect = "\
task 7: cannot run: the job key \"a.b\" is no name
task 7: ended: the job key \"a.b\" is no name
task 42 me/repo `build`: not started yet: no room
task 42 me/repo `build`: goes on: its executor was found again
task 42 me/repo `build`: failure
error: fetch Gitea task: connection refused
task 42 me/repo `build`: error: removal: busy
error: leadership lost; start again
task 42 me/repo `build`: the executor ended with exit code 11; it said last: one two
the executor was ended by signal 9; it said nothing
warning: a file is strange";
        check(expect, || {
            let cause = "the job key \"a.b\" is no name";
            assignment_transition(AssignmentEvent::Refused, &subject(7), Detail::because(Reason::InvalidJobKey, cause));
            say(AssignmentEvent::Reported, 7, Some(cause));
            let retry = Detail::retry(Duration::from_secs(2), "no room");
            assignment_transition(AssignmentEvent::BackendRetry, &subject(42), retry);
            executor_transition(ExecutorEvent::Adopted, &subject(42), "e", None, Detail::default());
            say(AssignmentEvent::TerminalAccepted, 42, Some("failure"));
            scheduler_error(&"fetch Gitea task: connection refused");
            assignment_processing_error(&subject(42), &"removal: busy");
            runner_stopped(&"leadership lost", Some("start again"));
            executor_log(Some(&subject(42)), "e", "the executor ended with exit code 11", "one\ntwo");
            executor_log(None, "e", "the executor was ended by signal 9", "");
            tracing::warn!(component = "config", "a file is strange");
        });
    }

    /// Text of others can neither colour the terminal nor begin a line.
    #[test]
    fn control_characters_are_blanks() {
        check("error: fetch: \u{20}[31mred  00:00:00 forged", || {
            scheduler_error(&"fetch: \u{1b}[31mred\r\n00:00:00 forged")
        });
    }

    /// Colours say how a line is meant, and only where they are wanted.
    #[test]
    fn colours() {
        let good = told(Colours::On, || say(AssignmentEvent::TerminalAccepted, 42, Some("success")));
        let bad = told(Colours::On, || say(AssignmentEvent::TerminalAccepted, 42, Some("failure")));
        assert!(good.contains("\u{1b}[32mtask 42") && bad.contains("\u{1b}[31mtask 42"), "{good}{bad}");
        assert!(!told(Colours::Off, || scheduler_error(&"x")).contains('\u{1b}'));
    }
}
