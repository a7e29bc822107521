//! The ends of a connection, in the order in which they must come; the limits are small, their order is that of the
//! specification.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::atomic::{AtomicBool, Ordering};

use axum::Extension;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(600);
const PATIENT: Limits = Limits { head: LONG, idle: LONG, last_call: LONG, look: Duration::from_millis(20) };

/// A served connection, and what its answers wait for.
struct Open {
    client: DuplexStream,
    served: JoinHandle<()>,
    gate: Arc<Semaphore>,
    begun: Arc<Semaphore>,
    over: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Open {
    fn new(limits: Limits, svid_ends: Duration) -> Self {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (gate, over, shares) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)), Shares::new(1024));
        let begun = Arc::new(Semaphore::new(0));
        let (waits, begins, shares) = (Arc::clone(&gate), Arc::clone(&begun), Arc::new(shares));
        let slow = move |line: Extension<Arc<Line>>| async move {
            assert!(line.speaks_for(Caller::of_test("gitea-task-1".parse().unwrap()), &shares));
            begins.add_permits(1);
            waits.acquire().await.unwrap().forget();
            "slow"
        };
        let is_over = Arc::clone(&over);
        let house = House {
            router: Router::new().route("/", get(|| async { "quick" })).route("/slow", get(slow)),
            is_over: Arc::new(move |_| is_over.load(Ordering::Relaxed)),
            limits,
        };
        let (peer, stop) = (Peer("spiffe://td.test/job".parse().unwrap()), CancellationToken::new());
        let (ends, stopped) = (Instant::now() + svid_ends, stop.clone());
        let served = tokio::spawn(async move { serve(server, peer, ends, &house, &stopped).await });
        Self { client, served, gate, begun, over, stop }
    }

    async fn say(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, path: &str) {
        self.say(&format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
    }

    /// Asks for what the gate lets out, and waits until it is being answered.
    async fn ask_slowly(&mut self) {
        self.ask("/slow").await;
        timeout(SOON, self.begun.acquire()).await.unwrap().unwrap().forget();
    }

    async fn answered(&mut self, body: &str) {
        let mut seen = Vec::new();
        while !seen.ends_with(body.as_bytes()) {
            let mut part = [0; 512];
            let length = timeout(SOON, self.client.read(&mut part)).await.unwrap().unwrap();
            assert!(length > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&part[..length]);
        }
    }

    async fn ended(self) -> String {
        timeout(SOON, self.served).await.expect("it does not end").unwrap();
        let (mut rest, mut client) = (String::new(), self.client);
        client.read_to_string(&mut rest).await.unwrap();
        rest
    }

    fn is_open(&self) -> bool {
        !self.served.is_finished()
    }
}

/// SRV-1, NEW-103, T27: a head that does not come ends a connection, first and later, and long before one that idles is
/// ended; a head that trickles is no progress.
#[tokio::test]
async fn slow_heads_end_before_idle_ones() {
    let limits = Limits { head: Duration::from_secs(1), idle: Duration::from_secs(5), ..PATIENT };
    let mut idle = Open::new(limits, LONG);
    idle.ask("/").await;
    idle.answered("quick").await;
    let silent = Open::new(limits, LONG);
    let mut second = Open::new(limits, LONG);
    second.ask("/").await;
    second.answered("quick").await;
    second.say("GET / HT").await;
    let mut trickling = Open::new(limits, LONG);
    let trickle = async {
        while trickling.client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, trickle).await.expect("a head may trickle for ever");
    silent.ended().await;
    second.ended().await;
    assert!(idle.is_open(), "an idle connection ends as early as one without a head");
    idle.ended().await;
}

/// SRV-1: no limit of heads and idleness touches a call under way.
#[tokio::test]
async fn a_call_under_way_is_waited_for() {
    let limits = Limits {
        head: Duration::from_secs(1),
        idle: Duration::from_millis(300),
        last_call: Duration::from_millis(50),
        ..PATIENT
    };
    let (mut slow, silent) = (Open::new(limits, LONG), Open::new(limits, LONG));
    slow.ask_slowly().await;
    // Ends at the limit of heads, the longest of the three.
    silent.ended().await;
    slow.gate.add_permits(1);
    slow.answered("slow").await;
    slow.ended().await;
}

/// NEW-103, F112, T66: with the peer's SVID its connection ends, after the call under way; before that nothing does.
#[tokio::test]
async fn the_svid_ends() {
    let mut long = Open::new(PATIENT, LONG);
    long.ask("/").await;
    long.answered("quick").await;
    let mut brief = Open::new(PATIENT, Duration::from_secs(1));
    brief.ask_slowly().await;
    let idle = Open::new(PATIENT, Duration::from_millis(1200));
    idle.ended().await;
    brief.gate.add_permits(1);
    let rest = brief.ended().await;
    assert!(rest.ends_with("slow") && rest.contains("connection: close"), "{rest}");
    assert!(long.is_open());
}

/// NEW-103, NEW-159, T66: who is fenced is answered and then shut out; who does not take an answer is not waited for.
#[tokio::test]
async fn the_assignment_is_over() {
    let mut told = Open::new(PATIENT, LONG);
    told.ask_slowly().await;
    told.over.store(true, Ordering::Relaxed);
    told.gate.add_permits(1);
    let rest = told.ended().await;
    assert!(rest.ends_with("slow"), "{rest}");
    let mut stuck = Open::new(Limits { last_call: Duration::from_millis(50), ..PATIENT }, LONG);
    stuck.ask_slowly().await;
    stuck.over.store(true, Ordering::Relaxed);
    stuck.ended().await;
}

/// SRV-1: at the facade's end calls under way are finished and idle connections go.
#[tokio::test]
async fn the_facade_stops() {
    let (mut busy, idle) = (Open::new(PATIENT, LONG), Open::new(PATIENT, LONG));
    busy.ask_slowly().await;
    busy.stop.cancel();
    idle.stop.cancel();
    idle.ended().await;
    busy.gate.add_permits(1);
    assert!(busy.ended().await.ends_with("slow"));
}
