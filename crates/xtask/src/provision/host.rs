//! What the host must bring along, with the remedy when it does not.

use std::path::Path;

use anyhow::bail;

/// A tool that a recipe calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tool {
    Go,
    CCompiler,
    Git,
}

impl Tool {
    /// Any one of these programs does.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Go => &["go"],
            Self::CCompiler => &["cc", "gcc", "clang"],
            Self::Git => &["git"],
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Go => "the Go toolchain (no `go` in PATH): install Go 1.26 or newer and put its `bin` into PATH",
            Self::CCompiler => {
                "a C compiler (no `cc`, `gcc` or `clang` in PATH, and CC names none): install one, \
                 for example with `apt-get install gcc libc6-dev`"
            }
            Self::Git => "git (no `git` in PATH): install it, for example with `apt-get install git`",
        }
    }
}

/// Fails with all that is missing at once.
pub(super) fn check(tools: impl Iterator<Item = Tool>) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let compiler = std::env::var("CC").ok();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let found = |program: &str| {
        let direct = program.contains('/') && Path::new(program).is_file();
        direct || folders.iter().any(|folder| folder.join(program).is_file())
    };
    report(tools, |tool| {
        let named = compiler.iter().filter(|_| tool == Tool::CCompiler).filter_map(|cc| cc.split_whitespace().next());
        tool.programs().iter().copied().chain(named).any(found)
    })
}

fn report(tools: impl Iterator<Item = Tool>, has: impl Fn(Tool) -> bool) -> anyhow::Result<()> {
    let mut missing: Vec<Tool> = tools.filter(|tool| !has(*tool)).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing.iter().map(|tool| format!("  - {}", tool.remedy())).collect();
    bail!("this machine lacks what the build needs:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn everything_missing_is_named_once_with_its_remedy() {
        let tools = [Tool::Git, Tool::Go, Tool::CCompiler, Tool::Go];
        assert!(report(tools.into_iter(), |_| true).is_ok());
        let text = report(tools.into_iter(), |tool| tool == Tool::Git).unwrap_err().to_string();
        let expected = "this machine lacks what the build needs:\n  \
             - the Go toolchain (no `go` in PATH): install Go 1.26 or newer and put its `bin` into PATH\n  \
             - a C compiler (no `cc`, `gcc` or `clang` in PATH, and CC names none): install one, \
             for example with `apt-get install gcc libc6-dev`";
        assert_eq!(text, expected);
    }
}
