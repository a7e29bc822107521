//! Placeholder.
#[derive(clap::Args)]
pub(crate) struct Arguments {}
pub(crate) async fn main(_root: &std::path::Path, _arguments: Arguments) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("later")
}
