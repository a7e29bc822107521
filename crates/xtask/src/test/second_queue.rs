//! The tests of the World once more, with tasks in a stream of NATS instead of a file: those about waiting, restarts and
//! deaths. What a queue does by itself is shown for both kinds by its contract, beside its code.

use std::path::Path;

use super::stage::{Row, cargo_test_with};
use super::test_targets;

/// The modules of `crates/controller/tests/world` that are run.
const MODULES: &[&str] = &[
    "cancel::",
    "fencing::",
    "gitea_away::",
    "interruption::",
    "leftovers::",
    "lost_answers::",
    "poison::",
    "reasons::",
    "remembered::",
    "restart::",
    "rotation::",
    "scheduling::",
    "secrets::",
    "towards_gitea::",
    "unreadable::",
];

/// Tests of these modules that are about the file of the embedded queue, and what they do with it. They ask for that queue
/// whatever the default is.
const ABOUT_THE_FILE: &[(&str, &str)] = &[
    ("leftovers::a_message_that_comes_back", "puts an older file back"),
    ("reasons::starts::no_executor", "changes a count in it"),
    ("reasons::starts::no_message", "deletes a row of it"),
    ("reasons::starts::no_queue", "holds its lock"),
    ("restart::a_signal_ends_a_start", "holds its lock"),
    ("towards_gitea::what_waits_is_known_to_the_next_process", "reads the counts in it"),
    ("unreadable::what_contradicts_itself_ends_with_a_reason", "writes a row of it"),
];

pub(super) async fn stage(root: &Path, threads: u32) -> Row {
    let filters = std::iter::once("--").chain(MODULES.iter().copied());
    let skipped = ABOUT_THE_FILE.iter().flat_map(|(test, _)| ["--skip", test]);
    let words = test_targets(&["world"]).into_iter().chain(filters.chain(skipped).map(str::to_owned)).collect();
    cargo_test_with("world on JetStream", root, words, threads, &[("GDR_WORLD_QUEUE", "jetstream")]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test that got another name is not silently run, and a module not silently left out.
    #[test]
    fn every_name_is_there() {
        let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller/tests/world");
        let read = |module: &str| {
            let file = world.join(module.replace("::", "/"));
            let text = [file.with_extension("rs"), file.join("mod.rs")].map(|path| std::fs::read_to_string(path).ok());
            text.into_iter().flatten().next().unwrap_or_else(|| panic!("no module {module}"))
        };
        MODULES.iter().for_each(|module| drop(read(module.trim_end_matches("::"))));
        for (test, _) in ABOUT_THE_FILE {
            let (module, name) = test.rsplit_once("::").unwrap_or_else(|| panic!("{test} is in no module"));
            assert!(read(module).contains(&format!("async fn {name}()")), "no test {test}");
            assert!(MODULES.iter().any(|module| test.starts_with(module)), "{test} is not run anyway");
        }
    }
}
