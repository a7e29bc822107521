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
    fn a_failure_without_a_failed_test_counts() {
        assert_eq!(tally("error: could not compile", false), Tally { passed: 0, failed: 1 });
        let passed = OUTPUT.lines().nth(2).unwrap_or_default();
        assert_eq!(tally(passed, false), Tally { passed: 3, failed: 1 });
        assert_eq!(tally(passed, true), Tally { passed: 3, failed: 0 });
    }
}
