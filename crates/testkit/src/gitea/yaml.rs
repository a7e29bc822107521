//! The workflow payload as Gitea writes it: block style, four spaces, one job, `"on"` quoted.

use std::collections::BTreeMap;

use super::job::{Concurrency, Entry, JobSpec, Matrix, Others, StepSpec};

/// The text of `workflow_payload` for one job (§11.1).
pub(crate) fn payload(job: &JobSpec) -> String {
    let mut out = Block::new("    ");
    if let Some(name) = &job.workflow_name {
        out.scalar(0, "name", name);
    }
    out.scalar(0, "on", &job.event_name);
    out.mapping(0, "env", &job.env);
    out.line(0, "jobs:");
    out.line(1, &format!("{}:", quoted(&job.key)));
    out.scalar(2, "name", &job.shown_name());
    out.runs_on(&job.runs_on);
    out.steps(job);
    out.matrix(job);
    out.text
}

/// The workflow file whose run has these jobs, as a person would push it.
#[must_use]
pub fn workflow(jobs: &[JobSpec]) -> String {
    let mut out = Block::new("    ");
    for job in jobs.iter().take(1) {
        out.scalar(0, "on", &job.event_name);
        out.mapping(0, "env", &job.env);
        if let Some(Concurrency { group, others }) = &job.concurrency {
            out.line(0, "concurrency:");
            out.scalar(1, "group", group);
            out.line(1, &format!("cancel-in-progress: {}", *others == Others::AreCancelled));
        }
    }
    out.line(0, "jobs:");
    for job in jobs {
        out.line(1, &format!("{}:", quoted(&job.key)));
        if !job.runs_on.is_empty() {
            out.runs_on(&job.runs_on);
        }
        out.list("needs", &job.needs);
        out.steps(job);
        out.matrix(job);
    }
    out.text
}

/// Block style with one unit of indentation per level.
struct Block {
    unit: &'static str,
    text: String,
}

impl Block {
    fn new(unit: &'static str) -> Self {
        Self { unit, text: String::new() }
    }

    fn line(&mut self, depth: usize, text: &str) {
        if !text.is_empty() {
            self.text.push_str(&self.unit.repeat(depth));
            self.text.push_str(text);
        }
        self.text.push('\n');
    }

    fn scalar(&mut self, depth: usize, key: &str, value: &str) {
        if !value.contains('\n') {
            return self.line(depth, &format!("{}: {}", quoted(key), quoted(value)));
        }
        let style = match (value.ends_with('\n'), value.ends_with("\n\n")) {
            (_, true) => "|+",
            (true, false) => "|",
            (false, false) => "|-",
        };
        self.line(depth, &format!("{}: {style}", quoted(key)));
        for each in value.strip_suffix('\n').unwrap_or(value).split('\n') {
            self.line(depth + 1, each);
        }
    }

    fn mapping(&mut self, depth: usize, key: &str, map: &BTreeMap<String, String>) {
        if map.is_empty() {
            return;
        }
        self.line(depth, &format!("{}:", quoted(key)));
        for (name, value) in map {
            self.scalar(depth + 1, name, value);
        }
    }

    fn runs_on(&mut self, labels: &[String]) {
        match labels {
            [] => self.line(2, "runs-on: []"),
            [label] => self.scalar(2, "runs-on", label),
            labels => self.list("runs-on", labels),
        }
    }

    /// A list of a job; nothing if it is empty.
    fn list(&mut self, key: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.line(2, &format!("{key}:"));
        for item in items {
            self.line(3, &format!("- {}", quoted(item)));
        }
    }

    fn steps(&mut self, job: &JobSpec) {
        self.line(2, "steps:");
        for step in &job.steps {
            self.step(step);
        }
    }

    fn matrix(&mut self, job: &JobSpec) {
        let Some(Matrix { axis, values }) = &job.matrix else { return };
        self.line(2, "strategy:");
        self.line(3, "matrix:");
        self.line(4, &format!("{}:", quoted(axis)));
        for value in values {
            self.line(5, &format!("- {}", quoted(value)));
        }
    }

    /// An entry of the list of steps; inside a list Gitea's writer indents by two.
    fn step(&mut self, step: &StepSpec) {
        let mut inside = Self::new("  ");
        for (key, entry) in &step.entries {
            match entry {
                Entry::Text(value) if *key == "continue-on-error" => inside.line(0, &format!("{key}: {value}")),
                Entry::Text(value) => inside.scalar(0, key, value),
                Entry::Map(map) => inside.mapping(0, key, map),
            }
        }
        for (number, each) in inside.text.lines().enumerate() {
            let lead = if number == 0 { "- " } else { "  " };
            let text = if each.is_empty() { String::new() } else { format!("{lead}{each}") };
            self.line(3, &text);
        }
    }
}

/// A scalar that reads back as the same string.
fn quoted(text: &str) -> String {
    let words = ["on", "off", "yes", "no", "y", "n", "true", "false", "null", "~"];
    let ambiguous = words.iter().any(|word| text.eq_ignore_ascii_case(word)) || text.parse::<f64>().is_ok();
    let opens = text.starts_with(|first: char| "!&*-?|>@`%{}[],#:'\"= \t".contains(first));
    let inside = text.contains(": ") || text.contains(" #") || text.ends_with([':', ' ']) || text.is_empty();
    let control = text.contains(|each: char| each.is_control());
    let dash_word = text.starts_with('-') && !text.starts_with("- ") && text.len() > 1;
    let doubled = ambiguous || control || text.is_empty();
    if doubled {
        serde_json::Value::from(text).to_string()
    } else if (opens && !dash_word) || inside {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §11.1: a missing `runs-on` arrives as an empty list, `on` is quoted, indent is four.
    #[test]
    fn unlabelled_job() {
        let job = JobSpec::new("hb").runs_on([] as [&str; 0]).steps([StepSpec::run("echo a\necho b\n").name("true")]);
        assert_eq!(
            payload(&job),
            "\"on\": push\njobs:\n    hb:\n        name: hb\n        runs-on: []\n        steps:\n            \
             - name: \"true\"\n              run: |\n                echo a\n                echo b\n"
        );
    }
}
