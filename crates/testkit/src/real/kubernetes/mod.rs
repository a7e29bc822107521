//! A real one-node Kubernetes: etcd, API server, controller manager, scheduler, kubelet and containerd, in namespaces of
//! their own. Pods run real containers. No image registry; no cluster DNS and no Services but the API's own, unless a
//! [`NameServer`] plays them.
//!
//! Needs root on Debian 12 and `cargo xtask provision kubernetes`; [`absence()`] says what a machine lacks.

mod absence;
mod csi;
mod entry_kind;
mod entry_manager;
mod files;
mod identity;
mod image;
mod keys;
mod layout;
mod names;
mod room;
mod service;
mod spare;
mod workload_ids;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

pub use absence::{PACKAGES, absence, machine, missing_packages};
pub use identity::{CLASS, CLUSTER, Identity, SOCKET, restart_node_agent};
pub use image::Image;
pub use names::NameServer;
pub use service::Service;
pub use spare::SpareNode;

use super::cache::{Cache, Program};
use super::error::{head, tail};
use super::leash::Leash;
use super::{Error, Seen, eventually};
use crate::kubernetes::Client;
use files::PAUSE_IMAGE;
use keys::Keys;
use layout::{Layout, NODE, Net};
use room::Room;
use service::{Blow, Frost, Programs};

/// On an idle machine 5 s; a loaded one takes several times as long.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A running cluster; dropping it ends everything in it and removes its folder.
pub struct Cluster {
    programs: Programs,
    // Before the room and the folder: it would remove them on our death.
    _leash: Leash,
    room: Room,
    client: Client,
    keys: Keys,
    layout: Layout,
    net: Net,
    cache: Cache,
    _dir: TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until a Pod can be placed.
    ///
    /// # Errors
    /// This machine cannot run one ([`absence()`]), or a program ended or is not ready within 120 s; the error carries the
    /// ends of the logs.
    pub async fn start() -> Result<Self, Error> {
        let mut cluster = Self::prepare().await?;
        let up = cluster.come_up().await;
        up.map_err(|error| cluster.with_logs(&error))?;
        Ok(cluster)
    }

    /// Starts the API with its controllers and no node: Pods are accepted, and nothing ever happens to them.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_without_node() -> Result<Self, Error> {
        let mut cluster = Self::prepare().await?;
        let up = cluster.api_up().await;
        up.map_err(|error| cluster.with_logs(&error))?;
        Ok(cluster)
    }

    /// Everything but the programs.
    async fn prepare() -> Result<Self, Error> {
        // What of the programs is missing is told where they are started.
        let missing = machine().or_else(|| Some(missing_packages().join(" ")).filter(|names| !names.is_empty()));
        if let Some(reason) = missing {
            return Err(Error::system("start a one-node Kubernetes")(reason));
        }
        let cache = Cache::locate()?;
        let net = Net::take()?;
        let dir = tempfile::Builder::new().prefix("gdr-kube-").tempdir_in("/var/tmp");
        let dir = dir.map_err(Error::system("make a temporary folder"))?;
        // Everybody may pass: Pods mount folders of it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).map_err(Error::system("open the folder"))?;
        let layout = Layout::new(dir.path())?;
        let keys = keys::make(&layout.path("pki"), NODE, &net.certified())?;
        let url = format!("https://{}:443", net.node());
        files::write(&layout, &net, &keys, &url)?;
        let room = Room::open(&layout, &net, &cache.program(Program::Pause)?).await?;
        let leash = Leash::tie(room.pid(), None, Some(dir.path()))?;
        let client = Client::new(&url, &keys.admin, Some(&keys.ca))?;
        let programs = Programs::default();
        Ok(Self { programs, _leash: leash, room, client, keys, layout, net, cache, _dir: dir })
    }

    fn with_logs(&self, error: &Error) -> Error {
        let logs = room::logs(&self.layout.path("log"));
        Error::System { what: format!("start a one-node Kubernetes: {error}"), cause: logs }
    }

    async fn api_up(&mut self) -> Result<(), Error> {
        self.launch(Service::Etcd)?;
        self.launch(Service::ApiServer)?;
        self.api_ready().await?;
        self.launch(Service::ControllerManager)?;
        self.namespace("default").await
    }

    async fn come_up(&mut self) -> Result<(), Error> {
        for service in [Service::Etcd, Service::Containerd, Service::ApiServer] {
            self.launch(service)?;
        }
        self.containerd_ready().await?;
        let root = self.layout.path("images/pause");
        std::fs::create_dir_all(&root).map_err(Error::system("make a folder"))?;
        std::fs::copy(self.cache.program(Program::Pause)?, root.join("pause")).map_err(Error::system("copy pause"))?;
        self.import_root(&Image { name: PAUSE_IMAGE, root: &root, entrypoint: "/pause", user: 65535 }).await?;
        self.api_ready().await?;
        for service in [Service::ControllerManager, Service::Scheduler, Service::Kubelet] {
            self.launch(service)?;
        }
        self.node_ready().await
    }

    fn launch(&mut self, service: Service) -> Result<(), Error> {
        let program = service.program(&self.cache)?.display().to_string();
        let arguments = files::arguments(service, &self.layout, &self.net);
        let line: Vec<String> = [program].into_iter().chain(arguments).collect();
        self.programs.start(&self.layout, service.name(), self.room.inside("bash"), &line)
    }

    /// Waits for a condition, and gives up at once when a program of these has ended.
    async fn wait(
        &mut self,
        what: &str,
        needed: &[Service],
        mut look: impl AsyncFnMut(&Client) -> Result<Option<String>, Error>,
    ) -> Result<(), Error> {
        let names: Vec<_> = needed.iter().map(|service| service.name()).collect();
        let (client, programs) = (&self.client, &mut self.programs);
        eventually(what, START_LIMIT, async || {
            if let Some(name) = programs.ended(&names) {
                return Err(Error::system(format!("wait until {what}"))(format!("{name} has ended")));
            }
            Ok(look(client).await?.map_or(Seen::Done(()), Seen::NotYet))
        })
        .await
    }

    async fn containerd_ready(&mut self) -> Result<(), Error> {
        let socket = self.layout.path("run/containerd.sock");
        self.wait("containerd answers", &[Service::Containerd], async |_| {
            let mut ctr = command("ctr");
            ctr.arg("-a").arg(&socket).arg("version");
            Ok(run(ctr, Duration::from_secs(10)).await.err().map(|error| error.to_string()))
        })
        .await
    }

    /// Waits until the API server is ready.
    ///
    /// # Errors
    /// It or etcd has ended, or 120 s have passed.
    pub async fn api_ready(&mut self) -> Result<(), Error> {
        self.wait("the API server is ready", &[Service::Etcd, Service::ApiServer], async |client| {
            let reply = client.get("/readyz").await?;
            Ok((reply.status != 200).then(|| format!("HTTP {}: {}", reply.status, reply.body)))
        })
        .await
    }

    /// Waits until the node is ready and a Pod can be placed on it.
    ///
    /// # Errors
    /// A program has ended, or 120 s have passed.
    pub async fn node_ready(&mut self) -> Result<(), Error> {
        let needed = [Service::ApiServer, Service::ControllerManager, Service::Kubelet];
        self.wait("the node is ready", &needed, async |client| {
            let account = client.get("/api/v1/namespaces/default/serviceaccounts/default").await?;
            if account.status != 200 {
                return Ok(Some("no ServiceAccount default".to_owned()));
            }
            let node = client.get(&format!("/api/v1/nodes/{NODE}")).await?.body;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|each| each["type"] == "Ready" && each["status"] == "True");
            Ok((!ready || node["spec"]["taints"].is_array()).then(|| format!("{conditions:?}")))
        })
        .await
    }

    /// The URL of the API, as this machine and the Pods reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:443", self.net.node())
    }

    /// The cluster's CA.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.keys.ca
    }

    /// The kubeconfig of a user that may do anything.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.layout.path("admin.kubeconfig")
    }

    /// A client that may do anything.
    #[must_use]
    pub fn admin(&self) -> &Client {
        &self.client
    }

    /// The address of this machine, as the node and its Pods reach it: what is under test listens here.
    #[must_use]
    pub fn host_address(&self) -> std::net::Ipv4Addr {
        self.net.host()
    }

    /// The name of the node.
    #[must_use]
    pub fn node(&self) -> &'static str {
        NODE
    }

    /// The folder with everything of the cluster; `log/audit.jsonl` has the calls of all but its own programs.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.layout.path("")
    }

    /// Makes a namespace and waits for its ServiceAccount `default`. One that exists is left as it is.
    ///
    /// # Errors
    /// The API refused it, or the account is not there within 120 s.
    pub async fn namespace(&mut self, name: &str) -> Result<(), Error> {
        let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        make(&self.client, "/api/v1/namespaces", &namespace).await?;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        self.wait("the namespace has its ServiceAccount", &[Service::ControllerManager], async |client| {
            Ok((client.get(&path).await?.status != 200).then(|| "not yet".to_owned()))
        })
        .await
    }

    /// Makes the custom resources ClusterStaticEntry and ClusterSPIFFEID known, and waits until they can be used.
    ///
    /// # Errors
    /// The API refused one, or does not serve it within 120 s.
    pub async fn install_entries(&mut self) -> Result<(), Error> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for definition in entry_kind::definitions() {
            make(&self.client, path, &definition).await?;
        }
        for path in [entry_manager::PATH, workload_ids::PATH] {
            self.wait("entries are served", &[Service::ApiServer], async |client| {
                let reply = client.get(path).await?;
                Ok((reply.status != 200).then(|| reply.body.to_string()))
            })
            .await?;
        }
        Ok(())
    }

    /// A token for a ServiceAccount, which is made if it is missing; valid for an hour.
    ///
    /// # Errors
    /// The API refused it.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<String, Error> {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        make(&self.client, &accounts, &json!({"metadata": {"name": account}})).await?;
        let path = format!("{accounts}/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let token = self.client.post(&path, &request).await?.object(&path)?;
        Ok(token["status"]["token"].as_str().unwrap_or_default().to_owned())
    }

    /// A kubeconfig (YAML) for a ServiceAccount, with its namespace as the default.
    ///
    /// # Errors
    /// As [`Self::token`].
    pub async fn kubeconfig(&self, namespace: &str, account: &str) -> Result<String, Error> {
        let token = self.token(namespace, account).await?;
        Ok(files::kubeconfig(&self.url(), &self.keys.ca, &token, namespace))
    }

    /// Makes an image of one layer from a folder and brings it to the node; returns its reference with the digest.
    ///
    /// # Errors
    /// The folder cannot be read, the name has no host part or tag, or containerd refused it.
    pub async fn import_root(&self, image: &Image<'_>) -> Result<String, Error> {
        let archive = self.layout.path("images").join(format!("{}.tar", uuid::Uuid::new_v4().simple()));
        image::archive(&self.layout, image, &archive).await?;
        let reference = image::import(&self.layout, &archive, image.name).await;
        let _ = std::fs::remove_file(&archive);
        reference
    }

    /// Brings an OCI archive to the node under this name (`HOST/NAME:TAG`); returns its reference with the digest.
    ///
    /// # Errors
    /// As [`Self::import_root`].
    pub async fn import_archive(&self, archive: &Path, name: &str) -> Result<String, Error> {
        image::import(&self.layout, archive, name).await
    }

    /// A second, healthy, empty node while it is held: beside it, Pods of a lost node are evicted.
    ///
    /// # Errors
    /// The API refused it.
    pub async fn spare_node(&self) -> Result<SpareNode, Error> {
        SpareNode::start(self.client.clone()).await
    }

    /// Starts a program that was stopped or killed. It may not be ready yet; see [`Self::node_ready`].
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start_service(&mut self, service: Service) -> Result<(), Error> {
        if service == Service::Kubelet {
            // It gives up at once if the container runtime does not answer.
            self.containerd_ready().await?;
        }
        self.launch(service)
    }

    /// Ends a program with SIGTERM and waits for it.
    ///
    /// # Errors
    /// It does not end within 60 s.
    pub async fn stop_service(&mut self, service: Service) -> Result<(), Error> {
        self.programs.end(&self.layout, &self.room, service.name(), Blow::Stop).await
    }

    /// Ends a program with SIGKILL and waits for it.
    ///
    /// # Errors
    /// As [`Self::stop_service`].
    pub async fn kill_service(&mut self, service: Service) -> Result<(), Error> {
        self.programs.end(&self.layout, &self.room, service.name(), Blow::Kill).await
    }

    /// Makes a program stand still (SIGSTOP): whoever asks it gets no answer.
    ///
    /// # Errors
    /// It was never started.
    pub async fn freeze_service(&mut self, service: Service) -> Result<(), Error> {
        self.programs.frost(&self.layout, &self.room, service.name(), Frost::Freeze).await
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// As [`Self::freeze_service`].
    pub async fn thaw_service(&mut self, service: Service) -> Result<(), Error> {
        self.programs.frost(&self.layout, &self.room, service.name(), Frost::Thaw).await
    }

    /// Lets the node pull the images of this host from a server, whose URL may be `http://`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn registry(&self, host: &str, url: &str) -> Result<(), Error> {
        let folder = self.layout.path("registries").join(host);
        std::fs::create_dir_all(&folder).map_err(Error::system("make a folder"))?;
        // Without a `host` it takes the whole file for broken, and goes to the name itself.
        let hosts = format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
        std::fs::write(folder.join("hosts.toml"), hosts).map_err(Error::system("write hosts.toml"))
    }

    /// Whether a program runs.
    pub fn runs(&mut self, service: Service) -> bool {
        self.programs.runs(service.name())
    }
}

/// Creates an object; one that is there already is left as it is.
async fn make(client: &Client, path: &str, object: &Value) -> Result<(), Error> {
    let reply = client.post(path, object).await?;
    if reply.status == 409 { Ok(()) } else { reply.object(&format!("POST {path}")).map(drop) }
}

/// A command that is found, and finds others, in the administrator's folders too, wherever we were started from.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut command = Command::new(program);
    // Only a folder with a colon in its name cannot be joined, and such a PATH cannot be had.
    command.env("PATH", std::env::join_paths(folders).unwrap_or(path.clone()));
    command
}

/// Runs a command to its end and returns what it wrote; it is killed after `limit`.
pub(crate) async fn run(mut command: Command, limit: Duration) -> Result<String, Error> {
    command.stdin(Stdio::null());
    let words = [command.get_program()].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy());
    let name = head(&words.collect::<Vec<_>>().join(" "), 300);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let output = match timeout(limit, command.output()).await {
        Ok(output) => output.map_err(Error::system(format!("start {name}")))?,
        Err(_) => {
            let last = "it runs".to_owned();
            return Err(Error::Deadline { what: name, limit, last });
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Ended { program: name, status: output.status, output: tail(&text, 2000).to_owned() })
}
