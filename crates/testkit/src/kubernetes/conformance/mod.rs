//! Questions about the Kubernetes API, asked of a real API server and of its double alike.
//!
//! Each question makes calls and notes what came back, without what differs from run to run. What the real server said
//! is recorded in `traces/kubernetes.json`: the double must say the same, and so must a real server wherever one runs.

mod bench;
mod deletion;
mod entries;
mod objects;
mod pods;
mod refusals;
mod watches;
mod writes;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use futures::future::LocalBoxFuture;

pub use bench::{Bench, Side};

/// One question.
pub struct Question {
    /// What is asked, in a few words.
    pub name: &'static str,
    /// Asks, and notes the answers.
    pub ask: for<'a> fn(&'a mut Bench<'_>) -> LocalBoxFuture<'a, anyhow::Result<()>>,
}

/// What a side said to each question.
pub type Answers = BTreeMap<String, Vec<String>>;

/// All questions.
pub fn questions() -> impl Iterator<Item = &'static Question> {
    let topics = [
        objects::QUESTIONS,
        writes::QUESTIONS,
        deletion::QUESTIONS,
        watches::QUESTIONS,
        refusals::QUESTIONS,
        pods::QUESTIONS,
        entries::QUESTIONS,
    ];
    topics.into_iter().flatten()
}

/// Asks all questions, one after the other.
///
/// # Errors
///
/// The namespace of a question cannot be made. A question that breaks off says so in its last line.
pub async fn ask_all(side: &mut dyn Side) -> anyhow::Result<Answers> {
    let mut answers = Answers::new();
    for (number, question) in questions().enumerate() {
        let mut bench = Bench::new(side, &format!("question-{number}")).await?;
        if let Err(error) = (question.ask)(&mut bench).await {
            bench.write(&format!("cannot be asked further: {error:#}"));
        }
        answers.insert(question.name.to_owned(), bench.into_notes());
    }
    Ok(answers)
}

/// Where the real server's answers are recorded.
#[must_use]
pub fn record() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces/kubernetes.json")
}

/// The recorded answers.
///
/// # Errors
///
/// The record is missing or unreadable.
pub fn recorded() -> anyhow::Result<Answers> {
    let path = record();
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

/// Where two sides differ: question, line, and what each said.
#[must_use]
pub fn differences(one: &Answers, other: &Answers) -> Vec<String> {
    let mut found = Vec::new();
    for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
        let empty = Vec::new();
        let (left, right) = (one.get(name).unwrap_or(&empty), other.get(name).unwrap_or(&empty));
        for at in 0..left.len().max(right.len()) {
            let line = |lines: &Vec<String>| lines.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
            if line(left) != line(right) {
                found.push(format!("{name}\n  {}\n  {}", line(left), line(right)));
            }
        }
    }
    found
}
