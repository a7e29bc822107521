#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use async_nats::header::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use buffa::Message as _;
use domain::id::{Backend, InstanceId};
use domain::identity::{IdentityCase, IdentityRules};
use domain::lifecycle::{Limits, Phase};
use domain::policy::{LabelMap, TrustPolicy};
use serde_json::json;
use testkit::gitea::{FaultSpec, Gitea as Double, JobId, JobSpec, Method};
use testkit::real::{NatsServer, NatsSettings};
use testkit::runner_client::RunnerClient;
use zeroize::Zeroizing;

use super::*;
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::config::Keys;
use crate::config::secret::{SecretFile, SecretRule};
use crate::gitea::{Credential, OnCancel};
use crate::ops::liveness::Liveness;
use crate::ops::metrics::Metrics;
use crate::ops::readiness::Readiness;
use crate::ops::status::StatusSnapshot;
use crate::queue::jetstream::Settings;
use crate::queue::ledger::{Entry, Kind, life};
use crate::rotation::Ring;

const LOCAL: Backend = Backend::Local;
const SUBJECT: &str = "ci.runner.local";
const SILENCE: SignedDuration = SignedDuration::from_mins(20);

/// Requirements §4.4.
const V1: &str = r#"{"version":1,"id":"gitea-task-42","backend":"pod","task":"CCoSP2pvYnM6CiAgcHVibGlzaDoKICAgIHJ1bnMtb246IFtzZWxmLWhvc3RlZCwgcG9kXQogICAgc3RlcHM6IFtdChocChoKCnJlcG9zaXRvcnkSDBoKb3duZXIvcmVwbw==","identity":{"Repository":"owner/repo","Task":"publish","SPIFFEID":"spiffe://example.org/ci/owner/repo/publish"}}"#;

/// A real server, the double, and the registration that the earlier controller had.
struct Bench {
    server: NatsServer,
    operator: async_nats::Client,
    double: Double,
    earlier: RunnerClient,
    dir: tempfile::TempDir,
}

/// One process of ours.
struct Process {
    queue: JetStream,
    room: Migration,
}

impl Bench {
    async fn new() -> Self {
        let server = NatsServer::start(NatsSettings::default()).await.unwrap();
        let operator = async_nats::connect(server.url()).await.unwrap();
        let double = Double::start().await;
        let credentials = double.register("runner", ["self-hosted", "local", "pod"]);
        let earlier = RunnerClient::new(&double.url(), credentials);
        let bench = Self { server, operator, double, earlier, dir: tempfile::tempdir().unwrap() };
        // The stream is there.
        drop(bench.process(LOCAL).await);
        bench
    }

    async fn process(&self, backend: Backend) -> Process {
        let instance: InstanceId = "f66f031b".parse().unwrap();
        let connect = async || async_nats::connect(self.server.url()).await.unwrap();
        let queue = JetStream::open(Settings {
            producer: connect().await,
            worker: connect().await,
            stream: "CI_RUNNER".to_owned(),
            subject_base: "ci.runner".to_owned(),
            instance: instance.clone(),
            backends: vec![backend],
            clock: Clock::start(),
            tenure: None,
        })
        .await
        .unwrap();
        let metrics = Metrics::new(&instance);
        let chronicle = Chronicle::new(metrics.clone(), instance.clone());
        let board = Arc::new(Board::new(Limits::default(), Clock::start(), chronicle));
        board.recovered(Recovery::Complete);
        let credentials = self.earlier.credentials().unwrap();
        let credential =
            Credential { uuid: credentials.uuid.clone(), token: Zeroizing::new(credentials.token.clone()) };
        let empty = StatusSnapshot::empty("f66f031b", vec![], board.now());
        let subject = queue.earlier(backend).await.unwrap();
        let room = Migration {
            progress: Arc::new(Progress::new(subject.stream(), subject.subject())),
            subject,
            gitea: Arc::new(Gitea::new(&self.double.url(), credential, OnCancel::Stops).unwrap()),
            board,
            queue: Arc::new(queue.clone()),
            ledger: queue.ledger(),
            sealing: Arc::new(Sealing::new(ring(self.dir.path()), "ci.runner", instance.clone())),
            rules: Arc::new(rules(instance, backend)),
            silence: SILENCE,
            ops: Ops {
                readiness: Readiness::default(),
                metrics,
                liveness: Liveness::default(),
                clock: Clock::start(),
                snapshot: Arc::new(move |_| empty.clone()),
            },
        };
        Process { queue, room }
    }

    /// The earlier controller fetches a job's task; its envelope is returned.
    async fn fetched(&self, key: &str) -> (JobId, i64, String) {
        self.fetched_by(&self.earlier, key, &["local"]).await
    }

    async fn fetched_by(&self, runner: &RunnerClient, key: &str, labels: &[&str]) -> (JobId, i64, String) {
        let job = self.double.push_one(JobSpec::new(key).runs_on(labels.iter().copied()));
        let task = runner.take().await.unwrap().unwrap();
        assert_eq!(self.double.state(job).task, Some(task.id), "another job was handed out");
        let bytes = task.encode_to_vec();
        let repository = domain::assignment::evidence_of(&bytes).repository.unwrap();
        let identity = json!({
            "Repository": repository, "Task": key, "SPIFFEID": format!("spiffe://example.org/ci/{repository}/{key}"),
        });
        let envelope = json!({
            "version": 1, "id": format!("gitea-task-{}", task.id), "backend": "local", "task": STANDARD.encode(bytes),
            "identity": identity,
        });
        (job, task.id, envelope.to_string())
    }

    /// It stores something on its subject.
    async fn stores(&self, subject: &'static str, body: impl Into<String>) {
        let context = async_nats::jetstream::new(self.operator.clone());
        let body: String = body.into();
        context.publish_with_headers(subject, HeaderMap::new(), body.into()).await.unwrap().await.unwrap();
    }

    fn questions(&self, task: i64) -> usize {
        self.double.calls_of(task).iter().filter(|call| call.method == Method::UpdateTask).count()
    }
}

impl Process {
    async fn pass(&self) -> Result<(), String> {
        self.room.pass(&self.room.ops.liveness.watch("test", STUCK)).await
    }

    /// The tasks in our own queue.
    async fn held(&self) -> Vec<i64> {
        let waiting = self.queue.list(LOCAL).await.unwrap();
        waiting.iter().map(|waiting| waiting.id.task().get()).collect()
    }

    async fn left(&self) -> usize {
        let (mut from, mut count) = (1, 0);
        while let Some(left) = self.room.subject.next(from).await.unwrap() {
            (from, count) = (left.place + 1, count + 1);
        }
        count
    }
}

/// Whether these bytes lie in a file below a folder.
fn lies_below(folder: &Path, bytes: &[u8]) -> bool {
    // What goes while it is looked for holds nothing.
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).any(|path| {
        let lies = || std::fs::read(&path).is_ok_and(|content| content.windows(bytes.len()).any(|part| part == bytes));
        if path.is_dir() { lies_below(&path, bytes) } else { lies() }
    })
}

fn rules(instance: InstanceId, backend: Backend) -> Rules {
    Rules {
        instance,
        labels: LabelMap::new(&[backend, Backend::Pod], "vm", &[]),
        default_backend: None,
        identity: IdentityRules {
            trust_domain: "example.org".parse().unwrap(),
            prefix: None,
            case: IdentityCase::Lower,
        },
        trust: TrustPolicy::default(),
        run_limit: None,
        endless_limit: SignedDuration::from_hours(3),
    }
}

fn ring(dir: &Path) -> Arc<Ring> {
    let path = dir.join("envelope.key");
    std::fs::write(&path, "k".repeat(32)).unwrap();
    let Ok(current) = SecretFile::read(&path, SecretRule::Key) else { panic!("a key") };
    Arc::new(Ring::new(&Keys { current, previous: None }).unwrap())
}

/// NEW-41, ENV-4, ENV-5, F27, F28: a task that Gitea confirms becomes a sealed message and a waiting life of ours, with the
/// very bytes and the time of its fetch; then the earlier message goes, from the server's disk as well, and it is over.
#[tokio::test]
async fn a_task_that_runs_is_taken_in() {
    let bench = Bench::new().await;
    let (_, task, envelope) = bench.fetched("runs").await;
    bench.stores(SUBJECT, envelope.clone()).await;
    let process = bench.process(LOCAL).await;
    let in_clear = || lies_below(&bench.server.folder().join("jetstream"), envelope.as_bytes());
    let written = async {
        while !in_clear() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.unwrap();
    let stored_at = process.room.subject.next(1).await.unwrap().unwrap().stored_at;
    process.pass().await.unwrap();
    assert_eq!((process.held().await, process.left().await), (vec![task], 0));
    assert!(!in_clear(), "the server has it still");
    let waiting = process.queue.list(LOCAL).await.unwrap().remove(0);
    let opened = process.room.sealing.open(LOCAL, waiting.id, &waiting.body).ok().unwrap();
    assert_eq!(opened.task, read_v1(envelope.as_bytes()).unwrap().task);
    assert_eq!(opened.assignment.fetched_at, stored_at);
    let view = process.room.board.view(waiting.id).unwrap();
    assert_eq!((view.life.phase(), view.message), (&Phase::Waiting, Some(waiting.key())));
    assert!(process.room.progress.told().contains("set ENVELOPE_ACCEPT_V1=false"), "{}", process.room.progress.told());
    assert_eq!(bench.questions(task), 1);
}

/// NEW-41, NEW-45, F32: a process that died between its own message and the earlier one's end, or after the task had ended here,
/// leaves two messages; the next one takes nothing in and asks nothing.
#[tokio::test]
async fn what_was_taken_in_is_not_taken_again() {
    let bench = Bench::new().await;
    let (_, held, envelope) = bench.fetched("held").await;
    bench.stores(SUBJECT, envelope.clone()).await;
    bench.process(LOCAL).await.pass().await.unwrap();
    let (_, ended, other) = bench.fetched("ended").await;
    for envelope in [&envelope, &other] {
        bench.stores(SUBJECT, envelope.clone()).await;
    }
    let process = bench.process(LOCAL).await;
    let earlier = [&envelope, &other].map(|envelope| read_v1(envelope.as_bytes()).unwrap());
    let now = process.room.board.now();
    // What the room `launch` does at the start.
    let found = earlier[0].assignment(&process.room.rules, now).unwrap();
    let lane = Lane::new(Arc::clone(&process.room.gitea), found.id.task());
    process.room.board.hold_waiting(&found, lane, 0, None);
    let key = life(earlier[1].id, &PayloadDigest::of(&earlier[1].task));
    process
        .queue
        .ledger()
        .put(Kind::Tombstone, Entry { key, value: "acknowledged".to_owned(), at: now })
        .await
        .unwrap();
    process.pass().await.unwrap();
    assert_eq!((process.held().await, process.left().await), (vec![held], 0));
    assert_eq!((bench.questions(held), bench.questions(ended)), (1, 0));
}

/// NEW-41, ENV-4, NEW-166, F27: the vector of the specification, byte for byte, of a task that Gitea does not know, and a task
/// that was cancelled: both messages go, and nothing is made of them but the end of the one log that nobody else closes.
#[tokio::test]
async fn what_is_over_is_removed() {
    let bench = Bench::new().await;
    bench.stores("ci.runner.pod", V1).await;
    let pods = bench.process(Backend::Pod).await;
    pods.pass().await.unwrap();
    assert_eq!((pods.left().await, bench.questions(42)), (0, 1));
    let (job, _, envelope) = bench.fetched("cancelled").await;
    bench.stores(SUBJECT, envelope).await;
    bench.double.cancel(job);
    let process = bench.process(LOCAL).await;
    process.pass().await.unwrap();
    assert_eq!((process.held().await, process.left().await), (vec![], 0));
    assert!(process.room.board.views().is_empty() && pods.room.board.views().is_empty());
    assert!(bench.double.state(job).archived);
}

/// NEW-41, PRC-2, T13, F27, F29: what is begun, forged, refused by today's rules, another registration's or no envelope stays
/// where it lies, is told with its place and a remedy, and starts nothing. Gitea is not asked about it again before it has
/// had the time to end a silent task: a question is a sign of life.
#[tokio::test]
async fn what_cannot_be_taken_stays() {
    let bench = Bench::new().await;
    let (job, begun, envelope) = bench.fetched("begun").await;
    let rows = vec![proto::LogRow { content: "a row of its runner".to_owned(), ..Default::default() }];
    bench.earlier.update_log(&proto::UpdateLogRequest { task_id: begun, rows, ..Default::default() }).await.unwrap();
    let (_, forged, contradiction) = bench.fetched("forged").await;
    let (_, refused, unfit) = bench.fetched_by(&bench.earlier, "unfit", &["local", "pod"]).await;
    let other = bench.double.register("other", ["self-hosted", "local"]);
    let other = RunnerClient::new(&bench.double.url(), other);
    let (_, strange, of_another) = bench.fetched_by(&other, "strange", &["local"]).await;
    let bodies = [
        (envelope.as_str(), "its job has begun under the earlier controller (1 rows"),
        (&contradiction.replacen("\"forged\"", "\"deploy\"", 1), "its envelope says otherwise"),
        (&unfit, "its task cannot run here: ambiguous_backend"),
        (&of_another, "its task belongs to another registration"),
        (V1, "its envelope says otherwise than its task or its subject"),
        ("who wrote this?", "(malformed)"),
        (r#"{"version":3}"#, "(malformed)"),
    ];
    for (body, _) in bodies {
        bench.stores(SUBJECT, body).await;
    }
    let process = bench.process(LOCAL).await;
    for _ in 0..2 {
        process.pass().await.unwrap();
    }
    let left = process.room.progress.left();
    assert_eq!(left.len(), bodies.len(), "{left:#?}");
    for (left, (_, cause)) in left.iter().zip(bodies) {
        assert!(left.reason.contains(cause) && left.reason.contains("nats stream rmm CI_RUNNER "), "{left:?}");
    }
    assert_eq!((process.held().await, process.left().await), (vec![], bodies.len()));
    assert!(process.room.board.views().is_empty());
    assert_eq!([begun, forged, refused, strange].map(|task| bench.questions(task)), [1; 4]);
    bench.double.cancel(job);
    let mut later = bench.process(LOCAL).await;
    later.room.silence = SignedDuration::ZERO;
    later.pass().await.unwrap();
    assert_eq!((later.held().await, later.left().await), (vec![], bodies.len() - 1), "Gitea has ended it");
}

/// NEW-41, F27: it is bounded: what comes later is not taken, and says that somebody still writes; while somebody waits for
/// messages there, nothing is.
#[tokio::test]
async fn the_earlier_controller_must_have_stopped() {
    let bench = Bench::new().await;
    let (_, in_time, envelope) = bench.fetched("in-time").await;
    bench.stores(SUBJECT, envelope).await;
    let process = bench.process(LOCAL).await;
    let (_, late, envelope) = bench.fetched("late").await;
    bench.stores(SUBJECT, envelope).await;

    let context = async_nats::jetstream::new(bench.operator.clone());
    let stream = context.get_stream("CI_RUNNER").await.unwrap();
    let config = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some("local".to_owned()),
        filter_subject: SUBJECT.to_owned(),
        // Nothing is handed out, so that whoever asks waits.
        max_ack_pending: 1,
        ..Default::default()
    };
    let consumer = stream.create_consumer(config).await.unwrap();
    let in_hand = next(&consumer).await;
    let waits = tokio::spawn(async move { next(&consumer).await });
    let stands_still = async {
        loop {
            match process.room.subject.taker().await.unwrap() {
                Some(_) => break process.pass().await.unwrap_err(),
                None => tokio::task::yield_now().await,
            }
        }
    };
    let trouble = tokio::time::timeout(Duration::from_secs(30), stands_still).await.unwrap();
    assert!(trouble.contains("the consumer local of stream CI_RUNNER: stop the earlier controller"), "{trouble}");
    assert_eq!((process.left().await, bench.questions(in_time)), (2, 0));
    drop(in_hand);
    waits.abort();
    stream.delete_consumer("local").await.unwrap();

    process.pass().await.unwrap();
    assert_eq!((process.held().await, process.left().await, bench.questions(late)), (vec![in_time], 1, 0));
    let left = process.room.progress.left();
    assert!(left[0].reason.contains("somebody still writes there; stop the earlier controller"), "{left:?}");
    assert!(!process.room.progress.is_over());
}

async fn next(consumer: &async_nats::jetstream::consumer::PullConsumer) -> Option<async_nats::jetstream::Message> {
    use futures::StreamExt as _;
    consumer.messages().await.unwrap().next().await?.ok()
}

/// NEW-41, NEW-12: while Gitea does not answer nothing is proven, so nothing is taken and nothing goes; afterwards it is.
#[tokio::test]
async fn without_an_answer_nothing_is_done() {
    let bench = Bench::new().await;
    let (_, task, envelope) = bench.fetched("waits").await;
    bench.stores(SUBJECT, envelope).await;
    let process = bench.process(LOCAL).await;
    let away = FaultSpec::connect(connectrpc::ErrorCode::Unavailable, "starting");
    bench.double.fail_all(&away);
    let trouble = process.pass().await.unwrap_err();
    assert!(trouble.contains("starting"), "{trouble}");
    assert_eq!((process.held().await, process.left().await), (vec![], 1));
    bench.double.clear_faults();
    process.pass().await.unwrap();
    assert_eq!((process.held().await, process.left().await), (vec![task], 0));
}
