//! Images without a registry: a folder becomes an archive, and an archive becomes known to the node.
//!
//! The node looks every reference up by name, a digest too; so each image gets a second name with its digest.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::layout::Layout;
use super::run;
use crate::real::Error;

const LIMIT: Duration = Duration::from_secs(300);

/// What an image of one layer is made from.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// With a host part and a tag, for example `local.test/executor:dev`: the node completes shorter names to others.
    pub name: &'a str,
    /// The folder that becomes its root.
    pub root: &'a Path,
    /// The program it starts.
    pub entrypoint: &'a str,
    /// Whom it starts it as.
    pub user: u32,
}

/// Writes an OCI archive of a folder; the same folder gives the same digest.
pub(super) async fn archive(layout: &Layout, image: &Image<'_>, to: &Path) -> Result<(), Error> {
    let work = tempfile::tempdir_in(layout.path("images")).map_err(Error::system("make a temporary folder"))?;
    let blobs = work.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs).map_err(Error::system("make a folder for blobs"))?;
    let layer = work.path().join("layer");
    let mut tar = super::command("tar");
    tar.arg("-C").arg(image.root);
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-cf"]).arg(&layer).arg(".");
    run(tar, LIMIT).await?;
    let layer = keep(&blobs, &std::fs::read(&layer).map_err(Error::system("read the layer"))?)?;
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": {"User": image.user.to_string(), "Entrypoint": [image.entrypoint], "Env": [path], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let kind = |blob: &Value, kind: &str| {
        let mut blob = blob.clone();
        blob["mediaType"] = kind.into();
        blob
    };
    let config = keep(&blobs, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": kind(&config, "application/vnd.oci.image.config.v1+json"),
        "layers": [kind(&layer, "application/vnd.oci.image.layer.v1.tar")],
    });
    let manifest = kind(&keep(&blobs, manifest.to_string().as_bytes())?, "application/vnd.oci.image.manifest.v1+json");
    let write = |name: &str, text: String| std::fs::write(work.path().join(name), text);
    write("index.json", json!({"schemaVersion": 2, "manifests": [manifest]}).to_string())
        .and_then(|()| write("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string()))
        .map_err(Error::system("write the image"))?;
    let mut tar = super::command("tar");
    tar.arg("-C").arg(work.path()).arg("-cf").arg(to).args(["oci-layout", "index.json", "blobs"]);
    run(tar, LIMIT).await.map(drop)
}

/// Stores a blob; its digest and size.
fn keep(blobs: &Path, bytes: &[u8]) -> Result<Value, Error> {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(blobs.join(&digest), bytes).map_err(Error::system("write a blob"))?;
    Ok(json!({"digest": format!("sha256:{digest}"), "size": bytes.len()}))
}

/// Brings an OCI archive to the node under this name; returns the reference with its digest.
pub(super) async fn import(layout: &Layout, archive: &Path, name: &str) -> Result<String, Error> {
    let (short, _) = name
        .rsplit_once(':')
        .filter(|(short, _)| short.contains('/') && !name.contains('@'))
        .ok_or_else(|| Error::system("import an image")(format!("{name}: write it as HOST/NAME:TAG")))?;
    let mut tar = super::command("tar");
    tar.arg("-xOf").arg(archive).arg("index.json");
    let index: Value = serde_json::from_str(&run(tar, LIMIT).await?).map_err(Error::system("read index.json"))?;
    let digest = index["manifests"][0]["digest"].as_str().unwrap_or_default();
    let images = |words: &[&str]| {
        let mut command = super::command("ctr");
        command.arg("-a").arg(layout.path("run/containerd.sock")).args(["-n", "k8s.io", "images"]).args(words);
        command
    };
    let file = archive.display().to_string();
    // Whatever the archive calls itself, it is known by its digest under a name of ours afterwards. The index gets a name
    // that no archive uses: where both had one, containerd would lose the index in the middle of it.
    let base = format!("{short}-import");
    let index = format!("{base}:index");
    run(images(&["import", "--index-name", &index, "--base-name", &base, "--digests", &file]), LIMIT).await?;
    let (source, reference) = (format!("{base}@{digest}"), format!("{short}@{digest}"));
    for target in [name, reference.as_str()] {
        run(images(&["tag", "--force", &source, target]), LIMIT).await?;
    }
    Ok(reference)
}
