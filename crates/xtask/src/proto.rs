//! `cargo xtask proto`: generates `crates/runner-proto/src/gen` from the `.proto` files, without protoc.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use buffa::Message as _;
use connectrpc_codegen::codegen::{self, Options, descriptor::FileDescriptorSet};

const FILES: [&str; 2] = ["runner/v1/runner.proto", "ping/v1/ping.proto"];

/// What the generator cannot say about `runner.v1`: `rpc Register` collides with the generated extension method
/// `register`, and the enum `Result` shadows the prelude's in the service stubs.
const REPLACEMENTS: [(&str, &str); 2] =
    [("svc.register(ctx, ", "RunnerService::register(&*svc, ctx, "), (") -> Result<", ") -> ::core::result::Result<")];

/// Writes the generated sources, or with `check` compares them with what is committed.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let out = root.join("crates/runner-proto/src/gen");
    for (name, content) in generate(&root.join("crates/runner-proto/proto"))? {
        let path: PathBuf = out.join(&name);
        if check {
            let committed = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            ensure!(
                committed == content,
                "{name} is not what `cargo xtask proto` generates; run it and commit the result"
            );
        } else {
            std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

fn generate(protos: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let set = protox::compile(FILES, [protos])?;
    let set = FileDescriptorSet::decode_from_slice(&prost::Message::encode_to_vec(&set)).context("descriptor set")?;
    let wanted: Vec<String> = FILES.iter().map(ToString::to_string).collect();
    let options = Options::default();
    let files = codegen::generate_files(&set.file, &wanted, &options)?;
    let mut sources: BTreeMap<String, String> = files.into_iter().map(|file| (file.name, file.content)).collect();
    for (from, to) in REPLACEMENTS {
        let count: usize = sources.values().map(|text| text.matches(from).count()).sum();
        ensure!(count > 0, "the generator no longer writes {from:?}: remove its replacement");
        for text in sources.values_mut() {
            *text = text.replace(from, to);
        }
    }
    Ok(sources)
}
