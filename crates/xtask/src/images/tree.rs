//! What a layer of an image holds: names with modes, owners and contents, out of a folder, an archive or our own hands.
//!
//! Invariant: a layer is a function of names, contents, modes, owners and one time. Names are sorted, owners are numbers,
//! links to the same content are kept, and nothing else of a file goes in: no time of its own, no extended attribute.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tar::{Archive, Builder, EntryType, Header};

/// What a running container brings itself.
const OF_THE_KERNEL: [&str; 3] = ["dev/", "proc/", "sys/"];

/// User and group, as numbers.
pub(super) type Owner = (u64, u64);

pub(super) const ROOT: Owner = (0, 0);

/// Names without a slash in front.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

struct Entry {
    mode: u32,
    owner: Owner,
    node: Node,
}

enum Node {
    Folder,
    /// A symbolic link.
    Link(String),
    /// Another name of the same file.
    SameAs(String),
    Text(Vec<u8>),
    File(PathBuf),
    /// A part of an archive that is not compressed.
    Slice {
        archive: PathBuf,
        at: u64,
        size: u64,
    },
}

impl Tree {
    /// A root file system: a folder or an archive (tar, not compressed).
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let read = if path.is_dir() { Self::of_folder(path) } else { Self::of_archive(path) };
        let mut tree = read.with_context(|| format!("read the root file system {}", path.display()))?;
        tree.retain(|name| !OF_THE_KERNEL.iter().any(|folder| name.starts_with(folder)));
        Ok(tree)
    }

    fn of_folder(root: &Path) -> anyhow::Result<Self> {
        // Whoever is not root cannot unpack files of others: then all of it is meant to be root's.
        let owned = std::fs::metadata(root)?.uid() == 0;
        let (mut tree, mut open) = (Self::default(), vec![PathBuf::new()]);
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(root.join(&folder))? {
                let name = folder.join(entry?.file_name());
                let path = root.join(&name);
                let about = std::fs::symlink_metadata(&path)?;
                let node = if about.is_dir() {
                    open.push(name.clone());
                    Node::Folder
                } else if about.is_symlink() {
                    Node::Link(text(&std::fs::read_link(&path)?)?)
                } else if about.is_file() {
                    Node::File(path)
                } else {
                    // A socket or a device is made by who uses it.
                    continue;
                };
                let owner = if owned { (about.uid().into(), about.gid().into()) } else { ROOT };
                tree.0.insert(text(&name)?, Entry { mode: about.mode() & 0o7777, owner, node });
            }
        }
        Ok(tree)
    }

    fn of_archive(path: &Path) -> anyhow::Result<Self> {
        let mut archive = Archive::new(File::open(path)?);
        let mut tree = Self::default();
        for entry in archive.entries_with_seek().context("it is neither a folder nor a tar")? {
            let entry = entry.context("it is neither a folder nor a plain tar; decompress it first")?;
            let (header, name) = (entry.header(), text(&entry.path()?)?);
            let name = name.trim_start_matches("./").trim_matches('/').to_owned();
            let target = || -> anyhow::Result<String> {
                text(entry.link_name()?.with_context(|| format!("{name} links to nothing"))?.as_ref())
            };
            let node = match header.entry_type() {
                EntryType::Directory => Node::Folder,
                EntryType::Symlink => Node::Link(target()?),
                EntryType::Link => Node::SameAs(target()?.trim_start_matches("./").trim_start_matches('/').to_owned()),
                EntryType::Regular | EntryType::Continuous => {
                    Node::Slice { archive: path.to_owned(), at: entry.raw_file_position(), size: entry.size() }
                }
                _ => continue,
            };
            if !name.is_empty() && name != "." {
                let owner = (header.uid()?, header.gid()?);
                tree.0.insert(name, Entry { mode: header.mode()? & 0o7777, owner, node });
            }
        }
        if tree.0.is_empty() {
            bail!("it holds nothing");
        }
        Ok(tree)
    }

    pub(super) fn folder(&mut self, name: &str, mode: u32, owner: Owner) {
        self.0.insert(name.to_owned(), Entry { mode, owner, node: Node::Folder });
    }

    pub(super) fn text(&mut self, name: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.0.insert(name.to_owned(), Entry { mode, owner: ROOT, node: Node::Text(content.into()) });
    }

    /// A program of root's.
    pub(super) fn program(&mut self, name: &str, from: &Path) {
        self.0.insert(name.to_owned(), Entry { mode: 0o755, owner: ROOT, node: Node::File(from.to_owned()) });
    }

    /// Keeps the names that `keep` likes.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// Takes programs the power to run as somebody else.
    pub(super) fn drop_set_ids(&mut self) {
        let files = self.0.values_mut().filter(|entry| !matches!(entry.node, Node::Folder));
        files.for_each(|entry| entry.mode &= 0o777);
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The content of a file; none when there is no such file.
    pub(super) fn content(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(entry) = self.0.get(name) else { return Ok(None) };
        let mut content = Vec::new();
        match entry.node.open()? {
            Some((mut reader, _)) => reader.read_to_end(&mut content).with_context(|| format!("read {name}"))?,
            None => return Ok(None),
        };
        Ok(Some(content))
    }

    /// Writes the layer; every entry gets this time, in seconds since 1970.
    pub(super) fn write(&self, out: impl Write, time: u64) -> anyhow::Result<()> {
        let mut builder = Builder::new(out);
        // A further name of a file must come after that file.
        let (later, first): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(_, entry)| matches!(entry.node, Node::SameAs(_)));
        for (name, entry) in first.into_iter().chain(later) {
            entry.append(&mut builder, name, time).with_context(|| format!("write {name} into the layer"))?;
        }
        builder.into_inner()?.flush()?;
        Ok(())
    }
}

impl Entry {
    fn append(&self, builder: &mut Builder<impl Write>, name: &str, time: u64) -> anyhow::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(self.mode);
        header.set_uid(self.owner.0);
        header.set_gid(self.owner.1);
        header.set_mtime(time);
        header.set_size(0);
        match &self.node {
            Node::Folder => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{name}/"), io::empty())?;
            }
            Node::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                builder.append_link(&mut header, name, target)?;
            }
            Node::SameAs(target) => {
                header.set_entry_type(EntryType::Link);
                builder.append_link(&mut header, name, target)?;
            }
            file => {
                let (reader, size) = file.open()?.context("it has no content")?;
                header.set_entry_type(EntryType::Regular);
                header.set_size(size);
                builder.append_data(&mut header, name, reader.take(size))?;
            }
        }
        Ok(())
    }
}

impl Node {
    /// The content of a file and its size.
    fn open(&self) -> anyhow::Result<Option<(Box<dyn io::Read + '_>, u64)>> {
        Ok(match self {
            Self::Folder | Self::Link(_) | Self::SameAs(_) => None,
            Self::Text(content) => Some((Box::new(content.as_slice()), content.len() as u64)),
            Self::File(path) => {
                let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
                let size = file.metadata()?.len();
                Some((Box::new(file), size))
            }
            Self::Slice { archive, at, size } => {
                let mut file = File::open(archive).with_context(|| format!("open {}", archive.display()))?;
                file.seek(SeekFrom::Start(*at))?;
                Some((Box::new(file.take(*size)), *size))
            }
        })
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is no UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn written(tree: &Tree) -> Vec<u8> {
        let mut out = Vec::new();
        tree.write(&mut out, 1).unwrap();
        out
    }

    fn sample(root: &Path) {
        std::fs::create_dir_all(root.join("etc/long").join("x".repeat(120))).unwrap();
        std::fs::create_dir_all(root.join("proc/1")).unwrap();
        for (name, content) in [("etc/passwd", "root"), ("etc/b", ""), ("etc/a", "a")] {
            std::fs::write(root.join(name), content).unwrap();
            std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(0o644)).unwrap();
        }
        symlink("../etc/a", root.join("etc/c")).unwrap();
    }

    /// IMG-3, NEW-144: the same content gives the same bytes, from a folder or from an archive of it; one changed byte or
    /// mode gives others.
    #[test]
    fn a_layer_is_its_content() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample(one.path());
        // Another order of making, other times.
        std::fs::create_dir_all(two.path().join("etc")).unwrap();
        std::fs::write(two.path().join("etc/b"), "before").unwrap();
        sample(two.path());
        let layer = written(&Tree::read(one.path()).unwrap());
        assert_eq!(layer, written(&Tree::read(two.path()).unwrap()));

        let archive = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(archive.path(), &layer).unwrap();
        let again = Tree::read(archive.path()).unwrap();
        assert_eq!(layer, written(&again));
        assert_eq!(again.content("etc/passwd").unwrap().unwrap(), b"root");
        assert!(again.has("etc/c") && !again.has("proc/1"));

        std::fs::write(two.path().join("etc/a"), "A").unwrap();
        assert_ne!(layer, written(&Tree::read(two.path()).unwrap()));
        std::fs::write(two.path().join("etc/a"), "a").unwrap();
        std::fs::set_permissions(two.path().join("etc/a"), PermissionsExt::from_mode(0o600)).unwrap();
        assert_ne!(layer, written(&Tree::read(two.path()).unwrap()));
    }

    /// A further name of a file comes after it, although it sorts before, and set-user-id bits go where they are not
    /// wanted.
    #[test]
    fn names_of_one_file_and_set_ids() {
        let mut builder = Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(1);
        header.set_mode(0o4755);
        builder.append_data(&mut header, "./usr/bin/su", &b"x"[..]).unwrap();
        header.set_entry_type(EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, "./bin/su", "./usr/bin/su").unwrap();
        let archive = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(archive.path(), builder.into_inner().unwrap()).unwrap();

        let mut tree = Tree::read(archive.path()).unwrap();
        tree.drop_set_ids();
        let layer = written(&tree);
        let mut archive = Archive::new(layer.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap())
        });
        assert_eq!(entries.collect::<Vec<_>>(), [("usr/bin/su".to_owned(), 0o755), ("bin/su".to_owned(), 0o755)]);
    }

    #[test]
    fn what_is_no_root_file_system_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0x1f; 2048]).unwrap();
        let refused = |path: &Path| format!("{:#}", Tree::read(path).err().unwrap());
        assert!(refused(file.path()).contains("plain tar"), "{}", refused(file.path()));
        std::fs::write(file.path(), "").unwrap();
        assert!(refused(file.path()).contains("holds nothing"));
    }
}
