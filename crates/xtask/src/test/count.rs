//! Counts tests by the summary lines that each test program prints.

use crate::rows::Tally;

/// Adds up the lines `test result: ok. 3 passed; 1 failed; ...`. A run that failed without a failed test (it did not
/// compile, or a test program was killed) counts as one failure.
pub(super) fn tally(output: &str, success: bool) -> Tally {
    let results = output.lines().filter_map(|line| line.trim_start().strip_prefix("test result: "));
    let sum: Tally = results.map(|line| Tally { passed: number(line, "passed"), failed: number(line, "failed") }).sum();
    let unexplained = !success && sum.failed == 0;
    Tally { failed: sum.failed + u32::from(unexplained), ..sum }
}

/// What each test program says of the tests that failed in it, whole; none when none says anything.
pub(super) fn failures<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut told, mut failing) = (Vec::new(), false);
    for line in lines {
        failing |= line == "failures:";
        if failing {
            told.push(line);
        }
        failing &= !line.starts_with("test result: ");
    }
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Which tests failed, each with the first words of its panic.
pub(super) fn panics<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines = lines.skip_while(|line| *line != "failures:");
    let (mut told, mut name) = (Vec::new(), None);
    while let Some(line) = lines.next() {
        if let Some(begun) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            name = Some(begun);
        } else if line.contains("panicked at")
            && let Some(name) = name.take()
        {
            let words: String = lines.next().unwrap_or_default().chars().take(300).collect();
            told.push(format!("{name}: {words}"));
        }
    }
    told
}

/// The number before a word.
fn number(line: &str, word: &str) -> u32 {
    let words: Vec<&str> = line.split([' ', ';', '.']).filter(|part| !part.is_empty()).collect();
    let at = words.iter().position(|part| *part == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\n...\n\
        test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.42s\n\
        test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.42s\n";

    #[test]
    fn results_add_up() {
        assert_eq!(tally(OUTPUT, false), Tally { passed: 15, failed: 2 });
    }

    #[test]
    fn failures_are_told_and_nothing_else() {
        let one = [
            "test a ... FAILED",
            "failures:",
            "---- a stdout ----",
            "why",
            "failures:",
            "    a",
            "test result: FAILED. 0",
        ];
        let lines = one.into_iter().chain(["test b ... ok", "test result: ok. 1"]).chain(one);
        let told = "failures:\n---- a stdout ----\nwhy\nfailures:\n    a\ntest result: FAILED. 0";
        assert_eq!(failures(lines), Some(format!("{told}\n{told}")));
        assert_eq!(failures(["test result: ok. 1"].into_iter()), None);
    }

    #[test]
    fn who_failed_and_how_in_short() {
        let lines = [
            "test a ... FAILED",
            "failures:",
            "",
            "---- a stdout ----",
            "",
            "thread 'a' (7) panicked at a.rs:1:2:",
            "why",
            "thread 'other' (8) panicked at b.rs:1:2:",
            "because of a",
            "---- b stdout ----",
            "thread 'b' (9) panicked at b.rs:1:2:",
            "assertion failed",
        ];
        assert_eq!(panics(lines.into_iter()), ["a: why", "b: assertion failed"]);
        assert!(panics(["test a ... ok"].into_iter()).is_empty());
    }

    #[test]
    fn a_failure_without_a_failed_test_counts() {
        assert_eq!(tally("error: could not compile", false), Tally { passed: 0, failed: 1 });
        let passed = OUTPUT.lines().nth(2).unwrap_or_default();
        assert_eq!(tally(passed, false), Tally { passed: 3, failed: 1 });
        assert_eq!(tally(passed, true), Tally { passed: 3, failed: 0 });
    }
}
