//! What a container gets from its Pod: volumes as folders, environment, arguments.
//!
//! Nothing is mounted. A folder of this machine stands for each mount, and wherever an environment variable or an
//! argument names the path of a mount, it names that folder instead.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Workload;
use crate::kubernetes::meta::{self, text};
use crate::kubernetes::resource::Resource;
use crate::kubernetes::store::Store;

/// A process to be started for a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) uid: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The folder of this Pod; it goes with the process.
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<File>,
    pub(crate) user: Option<u32>,
}

/// A file of a Secret's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    path: PathBuf,
    content: Vec<u8>,
    mode: u32,
}

/// The Secrets that a Pod's volumes need and that are not there (yet).
pub(super) fn missing_secrets(store: &Store, pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let needed = volumes.filter(|volume| volume["secret"]["optional"] != Value::Bool(true));
    let names = needed.filter_map(|volume| volume["secret"]["secretName"].as_str());
    let missing = |name: &&str| store.find(Resource::Secrets, meta::namespace(pod), name).is_err();
    names.filter(missing).map(str::to_owned).collect()
}

/// The first key of a Secret that the environment needs and that is not there.
pub(super) fn missing_key(store: &Store, pod: &Value) -> Option<String> {
    let variables = pod["spec"]["containers"].as_array().into_iter().flatten();
    let variables = variables.flat_map(|container| container["env"].as_array().into_iter().flatten());
    let references = variables.map(|variable| &variable["valueFrom"]["secretKeyRef"]);
    let mut needed = references.filter(|reference| reference.is_object() && reference["optional"] != Value::Bool(true));
    needed.find_map(|reference| match secret(store, pod, text(reference, "/name")) {
        None => Some(format!("secret \"{}\" not found", text(reference, "/name"))),
        Some(data) => {
            let key = text(reference, "/key");
            data.iter().all(|(name, _)| name != key).then(|| format!("couldn't find key {key} in Secret"))
        }
    })
}

/// What to start for a Pod; all its Secrets are there.
pub(super) fn launch(store: &Store, pod: &Value, workload: &Workload) -> Launch {
    let folder = workload.folder.join(meta::uid(pod));
    let container = &pod["spec"]["containers"][0];
    let (mut places, mut files) = (Vec::new(), Vec::new());
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let (name, path) = (text(mount, "/name"), text(mount, "/mountPath").to_owned());
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let Some(volume) = volumes.into_iter().find(|volume| text(volume, "/name") == name) else { continue };
        let is_spiffe = volume.get("csi").is_some() || volume.get("hostPath").is_some();
        let place = match &workload.sockets {
            Some(sockets) if is_spiffe => sockets.clone(),
            _ => folder.join(name),
        };
        files.extend(secret_files(store, pod, volume, &place));
        places.push((path, place.display().to_string()));
    }
    let placed = |value: &str| placed(value, &places);
    let variables = container["env"].as_array().into_iter().flatten();
    let variables = variables.map(|each| (text(each, "/name").to_owned(), placed(&value(store, pod, each))));
    let environment = variables.chain(workload.environment.iter().cloned()).collect();
    let arguments = container["args"].as_array().into_iter().flatten();
    let arguments = arguments.map(|each| placed(each.as_str().unwrap_or_default())).collect();
    let (uid, program) = (meta::uid(pod).to_owned(), workload.program.clone());
    Launch { uid, program, arguments, environment, folder, files, user: workload.user }
}

/// A text with the places of mounts for their paths, the longest where one mount lies in another. What was put in is not
/// looked at again: a place may hold the path of another mount.
fn placed(text: &str, places: &[(String, String)]) -> String {
    let (mut done, mut rest) = (String::new(), text);
    loop {
        let found = places.iter().filter_map(|(path, place)| Some((rest.find(path)?, path.len(), place)));
        let Some((at, length, place)) = found.min_by_key(|(at, length, _)| (*at, std::cmp::Reverse(*length))) else {
            return done + rest;
        };
        done = done + &rest[..at] + place;
        rest = &rest[at + length..];
    }
}

fn secret_files(store: &Store, pod: &Value, volume: &Value, place: &Path) -> Vec<File> {
    let source = &volume["secret"];
    let Some(data) = secret(store, pod, text(source, "/secretName")) else { return Vec::new() };
    let mode = |value: &Value| value.as_u64().and_then(|mode| u32::try_from(mode).ok());
    let usual = mode(&source["defaultMode"]).unwrap_or(0o644);
    let items = source["items"].as_array();
    let file = |(key, content): (String, Vec<u8>)| {
        let item = items.map(|items| items.iter().find(|item| text(item, "/key") == key));
        let (name, mode) = match item {
            None => (key.as_str(), usual),
            Some(item) => (text(item?, "/path"), mode(&item?["mode"]).unwrap_or(usual)),
        };
        Some(File { path: place.join(name), content, mode })
    };
    data.into_iter().filter_map(file).collect()
}

/// The decoded data of a Secret.
fn secret(store: &Store, pod: &Value, name: &str) -> Option<Vec<(String, Vec<u8>)>> {
    use base64::Engine as _;
    let secret = store.find(Resource::Secrets, meta::namespace(pod), name).ok()?;
    let decode = |value: &Value| {
        base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
    };
    let data = secret["data"].as_object().into_iter().flatten();
    Some(data.map(|(key, value)| (key.clone(), decode(value))).collect())
}

/// The value of a variable.
fn value(store: &Store, pod: &Value, variable: &Value) -> String {
    let field = text(variable, "/valueFrom/fieldRef/fieldPath");
    let reference = &variable["valueFrom"]["secretKeyRef"];
    if !field.is_empty() {
        let pointer = format!("/{}", field.replace('.', "/"));
        return text(pod, &pointer).to_owned();
    }
    if reference.is_object() {
        let data = secret(store, pod, text(reference, "/name")).unwrap_or_default();
        let found = data.into_iter().find(|(key, _)| key == text(reference, "/key"));
        return found.map(|(_, value)| String::from_utf8_lossy(&value).into_owned()).unwrap_or_default();
    }
    text(variable, "/value").to_owned()
}

impl Launch {
    /// Makes the folder of the Pod with its files.
    pub(super) fn prepare(&self) -> std::io::Result<()> {
        let own = |path: &Path| self.user.map_or(Ok(()), |user| chown(path, Some(user), Some(user)));
        std::fs::create_dir_all(self.folder.join("tmp"))?;
        for path in [self.folder.clone(), self.folder.join("tmp")] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
            own(&path)?;
        }
        for file in &self.files {
            if let Some(folder) = file.path.parent() {
                std::fs::create_dir_all(folder)?;
                own(folder)?;
            }
            std::fs::write(&file.path, &file.content)?;
            std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(file.mode))?;
            own(&file.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_place_is_none_of_a_mount() {
        let places = [("/tmp", "/t/tmp/a/tmp"), ("/run/spire", "/t/tmp/a/spire"), ("/run", "/t/tmp/a/run")];
        let places = places.map(|(path, place)| (path.to_owned(), place.to_owned()));
        let placed = |text| placed(text, &places);
        assert_eq!(placed("unix:///run/spire/s,/run/x"), "unix:///t/tmp/a/spire/s,/t/tmp/a/run/x");
        assert_eq!((placed("/tmp"), placed("none")), ("/t/tmp/a/tmp".to_owned(), "none".to_owned()));
    }
}
