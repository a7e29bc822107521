//! A server that is away, silent or restarted, and a key that others write.

use testkit::real::NatsCluster;

use super::wire::Wire;
use super::*;

/// SCH-11, F49, T16: somebody overwrites the key, or removes it: lost with the next renewal, long before the deadline.
#[tokio::test]
async fn a_stolen_lease_is_lost_at_once() {
    let server = server().await;
    let a = replica(&server.url(), "a", LONG).await;
    let held = leads(&a).await;
    let record = r#"{"holder":"thief","session":"x"}"#;
    bucket(&server.url()).await.put(KEY, record.into()).await.unwrap();
    assert_eq!(lost(&held).await, Lost::Taken { by: "thief".to_owned() });
    // What the thief wrote stays.
    held.release().await;
    assert_eq!(bucket(&server.url()).await.get(KEY).await.unwrap().unwrap(), record);

    bucket(&server.url()).await.put(KEY, r#"{"holder":"thief","session":null}"#.into()).await.unwrap();
    let held = leads(&a).await;
    bucket(&server.url()).await.put(KEY, "something else".into()).await.unwrap();
    assert!(matches!(lost(&held).await, Lost::Taken { by } if by.contains("something else")));

    bucket(&server.url()).await.put(KEY, r#"{"holder":"thief","session":null}"#.into()).await.unwrap();
    let held = leads(&a).await;
    context(&server.url()).await.delete_key_value(BUCKET).await.unwrap();
    assert_eq!(lost(&held).await, Lost::Removed);
}

/// NEW-59, T16: what was removed by hand may be led by its holder for another moment: nobody takes it before a lease is
/// over.
#[tokio::test]
async fn what_is_removed_is_waited_for() {
    let server = server().await;
    leads(&replica(&server.url(), "a", SHORT).await).await.release().await;
    bucket(&server.url()).await.delete(KEY).await.unwrap();
    let began = BootTime::now();
    let held = leads(&replica(&server.url(), "b", SHORT).await).await;
    assert!(BootTime::now().after(began) >= SHORT.lease);

    let c = replica(&server.url(), "c", SHORT).await;
    let next = tokio::spawn(async move { leads(&c).await });
    writes(&server.url(), 5).await;
    let began = BootTime::now();
    context(&server.url()).await.delete_key_value(BUCKET).await.unwrap();
    assert_eq!(lost(&held).await, Lost::Removed);
    next.await.unwrap();
    assert!(BootTime::now().after(began) >= SHORT.lease);
}

/// NEW-47, T43, NEW-59: a server that comes back before the renew deadline is no reason to stop.
#[tokio::test]
async fn a_short_outage_costs_nothing() {
    let mut server = server().await;
    let held = leads(&replica(&server.url(), "a", LONG).await).await;
    let tenure = held.tenure();
    let rested = tokio::spawn(async move {
        while tenure.permits(Act::Decide).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    server.kill();
    server.start_again().await.unwrap();
    writes(&server.url(), 2).await;
    server.pause().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.resume();
    writes(&server.url(), 2).await;
    still_leads(&held.tenure());
    assert!(!rested.is_finished());
    rested.abort();
    held.release().await;
}

/// NEW-47, SCH-10, SCH-11, T43, F34: while the server stays away its holder decides nothing, and speaks for its tasks after a
/// while; nobody else leads. When it is back the holder has its lease again, before one who waits.
#[tokio::test]
async fn a_long_outage_is_a_rest() {
    let mut server = server().await;
    let held = leads(&replica(&server.url(), "a", SHORT).await).await;
    let b = replica(&server.url(), "b", SHORT).await;
    let next = tokio::spawn(async move { leads(&b).await });
    for frozen in [false, true] {
        writes(&server.url(), 2).await;
        if frozen {
            server.pause().unwrap();
        } else {
            server.kill();
        }
        until(&held, Act::Decide, Err(Fenced::InDoubt)).await;
        until(&held, Act::Speak, Ok(())).await;
        tokio::time::sleep(SHORT.lease).await;
        assert_eq!((held.tenure().permits(Act::Speak), next.is_finished()), (Ok(()), false));
        if frozen {
            server.resume();
        } else {
            server.start_again().await.unwrap();
        }
        until(&held, Act::Decide, Ok(())).await;
    }
    assert!(!next.is_finished());
    held.release().await;
    still_leads(&next.await.unwrap().tenure());
}

/// NEW-59, SCH-10, SCH-11, F48, F49, T16: cut off from a server that others reach, a holder decides nothing before another one
/// leads, and has lost when it hears of that one.
#[tokio::test]
async fn who_is_cut_off_is_replaced() {
    let server = server().await;
    let wire = Wire::to(server.port()).await;
    let held = leads(&replica(&wire.url(), "a", SHORT).await).await;
    let b = replica(&server.url(), "b", SHORT).await;
    let next = tokio::spawn(async move { leads(&b).await });
    wire.lose_answers_from(WRITE);
    until(&held, Act::Decide, Err(Fenced::InDoubt)).await;
    assert!(!next.is_finished());
    let next = next.await.unwrap();
    assert_eq!(held.tenure().permits(Act::Decide), Err(Fenced::InDoubt));
    until(&held, Act::Speak, Ok(())).await;
    wire.cut();
    assert_eq!(lost(&held).await, Lost::Taken { by: "b".to_owned() });
    held.release().await;
    writes(&server.url(), 2).await;
    still_leads(&next.tenure());
}

/// A write to the key, as the client says it.
const WRITE: &str = "HPUB $KV.leases.";

/// Long, but a call is given up after 3 s.
const PATIENT: Times = Times { renew_deadline: Duration::from_secs(9), ..LONG };

/// A renewal is stored, and its answer does not arrive. From the first lost answer on nothing more is written, so what was
/// there is read before.
async fn lose_one(server: &NatsServer, wire: &Wire) {
    let before = revision(&server.url()).await;
    wire.lose_answers_from(WRITE);
    written(&server.url(), before + 1).await;
    wire.cut();
}

/// NEW-59, F49: renewals that are stored, but whose answers never arrive, are recognised, and nobody else led meanwhile.
#[tokio::test]
async fn lost_answers_are_resolved() {
    let server = server().await;
    let wire = Wire::to(server.port()).await;
    let held = leads(&replica(&wire.url(), "a", PATIENT).await).await;
    for _ in 0..2 {
        lose_one(&server, &wire).await;
        writes(&server.url(), 2).await;
        still_leads(&held.tenure());
    }
    // The release finds what it must replace.
    lose_one(&server, &wire).await;
    held.release().await;
    leads(&replica(&server.url(), "b", LONG).await).await;
}

/// NEW-59, SCH-10: who wrote itself in and did not hear of it, finds itself there and leads.
#[tokio::test]
async fn a_lost_first_answer_is_resolved() {
    let server = server().await;
    let wire = Wire::to(server.port()).await;
    let held = leads(&replica(&server.url(), "a", LONG).await).await;
    let b = replica(&wire.url(), "b", PATIENT).await;
    let next = tokio::spawn(async move { leads(&b).await });
    wire.lose_answers_from(WRITE);
    held.release().await;
    let written = async {
        let bucket = bucket(&server.url()).await;
        while !String::from_utf8_lossy(&bucket.get(KEY).await.unwrap().unwrap()).contains(r#""holder":"b","session":"#)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, written).await.unwrap();
    assert!(!next.is_finished());
    wire.cut();
    still_leads(&next.await.unwrap().tenure());
}

/// SCH-10, F50: a release whose answer is lost has happened all the same, and is bounded when it has not.
#[tokio::test]
async fn a_release_is_bounded() {
    let mut server = server().await;
    let wire = Wire::to(server.port()).await;
    let held = leads(&replica(&wire.url(), "a", SHORT).await).await;
    wire.lose_answers_from(WRITE);
    timeout(SOON, held.release()).await.unwrap();
    let b = replica(&server.url(), "b", LONG).await;
    let held = leads(&b).await;
    drop(wire);
    drop(held);
    let c = replica(&server.url(), "c", SHORT).await;
    let held = leads(&c).await;
    server.kill();
    timeout(SOON, held.release()).await.unwrap();
}

/// NEW-47, NEW-59, T43: the leader of the stream is killed; the lease stays where it is.
#[tokio::test]
async fn a_cluster_changes_its_leader() {
    let mut cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    let addresses: Vec<async_nats::ServerAddr> = cluster.url().split(',').map(|url| url.parse().unwrap()).collect();
    let connect = async || jetstream::new(hasty().connect(addresses.as_slice()).await.unwrap());
    let instance = "one".parse().unwrap();
    let lease = KeyValueLease::new(connect().await, BUCKET, &instance, "a").with_times(LONG);
    let held = leads(&lease).await;
    let store = connect().await.get_key_value(BUCKET).await.unwrap();
    let leader = store.status().await.unwrap().info.cluster.unwrap().leader.unwrap();
    let index = cluster.index_of(&leader).unwrap();
    let before = store.entry(KEY).await.unwrap().unwrap().revision;
    cluster.server(index).kill();
    // Until the others have chosen another leader, nobody says anything; writes before the kill do not count.
    let revision = async || store.entry(KEY).await.ok().flatten().map_or(0, |entry| entry.revision);
    let renewed = async {
        while revision().await < before + 10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SOON, renewed).await.unwrap();
    still_leads(&held.tenure());
    held.release().await;
}

/// NEW-59, T43: a bucket that was made while too few servers of a cluster were there is stored on three of them when they are.
#[tokio::test]
async fn a_bucket_on_one_server_is_spread() {
    let cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    let addresses: Vec<async_nats::ServerAddr> = cluster.url().split(',').map(|url| url.parse().unwrap()).collect();
    let context = jetstream::new(hasty().connect(addresses.as_slice()).await.unwrap());
    let alone = jetstream::kv::Config { bucket: BUCKET.to_owned(), num_replicas: 1, ..Default::default() };
    context.create_key_value(alone).await.unwrap();
    let lease = KeyValueLease::new(context.clone(), BUCKET, &"one".parse().unwrap(), "a").with_times(LONG);
    let held = leads(&lease).await;
    let store = context.get_key_value(BUCKET).await.unwrap();
    assert_eq!(store.status().await.unwrap().info.config.num_replicas, 3);
    held.release().await;
}
