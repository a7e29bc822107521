//! Pieces of workflows that more than one test needs.

/// Python that sends an artifact up and down by plain HTTP from inside a step. Prints `artifact round trip of …`.
pub const ARTIFACT_ROUND_TRIP: &str = include_str!("artifact.py");

/// The same with the protocol of the older actions, version 3. Prints `artifact v3 round trip of …`.
pub const ARTIFACT_V3_ROUND_TRIP: &str = include_str!("artifact_v3.py");

/// Bash that clones the job's own repository with the job's token, which must be in `GITHUB_TOKEN`, and compares the
/// commit. Prints `cloned COMMIT`.
pub const CLONE_OWN_REPOSITORY: &str = r#"basic=$(printf 'x-access-token:%s' "$GITHUB_TOKEN" | base64 -w0)
git -c http.extraheader="Authorization: basic $basic" clone -q "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY.git" copy
commit=$(git -C copy rev-parse HEAD)
test "$commit" = "$GITHUB_SHA"
echo "cloned $commit"
"#;

/// Puts a text into a block of YAML: replaces the line that holds only `marker` by the text, at the marker's depth.
///
/// # Panics
/// The marker does not stand on a line of its own: the workflow is wrong.
#[must_use]
pub fn insert(workflow: &str, marker: &str, text: &str) -> String {
    assert!(workflow.lines().any(|line| line.trim() == marker), "no line {marker} in:\n{workflow}");
    let mut lines = Vec::new();
    for line in workflow.lines() {
        match line.strip_suffix(marker).filter(|depth| depth.trim().is_empty()) {
            Some(depth) => lines.extend(text.lines().map(|row| format!("{depth}{row}").trim_end().to_owned())),
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_the_depth_of_its_marker() {
        assert_eq!(
            insert("a:\n  - |\n    @X@\n  - b\n", "@X@", "one\n\n  two\n"),
            "a:\n  - |\n    one\n\n      two\n  - b\n"
        );
    }
}
