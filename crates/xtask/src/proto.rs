//! `cargo xtask proto`: generates `crates/runner-proto/src/gen` from the `.proto` files, without protoc.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use buffa::Message as _;
use connectrpc_codegen::codegen::{self, Options, descriptor::FileDescriptorSet};
use serde::Serialize;

use crate::rows::{Tally, conclude};
use crate::say;

const FILES: [&str; 2] = ["runner/v1/runner.proto", "ping/v1/ping.proto"];

/// What the generator cannot say about `runner.v1`: `rpc Register` collides with the generated extension method
/// `register`, and the enum `Result` shadows the prelude's in the service stubs.
const REPLACEMENTS: [(&str, &str); 2] =
    [("svc.register(ctx, ", "RunnerService::register(&*svc, ctx, "), (") -> Result<", ") -> ::core::result::Result<")];

/// Generate the protocol's sources.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing: judge whether what is committed is what would be generated.
    #[arg(long)]
    check: bool,
    /// Write the rows of the check into this file.
    #[arg(long, requires = "check")]
    json: Option<PathBuf>,
}

/// One generated file.
#[derive(Serialize)]
struct Row {
    file: String,
    passed: bool,
}

/// The command.
pub(crate) fn main(root: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if !arguments.check {
        let out = out(root);
        for (name, content) in generate(&protos(root))? {
            let path = out.join(&name);
            std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = check(root)?;
    for row in rows.iter().filter(|row| !row.passed) {
        say::result(&format!("{} is not what `cargo xtask proto` generates; run it and commit the result", row.file));
    }
    let tally = rows.iter().map(|row| Tally::one(row.passed)).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

/// The files that differ from what would be generated.
pub(crate) fn outdated(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(check(root)?.into_iter().filter(|row| !row.passed).map(|row| row.file).collect())
}

fn check(root: &Path) -> anyhow::Result<Vec<Row>> {
    let out = out(root);
    let files = generate(&protos(root))?.into_iter();
    let same = |name: &String, content: &String| std::fs::read_to_string(out.join(name)).is_ok_and(|is| is == *content);
    Ok(files.map(|(file, content)| Row { passed: same(&file, &content), file }).collect())
}

fn out(root: &Path) -> PathBuf {
    root.join("crates/runner-proto/src/gen")
}

fn protos(root: &Path) -> PathBuf {
    root.join("crates/runner-proto/proto")
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
