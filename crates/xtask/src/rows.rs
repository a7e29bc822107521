//! How a task that judges ends: rows into a file if wanted, the tally as the last line, the exit code.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use crate::say;

/// How much was right and how much was wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Tally {
    /// One thing that was judged.
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: u32::from(passed), failed: u32::from(!passed) }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |a, b| Self { passed: a.passed + b.passed, failed: a.failed + b.failed })
    }
}

/// Writes the rows, prints the last line, and says how to exit: nothing judged is a failure too.
pub(crate) fn conclude<R: Serialize>(rows: &[R], tally: Tally, json: Option<&Path>) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct File<'a, R> {
        rows: &'a [R],
        #[serde(flatten)]
        tally: Tally,
    }
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&File { rows, tally })?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    say::result(&format!("{} passed, {} failed", tally.passed, tally.failed));
    Ok(if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Columns as wide as their widest cell, two blanks apart.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&head).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(&head).chain(rows).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["long name".to_owned(), "1".to_owned()], vec!["é".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["a", "bb"], &rows), "a          bb\nlong name  1\né          22");
    }

    #[test]
    fn a_tally_adds_up() {
        let sum: Tally = [Tally::one(true), Tally::one(false), Tally { passed: 4, failed: 0 }].into_iter().sum();
        assert_eq!(sum, Tally { passed: 5, failed: 1 });
    }
}
