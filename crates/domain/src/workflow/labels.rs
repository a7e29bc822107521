//! The one permitted edit of a payload: labels for a job that has none (requirements NEW-161, ENV-5).
//!
//! Without it the official runner takes its default Docker image (Gitea contract §13.5). The edit touches the value of
//! `runs-on`, or adds one line; that nothing else changed is proven by reading both texts, and what cannot be proven is
//! refused. The same input always gives the same bytes.

use super::tree::Tree;
use super::{Job, RUNS_ON, refused};
use crate::reason::{Reason, Refusal};

/// The payload with these labels in the empty `runs-on` of its only job. Every other byte stays.
///
/// # Errors
///
/// [`Reason::UnsupportedLabels`] when the payload is not written the way Gitea writes it (block style, `runs-on` on one
/// line), so that no edit can be proven to change `runs-on` and nothing else, and when the job already has labels.
/// [`Reason::InvalidWorkflow`] when the payload is not one job.
pub fn with_runs_on(payload: &[u8], labels: &[String]) -> Result<Vec<u8>, Refusal> {
    let before = Tree::read(payload).map_err(refused)?;
    let job = Job::of(&before)?;
    let text = std::str::from_utf8(payload).map_err(|_| refused("it is not UTF-8"))?;
    let edited = job.runs_on.is_empty().then(|| edit(text, &flow(labels))).flatten();
    let wanted = with_list(before, &job.key, labels);
    let proven = edited.filter(|edited| wanted.is_some() && Tree::read(edited.as_bytes()).ok() == wanted);
    proven.map(String::into_bytes).ok_or_else(|| Refusal {
        reason: Reason::UnsupportedLabels,
        cause: "the job has no `runs-on`, and none can be added to its text safely".to_owned(),
        remedy: format!("Write `runs-on: [{}]` into the job.", labels.join(", ")),
    })
}

/// A YAML list; a JSON string is a double-quoted YAML scalar (YAML 1.2.2 §1.3).
fn flow(labels: &[String]) -> String {
    let quoted: Vec<String> = labels.iter().map(|label| serde_json::Value::from(label.as_str()).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

/// The document that the edit must result in; a new `runs-on` comes first.
fn with_list(mut document: Tree, key: &str, labels: &[String]) -> Option<Tree> {
    let list = Tree::List(labels.iter().cloned().map(Tree::Text).collect());
    let job = value_mut(value_mut(&mut document, "jobs")?, key)?;
    match value_mut(job, RUNS_ON) {
        Some(value) => *value = list,
        None => {
            let Tree::Map(entries) = job else { return None };
            entries.insert(0, (Tree::Text(RUNS_ON.to_owned()), list));
        }
    }
    Some(document)
}

fn value_mut<'a>(tree: &'a mut Tree, key: &str) -> Option<&'a mut Tree> {
    let Tree::Map(entries) = tree else { return None };
    entries.iter_mut().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
}

/// The edit of a document in block style: one candidate, found by indentation alone.
fn edit(text: &str, list: &str) -> Option<String> {
    let mut lines = lines(text).filter(Line::has_content).skip_while(|line| !line.opens_jobs());
    let (jobs, key, first) = (lines.next()?, lines.next()?, lines.next()?);
    if key.indent <= jobs.indent || first.indent <= key.indent {
        return None;
    }
    let job = std::iter::once(first).chain(lines).take_while(|line| line.indent >= first.indent);
    let mut keys = job.filter(|line| line.indent == first.indent);
    let Some((line, value)) = keys.find_map(|line| Some((line, line.value_of_runs_on()?))) else {
        let (indent, end) = (&first.text[..first.indent], first.end_of_line());
        return Some(format!("{}{indent}{RUNS_ON}: {list}{end}{}", &text[..first.start], &text[first.start..]));
    };
    // The value ends where a comment begins: no empty value holds a '#'.
    let plain = value.split('#').next().unwrap_or_default().trim_end();
    let from = line.start + line.text.len() - value.len();
    Some(format!("{} {list}{}", &text[..from], &text[from + plain.len()..]))
}

#[derive(Clone, Copy)]
struct Line<'a> {
    /// Offset in the document.
    start: usize,
    /// With its end.
    text: &'a str,
    indent: usize,
}

impl<'a> Line<'a> {
    fn has_content(&self) -> bool {
        let content = self.text.trim();
        !content.is_empty() && !content.starts_with('#')
    }

    fn opens_jobs(&self) -> bool {
        let value = ["jobs:", "\"jobs\":", "'jobs':"].iter().find_map(|key| self.text.strip_prefix(key));
        value.is_some_and(|value| value.split('#').next().unwrap_or_default().trim().is_empty())
    }

    /// Everything behind the colon, the end of the line included.
    fn value_of_runs_on(&self) -> Option<&'a str> {
        let content = &self.text[self.indent..];
        ["runs-on:", "\"runs-on\":", "'runs-on':"].iter().find_map(|key| content.strip_prefix(key))
    }

    fn end_of_line(&self) -> &'static str {
        if self.text.ends_with("\r\n") { "\r\n" } else { "\n" }
    }
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        Line { start: at, text: line, indent: line.len() - line.trim_start_matches(' ').len() }
    })
}
