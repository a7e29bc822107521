//! Every target over its seeds, its corpus, and changed copies of both.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use fuzz::{TARGETS, Target};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// How many changed copies each target sees.
const CHANGED: u32 = 4_000;

/// NEW-35, NEW-97, NEW-109, ENV-3, ENV-5, ENV-6, ENV-8, IDN-8: no input that was ever found to break a target breaks it
/// again, and none near it does.
#[test]
fn seeds_corpus_and_what_is_near_them() {
    for target in &TARGETS {
        let inputs = inputs(target);
        assert!(!(target.seeds)().is_empty(), "{} has no seed", target.name);
        for input in &inputs {
            (target.check)(input);
        }
        // Always the same copies: what fails here fails again.
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
        let config = Config { cases: CHANGED, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let changes = prop::collection::vec((any::<Index>(), any::<u8>(), 0_usize..4, any::<Index>()), 1..6);
        let strategy = (any::<Index>(), any::<Index>(), changes);
        let result = runner.run(&strategy, |(one, other, changes)| {
            let (mut input, other): (Vec<u8>, &Vec<u8>) = (one.get(&inputs).clone(), other.get(&inputs));
            for (place, byte, how, cut) in changes {
                change(&mut input, other, place, byte, how, cut);
            }
            (target.check)(&input);
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", target.name, result.unwrap_err());
    }
}

/// One step of a mutation: a byte set, put in, taken out, or the rest replaced by another input's.
fn change(input: &mut Vec<u8>, other: &[u8], place: Index, byte: u8, how: usize, cut: Index) {
    let at = place.index(input.len() + 1);
    match how {
        0 if at < input.len() => input[at] = byte,
        1 if at < input.len() => drop(input.remove(at)),
        2 => input.insert(at, byte),
        _ => {
            input.truncate(at);
            input.extend_from_slice(&other[cut.index(other.len() + 1)..]);
        }
    }
}

fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).unwrap()).chain((target.seeds)()).collect()
}
