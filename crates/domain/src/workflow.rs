//! The one job of a task's payload (requirements ENV-2, ENV-3, NEW-161; Gitea contract §11.1, §13.5).
//!
//! Read with a YAML library under a budget, since anybody who may push writes this text. Nothing is taken from it but
//! the job key, its labels, and which steps tolerate failure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::reason::{Reason, Refusal};

/// Larger payloads are refused.
const LARGEST: usize = 1 << 20;
const MOST_NODES: usize = 50_000;
const DEEPEST: usize = 64;

/// What is needed of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its key under `jobs`, as written.
    pub key: String,
    /// Its labels; empty when `runs-on` is missing, null or empty.
    pub runs_on: Vec<String>,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// What is needed of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
pub struct Step {
    /// Whether the job goes on when it fails.
    pub continue_on_error: ContinueOnError,
}

/// `continue-on-error` of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueOnError {
    /// Absent or false.
    No,
    /// True.
    Yes,
    /// An expression: only the runner knows.
    Undecided,
}

#[derive(Deserialize)]
struct Document {
    jobs: BTreeMap<String, Option<RawJob>>,
}

#[derive(Deserialize)]
struct RawJob {
    #[serde(rename = "runs-on", default)]
    runs_on: Option<RunsOn>,
    #[serde(default)]
    steps: Option<Vec<Option<RawStep>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RunsOn {
    One(String),
    Many(Vec<Option<String>>),
    Group {
        #[serde(default)]
        labels: Option<Labels>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Labels {
    One(String),
    Many(Vec<Option<String>>),
}

#[derive(Deserialize)]
struct RawStep {
    #[serde(rename = "continue-on-error", default)]
    continue_on_error: Option<Tolerance>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tolerance {
    Plain(bool),
    Text(String),
    Other(IgnoredAny),
}

impl Job {
    /// Reads a payload that holds exactly one job.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidWorkflow`] with what is wrong.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        let mut jobs = document(payload)?.jobs.into_iter();
        match (jobs.next(), jobs.next()) {
            (Some((key, Some(job))), None) => Ok(job.named(key)),
            (Some((key, None)), None) => Err(refused(format!("job {key:?} is empty"))),
            (None, _) => Err(refused("it holds no job".to_owned())),
            (Some(_), Some(_)) => Err(refused("it holds more than one job".to_owned())),
        }
    }
}

impl RawJob {
    fn named(self, key: String) -> Job {
        let flat = |labels: Vec<Option<String>>| labels.into_iter().flatten().collect::<Vec<_>>();
        let runs_on = match self.runs_on {
            None => vec![],
            Some(RunsOn::One(label) | RunsOn::Group { labels: Some(Labels::One(label)) }) => vec![label],
            Some(RunsOn::Many(labels) | RunsOn::Group { labels: Some(Labels::Many(labels)) }) => flat(labels),
            Some(RunsOn::Group { labels: None }) => vec![],
        };
        let runs_on = runs_on.into_iter().filter(|label| !label.trim().is_empty()).collect();
        let tolerance = |step: Option<RawStep>| match step.and_then(|step| step.continue_on_error) {
            None | Some(Tolerance::Plain(false)) => ContinueOnError::No,
            Some(Tolerance::Plain(true)) => ContinueOnError::Yes,
            Some(Tolerance::Text(text)) if text.eq_ignore_ascii_case("false") => ContinueOnError::No,
            Some(Tolerance::Text(text)) if text.eq_ignore_ascii_case("true") => ContinueOnError::Yes,
            Some(Tolerance::Text(_) | Tolerance::Other(_)) => ContinueOnError::Undecided,
        };
        let steps = self.steps.unwrap_or_default().into_iter().map(|step| Step { continue_on_error: tolerance(step) });
        Job { key, runs_on, steps: steps.collect() }
    }
}

fn document(payload: &[u8]) -> Result<Document, Refusal> {
    read(payload).map_err(|problem| refused(format!("it does not parse: {problem}")))
}

fn read<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    if payload.len() > LARGEST {
        return Err(format!("{} bytes; at most {LARGEST} are read", payload.len()));
    }
    let mut options = serde_saphyr::Options::default();
    options.strict_booleans = true;
    options.leading_zero_numbers_as_strings = true;
    let mut budget = serde_saphyr::Budget::default();
    budget.max_nodes = MOST_NODES;
    budget.max_depth = DEEPEST;
    options.budget = Some(budget);
    // The first line only: the rest of the library's text quotes the workflow.
    serde_saphyr::from_slice_with_options(payload, options).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().chars().take(160).collect()
    })
}

fn refused(problem: String) -> Refusal {
    Refusal {
        reason: Reason::InvalidWorkflow,
        cause: format!("the workflow payload is not one readable job: {problem}"),
        remedy: "Correct the workflow file and push again.".to_owned(),
    }
}

/// The payload with these labels in the empty `runs-on` of its only job (NEW-161): the one permitted edit. Every other
/// byte stays, and the same input always gives the same bytes. Without it the official runner would take Docker.
///
/// # Errors
///
/// [`Reason::UnsupportedLabels`] when no edit of one line can be proven to change `runs-on` and nothing else.
pub fn with_runs_on(payload: &[u8], labels: &[String]) -> Result<Vec<u8>, Refusal> {
    let text = std::str::from_utf8(payload).map_err(|_| refused("it is not UTF-8".to_owned()))?;
    let key = Job::parse(payload)?.key;
    let quoted: Vec<String> = labels.iter().map(|label| serde_json::Value::from(label.as_str()).to_string()).collect();
    let wanted = format!("runs-on: [{}]", quoted.join(", "));
    let proven = |edited: &String| only_runs_on_differs(payload, edited.as_bytes(), &key, labels);
    let edited = replacements(text, &wanted).chain(insertions(text, &wanted)).find(proven);
    edited.map(String::into_bytes).ok_or_else(|| Refusal {
        reason: Reason::UnsupportedLabels,
        cause: "the job has no `runs-on`, and none can be added to its text safely".to_owned(),
        remedy: format!("Write `runs-on: [{}]` into the job.", labels.join(", ")),
    })
}

/// Each line that is an empty `runs-on`, replaced.
fn replacements<'a>(text: &'a str, wanted: &'a str) -> impl Iterator<Item = String> + 'a {
    lines(text).filter_map(move |(start, line)| {
        let value =
            line.trim_start().strip_prefix("runs-on:").or_else(|| line.trim_start().strip_prefix("\"runs-on\":"))?;
        let value = value.trim();
        let empty = matches!(value, "" | "~" | "null" | "''" | "\"\"") || value.replace(' ', "") == "[]";
        let indent = line.len() - line.trim_start().len();
        empty.then(|| format!("{}{wanted}{}", &text[..start + indent], &text[start + line.trim_end().len()..]))
    })
}

/// A new first line below each line that opens a block.
fn insertions<'a>(text: &'a str, wanted: &'a str) -> impl Iterator<Item = String> + 'a {
    let opened = lines(text).zip(lines(text).skip(1)).filter(|((_, line), _)| line.trim_end().ends_with(':'));
    opened.map(move |(_, (next, line))| {
        let indent = &line[..line.len() - line.trim_start().len()];
        format!("{}{indent}{wanted}\n{}", &text[..next], &text[next..])
    })
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line)
    })
}

fn only_runs_on_differs(before: &[u8], after: &[u8], key: &str, labels: &[String]) -> bool {
    let (Ok(mut before), Ok(after)) = (read::<serde_json::Value>(before), read::<serde_json::Value>(after)) else {
        return false;
    };
    let Some(job) = before.pointer_mut("/jobs").and_then(|jobs| jobs.get_mut(key)).and_then(|job| job.as_object_mut())
    else {
        return false;
    };
    job.insert("runs-on".to_owned(), serde_json::Value::from(labels));
    before == after
}
