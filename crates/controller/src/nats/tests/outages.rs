//! Connections that were made, and what becomes of them.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::config::{Log, LogFormat, LogLevel};
use crate::telemetry::lines::{Lines, hear};
use crate::telemetry::{Colours, subscriber};

/// A page of the server's monitoring port, which its configuration names.
async fn monitoring(server: &NatsServer, path: &str) -> String {
    let config = std::fs::read_to_string(server.folder().join("nats.conf")).unwrap();
    let address = config.lines().find_map(|line| line.strip_prefix("http: ")).unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

/// CFG-3: the server sees two connections, each with its name and its user.
#[tokio::test]
async fn two_connections() {
    let server = NatsServer::start(users()).await.unwrap();
    let both = Connections::open(&Bench::new(&[&server.url()]).nats).await.unwrap();
    let page = monitoring(&server, "/connz?auth=1").await;
    let page: serde_json::Value = serde_json::from_str(page.split_once("\r\n\r\n").unwrap().1).unwrap();
    let mut seen: Vec<_> = page["connections"].as_array().unwrap().iter().collect();
    seen.sort_by_key(|connection| connection["name"].as_str().map(str::to_owned));
    let seen: Vec<_> =
        seen.iter().map(|c| (c["name"].as_str().unwrap(), c["authorized_user"].as_str().unwrap())).collect();
    let expect = [("gitea-dynamic-runner-producer", "ci-producer"), ("gitea-dynamic-runner-worker", "ci-worker")];
    assert_eq!(seen, expect);
    both.worker.client().drain().await.unwrap();
    until("ended", SOON, &both.worker, |trouble| trouble.is_some_and(|t| t.contains("it was closed"))).await;
}

/// NEW-47, T43, F34: a killed server is trouble until it is there again; then requests go on. Metric and readiness follow.
#[tokio::test]
async fn a_killed_server() {
    let mut server = NatsServer::start(users()).await.unwrap();
    let both = Connections::open(&Bench::new(&[&server.url()]).nats).await.unwrap();
    let (metrics, readiness) = (Metrics::new(&"f66f031b".parse().unwrap()), Readiness::default());
    let shown = |value: u8| {
        both.show(&metrics, &readiness);
        let text = metrics.encode().unwrap();
        ["producer", "worker"]
            .iter()
            .all(|role| text.contains(&format!("gdr_nats_connected{{connection=\"{role}\"}} {value}\n")))
    };
    assert!(shown(1) && readiness.conditions().connection_trouble.is_none());
    server.kill();
    for connection in [&both.producer, &both.worker] {
        until("the cause is known", SOON, connection, |t| t.is_some_and(|t| t.contains("Connection refused"))).await;
    }
    assert!(shown(0) && both.worker.trouble().is_some_and(|trouble| trouble.contains("worker connection")));
    let trouble = readiness.conditions().connection_trouble.unwrap();
    assert!(trouble.starts_with("NATS, producer connection to nats://127.0.0.1:"), "{trouble}");
    server.start_again().await.unwrap();
    for connection in [&both.producer, &both.worker] {
        until("connected again", SOON, connection, |trouble| trouble.is_none()).await;
        assert!(works(connection).await);
    }
    assert!(shown(1) && readiness.conditions().connection_trouble.is_none());
}

/// NEW-47, T43, F34: a server that stands still is noticed in time, and used again when it goes on.
#[tokio::test]
async fn a_frozen_server() {
    let server = NatsServer::start(users()).await.unwrap();
    let bench = Bench::new(&[&server.url()]);
    let connection = bench.producer().await;
    server.pause().unwrap();
    let frozen = Instant::now();
    until("the silence is noticed", SOON, &connection, |trouble| trouble.is_some()).await;
    assert!(frozen.elapsed() < quick().silence * 3 / 2, "{:?}", frozen.elapsed());
    server.resume();
    until("connected again", SOON, &connection, |trouble| trouble.is_none()).await;
    assert!(works(&connection).await);
}

/// NEW-47: what runs notices a silent server within 10 s.
#[test]
fn silence_is_short() {
    assert!(Times::default().silence <= Duration::from_secs(10));
}

/// NEW-140: a changed password is used for the next connection, without a restart.
#[tokio::test]
async fn a_changed_password() {
    let mut server = NatsServer::start(users()).await.unwrap();
    let bench = Bench::new(&[&server.url()]);
    let connection = bench.producer().await;
    server.kill();
    server.change(NatsSettings::default().with_user("ci-producer", "another-password"));
    server.start_again().await.unwrap();
    until("the old one is refused", SOON, &connection, |t| t.is_some_and(|t| t.contains("authorization violation")))
        .await;
    connection.password().replace("another-password");
    until("the new one is used", SOON, &connection, |trouble| trouble.is_none()).await;
    assert!(works(&connection).await);
}

/// NEW-141, NEW-142, NEW-47: an outage is some lines of the log, however many tries it took, and none has a password.
#[tokio::test]
async fn the_log_of_an_outage() {
    let (lines, log) = (Lines::default(), Log { format: LogFormat::Json, level: LogLevel::Trace });
    let _guard = hear(subscriber(log, lines.clone(), Colours::Off));
    let mut server = NatsServer::start(users()).await.unwrap();
    let bench = Bench::new(&[&server.url()]);
    let connection = bench.producer().await;
    server.kill();
    until("refused", SOON, &connection, |t| t.is_some_and(|t| t.contains("refused"))).await;
    server.change(NatsSettings::default().with_user("ci-producer", "another-password"));
    server.start_again().await.unwrap();
    until("refused", SOON, &connection, |t| t.is_some_and(|t| t.contains("authorization"))).await;
    connection.password().replace("another-password");
    // The line comes after the change that it tells.
    let told = |trouble: Option<&str>| trouble.is_none() && lines.text().contains("connected to NATS again");
    until("connected", SOON, &connection, told).await;
    let text = lines.text();
    let told: Vec<_> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!((&line["component"], &line["connection"]), (&"nats".into(), &"producer".into()), "{line}");
            let cause = line["cause"].as_str().map_or("", |cause| cause.rsplit(": ").next().unwrap());
            format!("{} {} {cause}", line["level"].as_str().unwrap(), line["message"].as_str().unwrap())
        })
        .collect();
    let away = "WARN NATS is away; a connection is tried for ever";
    assert_eq!(told[0], "INFO connected to NATS ", "{text}");
    assert_eq!(told[1], format!("{away} the connection was lost"), "{text}");
    assert_eq!(told[2], format!("{away} Connection refused"), "{text}");
    assert!(told.contains(&format!("{away} authorization violation")), "{text}");
    assert_eq!(told[told.len() - 1], "INFO connected to NATS again ", "{text}");
    // A server that starts may hang up or be silent for a try or two.
    assert!(told.len() <= 8, "{text}");
    for secret in [PRODUCER, "another-password", "password"] {
        assert!(!text.contains(secret), "{text}");
    }
}
