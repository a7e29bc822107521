//! `cargo xtask coverage`: which requirements and faults have a test that names them, and which of these tests has been
//! seen to fail.

pub(crate) mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::mutations::Mutation;
use crate::rows::{Tally, conclude, table};
use crate::say;
use crate::spec::{Specification, family};

/// Say which requirements and faults have a test that names them.
///
/// A test names what it shows in its doc comment. An id that the specification does not know fails, as does a recorded
/// mutation whose test is gone or which does not fit the sources any more.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also list what has no test, and the tests that no recorded mutation has been seen to fail.
    #[arg(long)]
    missing: bool,
    /// Write a row per id into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is shown by a stage of `cargo xtask test` that is no test of cargo's, because it builds programs of its own.
const STAGES: [(&str, &str); 1] = [("cargo xtask mixed-versions", "NEW-149, T78")];

/// One requirement, fault or test of a fault.
#[derive(Serialize)]
struct Row {
    id: String,
    /// `MUST`, …; of faults the word `fault`.
    level: String,
    tests: Vec<String>,
    /// Those of the tests that a mutation makes fail.
    proven: usize,
}

pub(crate) fn main(root: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let survey = Survey::of(root)?;
    say::result(&survey.summary());
    if arguments.missing {
        say::result(&survey.missing());
    }
    survey.complaints.iter().for_each(|complaint| say::line(complaint));
    let right = u32::try_from(survey.naming).unwrap_or(u32::MAX);
    let wrong = u32::try_from(survey.complaints.len()).unwrap_or(u32::MAX);
    conclude(&survey.rows, Tally { passed: right, failed: wrong }, arguments.json.as_deref())
}

/// What must not be, for the checks of every change.
pub(crate) fn complaints(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(Survey::of(root)?.complaints)
}

struct Survey {
    rows: Vec<Row>,
    /// Tests that name an id.
    naming: usize,
    /// Of these the ones that no recorded mutation makes fail.
    unproven: Vec<String>,
    complaints: Vec<String>,
}

impl Survey {
    fn of(root: &Path) -> anyhow::Result<Self> {
        let specification = Specification::read(root)?;
        let tests = scan::tests(root)?;
        let mut complaints = Vec::new();
        let mut proven = BTreeSet::new();
        for mutation in Mutation::all(root)? {
            complaints.extend(mutation.fits(root).err().map(|error| error.to_string()));
            let (there, gone): (Vec<_>, Vec<_>) =
                mutation.caught_by.iter().partition(|address| tests.iter().any(|test| test.address == **address));
            complaints.extend(gone.iter().map(|address| format!("{}: there is no test {address}", mutation.name)));
            proven.extend(there.into_iter().cloned());
        }
        let mut naming = BTreeMap::<String, Vec<&scan::Address>>::new();
        let (mut count, mut unproven) = (0, Vec::new());
        for test in &tests {
            let unknown = specification.unknown(&test.comment);
            complaints.extend(unknown.map(|id| format!("{}: the specification knows no {id}", test.address)));
            let named = specification.named(&test.comment);
            if !named.is_empty() {
                count += 1;
                unproven.extend((!proven.contains(&test.address)).then(|| test.address.to_string()));
            }
            named.into_iter().for_each(|id| naming.entry(id).or_default().push(&test.address));
        }
        let unknown = |(stage, ids): &(&'static str, &'static str)| {
            specification.unknown(ids).map(|id| format!("{stage}: the specification knows no {id}")).collect::<Vec<_>>()
        };
        complaints.extend(STAGES.iter().flat_map(unknown));
        let row = |(id, level): (&String, &str)| {
            let tests = naming.get(id).map_or(&[][..], Vec::as_slice);
            let stages = STAGES.iter().filter(|(_, ids)| specification.named(ids).contains(id));
            let proven = tests.iter().filter(|test| proven.contains(**test)).count();
            Row {
                id: id.clone(),
                level: level.to_owned(),
                tests: stages
                    .map(|(stage, _)| (*stage).to_owned())
                    .chain(tests.iter().map(ToString::to_string))
                    .collect(),
                proven,
            }
        };
        let requirements = specification.requirements.iter().map(|(id, level)| (id, level.as_str()));
        let faults = specification.faults.iter().map(|id| (id, "fault"));
        let fault_tests = specification.tests.iter().map(|id| (id, "fault test"));
        let rows = requirements.chain(faults).chain(fault_tests).map(row).collect();
        Ok(Self { rows, naming: count, unproven, complaints })
    }

    /// A line per family of requirements, and one each for faults and their tests.
    fn summary(&self) -> String {
        let mut kinds = BTreeMap::<(&str, &str), (usize, usize, usize)>::new();
        for row in self.rows.iter().filter(|row| row.level != "LATER") {
            let kind = if row.id.contains('-') { family(&row.id) } else { &row.id[..1] };
            let (all, tested, proven) = kinds.entry((&row.level, kind)).or_default();
            *all += 1;
            *tested += usize::from(!row.tests.is_empty());
            *proven += usize::from(row.proven > 0);
        }
        let cells = kinds.iter().map(|((level, kind), (all, tested, proven))| {
            let counts = [all, tested, proven].map(ToString::to_string);
            [(*level).to_owned(), (*kind).to_owned()].into_iter().chain(counts).collect()
        });
        let shown = table(&["level", "family", "all", "tested", "seen to fail"], &cells.collect::<Vec<_>>());
        let proven = self.naming - self.unproven.len();
        format!("{shown}\n{} tests name an id; {proven} of them have a recorded mutation", self.naming)
    }

    fn missing(&self) -> String {
        let without = |level: &str| {
            let rows = self.rows.iter().filter(|row| row.level == level && row.tests.is_empty());
            rows.map(|row| row.id.as_str()).collect::<Vec<_>>().join(" ")
        };
        let tested = ["MUST", "fault", "fault test"].map(|level| format!("{level} without a test: {}", without(level)));
        format!("{}\nno mutation recorded:\n{}", tested.join("\n"), self.unproven.join("\n"))
    }
}
