//! What the documents say must be so: commands, flags, files, names and ids are looked up, and what ARCHITECTURE.md
//! says stands in one place only is looked for everywhere else.
//!
//! The specification and the contracts are left out: they speak of what is to come, and of other people's programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::CommandFactory as _;
use tokio::process::Command;

use crate::child::run;
use crate::say::Step;
use crate::sources::tracked;
use crate::spec::Specification;

/// Other people's words and plans.
const LEFT_OUT: [&str; 2] = ["docs/spec/", "docs/contracts/"];

/// A text, the sources it is looked for in, and the places where it may stand.
struct Absence(&'static str, &'static str, &'static [&'static str]);

/// The absences of ARCHITECTURE.md that nothing else holds.
const ABSENCES: [Absence; 8] = [
    Absence("backend.delete(", "crates/controller/src/", &["reap.rs", "backend/"]),
    Absence("ci.ddupan.top", "crates/", &["domain/src/metadata"]),
    Absence("Disposition::Ack", "crates/controller/src/", &["launch.rs", "fetch/tests.rs", "queue/"]),
    Absence("Disposition::Reject", "crates/controller/src/", &["fetch.rs", "queue/"]),
    // A background task has an owner that hears of its end (NEW-150); these keep the handle.
    Absence(
        "tokio::spawn(",
        "crates/controller/src/",
        &[
            "identity/serve.rs",
            "backend/local/watch.rs",
            "queue/contract.rs",
            "queue/jetstream/",
            "lease/",
            "standby.rs",
            "backend/pod/",
        ],
    ),
    Absence(
        "env::var",
        "crates/controller/src/",
        // The executor's own variables, colours, a test's child.
        &["config/raw.rs", "command.rs", "telemetry/mod.rs", "lease/"],
    ),
    Absence("tokio::spawn(", "crates/executor/src/", &[]),
    // It keeps a handle that ends the task with the bodies that it watches.
    Absence("tokio::spawn(", "crates/forward/src/", &["forwarder.rs"]),
];

/// How long an answer of the program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Help texts by command, words joined with a blank; the program itself is the empty text.
type Manual = BTreeMap<String, String>;

/// Everything that is not so, as `FILE: WHAT`.
pub(super) async fn untrue(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut ours = Manual::new();
    add_clap(&mut ours, "", &mut crate::Arguments::command());
    let program = program_manual().await?;
    let mut complaints = unwritten(&program, &manual_pages().await?);
    let manuals = [("cargo xtask", ours), ("gitea-dynamic-runner", program)];
    let known = Known::read(root)?;
    for file in tracked(root, "*.md")? {
        let name = file.display().to_string();
        if LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&file)).with_context(|| format!("read {name}"))?;
        let mut found: Vec<String> = known.unknown_ids(&text);
        for snippet in snippets(&text) {
            found.extend(manuals.iter().flat_map(|(program, manual)| wrong_calls(snippet, program, manual)));
            found.extend(known.unknown_names(snippet));
            let missing = paths(snippet).filter(|path| !root.join(path).exists());
            found.extend(missing.map(|path| format!("there is no {path}")));
        }
        complaints.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    for (name, text) in &known.sources {
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        let unknown = comments.flat_map(|line| known.unknown_ids(line));
        complaints.extend(unknown.map(|what| format!("{name}: {what}")));
        complaints.extend(ABSENCES.iter().filter_map(|absence| absence.broken_by(name, text)));
    }
    Ok(complaints)
}

/// The manual of the operators' program, asked word by word.
async fn program_manual() -> anyhow::Result<Manual> {
    let program = super::program()?;
    let mut manual = Manual::new();
    let mut open = vec![String::new()];
    let mut step = Step::begin("help of gitea-dynamic-runner");
    while let Some(path) = open.pop() {
        let mut command = Command::new(&program);
        command.args(path.split_whitespace()).arg("--help");
        let finished = run(command, LIMIT, &mut step).await?;
        ensure!(finished.status.success(), "gitea-dynamic-runner {path} --help: {}", finished.tail(50));
        let help = finished.out();
        open.extend(commands(&help).filter(|word| *word != "help").map(|word| joined(&path, word)));
        manual.insert(path, help);
    }
    step.end("read");
    Ok(manual)
}

/// The manual pages that the program writes, by name.
async fn manual_pages() -> anyhow::Result<Manual> {
    let mut step = Step::begin("manual pages of gitea-dynamic-runner");
    let dir = tempfile::tempdir().context("make a folder for manual pages")?;
    let mut command = Command::new(super::program()?);
    command.arg("man").arg(dir.path());
    let finished = run(command, LIMIT, &mut step).await?;
    ensure!(finished.status.success(), "gitea-dynamic-runner man: {}", finished.tail(50));
    let mut pages = Manual::new();
    for name in finished.out().lines() {
        let page = std::fs::read_to_string(dir.path().join(name)).with_context(|| format!("read {name}"))?;
        pages.insert(name.to_owned(), page.replace("\\-", "-"));
    }
    step.end("read");
    Ok(pages)
}

/// Commands without a manual page, and flags that a page leaves out.
fn unwritten(manual: &Manual, pages: &Manual) -> Vec<String> {
    let mut missing = Vec::new();
    for (path, help) in manual {
        let name = format!("{}.1", joined("gitea-dynamic-runner", path).replace(' ', "-"));
        let Some(page) = pages.get(&name) else {
            missing.push(format!("there is no manual page {name}"));
            continue;
        };
        let listed = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let flags = listed.flat_map(|line| line.split(|c: char| c.is_whitespace() || ",=".contains(c)).take(3));
        let unsaid = flags.filter(|word| word.starts_with("--") && !page.contains(word));
        missing.extend(unsaid.map(|flag| format!("{name} does not say {flag}")));
    }
    missing
}

fn add_clap(manual: &mut Manual, path: &str, command: &mut clap::Command) {
    manual.insert(path.to_owned(), command.render_long_help().to_string());
    for sub in command.get_subcommands_mut() {
        let path = joined(path, sub.get_name());
        add_clap(manual, &path, sub);
    }
}

fn joined(path: &str, word: &str) -> String {
    format!("{path} {word}").trim().to_owned()
}

/// The words that a help text lists as commands.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(|l| l.split_whitespace().next())
}

/// The pieces of a Markdown text that are code: spans, and lines of fenced blocks.
fn snippets(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((prose, after)) = rest.split_once("```") {
        found.extend(prose.split('`').skip(1).step_by(2));
        let (block, after) = after.split_once("```").unwrap_or((after, ""));
        found.extend(block.lines().skip(1));
        rest = after;
    }
    found.extend(rest.split('`').skip(1).step_by(2));
    found
}

/// What a snippet says of a program that its manual does not know.
fn wrong_calls(snippet: &str, program: &str, manual: &Manual) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, _) in snippet.match_indices(program) {
        let inside = snippet[..at].ends_with(|c: char| c.is_alphanumeric() || "-@./".contains(c));
        let Some(rest) = snippet[at + program.len()..].strip_prefix(' ').filter(|_| !inside) else { continue };
        let tokens: Vec<&str> =
            rest.split_whitespace().take_while(|t| !["#", ";", "|", "&&", ">"].contains(t)).collect();
        let mut path = String::new();
        for word in tokens.iter().take_while(is_word) {
            let longer = joined(&path, word);
            if manual.contains_key(&longer) {
                path = longer;
            } else if manual.get(&path).is_some_and(|help| commands(help).next().is_some()) {
                wrong.push(format!("{program} knows no {longer:?}"));
            } else {
                break;
            }
        }
        let help = manual.get(&path).map_or("", String::as_str);
        let flags = tokens.iter().filter(|token| token.starts_with("--") && token.len() > 2);
        let flags = flags.map(|flag| flag.split(['=', ',', '.', ']']).next().unwrap_or(flag));
        let known: BTreeSet<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        wrong
            .extend(flags.filter(|flag| !known.contains(flag)).map(|flag| format!("{program} {path} knows no {flag}")));
    }
    wrong
}

fn is_word(token: &&&str) -> bool {
    token.starts_with(|c: char| c.is_ascii_lowercase()) && token.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

/// Files of the repository that a snippet names.
fn paths(snippet: &str) -> impl Iterator<Item = &str> {
    let tokens = snippet.split(|c: char| c.is_whitespace() || "()[]{}<>,;'\"".contains(c));
    tokens
        .filter(|t| ["crates/", "docs/", ".ci/"].iter().any(|start| t.starts_with(start)))
        .filter(|t| !t.contains('*'))
}

impl Absence {
    fn broken_by(&self, name: &str, text: &str) -> Option<String> {
        let Self(what, within, allowed) = self;
        let place = name.strip_prefix(within)?;
        // This very file, and tests that look at a far side.
        let apart = place.starts_with("xtask/") || place.ends_with("tests.rs") || place.contains("tests/");
        let elsewhere = !apart && !allowed.iter().any(|allowed| place.starts_with(allowed));
        (elsewhere && text.contains(what)).then(|| format!("{name}: `{what}` may stand in {} only", allowed.join(", ")))
    }
}

/// What may be named.
struct Known {
    /// Sources by name.
    sources: BTreeMap<String, String>,
    /// Names with an underscore in sources and settings.
    names: BTreeSet<String>,
    specification: Specification,
}

impl Known {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let read = |name: &Path| std::fs::read_to_string(root.join(name)).with_context(|| format!("read {name:?}"));
        let (mut sources, mut names) = (BTreeMap::new(), BTreeSet::new());
        for pattern in ["crates/*.rs", "*.toml"] {
            for file in tracked(root, pattern)? {
                let text = read(&file)?;
                names.extend(underscored(&text).map(str::to_owned));
                if pattern == "crates/*.rs" {
                    sources.insert(file.display().to_string(), text);
                }
            }
        }
        Ok(Self { sources, names, specification: Specification::read(root)? })
    }

    fn unknown_names(&self, snippet: &str) -> Vec<String> {
        // The settings file writes the names of settings in lower case.
        let known = |name: &str| self.names.contains(name) || self.names.contains(&name.to_ascii_uppercase());
        let names = underscored(snippet).filter(|name| !known(name));
        names.map(|name| format!("nothing here is called {name}")).collect()
    }

    fn unknown_ids(&self, text: &str) -> Vec<String> {
        let unknown = self.specification.unknown(text);
        unknown.map(|id| format!("the specification knows no {id}")).collect()
    }
}

/// Names with an underscore inside.
fn underscored(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(|word| word.trim_matches('_'));
    words.filter(|word| word.contains('_') && word.starts_with(|c: char| c.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str =
        "Does it\n\nUsage: p <COMMAND>\n\nCommands:\n  show   Shows\n         more\n  help   Help\n\nOptions:\n";

    #[track_caller]
    fn check(snippet: &str, expect: &[&str]) {
        let show = "Usage: p show [OPTIONS] [FILE]\n\nOptions:\n      --json  JSON\n".to_owned();
        let manual = Manual::from([(String::new(), HELP.to_owned()), ("show".to_owned(), show)]);
        assert_eq!(wrong_calls(snippet, "p", &manual), expect, "{snippet}");
    }

    #[test]
    fn commands_and_flags_are_looked_up() {
        assert_eq!(commands(HELP).collect::<Vec<_>>(), ["show", "help"]);
        check("p show file --json    # comment --other", &[]);
        check("p 0.1.0, a.p hide, p@hide", &[]);
        check("p hide --json", &["p knows no \"hide\"", "p  knows no --json"]);
        check("p show --jso", &["p show knows no --jso"]);
    }

    #[test]
    fn manual_pages_are_complete() {
        let manual = Manual::from([("show".to_owned(), "Options:\n  -j, --json <X>  JSON\n      --all\n".to_owned())]);
        let page = |text: &str| Manual::from([("gitea-dynamic-runner-show.1".to_owned(), text.to_owned())]);
        assert!(unwritten(&manual, &page("--json and --all")).is_empty());
        assert_eq!(unwritten(&manual, &page("--json")), ["gitea-dynamic-runner-show.1 does not say --all"]);
        assert_eq!(unwritten(&manual, &page("")).len(), 2);
        assert_eq!(unwritten(&manual, &Manual::new()), ["there is no manual page gitea-dynamic-runner-show.1"]);
    }

    #[test]
    fn code_is_told_from_prose() {
        let text = "a `b c` d\n```sh\ne f\ng\n```\nh `i\nj` k";
        assert_eq!(snippets(text), ["b c", "e f", "g", "i\nj"]);
        assert_eq!(
            paths("see crates/x/y.rs, (docs/z.md) and target/q").collect::<Vec<_>>(),
            ["crates/x/y.rs", "docs/z.md"]
        );
        assert_eq!(underscored("a_b C_D __x e").collect::<Vec<_>>(), ["a_b", "C_D"]);
    }

    #[test]
    fn an_absence_is_broken_elsewhere_only() {
        let absence = Absence("x(", "crates/a/src/", &["b.rs", "c/"]);
        assert_eq!(absence.broken_by("crates/a/src/b.rs", "x("), None);
        assert_eq!(absence.broken_by("crates/a/src/c/d.rs", "x("), None);
        assert_eq!(absence.broken_by("crates/z/src/e.rs", "x("), None);
        assert!(absence.broken_by("crates/a/src/e.rs", "x(").is_some());
    }
}
