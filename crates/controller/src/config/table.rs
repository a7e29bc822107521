//! The settings (requirements §2.1), each in one row: name, type, default, when and whether it is needed, how it may
//! be shown, its parser, its rule, its meaning.
//!
//! `config reference`, `config schema`, `config effective` and the validation in [`super::validate()`] are all made of
//! these rows.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::{Backend, InstanceId};
use domain::identity::{IdentityCase, Segment, SpiffeId, TrustDomain};
use domain::lifecycle::Limits;
use domain::policy::{Section, Untrusted};
use http::Uri;

use super::address::{self, FacadeUrl, GiteaUrl, WorkloadEndpoint};
use super::allow::AllowList;
use super::components::{Component, Components};
use super::nats::{self, NatsUrl, StreamName, SubjectBase};
use super::pods::{self, Election, RunnerVersion, SpiffeVolume};
use super::secret::{SecretFile, SecretRule};
use super::setting::{Need, Problem, Row, Setting, Shown, When};
use super::trust;
use super::value;
use super::{IsolationKind, Issuer, LogFormat, LogLevel, Means, QueueKind};
use crate::backend::local::isolation::{Shared, UserRange};
use crate::backend::pod::privileged::PrivilegedPolicy;
use crate::backend::pod::template::PodTemplate;

use Component::{LocalWorker, PodWorker, VmWorker};
use Need::{Optional, Required};
use Shown::{Plain, SecretFile as Secret, Servers};
use When::{Always, JetStream, With, WorkloadApi};

macro_rules! settings {
    ($(
        $name:ident: $type:ty = $default:expr, $when:expr, $need:expr, $shown:expr,
        $parse:expr,
        $rule:literal,
        $doc:literal;
    )*) => {
        $(
            #[doc = $doc]
            pub const $name: Setting<$type> =
                Setting { name: stringify!($name), default: $default, rule: $rule, parse: $parse };
        )*

        /// Every setting, in the order of the documentation.
        pub const ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            default: $default,
            rule: $rule,
            doc: $doc,
            type_name: stringify!($type),
            when: $when,
            need: $need,
            shown: $shown,
            check: |text| ($name.parse)(text).map(drop),
        }),*];
    };
}

const DAY: u64 = 86_400;
/// No task is started with less left until Gitea ends it (NEW-31): under a lower limit none would ever start.
const MORE_THAN_A_START: u64 = Limits::LEAST_BUDGET.unsigned_abs().as_secs() + 1;

fn secret(path: &str) -> Result<SecretFile, Problem> {
    SecretFile::read(path.as_ref(), SecretRule::Text)
}

fn key(path: &str) -> Result<SecretFile, Problem> {
    SecretFile::read(path.as_ref(), SecretRule::Key)
}

fn name<T: std::str::FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::Breaks)
}

settings! {
    COMPONENTS: Components = Some("all"), Always, Optional, Plain,
        |t| Components::parse(t).map_err(|e| Problem::Invalid(e.to_string())),
        "a comma list of scheduler, pod-worker, vm-worker, local-worker, or all (the first three)",
        "What runs in this process.";
    STATE_DIR: PathBuf = None, With(LocalWorker), Required, Plain,
        value::absolute,
        "an absolute path",
        "Folder of the embedded queue, the local executors, the built-in issuer and the lock.";

    GITEA_INSTANCE_URL: GiteaUrl = None, Always, Required, Plain,
        GiteaUrl::parse,
        "an absolute http(s) URL without user, query and fragment; http for loopback only, unless ALLOW_PLAINTEXT=true",
        "The Gitea this controller serves.";
    GITEA_RUNNER_UUID_FILE: SecretFile = None, Always, Required, Secret,
        secret,
        "a readable file with the UUID of the one registration",
        "UUID of our registration.";
    GITEA_RUNNER_TOKEN_FILE: SecretFile = None, Always, Required, Secret,
        secret,
        "a readable file with the token of the one registration",
        "Token of our registration.";
    GITEA_ENDLESS_TASK_TIMEOUT: Duration = Some("3h"), Always, Optional, Plain,
        value::span::<MORE_THAN_A_START, {30 * DAY}>,
        "a duration with unit, above 10m to 30d",
        "ENDLESS_TASK_TIMEOUT of the Gitea server; no API tells it. No job is started when less than 10m of it are left.";
    GITEA_ZOMBIE_TASK_TIMEOUT: Duration = Some("10m"), Always, Optional, Plain,
        value::span::<60, {30 * DAY}>,
        "a duration with unit, 1m to 30d",
        "ZOMBIE_TASK_TIMEOUT of the Gitea server; no API tells it.";
    GITEA_API_TOKEN_FILE: SecretFile = None, Always, Optional, Secret,
        secret,
        "a readable file with an access token",
        "Access token for the scan for orphaned jobs only.";

    INSTANCE_ID: InstanceId = None, Always, Optional, Plain,
        name,
        "1 to 20 of a-z, 0-9 and -, no - at either end",
        "Names everything this controller owns; without it, it is derived from the Gitea's address and the UUID.";
    TRUST_DOMAIN: TrustDomain = None, Always, Required, Plain,
        name,
        "a SPIFFE trust domain: a-z, 0-9, . - _",
        "Trust domain of the jobs' identities.";
    IDENTITY_ISSUER: Issuer = Some("workload-api"), Always, Optional, Plain,
        |t| value::one_of(t, &[("workload-api", Issuer::WorkloadApi), ("built-in", Issuer::BuiltIn)]),
        "workload-api (SPIRE or another provider) or built-in (one host)",
        "Who issues identities.";
    SPIFFE_ENDPOINT_SOCKET: WorkloadEndpoint = None, WorkloadApi, Required, Plain,
        WorkloadEndpoint::parse,
        "unix:///abs/path or tcp://IP:port",
        "The Workload API that gives the controller its own identity.";
    IDENTITY_PREFIX: Segment = None, Always, Optional, Plain,
        // SPIRE keeps everything below /spire for itself.
        |t| if t == "spire" { Err(Problem::Breaks) } else { name(t) },
        "one SPIFFE path segment: letters, digits, . - _; not spire",
        "One more path segment before ci/… in every identity.";
    IDENTITY_CASE: IdentityCase = Some("lower"), Always, Optional, Plain,
        |t| value::one_of(t, &[("lower", IdentityCase::Lower), ("preserve", IdentityCase::Preserve)]),
        "lower or preserve",
        "Spelling of owner and repository in identities; preserve is for migration only.";
    TRUSTED_EVENTS: Vec<String> =
        Some("push,schedule,workflow_dispatch,release,pull_request_target"), Always, Optional, Plain,
        value::words,
        "a comma list of event names",
        "Events whose jobs get the identity class ci/…; every other event gets ci-untrusted/….";
    SVID_TTL: Duration = Some("30m"), Always, Optional, Plain,
        value::whole_seconds::<30, DAY>,
        "a duration with unit in whole seconds, 30s to 1d",
        "Lifetime of an issued identity.";

    RUNNER_FACADE_URL: FacadeUrl = None, Always, Required, Plain,
        FacadeUrl::parse,
        "an absolute https URL of scheme, host and port",
        "Where executors reach the facade.";
    RUNNER_FACADE_SPIFFE_ID: SpiffeId = None, Always, Required, Plain,
        name,
        "a SPIFFE ID inside TRUST_DOMAIN",
        "The controller's own identity; executors accept the facade by it.";
    RUNNER_FACADE_LISTEN: SocketAddr = Some(":8443"), Always, Optional, Plain,
        address::listen,
        ":port or ip:port",
        "Where the facade listens; :port means every IPv4 address.";
    RUNNER_FACADE_CAPABILITY_KEY_FILE: SecretFile = None, Always, Required, Secret,
        key,
        "a readable file with at least 32 bytes of printable ASCII",
        "Key that signs the executors' capabilities.";
    RUNNER_FACADE_CAPABILITY_KEY_PREVIOUS_FILE: SecretFile = None, Always, Optional, Secret,
        key,
        "a readable file with at least 32 bytes of printable ASCII",
        "The key before, accepted while it is replaced.";

    QUEUE: QueueKind = Some("jetstream"), Always, Optional, Plain,
        |t| value::one_of(t, &[("jetstream", QueueKind::JetStream), ("embedded", QueueKind::Embedded)]),
        "jetstream or embedded",
        "What holds a task between fetch and start.";
    ENVELOPE_KEY_FILE: SecretFile = None, Always, Required, Secret,
        key,
        "a readable file with at least 32 bytes of printable ASCII",
        "Key that seals tasks in the queue.";
    ENVELOPE_KEY_PREVIOUS_FILE: SecretFile = None, Always, Optional, Secret,
        key,
        "a readable file with at least 32 bytes of printable ASCII",
        "The key before, for opening only.";
    ENVELOPE_ACCEPT_V1: bool = Some("false"), JetStream, Optional, Plain,
        value::flag,
        "true or false",
        "Also reads unsealed envelopes of the earlier controller, during migration.";
    NATS_URL: Vec<NatsUrl> = None, JetStream, Required, Servers,
        nats::servers,
        "a comma list of tls://host:port; nats:// (plaintext) for loopback only, unless ALLOW_PLAINTEXT=true",
        "The NATS servers of one cluster; others that they tell of are not used. wss:// is not built in.";
    NATS_PRODUCER_USER: String = Some("ci-producer"), JetStream, Optional, Plain,
        nats::user,
        "a user name of printable ASCII without spaces, another than NATS_WORKER_USER",
        "User of the publishing connection.";
    NATS_WORKER_USER: String = Some("ci-worker"), JetStream, Optional, Plain,
        nats::user,
        "a user name of printable ASCII without spaces, another than NATS_PRODUCER_USER",
        "User of the consuming connection.";
    NATS_PRODUCER_PASSWORD_FILE: SecretFile = None, JetStream, Required, Secret,
        secret,
        "a readable file with a password",
        "Password of the publishing connection.";
    NATS_WORKER_PASSWORD_FILE: SecretFile = None, JetStream, Required, Secret,
        secret,
        "a readable file with a password",
        "Password of the consuming connection.";
    NATS_CA_FILE: PathBuf = None, JetStream, Optional, Plain,
        nats::ca_file,
        "an absolute path of a PEM file with at least one certificate",
        "Authorities of the NATS servers' certificates; without it the system's.";
    NATS_STREAM: StreamName = Some("CI_RUNNER"), JetStream, Optional, Plain,
        StreamName::parse,
        "1 to 255 printable ASCII characters without space . * > / \\",
        "The stream.";
    NATS_SUBJECT_BASE: SubjectBase = Some("ci.runner"), JetStream, Optional, Plain,
        SubjectBase::parse,
        "tokens of printable ASCII without space * >, with dots between them, not below $… or _INBOX; one trailing dot is dropped",
        "Subjects begin with it.";

    DEFAULT_BACKEND: Option<Backend> = Some("none"), Always, Optional, Plain,
        value::default_backend,
        "none, pod, vm or local",
        "Backend of jobs whose runs-on names none; none fails them with a reason.";
    DECLARE_SELF_HOSTED: bool = Some("true"), Always, Optional, Plain,
        value::flag,
        "true or false",
        "Whether self-hosted is among the declared labels.";
    EXTRA_LABELS: Vec<(String, Backend)> = None, Always, Optional, Plain,
        value::extra_labels,
        "label=backend,… with backends pod, vm, local",
        "Further labels, each served by one backend.";
    LOCAL_CAPACITY: NonZeroU32 = Some("1"), With(LocalWorker), Optional, Plain,
        value::count::<1024>,
        "an integer from 1 to 1024",
        "Slots of local-worker.";
    LOCAL_ISOLATION: IsolationKind = Some("full"), With(LocalWorker), Optional, Plain,
        |t| value::one_of(t, &[("full", IsolationKind::Full), ("none", IsolationKind::None)]),
        "full or none",
        "Whether local jobs are kept from each other and from this host; none is warned about at each start.";
    LOCAL_USERS: UserRange = Some("2000000-2001023"), With(LocalWorker), Optional, Plain,
        value::users,
        "two numbers FIRST-LAST from 1000 to 4294967293",
        "Started as root: uids of isolated jobs, one for each at a time; nobody else on the host may have them.";
    LOCAL_SHARED: Vec<Shared> = None, With(LocalWorker), Optional, Plain,
        value::shared,
        "a comma list of absolute paths, each with :rw behind it to be writable",
        "What isolated jobs see although it lies in the home folder or below /tmp.";
    LOCAL_PROCESSES: NonZeroU32 = Some("4096"), With(LocalWorker), Optional, Plain,
        value::count_from::<64, 4_194_304>,
        "an integer from 64 to 4194304 (the official runner alone takes a dozen or more)",
        "Most processes and threads of an isolated job.";
    LOOK_AHEAD: u32 = Some("0"), Always, Optional, Plain,
        value::number::<32>,
        "an integer from 0 to 32",
        "Tasks held per backend beyond its free slots.";
    OWNER_LIMIT: NonZeroU32 = None, Always, Optional, Plain,
        value::count::<100_000>,
        "an integer from 1 to 100000",
        "Most executors at a time for one owner; without it no limit.";
    REPOSITORY_LIMIT: NonZeroU32 = None, Always, Optional, Plain,
        value::count::<100_000>,
        "an integer from 1 to 100000",
        "Most executors at a time for one repository; without it no limit.";

    QUEUE_WAIT_LIMIT: Duration = Some("60m"), Always, Optional, Plain,
        value::span::<1, {30 * DAY}>,
        "a duration with unit, 1s to 30d",
        "Longest wait for a slot.";
    POD_PENDING_LIMIT: Duration = Some("15m"), With(PodWorker), Optional, Plain,
        value::span::<1, DAY>,
        "a duration with unit, 1s to 1d",
        "Longest time a Pod may not run yet.";
    VM_PENDING_LIMIT: Duration = Some("5m"), With(VmWorker), Optional, Plain,
        value::span::<1, DAY>,
        "a duration with unit, 1s to 1d",
        "Longest time a sandbox may not run yet.";
    CLAIM_LIMIT: Duration = Some("2m"), Always, Optional, Plain,
        value::span::<1, DAY>,
        "a duration with unit, 1s to 1d",
        "Longest time between a running executor and its claim.";
    RUN_LIMIT: Duration = None, Always, Optional, Plain,
        value::span::<60, {30 * DAY}>,
        "a duration with unit, 1m to 30d",
        "Longest run of a job; Gitea's endless limit less 5 min holds in any case.";
    CANCEL_GRACE: Duration = None, Always, Optional, Plain,
        value::span::<1, DAY>,
        "a duration with unit, 1s to 1d",
        "Time for a cancelled job to end; without it 60s, with a runner from 2.0.0 on 6m, and always below GITEA_ZOMBIE_TASK_TIMEOUT.";
    TERMINAL_GRACE: Duration = Some("60s"), Always, Optional, Plain,
        value::span::<1, DAY>,
        "a duration with unit, 1s to 1d",
        "Time for an executor to go after Gitea accepted its result.";

    GITEA_RUNNER_BINARY: String = None, With(LocalWorker), Optional, Plain,
        value::any,
        "a program's name in PATH or a path; without it gitea-runner, else act_runner, in PATH",
        "The official runner; it is asked for its version at the start.";
    GITEA_RUNNER_CONFIG: PathBuf = None, With(LocalWorker), Optional, Plain,
        value::runner_config,
        "an absolute path of a YAML mapping as `gitea-runner generate-config` prints",
        "Configuration of the official runner, merged under ours.";

    OPS_LISTEN: SocketAddr = Some(":9090"), Always, Optional, Plain,
        address::listen,
        ":port or ip:port",
        "Health, metrics and status.";
    LOG_FORMAT: LogFormat = Some("json"), Always, Optional, Plain,
        |t| value::one_of(t, &[("json", LogFormat::Json), ("text", LogFormat::Text)]),
        "json or text",
        "Form of the log on stderr; standalone on a terminal: text.";
    LOG_LEVEL: LogLevel = Some("info"), Always, Optional, Plain,
        |t| value::one_of(t, &LogLevel::WORDS),
        "error, warn, info, debug or trace",
        "Least severity that is logged.";
    ALLOW_PLAINTEXT: bool = Some("false"), Always, Optional, Plain,
        value::flag,
        "true or false",
        "Permits connections in clear text beyond loopback; warned about at each start.";
    ALLOW_IMAGE_TAG: bool = Some("false"), With(PodWorker), Optional, Plain,
        value::flag,
        "true or false",
        "Permits an executor image without a digest; warned about at each start.";

    POD_EXECUTOR_IMAGE: String = None, With(PodWorker), Required, Plain,
        pods::image,
        "an image reference with a digest, name@sha256:…",
        "Executor image.";
    POD_NAMESPACE: String = Some("gitea-actions"), With(PodWorker), Optional, Plain,
        pods::dns_label,
        "a DNS label",
        "Namespace of Pods and Lease.";
    POD_SERVICE_ACCOUNT: String = Some("gitea-task-executor"), With(PodWorker), Optional, Plain,
        pods::dns_label,
        "a DNS label",
        "Service account of executor Pods.";
    POD_CAPACITY: NonZeroU32 = Some("4"), With(PodWorker), Optional, Plain,
        value::count::<10_000>,
        "an integer from 1 to 10000",
        "Slots of pod-worker.";
    POD_EXECUTOR_UID: NonZeroU32 = Some("2000"), With(PodWorker), Optional, Plain,
        value::count::<{i32::MAX as u32}>,
        "an integer from 1 to 2147483647",
        "User of the executor container.";
    POD_TEMPLATE_FILE: PodTemplate = None, With(PodWorker), Optional, Plain,
        pods::template,
        "an absolute path of a YAML file with a Pod template (metadata with labels and annotations, spec)",
        "Pod template merged under our fixed fields: resources, nodes, tolerations, volumes, sidecars.";
    PRIVILEGED_POLICY_FILE: PrivilegedPolicy = None, With(PodWorker), Optional, Plain,
        pods::privileged,
        "an absolute path of a TOML file of [[privileged]] sections with repository, label, trust, node_selector",
        "Who may have privileged Pods; without it nobody.";
    SPIRE_AGENT_ID: SpiffeId = None, With(PodWorker), Optional, Plain,
        name,
        "a SPIFFE ID",
        "Fixed parent of identity entries.";
    SPIRE_CLUSTER: Segment = None, With(PodWorker), Optional, Plain,
        name,
        "one SPIFFE path segment",
        "Cluster name for computed parents.";
    SPIRE_CLASS: String = None, With(PodWorker), Optional, Plain,
        value::any,
        "a class name",
        "Class of the SPIRE controller manager; required with POD_IDENTITY=entries.";
    POD_IDENTITY: Means = Some("entries"), With(PodWorker), Optional, Plain,
        |t| value::one_of(t, &[("entries", Means::Entries), ("spire-server", Means::Server)]),
        "entries (SPIRE controller manager) or spire-server (the server's admin API)",
        "Through what Pods get their identities.";
    POD_SPIRE_SERVER_SOCKET: PathBuf = None, With(PodWorker), Optional, Plain,
        value::absolute,
        "an absolute path",
        "Admin socket of the SPIRE server; required with POD_IDENTITY=spire-server.";
    POD_SPIFFE_VOLUME: SpiffeVolume = Some("csi"), With(PodWorker), Optional, Plain,
        SpiffeVolume::parse,
        "csi or hostpath:/absolute/folder",
        "How a Pod reaches the Workload API: the SPIFFE CSI driver, or a folder of the node with the agent's socket.";
    POD_RUNNER_VERSION: RunnerVersion = Some("1.0.8"), With(PodWorker), Optional, Plain,
        RunnerVersion::parse,
        "a version as 1.0.8",
        "Version of the official runner in the executor image; from 2.0.0 on cancelling is declared.";
    KUBERNETES_API: Uri = None, With(PodWorker), Optional, Plain,
        pods::api_server,
        "https://host[:port]; http for loopback only",
        "The Kubernetes API server; without it as a Pod finds it.";
    KUBERNETES_CA_FILE: PathBuf = None, With(PodWorker), Optional, Plain,
        nats::ca_file,
        "an absolute path of a PEM file with at least one certificate",
        "Authority of the API server's certificate.";
    KUBERNETES_TOKEN_FILE: PathBuf = None, With(PodWorker), Optional, Plain,
        value::absolute,
        "an absolute path of a file with a token",
        "Our token for the API server, read again by itself.";
    LEADER_ELECTION: Option<Election> = Some("auto"), Always, Optional, Plain,
        |t| value::one_of(t, &[
            ("auto", None), ("file", Some(Election::File)), ("nats", Some(Election::Nats)),
            ("kubernetes", Some(Election::Kubernetes)),
        ]),
        "auto, file, nats or kubernetes",
        "How replicas agree on who works; auto: kubernetes with pod-worker, else nats with QUEUE=jetstream, else file.";
    VM_CAPACITY: NonZeroU32 = Some("1"), With(VmWorker), Optional, Plain,
        value::count::<10_000>,
        "an integer from 1 to 10000",
        "Slots of vm-worker.";
    VM_RUNNER_LABEL: String = Some("vm"), With(VmWorker), Optional, Plain,
        |t| value::one_of(t, &[("vm", "vm"), ("vm-dev", "vm-dev")]).map(str::to_owned),
        "exactly vm or vm-dev",
        "Label of vm-worker.";
    VM_TIMEOUT_SECONDS: NonZeroU32 = Some("14400"), With(VmWorker), Optional, Plain,
        |t| value::count::<2_592_000>(t).and_then(|n| if n.get() >= 60 { Ok(n) } else { Err(Problem::Breaks) }),
        "an integer from 60 to 2592000",
        "Last-resort lifetime of a sandbox.";
    VM_GRANT_KEY_FILE: PathBuf = None, With(VmWorker), Required, Secret,
        value::absolute,
        "a readable file",
        "Signing key of identity grants.";
    OPENSANDBOX_API: String = None, With(VmWorker), Required, Plain,
        value::any,
        "an absolute https URL",
        "The OpenSandbox server.";
    OPENSANDBOX_API_KEY_FILE: SecretFile = None, With(VmWorker), Required, Secret,
        secret,
        "a readable file with a key",
        "Key of the OpenSandbox server.";
    OPENSANDBOX_POOL: String = Some("ci-vm"), With(VmWorker), Optional, Plain,
        value::any,
        "a pool name",
        "Pool of sandboxes.";
    PROXY_PATHS_FILE: AllowList = None, Always, Optional, Plain,
        value::allow_list,
        "an absolute path of a file with one rule per line, for example GET,HEAD /api/v1/**",
        "Allow-list of the repository proxy; without it the built-in list.";
    UNTRUSTED_POLICY: Untrusted = Some("run"), Always, Optional, Plain,
        |t| value::one_of(t, &[("run", Untrusted::Run), ("refuse", Untrusted::Refuse)]),
        "run or refuse",
        "What becomes of untrusted jobs: they run under ci-untrusted/…, or fail with a reason.";
    UNTRUSTED_BACKENDS: Vec<Backend> = None, Always, Optional, Plain,
        trust::backends,
        "a comma list of pod, vm, local",
        "Backends untrusted jobs may run on; without it any.";
    TRUST_POLICY_FILE: Vec<Section> = None, Always, Optional, Plain,
        trust::policy_file,
        "an absolute path of a TOML file of [[repository]] sections with name, refs, workflows, called",
        "What is demanded beyond a trusted event: refs, and workflow files per job key; see docs/trust-policy.md.";
}

/// The row of a name as the environment spells it.
#[must_use]
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-8: every default obeys its own rule, no name stands twice, and no default names a site.
    #[test]
    fn defaults_obey_their_rules() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.name != row.name), "{} twice", row.name);
            if let Some(default) = row.default {
                assert_eq!((row.check)(default), Ok(()), "{}", row.name);
                assert!(!default.contains("://"), "{} names a site", row.name);
            }
            assert!(row.need == Optional || row.default.is_none(), "{}: required with a default", row.name);
            assert!(row.doc.ends_with('.') && !row.rule.ends_with('.'), "{}", row.name);
        }
    }
}
