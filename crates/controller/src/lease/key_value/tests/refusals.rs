//! What a standby is told that cannot ever lead.

use async_nats::jetstream::kv::Config;
use async_nats::jetstream::stream::StorageType;

use super::*;

const QUICK: Times = times(900, 600, 50);

async fn refusal(context: Context, bucket: &str) -> String {
    let instance = "one".parse().unwrap();
    let lease = KeyValueLease::new(context, bucket, &instance, "a").with_times(QUICK);
    timeout(SOON, lease.acquire()).await.unwrap().err().unwrap().to_string()
}

/// NEW-59: a right that the user does not have is named, with what to do.
#[tokio::test]
async fn missing_rights_are_named() {
    let deny = |subject: &str| format!("publish: {{ deny: {subject:?} }}");
    let settings = NatsSettings::default()
        .with_user("all", "secret")
        .with_limited_user("opens-not", "secret", &deny("$JS.API.STREAM.INFO.>"))
        .with_limited_user("makes-not", "secret", &deny("$JS.API.STREAM.CREATE.>"))
        .with_limited_user("reads-not", "secret", &deny("$JS.API.STREAM.MSG.GET.>"))
        .with_limited_user("writes-not", "secret", &deny("$KV.leases.>"));
    let server = NatsServer::start(settings).await.unwrap();
    let context = async |user: &str| {
        let options = hasty().user_and_password(user.to_owned(), "secret".to_owned());
        jetstream::new(options.connect(server.url()).await.unwrap())
    };
    for (user, subject) in [
        ("opens-not", "$JS.API.STREAM.INFO.KV_leases"),
        ("makes-not", "$JS.API.STREAM.CREATE.KV_leases"),
        ("reads-not", "$JS.API.STREAM.MSG.GET.KV_leases"),
        ("writes-not", "$KV.leases.dynamic-runner-scheduler-one"),
    ] {
        let refusal = refusal(context(user).await, BUCKET).await;
        assert!(refusal.contains(subject) && refusal.contains("right to publish"), "{user}: {refusal}");
        assert!(refusal.contains("bucket leases") && refusal.contains("0.9 s"), "{user}: {refusal}");
    }
    let instance = "one".parse().unwrap();
    let allowed = KeyValueLease::new(context("all").await, BUCKET, &instance, "a").with_times(LONG);
    leads(&allowed).await;
}

/// NEW-59: a bucket that would lose a lease is refused, and so is what JetStream will never grant.
#[tokio::test]
async fn a_bucket_that_cannot_hold_a_lease_is_refused() {
    let server = server().await;
    let context = context(&server.url()).await;
    let config = |bucket: &str| Config { bucket: bucket.to_owned(), history: 1, ..Config::default() };
    let forgetful = Config { storage: StorageType::Memory, ..config("memory") };
    context.create_key_value(forgetful).await.unwrap();
    context.create_key_value(Config { max_age: Duration::from_secs(5), ..config("aged") }).await.unwrap();
    for (bucket, cause) in
        [("memory", "kept in memory"), ("aged", "dropped after 5 s"), ("no.name", "no name of a bucket")]
    {
        let refusal = refusal(context.clone(), bucket).await;
        assert!(refusal.contains(cause) && refusal.contains("delete the bucket and have it made anew"), "{refusal}");
    }
}

/// NEW-59: without JetStream nothing will ever do, and it is said.
#[tokio::test]
async fn an_account_without_jetstream_is_told() {
    let further = r#"accounts { PLAIN: { users: [{ user: "plain", password: "secret" }] } }"#.to_owned();
    let server = NatsServer::start(NatsSettings { further, ..NatsSettings::default() }).await.unwrap();
    let options = hasty().user_and_password("plain".to_owned(), "secret".to_owned());
    let context = jetstream::new(options.connect(server.url()).await.unwrap());
    let refusal = refusal(context, BUCKET).await;
    assert!(refusal.contains("needs JetStream") && refusal.contains("not enabled for account"), "{refusal}");
}

/// NEW-47, NEW-59, T43: a server that is away is no reason to give up.
#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let mut server = server().await;
    let a = replica(&server.url(), "a", QUICK).await;
    server.kill();
    let waiting = tokio::spawn(async move { a.acquire().await.map(|_| ()).map_err(|error| error.to_string()) });
    tokio::time::sleep(QUICK.lease * 2).await;
    assert!(!waiting.is_finished());
    server.start_again().await.unwrap();
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
}
