//! `cargo xtask conformance`: the questions about Gitea, as the real one and its double answer them.

use std::path::PathBuf;
use std::process::ExitCode;

use testkit::conformance::{Outcome, Verdict, judge};

use crate::provision::{self, Part};
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};

/// Ask the real Gitea and its double the same questions.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the questions with these words in them.
    #[arg(default_value = "")]
    words: String,
    /// Write a row per question into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command.
pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<ExitCode> {
    provision::ensure(&[Part::Gitea]).await?;
    let step = Step::begin("questions");
    let verdicts = judge(&arguments.words).await;
    step.end(if verdicts.as_ref().is_ok_and(|verdicts| verdicts.iter().all(Verdict::holds)) { "ok" } else { "FAILED" });
    let verdicts = verdicts?;
    let cells: Vec<Vec<String>> = verdicts.iter().map(cells).collect();
    say::result(&table(&["question", "Gitea 1.26.0", "double"], &cells));
    for (number, verdict) in verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.holds()) {
        complain(number + 1, verdict);
    }
    let absent = verdicts.iter().filter(|verdict| matches!(verdict.real, Outcome::Absent { .. })).count();
    say::result(&format!("{absent} of {} questions are about newer servers and asked of the double only", cells.len()));
    let tally = verdicts.iter().map(|verdict| Tally::one(verdict.holds())).sum();
    conclude(&verdicts, tally, arguments.json.as_deref())
}

fn cells(verdict: &Verdict) -> Vec<String> {
    vec![verdict.question.to_owned(), word(&verdict.real), word(&verdict.double)]
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Right => "as written".to_owned(),
        Outcome::Wrong { .. } => "OTHERWISE".to_owned(),
        Outcome::Absent { source } => format!("newer: {source}"),
    }
}

fn complain(number: usize, verdict: &Verdict) {
    for (side, outcome) in [("Gitea 1.26.0", &verdict.real), ("the double", &verdict.double)] {
        if let Outcome::Wrong { how } = outcome {
            say::result(&format!("{number}. {} {side}: {how}", verdict.question));
        }
    }
}
