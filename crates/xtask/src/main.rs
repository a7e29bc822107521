//! Developer tasks.
mod proto;
fn main() -> anyhow::Result<()> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    proto::run(&root, std::env::args().any(|a| a == "--check"))
}
