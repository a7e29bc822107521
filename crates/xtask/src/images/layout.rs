//! An image as an archive of its OCI layout: what `ctr images import`, `skopeo copy oci-archive:…` and `podman load` read.
//!
//! Invariant: the archive is a function of its layers and its configuration. Layers are not compressed: a digest must
//! not depend on a compressor's version, and whoever pushes compresses anyway.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use super::tree::Tree;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A content by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blob {
    /// `sha256:` and 64 hex digits.
    pub(super) digest: String,
    pub(super) size: u64,
}

/// A layer in a file.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) file: PathBuf,
    pub(super) blob: Blob,
}

impl Layer {
    /// Writes a tree into `file`.
    pub(super) fn write(tree: &Tree, file: &Path, time: u64) -> anyhow::Result<Self> {
        let out = File::create(file).with_context(|| format!("create {}", file.display()))?;
        let mut out = Hashing::new(io::BufWriter::with_capacity(1 << 20, out));
        tree.write(&mut out, time)?;
        out.flush().with_context(|| format!("write {}", file.display()))?;
        Ok(Self { file: file.to_owned(), blob: out.end() })
    }
}

/// How the program in an image is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Settings {
    pub(super) user: String,
    pub(super) env: Vec<String>,
    pub(super) entrypoint: Vec<String>,
    pub(super) cmd: Vec<String>,
    pub(super) working_dir: String,
    pub(super) exposed_ports: BTreeMap<String, Value>,
    pub(super) labels: BTreeMap<String, String>,
}

/// One image.
pub(super) struct Image<'a> {
    /// `HOST/NAME:TAG`.
    pub(super) name: &'a str,
    pub(super) settings: Settings,
    pub(super) layers: &'a [Layer],
    /// Seconds since 1970.
    pub(super) date: u64,
}

impl Image<'_> {
    /// Writes the archive, whole or not at all; returns the digest of the manifest, by which the image is named.
    pub(super) fn write(&self, archive: &Path) -> anyhow::Result<String> {
        let config = serde_json::to_vec(&self.config()?)?;
        let descriptors: Vec<Value> = self.layers.iter().map(|layer| descriptor(LAYER, &layer.blob)).collect();
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, &blob(&config)), "layers": descriptors,
        }))?;
        let named = blob(&manifest);
        let mut entry = descriptor(MANIFEST, &named);
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] =
            json!({ "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });

        let texts =
            [("index.json".to_owned(), serde_json::to_vec(&index)?), (blob_name(&named.digest), manifest.clone())];
        let own = [("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())];
        let texts = own.into_iter().chain(texts).chain([(blob_name(&blob(&config).digest), config)]);
        let new = archive.with_extension("new");
        let mut builder = Builder::new(io::BufWriter::new(File::create(&new)?));
        for (name, content) in texts {
            append(&mut builder, &name, content.len() as u64, self.date, content.as_slice())?;
        }
        for layer in self.layers {
            let file = File::open(&layer.file).with_context(|| format!("open {}", layer.file.display()))?;
            append(&mut builder, &blob_name(&layer.blob.digest), layer.blob.size, self.date, file)?;
        }
        builder.into_inner()?.flush()?;
        std::fs::rename(&new, archive).with_context(|| format!("write {}", archive.display()))?;
        Ok(named.digest)
    }

    fn config(&self) -> anyhow::Result<Value> {
        let created = jiff::Timestamp::from_second(i64::try_from(self.date)?)?.to_string();
        let digests: Vec<&str> = self.layers.iter().map(|layer| layer.blob.digest.as_str()).collect();
        let made = json!({ "created": created, "created_by": "cargo xtask images" });
        Ok(json!({
            "architecture": architecture(), "os": "linux", "created": created, "config": self.settings,
            "rootfs": { "type": "layers", "diff_ids": digests }, "history": vec![made; self.layers.len()],
        }))
    }
}

/// The OCI's word for what we build for.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest, "size": blob.size })
}

fn blob(content: &[u8]) -> Blob {
    let mut hash = Hashing::new(io::sink());
    // A sink takes everything.
    let _ = hash.write_all(content);
    hash.end()
}

/// `sha256:` and 64 hex digits.
pub(super) fn digest(content: &[u8]) -> String {
    blob(content).digest
}

pub(super) fn blob_name(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn append(out: &mut Builder<impl Write>, name: &str, size: u64, time: u64, content: impl Read) -> anyhow::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(time);
    header.set_size(size);
    out.append_data(&mut header, name, content.take(size)).with_context(|| format!("write {name}"))
}

/// Writes through and keeps count.
pub(super) struct Hashing<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashing<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, hash: Sha256::new(), size: 0 }
    }

    pub(super) fn end(self) -> Blob {
        let digest: String = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Blob { digest: format!("sha256:{digest}"), size: self.size }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
