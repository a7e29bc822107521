//! Requirements and faults that the code names must exist in the specification.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;

use super::links::tracked;

const DOCUMENTS: [&str; 2] = ["docs/spec/requirements.md", "docs/spec/faults.md"];

/// Ids that stand in the code but not in the specification, as `FILE: ID`.
pub(super) fn unknown(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut specified = BTreeSet::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root.join(document)).with_context(|| format!("read {document}"))?;
        specified.extend(ids(&text).map(str::to_owned));
    }
    let families: BTreeSet<String> = specified.iter().map(|id| family(id).to_owned()).collect();
    let mut complaints = Vec::new();
    for file in tracked(root, "crates/*.rs")? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let wrong = ids(&text).filter(|id| families.contains(family(id)) && !specified.contains(*id));
        complaints.extend(wrong.map(|id| format!("{}: the specification knows no {id}", file.display())));
    }
    Ok(complaints)
}

/// Words of the form `ABC-12`.
pub(super) fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            digits && family.len() == 3 && family.bytes().all(|byte| byte.is_ascii_uppercase())
        })
    })
}

pub(super) fn family(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_form_count() {
        let found: Vec<&str> = ids("(NEW-111, F64): SHA-256 and utf-8, ABCD-1; IDN-6.").collect();
        assert_eq!(found, ["NEW-111", "SHA-256", "IDN-6"]);
        assert_eq!(family("NEW-111"), "NEW");
    }
}
