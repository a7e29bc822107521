//! A client that has everything a job's executor has, and no manners: raw bytes over the real mutual TLS to the real
//! facade (T19, T27, T39, T66).
#![expect(clippy::expect_used, reason = "tests")]

use std::time::Duration;

use testkit::gitea::{Gitea, JobId, Method, Seen, Status};
use testkit::world::{Plan, SOON, World, job};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::caller::{Caller, status};
use crate::{planned, world};

const LOG: &str = "/api/actions/runner.v1.RunnerService/UpdateLog";
const MOST: usize = 16 << 20;

/// A job in its middle, which its gate ends.
async fn in_the_middle(world: &World, key: &str) -> (JobId, i64) {
    let job = world.push_one(job(key, &[&format!("say here\ngate {key}\nsay there")]));
    let stored = |gitea: &Gitea| gitea.state(job).rows().contains(&"here");
    world.gitea_shows("its first row is stored", stored).await;
    (job, world.task_of(job))
}

/// T19, T39, NEW-94, NEW-97, SRV-1, F100–F103: whatever is malformed is refused by the facade itself, before Gitea sees
/// anything, and nobody else's request is in it.
#[tokio::test]
async fn malformed_requests() {
    let world = world(2).await;
    let (first, task) = in_the_middle(&world, "first").await;
    let hostile = Caller::of(&world, task).await;
    let ends = "Host: h\r\nConnection: close\r\n";
    let long = format!("{ends}x-long: {}\r\n", "x".repeat(64 << 10));
    let many: String = (0..200).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let many = format!("{ends}{many}");
    let malformed = [
        ("CONNECT elsewhere.invalid:443 HTTP/1.1", ends, ""),
        ("CONNECT /api/v1/version HTTP/1.1", ends, ""),
        ("GET http://elsewhere.invalid/api/v1/version HTTP/1.1", ends, ""),
        ("GET https://elsewhere.invalid/api/v1/version HTTP/1.1", ends, ""),
        ("GET //elsewhere.invalid/api/v1/version HTTP/1.1", ends, ""),
        ("OPTIONS * HTTP/1.1", ends, ""),
        ("GET api/v1/version HTTP/1.1", ends, ""),
        ("GET /api/v1/../v1/version HTTP/1.1", ends, ""),
        ("GET /api/v1/%2e%2e/v1/version HTTP/1.1", ends, ""),
        ("GET /api/v1/%252e%252e/v1/version HTTP/1.1", ends, ""),
        ("GET /api/v1/. HTTP/1.1", ends, ""),
        ("GET /api//v1/version HTTP/1.1", ends, ""),
        ("GET /api%2Fv1/version HTTP/1.1", ends, ""),
        ("GET /api/v1\\version HTTP/1.1", ends, ""),
        ("GET /api/v1/%00 HTTP/1.1", ends, ""),
        ("GET /api/v1/\u{e4} HTTP/1.1", ends, ""),
        ("POST /API/Actions/runner.v1.RunnerService/FetchTask HTTP/1.1", ends, ""),
        ("POST /api/actions/runner.v1.RunnerService%2FFetchTask HTTP/1.1", ends, ""),
        ("GET /metrics HTTP/1.1", ends, ""),
        ("GET /-/admin HTTP/1.1", ends, ""),
        ("GET /api/v1/version HTTP/1.1", "Host: h\r\nHost: other.invalid\r\nConnection: close\r\n", ""),
        ("POST /api/v1/x HTTP/1.1", "Host: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "xx"),
        ("POST /api/v1/x HTTP/1.1", "Host: h\r\nContent-Length: -1\r\n", ""),
        ("POST /api/v1/x HTTP/1.1", "Host: h\r\nContent-Length: +1\r\n", "x"),
        ("POST /api/v1/x HTTP/1.1", "Host: h\r\nTransfer-Encoding: xchunked\r\n", ""),
        ("POST /api/v1/x HTTP/1.1", "Host: h\r\nTransfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("GET /api/v1/version HTTP/1.1", "Host: h\r\nx-folded: a\r\n b\r\nConnection: close\r\n", ""),
        ("GET /api/v1/version HTTP/1.1", "Host: h\r\nx-space : a\r\nConnection: close\r\n", ""),
        ("GET /api/v1/version HTTP/1.1", "Host: h\r\nx-nul: a\0b\r\nConnection: close\r\n", ""),
        ("GET /api/v1/version HTTP/1.1", &long, ""),
        ("GET /api/v1/version HTTP/1.1", &many, ""),
        ("PRI * HTTP/2.0", "", "SM\r\n\r\n"),
    ];
    let mut passed = Vec::new();
    for (line, headers, body) in malformed {
        let answer = hostile.exchange(line, headers, body).await;
        if !matches!(status(&answer), 0 | 400 | 403 | 431) {
            passed.push(format!("{line} {headers:.80}: {answer}"));
        }
    }
    assert!(passed.is_empty(), "{passed:#?}");
    let metrics = world.metrics().await;
    assert!(denied(&metrics, "path"), "{metrics}");
    assert!(world.gitea.seen().is_empty(), "{:?}", world.gitea.seen());
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    world.finish().await;
}

/// Whether `/metrics` counts calls that were denied for this reason.
fn denied(metrics: &str, reason: &str) -> bool {
    let counts = format!("gdr_facade_denied_total{{reason=\"{reason}\"}} ");
    metrics.lines().any(|line| line.strip_prefix(&counts).is_some_and(|count| count.parse::<f64>().unwrap() > 0.0))
}

/// T19, T50, NEW-94, NEW-130, FAC-5, FAC-6, NEW-105, F111, F65: without both the SVID and the capability of one live
/// assignment nobody gets anywhere; what was missing is counted.
#[tokio::test]
async fn strangers() {
    let world = world(2).await;
    let (first, one) = in_the_middle(&world, "first").await;
    let (second, two) = in_the_middle(&world, "second").await;
    let (mine, theirs) = (Caller::of(&world, one).await, Caller::of(&world, two).await);
    let forged = mine.credentials.replace("c2.", "c2.00000000.");
    let others = mine.credentials.replace(&format!("gitea-task-{one}"), &format!("gitea-task-{two}"));
    let cases = [
        (String::new(), "assignment"),
        (format!("x-runner-uuid: gitea-task-{one}\r\n"), "capability"),
        (theirs.credentials.clone(), "identity"),
        (forged, "capability"),
        (others, "capability"),
    ];
    for (credentials, missing) in cases {
        let calls = Method::ALL.map(|method| format!("POST /api/actions/{}", method.path()));
        let others = ["GET /api/v1/version", "GET /executor/v1/ready", "POST /executor/v1/report"].map(str::to_owned);
        for line in calls.into_iter().chain(others) {
            let answer =
                mine.say(&format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{credentials}\r\n")).await;
            assert_eq!(status(&answer), 401, "{line} {answer}");
            assert!(answer.contains(&format!("\"missing\":\"{missing}\"")), "{line} {answer}");
        }
    }
    assert!(world.gitea.seen().is_empty(), "{:?}", world.gitea.seen());
    let metrics = world.metrics().await;
    for reason in ["assignment", "capability", "identity"] {
        assert!(denied(&metrics, reason), "no {reason} in:\n{metrics}");
    }
    let genuine = mine.exchange("GET /api/v1/version HTTP/1.1", "Host: h\r\nConnection: close\r\n", "").await;
    assert_eq!(status(&genuine), 200, "{genuine}");
    for (gate, job) in [("first", first), ("second", second)] {
        world.desk.open_gate(gate);
        world.ends_as(job, Status::Success, SOON).await;
    }
    world.finish().await;
}

/// T19, F102: what one reader takes for a body and another for a second request stays a body.
#[tokio::test]
async fn nothing_is_smuggled() {
    let world = world(1).await;
    let (first, task) = in_the_middle(&world, "first").await;
    let hostile = Caller::of(&world, task).await;
    let inner = "GET /api/internal/x HTTP/1.1\r\nHost: h\r\n\r\n";
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    let (length, lost_length) = (inner.len(), "Connection: close, content-length\r\n");
    for (headers, body) in [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n".to_owned(), chunk.as_str()),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\nConnection: close\r\n".to_owned(), &chunk),
        ("Transfer-Encoding: chunked\r\nConnection: close, transfer-encoding\r\n".to_owned(), &chunk),
        (format!("Content-Length: {length}\r\n{lost_length}"), inner),
        (format!("Content-Length: {length}\r\nConnection: close\r\n"), &format!("{inner}{inner}")),
    ] {
        let before = world.gitea.seen().len();
        let answer = hostile.exchange("POST /api/v1/x HTTP/1.1", &format!("Host: h\r\n{headers}"), body).await;
        let seen = world.gitea.seen().split_off(before);
        let refused = status(&answer) == 400 && seen.is_empty();
        let passed = seen.len() == 1 && seen[0].body_bytes == inner.len() as u64;
        assert!(refused || passed, "{answer} {seen:?}");
        // Whoever stands before Gitea reads one length out of it.
        let framing = |name: &str| ["content-length", "transfer-encoding"].contains(&name);
        let told = |seen: &Seen| seen.headers.iter().filter(|(name, _)| framing(name)).count();
        assert!(seen.iter().all(|seen| told(seen) == 1), "{seen:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    world.finish().await;
}

/// T27, NEW-98, F104: of a job that sends the largest messages on many connections no more is read than its part of the
/// memory; another job meanwhile begins, reports and ends; what is too large is refused unread.
#[tokio::test]
async fn a_flood() {
    let world = world(2).await;
    let (first, task) = in_the_middle(&world, "first").await;
    let hostile = Caller::of(&world, task).await;
    let mut flood = JoinSet::new();
    let (swallowed, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let (mut stream, swallowed) = (hostile.connect().await, swallowed.clone());
        let head = format!(
            "POST {LOG} HTTP/1.1\r\nHost: h\r\n{}Content-Type: application/proto\r\nContent-Length: {MOST}\r\n\r\n",
            hostile.credentials
        );
        flood.spawn(async move {
            stream.write_all(head.as_bytes()).await.unwrap();
            let part = vec![0; 64 << 10];
            for _ in 1..MOST / part.len() {
                stream.write_all(&part).await.unwrap();
            }
            swallowed.send(()).unwrap();
            // The last part never comes.
            let _end = stream.read(&mut [0]).await;
        });
    }
    for _ in 0..2 {
        timeout(SOON, told.recv()).await.expect("the job's part of the memory").unwrap();
    }
    let other = world.push_one(job("other", &["burst 300", "say done"]));
    world.ends_as(other, Status::Success, SOON).await;
    assert!(told.try_recv().is_err(), "more is read than the job's part");
    assert_eq!(flood.len(), 8, "the flood goes on");
    for (length, refused) in [(MOST + 1, 429), (1 << 40, 429)] {
        let headers = format!("Host: h\r\nConnection: close\r\nContent-Length: {length}\r\n");
        let answer = hostile.exchange(&format!("POST {LOG} HTTP/1.1"), &headers, "").await;
        assert_eq!(status(&answer), refused, "{length}: {answer}");
    }
    drop(flood);
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    world.finish().await;
}

/// T66, NEW-103, F112: after the grace of its end nobody of an assignment has a connection any more, long before it
/// would have idled out; that of another job stays.
#[tokio::test]
async fn connections_end_with_their_assignment() {
    let world = planned(Plan::capacity(2).set("TERMINAL_GRACE", "1s")).await;
    let (first, one) = in_the_middle(&world, "first").await;
    let (second, two) = in_the_middle(&world, "second").await;
    let mut open = Vec::new();
    for task in [one, two] {
        let hostile = Caller::of(&world, task).await;
        let mut stream = hostile.connect().await;
        let request = format!("GET /executor/v1/ready HTTP/1.1\r\nHost: h\r\n{}\r\n", hostile.credentials);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).await.unwrap();
        assert_eq!(status(&String::from_utf8_lossy(&answer[..length])), 200);
        open.push(stream);
    }
    world.desk.open_gate("first");
    world.ends_as(first, Status::Success, SOON).await;
    let end = timeout(SOON, open[0].read(&mut [0])).await.expect("the connection outlives its assignment");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    let other = timeout(Duration::from_millis(200), open[1].read(&mut [0])).await;
    assert!(other.is_err(), "the other job's connection ended: {other:?}");
    world.desk.open_gate("second");
    world.ends_as(second, Status::Success, SOON).await;
    world.finish().await;
}
