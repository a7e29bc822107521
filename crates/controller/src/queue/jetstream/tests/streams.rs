//! The stream and what it is held against.

use super::*;

/// CFG-12, NEW-40, CON-1, F25, T38: none is there, so it is made, with the settings of the specification.
#[tokio::test]
async fn a_stream_is_made_as_specified() {
    let server = start().await;
    let _queue = open(&server, "new").await;
    let api = operator(&server).await;
    let is = config(&api, "S_new").await;
    let day = 24 * 60 * 60 * 1_000_000_000_i64;
    let wanted = json!({
        "subjects": ["ci.new.>"], "retention": "workqueue", "storage": "file", "discard": "new", "max_age": 7 * day,
        "max_msgs": 100_000, "max_bytes": 1 << 30, "duplicate_window": day, "num_replicas": 1,
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(is[name], *value, "{name}");
    }
    let consumer = consumer(&api, "S_new").await.config;
    let wanted = json!({
        "durable_name": "f66f031b-pod", "filter_subject": "ci.new.f66f031b.pod", "ack_policy": "explicit",
        "ack_wait": 60_000_000_000_i64, "max_deliver": -1, "max_ack_pending": 100_000,
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(consumer[name], *value, "{name}");
    }
}

/// CFG-12, F26, T38: what cannot be repaired is refused with the difference; the stream stays as it is.
#[tokio::test]
async fn an_unfit_stream_is_refused() {
    let server = start().await;
    let api = operator(&server).await;
    for (store, setting, value) in [("limits", "retention", "limits"), ("memory", "storage", "memory")] {
        let mut config = json!({ "name": format!("S_{store}"), "subjects": [format!("ci.{store}.>")],
            "retention": "workqueue", "storage": "file", "max_msgs": 7 });
        config[setting] = value.into();
        api.call::<Value>(&format!("STREAM.CREATE.S_{store}"), &config).await.unwrap();
        let refusal = open_at(&server.url(), store, QUICK).await.err().unwrap();
        let text = refusal.to_string();
        assert!(matches!(refusal, QueueError::Unusable { .. }), "{text}");
        let difference = format!("open assignment stream S_{store}: {setting} is \"{value}\", and must be");
        assert!(text.contains(&difference), "{text}");
        assert_eq!(super::config(&api, &format!("S_{store}")).await["max_msgs"], 7);
    }
}

/// CFG-12, F25, T38: narrow limits and discard old are repaired; what is stored stays, also an operator's own settings.
#[tokio::test]
async fn a_narrow_stream_is_repaired() {
    let server = start().await;
    let api = operator(&server).await;
    publish(&open(&server, "narrow").await, 1..=3).await;
    let narrow = json!({ "max_age": 3_600_000_000_000_i64, "max_msgs": 10, "max_bytes": 1_000_000, "discard": "old",
        "duplicate_window": 120_000_000_000_i64, "description": "the operator's" });
    change(&api, "S_narrow", narrow).await;
    let queue = open(&server, "narrow").await;
    let is = config(&api, "S_narrow").await;
    assert_eq!((&is["max_msgs"], &is["discard"], &is["max_bytes"]), (&json!(100_000), &json!("new"), &json!(1 << 30)));
    assert_eq!((&is["max_age"], &is["description"]), (&json!(604_800_000_000_000_i64), &json!("the operator's")));
    assert_eq!(numbers(&queue).await, [1, 2, 3]);
}

/// CFG-12, NEW-40, F25, T38: a limit for each subject drops the oldest task also with discard new; it is taken away. Where it
/// refuses the newest one, it is taken away with the setting that needs it.
#[tokio::test]
async fn a_limit_for_each_subject_drops_no_task() {
    let server = start().await;
    let api = operator(&server).await;
    for (store, refuses) in [("drops", false), ("refuses", true)] {
        let stream = format!("S_{store}");
        open(&server, store).await;
        change(&api, &stream, json!({ "max_msgs_per_subject": 2, "discard_new_per_subject": refuses })).await;
        let queue = open(&server, store).await;
        publish(&queue, 1..=4).await;
        assert_eq!(numbers(&queue).await, [1, 2, 3, 4], "{store}");
        assert_eq!(config(&api, &stream).await["max_msgs_per_subject"], -1);
    }
}

/// CFG-12, F26, T38: a stream that stores tasks under another subject, where no consumer looks, or says that one is stored
/// before it is, is refused with the setting, the rule and the remedy.
#[tokio::test]
async fn a_stream_that_hides_or_risks_tasks_is_refused() {
    let server = start().await;
    let api = operator(&server).await;
    for (store, setting, value) in [
        ("elsewhere", "subject_transform", json!({ "src": "ci.elsewhere.>", "dest": "away.>" })),
        ("early", "persist_mode", json!("async")),
    ] {
        let mut config = json!({ "name": format!("S_{store}"), "subjects": [format!("ci.{store}.>")],
            "retention": "workqueue", "storage": "file", "num_replicas": 1 });
        config[setting] = value;
        api.call::<Value>(&format!("STREAM.CREATE.S_{store}"), &config).await.unwrap();
        let refusal = open_at(&server.url(), store, QUICK).await.err().unwrap();
        let text = refusal.to_string();
        assert!(matches!(refusal, QueueError::Unusable { .. }), "{text}");
        assert!(text.contains(&format!("{setting} is ")) && text.contains("must be unset"), "{text}");
        assert!(text.contains(&format!("S_{store}")) && text.contains("NATS_STREAM"), "{text}");
    }
}

/// CFG-12, T38: a right that is missing is told as what it kept from happening.
#[tokio::test]
async fn a_missing_right_is_told_with_the_stream() {
    let rights = r#"publish: { deny: "$JS.API.STREAM.CREATE.>" }"#;
    let server = NatsServer::start(NatsSettings::default().with_limited_user("ci", "pw", rights)).await.unwrap();
    let connect = async || {
        let options = async_nats::ConnectOptions::with_user_and_password("ci".to_owned(), "pw".to_owned());
        options.connect(server.url()).await.unwrap()
    };
    let settings = Settings {
        producer: connect().await,
        worker: connect().await,
        stream: "S_rights".to_owned(),
        subject_base: "ci.rights".to_owned(),
        instance: "f66f031b".parse().unwrap(),
        backends: vec![Backend::Pod],
        clock: Clock::start(),
        tenure: None,
    };
    let text = JetStream::open_at(settings, QUICK).await.err().unwrap().to_string();
    assert!(text.contains("open assignment stream S_rights: ") && text.contains("may not publish"), "{text}");
}

/// NEW-1, NEW-39, CON-2, F153, T15: two instances with the same numbers in one stream touch nothing of each other.
#[tokio::test]
async fn two_instances_share_a_stream() {
    let server = start().await;
    let open = async |instance: &str| {
        let settings = Settings { instance: instance.parse().unwrap(), ..settings(&server.url(), "shared").await };
        JetStream::open_at(settings, QUICK).await.unwrap()
    };
    // One name is the end of the other.
    let (one, other) = (open("b").await, open("a-b").await);
    publish(&one, [1, 2]).await;
    publish(&other, [1, 2]).await;
    assert_eq!((pull(&one).await, pull(&other).await), (Some(1), Some(1)));
    one.settle(key(1), Disposition::Ack).await.unwrap();
    one.settle(key(2), Disposition::Reject { reason: domain::reason::Reason::QueueTimeout }).await.unwrap();
    let one = {
        drop(one);
        open("b").await
    };
    assert_eq!(numbers(&one).await, [0; 0]);
    let leased: Vec<bool> = other.list(Backend::Pod).await.unwrap().iter().map(|message| message.leased).collect();
    assert_eq!(leased, [true, false]);
    assert_eq!(pull(&other).await, Some(2));
    for n in [1, 2] {
        other.settle(key(n), Disposition::Ack).await.unwrap();
    }
    assert_eq!(stored(&operator(&server).await, "S_shared").await, 0);
}

/// NEW-37, F15: the server's largest message and the stream's bound what is published; the largest itself fits.
#[tokio::test]
async fn the_limits_of_the_server_bound_a_message() {
    let settings = NatsSettings { max_payload: Some(65_536), ..NatsSettings::default() };
    let server = NatsServer::start(settings).await.unwrap();
    let queue = open(&server, "small").await;
    assert_eq!(queue.largest_message(), 65_536 - HEADERS);
    let sized = |n, size| Message { body: vec![7; size], ..message(n, "a") };
    assert_eq!(queue.publish(sized(1, queue.largest_message())).await, Ok(Published::New));
    change(&operator(&server).await, "S_small", json!({ "max_msg_size": 10_000 })).await;
    let queue = open(&server, "small").await;
    assert_eq!(queue.largest_message(), 10_000 - HEADERS);
    assert_eq!(queue.publish(sized(2, queue.largest_message())).await, Ok(Published::New));
}
