//! Relative links in the Markdown documents must lead somewhere.

use std::path::Path;

use anyhow::Context as _;

use crate::sources::tracked;

/// Links to files that do not exist, as `DOCUMENT: LINK`.
pub(super) fn broken(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for document in tracked(root, "*.md")? {
        let path = root.join(&document);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let folder = path.parent().unwrap_or(root);
        let dead = targets(&text).into_iter().filter(|target| !folder.join(target).exists());
        complaints.extend(dead.map(|target| format!("{}: the link to {target} leads nowhere", document.display())));
    }
    Ok(complaints)
}

/// The files that a text links to; other protocols and places in the same document are left out, as is code.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece stands between back-ticks.
        for prose in line.split('`').step_by(2) {
            let ends = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let files = ends.filter_map(|link| link.split(['#', ' ']).next());
            found.extend(files.filter(|link| !link.is_empty() && !link.contains(':')).map(str::to_owned));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_count() {
        let text = "[a](b.md) [c](d/e.md#part) [f](#here) [g](https://example.org) `[h](i.md)`\n```\n[j](k.md)\n```\n";
        assert_eq!(targets(text), ["b.md", "d/e.md"]);
    }
}
