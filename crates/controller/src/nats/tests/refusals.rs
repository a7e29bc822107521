//! First connections that are not made.

use testkit::real::NatsTls;

use super::*;

/// A certificate authority and a certificate of a server at 127.0.0.1, as PEM files in `dir`.
fn certificates(dir: &Path) -> (PathBuf, NatsTls) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let file = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let tls = NatsTls {
        certificate: file("server.pem", leaf.pem()),
        key: file("server.key", key.serialize_pem()),
        client_authority: None,
    };
    (file("authority.pem", authority.pem()), tls)
}

/// CFG-13: a wrong password and a wrong user end the start at once, with server, user, cause and remedy, without the
/// password.
#[tokio::test]
async fn another_login() {
    let server = NatsServer::start(users()).await.unwrap();
    let mut bench = Bench::new(&[&server.url()]);
    bench.nats.producer.user = "somebody".to_owned();
    assert_eq!(
        bench.refused().await.to_string(),
        format!(
            "NATS, producer connection to {} as user \"somebody\": authorization violation; set NATS_PRODUCER_USER and \
             NATS_PRODUCER_PASSWORD_FILE to what the server knows",
            server.url()
        )
    );
    let mut bench = Bench::new(&[&server.url()]);
    std::fs::write(bench.file("ci-producer"), "not-the-password").unwrap();
    bench.nats.producer.password = bench.nats.producer.password.reread().unwrap().ok().unwrap();
    let begun = std::time::Instant::now();
    let error = bench.refused().await;
    assert!(begun.elapsed() < SOON, "tried again");
    assert_eq!(error.cause, Cause::Unauthorized);
    assert!(!error.to_string().contains("not-the-password"), "{error}");
}

/// CFG-13: a server's certificate counts by the private authority of the setting, and by no other.
#[tokio::test]
async fn private_authorities() {
    let (mine, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((authority, tls), (stranger, _)) = (certificates(mine.path()), certificates(theirs.path()));
    let server = NatsServer::start(NatsSettings { tls: Some(tls), ..users() }).await.unwrap();
    let mut bench = Bench::new(&[&server.url()]);
    bench.nats.ca = Some(stranger);
    let error = bench.refused().await;
    assert!(matches!(&error.cause, Cause::Tls(why) if why.contains("certificate")), "{error}");
    assert!(error.to_string().contains("give NATS_CA_FILE the authority"), "{error}");
    bench.nats.ca = Some(authority);
    assert!(works(&bench.producer().await).await);
}

/// CFG-13, F36: a server that has no TLS is not spoken to in clear where TLS was asked for.
#[tokio::test]
async fn no_tls_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(users()).await.unwrap();
    let mut bench = Bench::new(&[&server.url().replace("nats://", "tls://")]);
    bench.nats.ca = Some(certificates(folder.path()).0);
    let error = bench.refused().await;
    assert!(matches!(error.cause, Cause::Tls(_)), "{error}");
    assert!(!server.log().contains("ci-producer"), "{}", server.log());
}

/// F34, CFG-2: where nothing listens is tried until the limit, and told with the server.
#[tokio::test]
async fn nobody_is_there() {
    let mut server = NatsServer::start(users()).await.unwrap();
    server.kill();
    let bench = Bench::new(&[&server.url()]);
    let begun = std::time::Instant::now();
    let error = bench.refused_within(Times { first: Duration::from_secs(2), ..quick() }).await;
    assert_eq!(error.cause, Cause::Refused);
    assert!(error.to_string().contains(&server.url()) && error.to_string().contains("or correct NATS_URL"), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(2) && begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// F34: a server that comes late is waited for.
#[tokio::test]
async fn a_server_that_comes_late() {
    let mut server = NatsServer::start(users()).await.unwrap();
    server.kill();
    let bench = Bench::new(&[&server.url()]);
    let opening = tokio::spawn(async move { bench.producer().await });
    server.start_again().await.unwrap();
    assert!(works(&opening.await.unwrap()).await);
}

/// CFG-12: without JetStream in the account, or without the right to ask, the start ends at once and says which.
#[tokio::test]
async fn no_jetstream() {
    let accounts = format!("accounts {{ bare: {{ users: [{{ user: ci-producer, password: \"{PRODUCER}\" }}] }} }}");
    let server = NatsServer::start(NatsSettings { further: accounts, ..Default::default() }).await.unwrap();
    let error = Bench::new(&[&server.url()]).refused().await;
    assert!(matches!(error.cause, Cause::NoJetStream(_)), "{error}");
    assert!(error.to_string().contains("enable JetStream"), "{error}");

    let narrow = NatsSettings::default().with_limited_user("ci-producer", PRODUCER, "publish: \"ci.runner.>\"");
    let server = NatsServer::start(narrow).await.unwrap();
    let error = Bench::new(&[&server.url()]).refused().await.to_string();
    assert!(error.contains("Permissions Violation for Publish to \"$JS.API.INFO\""), "{error}");
    assert!(error.contains("to subscribe to _INBOX.gitea-dynamic-runner-producer.>"), "{error}");
}

/// CFG-3: the rights that the module names are enough to open each connection.
#[tokio::test]
async fn the_least_rights() {
    let rights = |role: Role| format!("publish: \"$JS.API.INFO\", subscribe: \"{}.>\"", role.inbox_prefix());
    let settings = NatsSettings::default()
        .with_limited_user("ci-producer", PRODUCER, &rights(Role::Producer))
        .with_limited_user("ci-worker", WORKER, &rights(Role::Worker));
    let server = NatsServer::start(settings).await.unwrap();
    let both = Connections::open(&Bench::new(&[&server.url()]).nats).await.unwrap();
    assert!(works(&both.producer).await && works(&both.worker).await);
}
