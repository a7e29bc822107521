//! Reads an image's archive back: what is in it, with every digest and size held against the bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tar::Archive;

use super::layout::{Hashing, blob_name};

/// Larger blobs are layers, whose bytes are only counted and hashed.
const TEXT: u64 = 1 << 20;

/// What an archive says of itself, after every blob was held against its name and size.
pub(super) struct Checked {
    pub(super) digest: String,
    pub(super) config: Value,
    /// Names of the files of each layer, from the lowest on.
    pub(super) files: Vec<Vec<String>>,
}

/// Reads an archive back.
///
/// # Errors
/// A blob is not what its name says, is missing, or has another size than its descriptor.
pub(super) fn check(archive: &Path) -> anyhow::Result<Checked> {
    let mut tar = Archive::new(File::open(archive).with_context(|| format!("open {}", archive.display()))?);
    let (mut texts, mut sizes, mut layers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for entry in tar.entries_with_seek()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut text = Vec::new();
        (&mut entry).take(TEXT).read_to_end(&mut text)?;
        let mut hashing = Hashing::new(io::sink());
        io::copy(&mut text.as_slice().chain(&mut entry), &mut hashing)?;
        layers.insert(name.clone(), (entry.raw_file_position(), entry.size()));
        texts.insert(name.clone(), text);
        let is = hashing.end();
        ensure!(!name.starts_with("blobs/") || name == blob_name(&is.digest), "{name} is {}", is.digest);
        sizes.insert(is.digest, is.size);
    }
    let read = |name: &str| -> anyhow::Result<Value> {
        let text = texts.get(name).with_context(|| format!("there is no {name}"))?;
        serde_json::from_slice(text).with_context(|| format!("read {name}"))
    };
    ensure!(read("oci-layout")?["imageLayoutVersion"] == "1.0.0", "another layout");
    let named = followed(&read("index.json")?["manifests"][0], &sizes)?;
    let manifest = read(&blob_name(&named))?;
    let config = read(&blob_name(&followed(&manifest["config"], &sizes)?))?;
    let (mut files, mut digests) = (Vec::new(), Vec::new());
    for layer in manifest["layers"].as_array().context("no layers")? {
        let digest = followed(layer, &sizes)?;
        let (at, size) = layers[&blob_name(&digest)];
        files.push(names(archive, at, size)?);
        digests.push(digest);
    }
    ensure!(config["rootfs"]["diff_ids"] == json!(digests), "the configuration names other layers");
    Ok(Checked { digest: named, config, files })
}

fn followed(descriptor: &Value, sizes: &BTreeMap<String, u64>) -> anyhow::Result<String> {
    let digest = descriptor["digest"].as_str().context("a descriptor without digest")?;
    let size = sizes.get(digest).with_context(|| format!("there is no {digest}"))?;
    ensure!(descriptor["size"] == *size, "{digest} has {size} bytes, not {}", descriptor["size"]);
    Ok(digest.to_owned())
}

fn names(archive: &Path, at: u64, size: u64) -> anyhow::Result<Vec<String>> {
    let mut file = File::open(archive)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(at))?;
    let mut layer = Archive::new(io::BufReader::with_capacity(1 << 20, file.take(size)));
    layer.entries()?.map(|entry| Ok(entry?.path()?.display().to_string())).collect()
}
