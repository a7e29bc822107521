//! What one-host mode keeps in its state folder: registration, keys, the facade's port. Each file is written once,
//! whole, 0600, before anything relies on it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::StartError;
use crate::config::secret::plain;
use crate::config::{SecretFile, Supplied};
use crate::{files, holder};

/// UUID and token of our one registration, and what was fixed with it. No `Debug`: it holds the token.
pub struct Registration {
    /// Base URL of the Gitea, without trailing `/`.
    pub gitea: String,
    /// UUID.
    pub uuid: String,
    /// Token.
    pub token: Zeroizing<String>,
    /// The runner's name in Gitea.
    pub name: String,
    /// The runner's number in Gitea.
    pub id: i64,
    /// The trust domain of this state folder.
    pub trust_domain: String,
    /// Its instance id; none in a folder of a version that did not keep it.
    pub instance: Option<String>,
}

/// The form on the disk.
#[derive(Serialize, Deserialize)]
struct OnDisk<'a> {
    gitea: String,
    uuid: String,
    token: std::borrow::Cow<'a, str>,
    name: String,
    id: i64,
    trust_domain: String,
    #[serde(default)]
    instance: Option<String>,
}

impl Registration {
    /// The file in a state folder.
    #[must_use]
    pub fn file(state: &Path) -> PathBuf {
        state.join("registration.json")
    }

    /// Reads the registration; none when the folder has none yet.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read(state: &Path) -> Result<Option<Self>, StartError> {
        let path = Self::file(state);
        let damaged = |cause: String| StartError::Registration { path: path.clone(), cause };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(plain(&error))),
        };
        // The parser's text may repeat the content: only the place is told.
        let on_disk: OnDisk<'_> = serde_json::from_str(&text)
            .map_err(|e| damaged(format!("no registration at line {}, column {}", e.line(), e.column())))?;
        let OnDisk { gitea, uuid, token, name, id, trust_domain, instance } = on_disk;
        if uuid.is_empty() || token.is_empty() {
            return Err(damaged("UUID or token is empty".into()));
        }
        Ok(Some(Self { gitea, uuid, token: Zeroizing::new(token.into_owned()), name, id, trust_domain, instance }))
    }

    /// What no setting can say.
    pub(super) fn supplied(self, state: &Path) -> Supplied {
        let held = |text: Zeroizing<String>| SecretFile::held(Self::file(state), text);
        Supplied { registration: Some((held(Zeroizing::new(self.uuid)), held(self.token))) }
    }

    /// Writes it into the place that was reserved before Gitea was asked.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn write(&self, place: files::Reserved) -> io::Result<()> {
        let on_disk = OnDisk {
            gitea: self.gitea.clone(),
            uuid: self.uuid.clone(),
            token: self.token.as_str().into(),
            name: self.name.clone(),
            id: self.id,
            trust_domain: self.trust_domain.clone(),
            instance: self.instance.clone(),
        };
        let text = Zeroizing::new(serde_json::to_string_pretty(&on_disk)?);
        place.commit(text.as_bytes())
    }
}

/// The keys of one-host mode: of the capabilities, of the envelopes.
pub(super) const KEYS: [&str; 2] = ["capability.key", "envelope.key"];

/// Where a key lies.
pub(super) fn key_file(state: &Path, name: &str) -> PathBuf {
    state.join("keys").join(name)
}

/// Makes a key of 32 random bytes as 64 hex digits where there is none yet.
///
/// # Errors
/// It cannot be written.
pub(super) fn key(state: &Path, name: &str) -> Result<(), StartError> {
    let path = key_file(state, name);
    if path.exists() {
        return Ok(());
    }
    let unusable = |cause: String| StartError::State { path: path.clone(), cause };
    files::private_folder(&state.join("keys")).map_err(|e| unusable(plain(&e)))?;
    let mut random = Zeroizing::new([0; 32]);
    getrandom::fill(random.as_mut()).map_err(|e| unusable(e.to_string()))?;
    let text = Zeroizing::new(random.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    files::write(&path, text.as_bytes()).map_err(|e| unusable(plain(&e)))
}

/// The port that running jobs know; none before the first start.
///
/// # Errors
/// The file cannot be read, or holds no port.
pub(super) fn known_port(state: &Path) -> Result<Option<u16>, StartError> {
    let file = state.join("facade.port");
    match std::fs::read_to_string(&file) {
        Ok(text) => port_in(&text).map(Some).map_err(|cause| StartError::PortFile { file, cause }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StartError::State { path: file, cause: plain(&error) }),
    }
}

/// The facade's port on 127.0.0.1. It is the same at every start, since running jobs know it.
///
/// # Errors
/// It is in use, or cannot be written down.
pub(super) fn facade_port(state: &Path) -> Result<u16, StartError> {
    let file = state.join("facade.port");
    let unusable = |cause: String| StartError::State { path: file.clone(), cause };
    if let Some(port) = known_port(state)? {
        return match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(port_in_use(port, file)),
            Err(error) => Err(unusable(plain(&error))),
        };
    }
    let port = free_port().map_err(|e| unusable(plain(&e)))?;
    files::write(&file, format!("{port}\n").as_bytes()).map_err(|e| unusable(plain(&e)))?;
    Ok(port)
}

fn port_in(text: &str) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(0) | Err(_) if text.trim().is_empty() => Err("it is empty".into()),
        Ok(0) | Err(_) => Err("it must hold one number from 1 to 65535".into()),
        Ok(port) => Ok(port),
    }
}

/// What a start writes until it is ready, generously: keys, authority, the queue with its log and index.
const ROOM_KIB: u64 = 256;

/// Whether the disk has room for a start. Without it the first part that writes would fail, each with words of its own.
///
/// # Errors
/// [`StartError::DiskFull`].
pub(super) fn room(state: &Path) -> Result<(), StartError> {
    // What cannot be asked is left to the first write.
    let Ok(disk) = rustix::fs::statvfs(state) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) / 1024;
    if free >= ROOM_KIB {
        return Ok(());
    }
    Err(StartError::DiskFull { state: state.to_owned(), free, needed: ROOM_KIB })
}

/// Whether health, metrics and status can be served where they are asked for: known before Gitea makes a runner of us.
///
/// # Errors
/// [`StartError::OpsListen`].
pub(super) fn ops_address(address: SocketAddr) -> Result<(), StartError> {
    TcpListener::bind(address).map(drop).map_err(|error| StartError::OpsListen {
        address,
        cause: match holder::of_port(address.port()).filter(|_| error.kind() == io::ErrorKind::AddrInUse) {
            Some(holder) => format!("it is in use by {holder}"),
            None => plain(&error),
        },
    })
}

/// A state folder that is there is a folder, and ours. Root could write into anybody's, and would leave files there that
/// their owner cannot read.
///
/// # Errors
/// [`StartError::State`], [`StartError::OtherUser`].
pub(super) fn ours(state: &Path) -> Result<(), StartError> {
    let unusable = |cause: String| StartError::State { path: state.to_owned(), cause };
    let metadata = match std::fs::metadata(state) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(plain(&error))),
    };
    if !metadata.is_dir() {
        return Err(unusable("it is a file, not a folder".into()));
    }
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == us { Ok(()) } else { Err(StartError::OtherUser { state: state.to_owned(), owner, us }) }
}

/// What to say when the facade cannot listen.
#[must_use]
pub fn port_in_use(port: u16, file: PathBuf) -> StartError {
    let holder = holder::of_port(port).unwrap_or_else(|| "another process".to_owned());
    StartError::PortInUse { port, holder, file }
}

/// A free port, if possible below the range from which the kernel takes ports for outgoing connections: one of those
/// could sit on ours while the controller is away.
fn free_port() -> io::Result<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let below = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768_u16);
    for _ in 0..32 {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let port = 10_240 + u16::from_ne_bytes(random) % below.saturating_sub(10_240).max(1);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
