//! What must hold for any bytes that come from outside. Each target is a function that panics when it does not hold.
//!
//! Two callers: `tests/corpus.rs` runs every target over its seeds, the committed corpus and changed copies of both, on
//! the stable compiler; `libfuzzer/` hands them to libFuzzer, which `cargo xtask fuzz` runs.

mod capability;
mod envelope;
mod messages;
mod metadata;
mod paths;
mod samples;
mod task;
mod workflow;

/// A boundary that bytes from outside cross.
pub struct Target {
    /// Its name: the folder of its corpus, and the program in `libfuzzer/fuzz_targets`.
    pub name: &'static str,
    /// Panics when these bytes break what must hold.
    pub check: fn(&[u8]),
    /// Well-formed inputs, from which a fuzzer gets to the interesting ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 7] = [
    Target { name: "capability", check: capability::check, seeds: capability::seeds },
    Target { name: "envelope", check: envelope::check, seeds: envelope::seeds },
    Target { name: "messages", check: messages::check, seeds: messages::seeds },
    Target { name: "metadata", check: metadata::check, seeds: metadata::seeds },
    Target { name: "paths", check: paths::check, seeds: paths::seeds },
    Target { name: "task", check: task::check, seeds: task::seeds },
    Target { name: "workflow", check: workflow::check, seeds: workflow::seeds },
];

/// Checks `input` against the target of that name.
///
/// # Panics
///
/// When what must hold does not, and when there is no such target.
pub fn check(name: &str, input: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.check)(input),
        None => panic!("there is no target {name:?}"),
    }
}
