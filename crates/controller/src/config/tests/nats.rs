//! The settings of NATS, from texts to a configuration.

use super::*;
use crate::config::nats::NatsUrl;

/// A configuration with NATS that is complete, with these changes: it, or one text per error.
#[track_caller]
fn with_nats(changes: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!(" {name}-of-the-worker-or-producer\n")).unwrap();
        path.display().to_string()
    };
    let (producer, worker) = (file("first"), file("second"));
    let variables = with(
        complete(dir.path()),
        &[
            ("QUEUE", "jetstream"),
            ("NATS_URL", "tls://nats.example.org"),
            ("NATS_PRODUCER_PASSWORD_FILE", &producer),
            ("NATS_WORKER_PASSWORD_FILE", &worker),
        ],
    );
    let (_, config) = load(&SettingsArgs::default(), with(variables, changes));
    config.map_err(|errors| errors.0.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn refused(changes: &[(&str, &str)], part: &str) {
    let errors = with_nats(changes).err().unwrap_or_default();
    assert!(matches!(&errors[..], [only] if only.contains(part)), "{changes:?}: {errors:#?}");
}

/// CFG-3, CFG-8, CFG-13: two logins, the names of stream and subjects, and their defaults.
#[test]
fn a_complete_configuration() {
    let Ok(Config { queue: Queue::JetStream(nats), .. }) =
        with_nats(&[("NATS_URL", "tls://a:1,nats://127.0.0.1"), ("NATS_SUBJECT_BASE", "my.ci.")])
    else {
        panic!("refused");
    };
    let servers: Vec<_> = nats.servers.iter().map(NatsUrl::as_str).collect();
    assert_eq!(servers, ["tls://a:1", "nats://127.0.0.1:4222"]);
    assert_eq!((nats.stream.as_str(), nats.subject_base.as_str()), ("CI_RUNNER", "my.ci"));
    assert_eq!((nats.producer.user.as_str(), nats.worker.user.as_str()), ("ci-producer", "ci-worker"));
    assert_eq!(nats.producer.password.expose(), "first-of-the-worker-or-producer");
    assert_eq!(nats.worker.password.expose(), "second-of-the-worker-or-producer");
    assert_eq!(nats.ca, None);
}

/// IMG-1, NEW-59: who makes Pods only, with a queue in NATS and a Lease of Kubernetes, needs no place that can be written;
/// a folder that is named, or another election, is kept in files.
#[test]
fn what_is_kept_in_files() {
    let elsewhere = [("STATE_DIR", ""), ("LEADER_ELECTION", "kubernetes")];
    let kept = |further: &[(&str, &str)]| {
        let changes = [&super::pods::PODS[..], &elsewhere, further].concat();
        with_nats(&changes).unwrap_or_else(|errors| panic!("{errors:#?}")).keeps_files
    };
    assert!(!kept(&[]));
    assert!(kept(&[("STATE_DIR", "/var/lib/gdr")]) && kept(&[("LEADER_ELECTION", "nats")]));
}

/// T44, PUB-3, CFG-1, CFG-2, CFG-3, CFG-13: each wrong setting is one error with its name, the rule and what to do.
#[test]
fn wrong_values() {
    refused(&[("NATS_URL", "")], "NATS_URL is required; set it to a comma list of tls://host:port");
    refused(
        &[("NATS_URL", "wss://a")],
        "NATS_URL: \"wss://a\": this build speaks no WebSocket; name the server's tls://",
    );
    refused(&[("NATS_PRODUCER_PASSWORD_FILE", "")], "NATS_PRODUCER_PASSWORD_FILE is required");
    refused(&[("NATS_WORKER_PASSWORD_FILE", "/nowhere")], "read NATS_WORKER_PASSWORD_FILE: /nowhere: no such file");
    refused(
        &[("NATS_WORKER_USER", "ci-producer")],
        "\"ci-producer\" is NATS_PRODUCER_USER as well; give each of the two",
    );
    refused(&[("NATS_WORKER_USER", "a b")], "NATS_WORKER_USER: \"a b\" is not accepted; it must be a user name");
    refused(&[("NATS_STREAM", "a.b")], "NATS_STREAM: \"a.b\" is not accepted; it must be 1 to 255");
    refused(&[("NATS_SUBJECT_BASE", ".")], "NATS_SUBJECT_BASE: \".\" is not accepted");
    refused(&[("NATS_SUBJECT_BASE", "ci.*")], "NATS_SUBJECT_BASE: \"ci.*\" is not accepted; it must be tokens");
    refused(&[("NATS_CA_FILE", "/nowhere/ca")], "read NATS_CA_FILE: /nowhere/ca: no such file");
    let missing = [("NATS_URL", ""), ("NATS_PRODUCER_PASSWORD_FILE", ""), ("NATS_WORKER_PASSWORD_FILE", "")];
    assert_eq!(with_nats(&missing).err().map(|errors| errors.len()), Some(3));
}

/// T44, CFG-13, NEW-48, F36: clear text beyond loopback needs the permit, and the server is named.
#[test]
fn clear_text() {
    let open = ("NATS_URL", "tls://a,nats://10.0.0.1,nats://127.0.0.1");
    refused(
        &[open],
        "NATS_URL: nats://10.0.0.1:4222 would carry passwords and tasks with all their secrets in clear text; use",
    );
    assert!(with_nats(&[open, ("ALLOW_PLAINTEXT", "true")]).is_ok());
    assert!(with_nats(&[("NATS_URL", "nats://localhost:4222")]).is_ok());
}

/// NEW-141: a password in a refused address is not repeated, wherever it stands.
#[test]
fn errors_show_no_password() {
    for url in ["tls://me:hunter2@a", "tls://me:hunter2@a,tls://you:hunter2@b", "me:hunter2@a", "tls://me:x/hunter2@a"]
    {
        let errors = with_nats(&[("NATS_URL", url)]).err().unwrap_or_default().join("\n");
        assert!(errors.contains("it has a user or password in it") && !errors.contains("hunter2"), "{errors}");
        let (raw, _) = load(&SettingsArgs::default(), vec![("NATS_URL".to_owned(), url.to_owned())]);
        let shown = effective::text(&raw) + &effective::json(&raw).to_string();
        assert!(shown.contains("***@") && !shown.contains("hunter2"), "{shown}");
    }
}

/// CFG-6: with the embedded queue nothing of NATS is looked at, and no file of it is opened.
#[test]
fn the_embedded_queue_needs_none_of_it() {
    let wrong = [("NATS_URL", "x"), ("NATS_CA_FILE", "/nowhere"), ("NATS_WORKER_PASSWORD_FILE", "/nowhere")];
    assert!(errors(&wrong).is_empty());
}
