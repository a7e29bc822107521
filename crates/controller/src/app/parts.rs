//! Everything that is built before anything runs. What fails here leaves nothing half-started behind.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use domain::assignment::Rules;
use domain::lifecycle::Limits;
use domain::metadata::ExecutorRecord;
use domain::policy::LabelMap;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use super::patience::while_away;
use super::snapshot::{room, snapshot};
use super::walls::Proven;
use super::{Place, Start};
use crate::backend::Backend;
use crate::backend::local::{Bind, LocalBackend, LocalConfig, Serving};
use crate::backend::pod::PodBackend;
use crate::board::Board;
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::config::{self, Config, IsolationKind, table};
use crate::descriptors::{Descriptors, Slots};
use crate::files;
use crate::gitea::{Credential, Gitea, OnCancel};
use crate::identity::entry;
use crate::identity::{BuiltInIssuer, Lifetimes, OwnIdentity, ServedIdentity, SocketAccess, own_identity};
use crate::launch::Host;
use crate::lease::Tenure;
use crate::migration::{Progress, tell_what_is_left};
use crate::nats::Connections;
use crate::ops::liveness::Liveness;
use crate::ops::metrics::Metrics;
use crate::ops::readiness::Readiness;
use crate::ops::status::StatusSnapshot;
use crate::ops::{self, Ops};
use crate::queue::embedded::{self, Embedded};
use crate::queue::jetstream::{self, EarlierSubject, JetStream};
use crate::queue::ledger::Ledger;
use crate::queue::unopened::Unopened;
use crate::queue::{Queue, QueueError};
use crate::rotation::{Ring, Rotation};
use crate::sealing::Sealing;
use crate::standalone::runner::Found;
use crate::telemetry::Secrets;

/// `NATS_SUBJECT_BASE`'s default (requirements §2.1): the embedded queue has no other subjects.
const SUBJECT_BASE: &str = "ci.runner";
/// For our own SVID at the start.
const IDENTITY: Duration = Duration::from_secs(30);

/// The parts.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) board: Arc<Board>,
    pub(super) ops: Ops,
    pub(super) gitea: Arc<Gitea>,
    pub(super) queue: Arc<dyn Queue>,
    /// What the earlier controller left, while it is taken over.
    pub(super) migration: Option<(EarlierSubject, Arc<Progress>)>,
    pub(super) ledger: Arc<dyn Ledger>,
    /// To NATS, where the queue is there.
    pub(super) nats: Option<Connections>,
    /// This host, where others share the queue.
    pub(super) host: Option<Host>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) ring: Arc<Ring>,
    pub(super) rotation: Rotation,
    pub(super) sealing: Arc<Sealing>,
    pub(super) unopened: Arc<Unopened>,
    pub(super) identity: Identity,
    pub(super) facade_listener: TcpListener,
    pub(super) ops_listener: TcpListener,
    pub(super) tracker: TaskTracker,
    /// Most connections of jobs at a time.
    pub(super) connections: usize,
}

/// Our own identity, and the socket it comes from when we issue it ourselves.
pub(super) struct Identity {
    own: OwnIdentity,
    /// How long each certificate of ours lives.
    pub(super) lifetime: Duration,
    socket: Option<ServedIdentity>,
}

impl Identity {
    pub(super) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.own.acceptor()
    }

    /// Whether the socket that renews it ended by itself (NEW-150).
    pub(super) fn has_ended(&self) -> bool {
        self.socket.as_ref().is_some_and(ServedIdentity::has_ended)
    }

    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.own.expires_at()
    }
}

impl Serving for ServedIdentity {
    fn has_ended(&self) -> bool {
        ServedIdentity::has_ended(self)
    }
}

impl Parts {
    pub(super) async fn build(start: Start, secrets: Secrets, tenure: Tenure) -> anyhow::Result<Self> {
        let Start { config, place, descriptors, nats, passwords, ops_listener } = start;
        let on_this_host = matches!(place, Place::Host { .. });
        let on_cancel = on_cancel(&config, &place);
        let count = config.slots().get();
        let slots = if on_this_host { Slots::OnThisHost(count) } else { Slots::Elsewhere(count) };
        let (connections, shortage) = (descriptors.connections(slots), descriptors.shortage(slots));
        if let Some(shortage) = &shortage {
            tracing::warn!(component = "controller", "{shortage}");
        }
        let clock = Clock::start();
        let facade_listener = bind("RUNNER_FACADE_LISTEN", config.facade.listen).await?;
        let ops_listener = match ops_listener {
            Some(listener) => listener,
            None => ops::address::bind(&config.ops).await.map_err(anyhow::Error::msg)?,
        };
        if config.keeps_files {
            ops::address::write_down(&config.ops, &ops_listener).map_err(anyhow::Error::msg)?;
        }
        let credential = Credential {
            uuid: config.gitea.uuid.expose().to_owned(),
            token: Zeroizing::new(config.gitea.token.expose().to_owned()),
        };
        let gitea = Gitea::new(config.gitea.url.as_str(), credential, on_cancel).context("GITEA_INSTANCE_URL")?;
        let gitea = Arc::new(gitea.led_by(tenure.clone()));
        let metrics = Metrics::new(&config.instance);
        let (ring, seals) = (Arc::new(Ring::new(&config.facade.capability)?), Arc::new(Ring::new(&config.envelope)?));
        let rotation = Rotation::new(Arc::clone(&gitea), &config.gitea.token, secrets, metrics.clone());
        let rotation = watching(rotation, &config, [&ring, &seals]).with_passwords(passwords);
        // Before the queue is asked, which may need new passwords.
        let rotation = rotation.looked().await?;
        let queue = async { Ok(queue(&config, nats.as_ref(), clock, &tenure).await?) };
        let ((identity, backend), Opened { queue, ledger, earlier }) =
            tokio::try_join!(executors(&config, place, descriptors), queue)?;
        let host = match &nats {
            Some(_) if on_this_host => {
                Some(Host::of_folder(&config.state_dir, Arc::clone(&ledger)).context("STATE_DIR")?)
            }
            _ => None,
        };
        let chronicle = Chronicle::new(metrics.clone(), config.instance.clone());
        let board = Arc::new(Board::new(limits(&config, on_cancel), clock, chronicle).led_by(tenure));
        let sealing = Arc::new(Sealing::new(seals, subject_base(&config), config.instance.clone()));
        let unopened = Arc::new(while_away(|| Unopened::load(Arc::clone(&ledger), metrics.clone())).await?);
        let migration = earlier.map(|earlier| {
            let progress = Arc::new(Progress::new(earlier.stream(), earlier.subject()));
            (earlier, progress)
        });
        let progress = migration.as_ref().map(|(_, progress)| Arc::clone(progress));
        let ops =
            operators(&config, &board, metrics, Apart { unopened: Arc::clone(&unopened), progress }, clock, shortage);
        let tracker = TaskTracker::new();
        // And once more before anything is opened: the queue may have taken its time.
        let rotation = rotation.looked().await?;
        Ok(Self {
            board,
            ops,
            gitea,
            queue,
            migration,
            ledger,
            nats,
            host,
            backend,
            ring,
            rotation,
            sealing,
            unopened,
            identity,
            facade_listener,
            ops_listener,
            tracker,
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            config,
        })
    }
}

/// An open queue.
struct Opened {
    queue: Arc<dyn Queue>,
    /// The records beside it.
    ledger: Arc<dyn Ledger>,
    /// What is taken over from the earlier controller.
    earlier: Option<EarlierSubject>,
}

async fn queue(
    config: &Config,
    nats: Option<&Connections>,
    clock: Clock,
    tenure: &Tenure,
) -> Result<Opened, QueueError> {
    let (config::Queue::JetStream(settings), Some(connections)) = (&config.queue, nats) else {
        let settings = embedded::Settings::new(config.state_dir.join("queue.db"));
        let queue = Embedded::open(embedded::Settings { clock, ..settings }).await?;
        return Ok(Opened { ledger: queue.ledger(), queue: Arc::new(queue), earlier: None });
    };
    let open = || {
        JetStream::open(jetstream::Settings {
            producer: connections.producer.client().clone(),
            worker: connections.worker.client().clone(),
            stream: settings.stream.as_str().to_owned(),
            subject_base: settings.subject_base.as_str().to_owned(),
            instance: config.instance.clone(),
            backends: vec![config.kind()],
            clock,
            tenure: Some(tenure.clone()),
        })
    };
    let queue = while_away(open).await?;
    let kind = config.kind();
    let earlier = match settings.accept_v1 {
        true => Some(while_away(|| queue.earlier(kind)).await?),
        false => {
            while_away(|| tell_what_is_left(&queue, kind)).await?;
            None
        }
    };
    Ok(Opened { ledger: queue.ledger(), queue: Arc::new(queue), earlier })
}

fn subject_base(config: &Config) -> &str {
    match &config.queue {
        config::Queue::Embedded => SUBJECT_BASE,
        config::Queue::JetStream(nats) => nats.subject_base.as_str(),
    }
}

/// What becomes of a task.
pub(super) fn rules(config: &Config, labels: LabelMap) -> Rules {
    Rules {
        instance: config.instance.clone(),
        labels,
        default_backend: config.labels.default_backend,
        identity: config.identity.rules.clone(),
        trust: config.identity.trust.clone(),
        run_limit: config.limits.run.map(signed),
        endless_limit: signed(config.gitea.endless_task_timeout),
    }
}

async fn bind(setting: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{setting}: {address} cannot be listened on; is another process using the port?"))
}

/// Our own identity, through the Workload API either way, and where executors are made, with theirs.
async fn executors(
    config: &Config,
    place: Place,
    descriptors: Descriptors,
) -> anyhow::Result<(Identity, Arc<dyn Backend>)> {
    match place {
        Place::Host { runner, walls } => {
            let (identity, bind) = issued_here(config).await?;
            Ok((identity, Arc::new(LocalBackend::new(local(config, &runner, &walls, descriptors)?, bind)?)))
        }
        Place::Cluster(cluster) => {
            let identity = issued_elsewhere(config).await?;
            let issuer = entry::issuer(config, cluster.clone())?;
            Ok((identity, Arc::new(PodBackend::new(cluster, config, issuer)?)))
        }
    }
}

async fn issued_elsewhere(config: &Config) -> anyhow::Result<Identity> {
    let endpoint = config.pods.as_ref().map(|pods| pods.endpoint.as_str()).context("SPIFFE_ENDPOINT_SOCKET")?;
    let own = own_identity(endpoint, &config.identity.facade_id, IDENTITY).await?;
    let lifetime = own.lifetime().unwrap_or(config.identity.svid_ttl);
    Ok(Identity { own, lifetime, socket: None })
}

/// By ourselves, and how executors of this host get theirs.
async fn issued_here(config: &Config) -> anyhow::Result<(Identity, Bind)> {
    let lifetimes = Lifetimes::with_leaf(config.identity.svid_ttl)?;
    let issuer = BuiltInIssuer::open_with(&config.identity.authority, config.identity.trust_domain(), lifetimes)?;
    let socket = config.state_dir.join("api").join("controller.sock");
    files::new_private_folder(socket.parent().unwrap_or(&config.state_dir))?;
    let served = issuer.serve(socket, config.identity.facade_id.clone()).await?;
    let own = own_identity(&served.endpoint(), &config.identity.facade_id, IDENTITY).await?;
    // Nobody but the job passes the folder above its socket, and the job may have a user of its own.
    let access = match config.local.isolation {
        IsolationKind::Full => SocketAccess { mode: 0o666 },
        IsolationKind::None => SocketAccess::default(),
    };
    let bind: Bind = Arc::new(move |record: &ExecutorRecord, socket: &Path| {
        let (issuer, id, socket) = (issuer.clone(), record.spiffe_id.clone(), socket.to_owned());
        async move {
            let served = issuer.serve_for(socket, id, access).await.map_err(|error| error.to_string())?;
            Ok(Box::new(served) as Box<dyn Serving>)
        }
        .boxed()
    });
    Ok((Identity { own, lifetime: config.identity.svid_ttl, socket: Some(served) }, bind))
}

/// What the runner of the executors does when its job is cancelled (NEW-25).
fn on_cancel(config: &Config, place: &Place) -> OnCancel {
    match place {
        Place::Host { runner, .. } => runner.on_cancel(),
        Place::Cluster(_) => config.pods.as_ref().map_or(OnCancel::Stops, |pods| pods.runner_version.on_cancel()),
    }
}

fn local(config: &Config, runner: &Found, walls: &Proven, descriptors: Descriptors) -> anyhow::Result<LocalConfig> {
    // Jobs see their folder at this path, where a link on the way may be hidden from them.
    let state = config.state_dir.canonicalize().context("STATE_DIR")?;
    Ok(LocalConfig {
        walls: walls.walls(),
        users: config.local.users.clone(),
        state,
        instance: config.instance.clone(),
        facade_url: config.facade.url.as_str().to_owned(),
        facade_spiffe_id: config.identity.facade_id.clone(),
        runner_binary: Some(runner.path.display().to_string()),
        runner_config: config.runner.config.as_ref().map(|path| path.display().to_string()),
        environment: config.runner.environment.clone(),
        program: None,
        supervise: vec![LocalConfig::SUPERVISE.to_owned()],
        open_files: descriptors.inherited,
    })
}

/// The keys that are looked at again while we run.
fn watching(rotation: Rotation, config: &Config, [ring, seals]: [&Arc<Ring>; 2]) -> Rotation {
    let capability =
        [table::RUNNER_FACADE_CAPABILITY_KEY_FILE.name, table::RUNNER_FACADE_CAPABILITY_KEY_PREVIOUS_FILE.name];
    let envelope = [table::ENVELOPE_KEY_FILE.name, table::ENVELOPE_KEY_PREVIOUS_FILE.name];
    rotation.with_ring(ring, &config.facade.capability, capability).with_ring(seals, &config.envelope, envelope)
}

fn limits(config: &Config, on_cancel: OnCancel) -> Limits {
    let default = Limits::default();
    let zombie = config.gitea.zombie_task_timeout;
    let cancel_grace = match on_cancel {
        OnCancel::Stops => default.cancel_grace.min(signed(zombie / 2)),
        // The official runner takes up to 5 min for what runs after a cancel (Gitea contract §8).
        OnCancel::Reports => SignedDuration::from_mins(6).min(signed(zombie / 5 * 3)),
    };
    Limits {
        pending: config.pods.as_ref().map_or(default.pending, |pods| signed(PodBackend::longest_wait(pods.pending))),
        queue_wait: signed(config.limits.queue_wait),
        claim: signed(config.limits.claim),
        // Below Gitea's own judgement of a silent task (NEW-167); a setting that is not is refused.
        cancel_grace: config.limits.cancel_grace.map_or(cancel_grace, signed),
        terminal_grace: signed(config.limits.terminal_grace),
        endless: signed(config.gitea.endless_task_timeout),
        ..default
    }
}

pub(super) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// What lies beside the board, for `status`.
struct Apart {
    unopened: Arc<Unopened>,
    progress: Option<Arc<Progress>>,
}

fn operators(
    config: &Config,
    board: &Arc<Board>,
    metrics: Metrics,
    Apart { unopened, progress }: Apart,
    clock: Clock,
    shortage: Option<String>,
) -> Ops {
    let (instance, components) =
        (config.instance.clone(), config.components.iter().map(|c| c.as_str().to_owned()).collect());
    let (board, isolation) = (Arc::clone(board), config.local.isolation);
    let (room, kind) = (room(config), config.kind());
    let components: Vec<String> = components;
    metrics.isolation(isolation);
    Ops {
        readiness: Readiness::default(),
        metrics,
        liveness: Liveness::default(),
        clock,
        snapshot: Arc::new(move |at| StatusSnapshot {
            set_aside: unopened.set_aside().into_iter().chain(progress.iter().flat_map(|p| p.left())).collect(),
            migration: progress.as_ref().map(|progress| progress.told()),
            shortage: shortage.clone(),
            ..snapshot(&board, kind, instance.as_str(), components.clone(), &room, isolation, at)
        }),
    }
}
