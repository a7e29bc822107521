//! The one job of a task's payload (requirements ENV-2, ENV-3, IDN-8; Gitea contract §11.1).
//!
//! Nothing is taken from the text but the job key, its labels, and which steps tolerate failure; display names,
//! environment and outputs are never looked at.

mod labels;
#[cfg(test)]
mod tests;
mod tree;

use serde::{Deserialize, Serialize};

pub use self::labels::with_runs_on;
use self::tree::Tree;
use crate::reason::{Reason, Refusal};

const RUNS_ON: &str = "runs-on";

/// What is needed of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its key under `jobs`, as written.
    pub key: String,
    /// Its labels, in order; empty when `runs-on` is missing, null or empty.
    pub runs_on: Vec<String>,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// What is needed of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Whether the job goes on when it fails.
    pub continue_on_error: ContinueOnError,
}

/// `continue-on-error` of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueOnError {
    /// Absent or false.
    No,
    /// True.
    Yes,
    /// An expression: only the runner knows.
    Undecided,
}

impl Job {
    /// Reads a payload that holds exactly one job (ENV-3).
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidWorkflow`] with what is wrong.
    pub fn parse(payload: &[u8]) -> Result<Self, Refusal> {
        Self::of(&Tree::read(payload).map_err(refused)?)
    }

    fn of(document: &Tree) -> Result<Self, Refusal> {
        let jobs = document.get("jobs").and_then(Tree::entries).ok_or_else(|| refused("it has no jobs"))?;
        let (key, job) = match jobs {
            [(key, job)] => (key, job),
            [] => return Err(refused("it holds no job")),
            _ => return Err(refused("it holds more than one job")),
        };
        let key = key.as_text().ok_or_else(|| refused("its job's key is not a text"))?;
        if job.entries().is_none() {
            return Err(refused(format!("job {key:?} is empty")));
        }
        Ok(Self { key: key.to_owned(), runs_on: runs_on(job.get(RUNS_ON))?, steps: steps(job.get("steps"))? })
    }
}

/// A text, a list of texts, or a group with labels; empty labels are none.
fn runs_on(value: Option<&Tree>) -> Result<Vec<String>, Refusal> {
    let labels = match value {
        Some(group @ Tree::Map(_)) => group.get("labels"),
        other => other,
    };
    let label = |label: &Tree| match label {
        Tree::Null => Ok(String::new()),
        Tree::Text(text) => Ok(text.clone()),
        _ => Err(refused("its `runs-on` holds something that is not a text")),
    };
    let labels = match labels {
        None => vec![],
        Some(Tree::List(list)) => list.iter().map(label).collect::<Result<_, _>>()?,
        Some(one) => vec![label(one)?],
    };
    Ok(labels.into_iter().filter(|label| !label.trim().is_empty()).collect())
}

fn steps(value: Option<&Tree>) -> Result<Vec<Step>, Refusal> {
    let step = |step: &Tree| Step { continue_on_error: tolerance(step.get("continue-on-error")) };
    match value {
        None | Some(Tree::Null) => Ok(vec![]),
        Some(Tree::List(steps)) => Ok(steps.iter().map(step).collect()),
        Some(_) => Err(refused("its `steps` are not a list")),
    }
}

fn tolerance(value: Option<&Tree>) -> ContinueOnError {
    match value {
        None | Some(Tree::Null | Tree::Bool(false)) => ContinueOnError::No,
        Some(Tree::Bool(true)) => ContinueOnError::Yes,
        Some(Tree::Text(text)) if text.eq_ignore_ascii_case("false") => ContinueOnError::No,
        Some(Tree::Text(text)) if text.eq_ignore_ascii_case("true") => ContinueOnError::Yes,
        Some(_) => ContinueOnError::Undecided,
    }
}

fn refused(problem: impl Into<String>) -> Refusal {
    Refusal {
        reason: Reason::InvalidWorkflow,
        cause: format!("the workflow payload is not one readable job: {}", problem.into()),
        remedy: "Correct the workflow file and push again.".to_owned(),
    }
}
