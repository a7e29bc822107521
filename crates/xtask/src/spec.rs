//! The ids of the specification: requirements (`NEW-111`), faults (`F64`), tests of faults (`T7`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

/// What may be named, and how binding it is.
pub(crate) struct Specification {
    /// Requirements with their level: `MUST`, `SHOULD`, `LATER`, …
    pub(crate) requirements: BTreeMap<String, String>,
    pub(crate) faults: BTreeSet<String>,
    /// The tests of the faults document.
    pub(crate) tests: BTreeSet<String>,
    families: BTreeSet<String>,
}

impl Specification {
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("read {name}"));
        Ok(Self::parse(&read("docs/spec/requirements.md")?, &read("docs/spec/faults.md")?))
    }

    fn parse(requirements: &str, faults: &str) -> Self {
        let mut levels = BTreeMap::new();
        for row in requirements.lines().filter_map(|line| line.strip_prefix("| ")) {
            let mut cells = row.split('|').map(str::trim);
            let (first, level) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            let named = ids(first.split(' ').next().unwrap_or_default());
            levels.extend(named.map(|id| (id.to_owned(), level.to_owned())));
        }
        let entries = faults.lines().filter_map(|line| line.strip_prefix("- [")?.split("**").nth(1));
        let tests = faults.lines().filter_map(|line| line.strip_prefix("## T").or(line.strip_prefix("| T")));
        let numbers = tests.filter_map(|rest| rest.split(' ').next());
        let families = levels.keys().map(|id| family(id).to_owned()).collect();
        Self {
            requirements: levels,
            faults: entries.map(str::to_owned).collect(),
            tests: numbers.map(|number| format!("T{number}")).collect(),
            families,
        }
    }

    fn knows(&self, id: &str) -> bool {
        self.requirements.contains_key(id) || self.faults.contains(id) || self.tests.contains(id)
    }

    /// Ids in a text that do not exist.
    pub(crate) fn unknown<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let requirements = ids(text).filter(|id| self.families.contains(family(id)));
        requirements.chain(numbered(text)).filter(|id| !self.knows(id))
    }

    /// Ids that a text names, also inside a range such as `NEW-26…29` or `T1–T3`.
    pub(crate) fn named(&self, text: &str) -> BTreeSet<String> {
        let single = ids(text).chain(numbered(text)).map(str::to_owned);
        single.chain(ranges(text)).filter(|id| self.knows(id)).collect()
    }
}

/// Words of the form `ABC-12`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            is_number(number) && family.len() == 3 && family.bytes().all(|byte| byte.is_ascii_uppercase())
        })
    })
}

/// Faults and tests of faults: F or T and a number.
fn numbered(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| {
        let fault = word.strip_prefix('F').is_some_and(|n| is_number(n) && (2..=3).contains(&n.len()));
        fault || word.strip_prefix('T').is_some_and(|n| is_number(n) && n.len() <= 2)
    })
}

/// What lies between the ends of the ranges in a text.
fn ranges(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "(),:;".contains(c));
    words.filter_map(|word| word.split_once(['…', '–'])).flat_map(|(from, to)| {
        let digits = from.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, first) = from.split_at(digits);
        let last = to.strip_prefix(prefix).unwrap_or(to).trim_end_matches('.');
        let bounds = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        let prefix = prefix.to_owned();
        bounds
            .into_iter()
            .flat_map(|(first, last)| first..=last)
            .map(move |number| format!("{prefix}{number:0width$}", width = first.len()))
    })
}

/// `NEW` of `NEW-111`.
pub(crate) fn family(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_form_count() {
        let found: Vec<&str> = ids("(NEW-111, F64): SHA-256 and utf-8, ABCD-1; IDN-6.").collect();
        assert_eq!(found, ["NEW-111", "SHA-256", "IDN-6"]);
        assert_eq!(family("NEW-111"), "NEW");
        assert_eq!(numbered("F01, F1234 T7 T100 f64 F_1 (T84)").collect::<Vec<_>>(), ["F01", "T7", "T84"]);
    }

    #[test]
    fn ranges_name_what_lies_between() {
        let rows = "| NEW-1 | MUST | a |\n| NEW-2 | LATER | b |\n| NEW-3 | MUST | c |\n";
        let faults = "- [ ] **F01** · x\n- [ ] **F02** · y\n## T1 Name\n| T2 Name | z |\n";
        let specification = Specification::parse(rows, faults);
        assert_eq!(specification.requirements["NEW-2"], "LATER");
        let named = |text| specification.named(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(named("NEW-1…3 and F01–F02, T1–T2: x"), "F01 F02 NEW-1 NEW-2 NEW-3 T1 T2");
        assert_eq!(named("a–b, 3…4, F01"), "F01");
        assert_eq!(specification.unknown("NEW-4, ABC-1, F03, F01").collect::<Vec<_>>(), ["NEW-4", "F03"]);
    }
}
