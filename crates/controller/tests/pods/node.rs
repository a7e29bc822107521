//! What a node does beside the kubelet's reports, which the double makes: it starts the container's process, mounts the
//! Secret, and serves the Workload API to a Pod that SPIRE has an entry for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use controller::identity::{BuiltInIssuer, ServedIdentity};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::kubernetes::{Kubernetes, Resource};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How often it looks at the Pods.
const LOOK: Duration = Duration::from_millis(15);

/// The programs of the image.
#[derive(Clone)]
pub(crate) struct Image {
    /// The controller's program, whose word `executor` is the executor.
    pub(crate) program: PathBuf,
    /// The runner.
    pub(crate) runner: PathBuf,
}

/// A node that runs; it ends, and every container with it, when this is dropped.
pub(crate) struct Node(JoinHandle<()>);

impl Drop for Node {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Container {
    uid: String,
    child: Child,
    asked_to_stop: bool,
    _identity: Option<ServedIdentity>,
    folder: PathBuf,
}

impl Node {
    pub(crate) fn start(kubernetes: &Arc<Kubernetes>, issuer: BuiltInIssuer, image: Image, dir: PathBuf) -> Self {
        // A container ends when its process does, which this node tells.
        kubernetes.kubelet().ignores_sigterm(true);
        let kubernetes = Arc::clone(kubernetes);
        Self(tokio::spawn(async move {
            let mut containers: BTreeMap<String, Container> = BTreeMap::new();
            loop {
                turn(&kubernetes, &issuer, &image, &dir, &mut containers).await;
                tokio::time::sleep(LOOK).await;
            }
        }))
    }
}

async fn turn(
    kubernetes: &Kubernetes,
    issuer: &BuiltInIssuer,
    image: &Image,
    dir: &Path,
    containers: &mut BTreeMap<String, Container>,
) {
    let pods = kubernetes.objects(Resource::Pods);
    for pod in &pods {
        let (name, uid) = (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
        let runs = text(pod, "/status/phase") == "Running" && pod.pointer("/metadata/deletionTimestamp").is_none();
        let known = containers.get(name).is_some_and(|container| container.uid == uid);
        if runs && !known && is_attested(kubernetes, uid) {
            let Some(container) = started(kubernetes, issuer, image, dir, pod).await else { continue };
            containers.insert(name.to_owned(), container);
        }
    }
    // Where no container ever ran there is nothing to wait for.
    for pod in pods.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_some()) {
        let name = text(pod, "/metadata/name");
        if !containers.contains_key(name) && text(pod, "/status/phase") == "Pending" {
            kubernetes.kubelet().exit(name, 137);
        }
    }
    let mut ended = Vec::new();
    for (name, container) in containers.iter_mut() {
        let pod = pods.iter().find(|pod| text(pod, "/metadata/uid") == container.uid);
        let wanted = pod.is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        if !wanted && !container.asked_to_stop {
            container.asked_to_stop = true;
            container.signal(Signal::TERM);
        }
        if let Ok(Some(status)) = container.child.try_wait() {
            let code = status.code().unwrap_or(137);
            let words = std::fs::read_to_string(container.folder.join("termination")).unwrap_or_default();
            if pod.is_some() {
                kubernetes.kubelet().exit_with_message(name, code, &words);
            }
            ended.push(name.clone());
        }
    }
    for name in ended {
        containers.remove(&name);
    }
}

impl Container {
    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Whether SPIRE has an entry for this Pod.
fn is_attested(kubernetes: &Kubernetes, uid: &str) -> bool {
    let selector = Value::from(format!("k8s:pod-uid:{uid}"));
    let entries = kubernetes.objects(Resource::ClusterStaticEntries);
    entries.iter().any(|entry| {
        let taken = entry.pointer("/status/set") == Some(&Value::Bool(true));
        taken && entry["spec"]["selectors"].as_array().is_some_and(|selectors| selectors.contains(&selector))
    })
}

async fn started(
    kubernetes: &Kubernetes,
    issuer: &BuiltInIssuer,
    image: &Image,
    dir: &Path,
    pod: &Value,
) -> Option<Container> {
    let uid = text(pod, "/metadata/uid");
    let folder = dir.join(&uid[..8]);
    std::fs::create_dir_all(&folder).unwrap();
    let mut env = environment(pod);
    mount_secrets(kubernetes, pod, &folder, &mut env)?;
    let socket = folder.join("s");
    let id = env.get("CI_SPIFFE_ID")?.parse().unwrap();
    let identity = issuer.serve(socket.clone(), id).await.unwrap();
    env.insert("SPIFFE_ENDPOINT_SOCKET".to_owned(), format!("unix://{}", socket.display()));
    env.insert("GITEA_RUNNER_BINARY".to_owned(), image.runner.display().to_string());
    env.insert("PATH".to_owned(), std::env::var("PATH").unwrap());
    env.insert("HOME".to_owned(), folder.display().to_string());
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let child = Command::new(&image.program)
        .arg("executor")
        .env_clear()
        .envs(&env)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    Some(Container { uid: uid.to_owned(), child, asked_to_stop: false, _identity: Some(identity), folder })
}

/// What the Pod says, values from other objects excepted.
fn environment(pod: &Value) -> BTreeMap<String, String> {
    let list = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    list.iter().map(|each| (text(each, "/name").to_owned(), text(each, "/value").to_owned())).collect()
}

/// Puts the Pod's Secrets where its variables can name them; none while one of them does not exist.
fn mount_secrets(
    kubernetes: &Kubernetes,
    pod: &Value,
    folder: &Path,
    env: &mut BTreeMap<String, String>,
) -> Option<()> {
    let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().cloned().unwrap_or_default();
    for volume in volumes.iter().filter(|volume| volume.get("secret").is_some()) {
        let secret = kubernetes.object(Resource::Secrets, text(volume, "/secret/secretName"))?;
        let mount = mounts.iter().find(|mount| text(mount, "/name") == text(volume, "/name"))?;
        let at = folder.join(text(volume, "/name"));
        std::fs::create_dir_all(&at).unwrap();
        for (key, value) in secret["data"].as_object()? {
            let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).unwrap();
            std::fs::write(at.join(key), bytes).unwrap();
        }
        for value in env.values_mut() {
            *value = value.replace(text(mount, "/mountPath"), &at.display().to_string());
        }
    }
    Some(())
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
