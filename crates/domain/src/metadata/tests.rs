#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn record() -> ExecutorRecord {
    ExecutorRecord {
        id: "gitea-task-42".parse().unwrap(),
        instance: "f66f031b".parse().unwrap(),
        backend: Backend::Pod,
        epoch: Epoch::FIRST,
        digest: "7a5a21d9db2e6fa5".to_owned().try_into().unwrap(),
        repository: "Owner/repo".parse().unwrap(),
        job_key: "publish".parse().unwrap(),
        spiffe_id: "spiffe://example.org/ci/owner/repo/publish".parse().unwrap(),
        fetched_at: "2026-11-29T12:00:00Z".parse().unwrap(),
        deadline: "2026-11-29T14:55:00Z".parse().unwrap(),
        claim: None,
        interrupted_at: None,
        steps: None,
        terminal: false,
    }
}

fn marks() -> [Mark; 4] {
    let at = "2026-11-29T12:01:00Z".parse().unwrap();
    [Mark::Claimed(Claim { at, log_shift: 3 }), Mark::Interrupted(at), Mark::Steps("1s".to_owned()), Mark::Terminal]
}

fn marked() -> ExecutorRecord {
    let mut record = record();
    marks().iter().for_each(|mark| record.apply(mark));
    record
}

fn keys(map: &Map) -> Vec<&str> {
    map.keys().map(|key| key.strip_prefix("ci.ddupan.top/").unwrap()).collect()
}

/// §1.2, NEW-1, NEW-3, NEW-4: the names of the keys, at create and later.
#[test]
fn keys_are_those_of_the_specification() {
    let at_create = ["assignment-id", "backend", "epoch", "instance", "payload-digest", "runner", "task-id"];
    assert_eq!(keys(&record().labels()), at_create);
    assert_eq!(keys(&record().annotations()), ["deadline", "fetched-at", "job-key", "repository", "spiffe-id"]);
    let [claimed, interrupted, steps, terminal] = marks();
    assert_eq!(
        (keys(&claimed.labels()), keys(&claimed.annotations())),
        (vec!["claimed"], vec!["claimed-at", "log-shift"])
    );
    assert_eq!((keys(&interrupted.labels()), keys(&interrupted.annotations())), (vec![], vec!["interrupted-at"]));
    assert_eq!((keys(&steps.labels()), keys(&steps.annotations())), (vec![], vec!["steps"]));
    assert_eq!((keys(&terminal.labels()), keys(&terminal.annotations())), (vec!["terminal"], vec![]));
}

/// ENV-8: what was written is read again, however many marks came.
#[test]
fn an_object_is_read_as_it_was_written() {
    let mut record = record();
    let (mut labels, mut annotations) = (record.labels(), record.annotations());
    assert_eq!(ExecutorRecord::parse(&labels, &annotations), Ok(record.clone()));
    for mark in marks() {
        record.apply(&mark);
        labels.extend(mark.labels());
        annotations.extend(mark.annotations());
        assert_eq!(ExecutorRecord::parse(&labels, &annotations), Ok(record.clone()), "{mark:?}");
        assert_eq!((record.labels(), record.annotations()), (labels.clone(), annotations.clone()));
    }
}

/// Keys of others beside ours do not disturb.
#[test]
fn foreign_keys_are_left_alone() {
    let mut labels = record().labels();
    labels.insert("app.kubernetes.io/name".to_owned(), "gitea-dynamic-runner".to_owned());
    labels.insert("ci.ddupan.top/of-a-later-version".to_owned(), "x".to_owned());
    assert_eq!(ExecutorRecord::parse(&labels, &record().annotations()), Ok(record()));
}

/// ENV-8, F45, F75: each key in turn, missing or wrong, makes the object unreadable and is named.
#[test]
fn each_damaged_key_is_noticed() {
    let good = marked();
    let wrong = |key: &str| match key {
        "steps" => None,
        "task-id" => Some("43"),
        "assignment-id" => Some("gitea-task-43"),
        "backend" => Some("docker"),
        "epoch" => Some("0"),
        "job-key" => Some("other"),
        "repository" => Some("owner/other"),
        "spiffe-id" => Some("spiffe://example.org/ci/owner/other/publish"),
        _ => Some("?"),
    };
    let optional = ["steps", "interrupted-at", "terminal"];
    for annotation in [false, true] {
        let maps = [good.labels(), good.annotations()];
        for key in maps[usize::from(annotation)].keys() {
            let read = |change: &dyn Fn(&mut Map)| {
                let mut maps = maps.clone();
                change(&mut maps[usize::from(annotation)]);
                ExecutorRecord::parse(&maps[0], &maps[1])
            };
            let name = key.strip_prefix("ci.ddupan.top/").unwrap();
            if !optional.contains(&name) {
                assert!(read(&|map| drop(map.remove(key))).is_err(), "without {name}");
            }
            if let Some(value) = wrong(name) {
                assert!(read(&|map| drop(map.insert(key.clone(), value.to_owned()))).is_err(), "{name} = {value}");
            }
        }
    }
}

/// NEW-53, ENV-8: a claim must not be lost with its label: the executor has the task.
#[test]
fn half_a_claim_is_damage() {
    let mut labels = marked().labels();
    labels.remove("ci.ddupan.top/claimed");
    let unreadable = ExecutorRecord::parse(&labels, &marked().annotations()).unwrap_err();
    assert_eq!(unreadable.key, "ci.ddupan.top/claimed-at");
}

/// ENV-9: trust domain, prefix and case may be those of an earlier configuration, repository and job key may not.
#[test]
fn the_identity_is_that_of_the_job() {
    let read = |spiffe_id: &str| {
        let record = ExecutorRecord { spiffe_id: spiffe_id.parse().unwrap(), ..record() };
        ExecutorRecord::parse(&record.labels(), &record.annotations()).is_ok()
    };
    assert!(read("spiffe://earlier.example/blue/ci/Owner/repo/publish"));
    assert!(read("spiffe://example.org/ci-untrusted/owner/repo/publish"));
    assert!(!read("spiffe://example.org/ci/owner/repo/deploy"));
    assert!(!read("spiffe://example.org/owner/repo/publish"));
}

/// Only what says that it is an executor is one.
#[test]
fn an_executor_says_so() {
    assert!(ExecutorRecord::is_executor(&record().labels()));
    assert!(!ExecutorRecord::is_executor(&Map::new()));
    let mut labels = record().labels();
    labels.insert("ci.ddupan.top/runner".to_owned(), "false".to_owned());
    assert!(!ExecutorRecord::is_executor(&labels));
}
