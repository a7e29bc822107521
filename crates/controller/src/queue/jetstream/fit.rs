//! What our stream and the bucket of records must be, and what to do with one that is not (CFG-12, requirements §1.4).
//!
//! What would lose or hide a task is repaired where the server can do it without loss: a limit that is too narrow, an old
//! message dropped for a new one. Storage and retention cannot be changed, and a transform of subjects or a write that is
//! told before it is on the disk is somebody's intention; then the start is refused with the difference.
//! What is wider than we need is an operator's choice and stays.

use serde_json::{Map, Value, json};

use super::names::Names;

const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// At least so long a message is kept, in nanoseconds: far longer than any wait.
const MAX_AGE: i64 = 7 * DAY;
const MAX_MESSAGES: i64 = 100_000;
const MAX_BYTES: i64 = 1 << 30;
/// How long a message id is remembered by the server, in nanoseconds.
const DUPLICATE_WINDOW: i64 = DAY;
const PER_SUBJECT: &str = "max_msgs_per_subject";
const REFUSED_PER_SUBJECT: &str = "discard_new_per_subject";

/// What the stream needs before it holds our tasks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Fits,
    Repair { config: Map<String, Value>, differences: Vec<String> },
    Refuse { differences: Vec<String> },
}

pub(super) fn wanted(names: &Names) -> Map<String, Value> {
    let wanted = json!({
        "subjects": [names.all_subjects()],
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",
        "max_age": MAX_AGE,
        "max_msgs": MAX_MESSAGES,
        // All tasks of a backend have one subject.
        "max_msgs_per_subject": -1,
        "max_bytes": MAX_BYTES,
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": DUPLICATE_WINDOW,
    });
    match wanted {
        Value::Object(wanted) => wanted,
        _ => Map::new(),
    }
}

pub(super) fn judge(found: &Map<String, Value>, names: &Names) -> Verdict {
    let wanted = wanted(names);
    let refused = unfit(found, &wanted, &["deny_delete", "sealed", "no_ack"], &names.all_subjects());
    if !refused.is_empty() {
        return Verdict::Refuse { differences: refused };
    }
    let narrow = narrow(found, &wanted);
    if narrow.is_empty() {
        return Verdict::Fits;
    }
    let mut config = found.clone();
    for name in &narrow {
        config.insert((*name).to_owned(), wanted.get(*name).cloned().unwrap_or_default());
    }
    if narrow.contains(&PER_SUBJECT) {
        // It is not taken without that limit.
        config.remove(REFUSED_PER_SUBJECT);
    }
    Verdict::Repair { config, differences: narrow.iter().map(|name| differs(found, &wanted, name)).collect() }
}

/// What keeps the bucket of records from being one. It is never repaired: as the program makes it, it fits.
pub(super) fn judge_records(found: &Map<String, Value>, wanted: &Map<String, Value>, subjects: &str) -> Vec<String> {
    // A bucket that is made by hand denies to take out single records unless it is told otherwise.
    let forbidden = ["deny_delete", "deny_purge", "sealed", "no_ack"];
    let mut refused = unfit(found, wanted, &forbidden, subjects);
    // Pins are for good, and what ended is asked for as long as its message may come. A full bucket stops every task.
    for limit in ["max_age", "max_msgs", "max_bytes", "max_msg_size"] {
        if number(found, limit) > 0 {
            refused.push(differs(found, wanted, limit));
        }
    }
    if found.get("discard") != wanted.get("discard") {
        refused.push(differs(found, wanted, "discard"));
    }
    refused
}

/// What cannot be repaired.
fn unfit(
    found: &Map<String, Value>,
    wanted: &Map<String, Value>,
    forbidden: &[&str],
    wanted_subjects: &str,
) -> Vec<String> {
    let mut refused = Vec::new();
    for fixed in ["retention", "storage"] {
        if found.get(fixed) != wanted.get(fixed) {
            refused.push(differs(found, wanted, fixed));
        }
    }
    for forbidden in forbidden {
        if found.get(*forbidden) == Some(&Value::Bool(true)) {
            refused.push(format!("{forbidden} is true, and must not be"));
        }
    }
    let subjects: Vec<&str> =
        found.get("subjects").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if !subjects.iter().any(|subject| covers(subject, wanted_subjects)) {
        refused.push(format!("it takes {}, and must take {wanted_subjects}", subjects.join(", ")));
    }
    // It would lie where nobody looks.
    if let Some(transform) = found.get("subject_transform").filter(|transform| !transform.is_null()) {
        refused.push(format!("subject_transform is {transform}, and must be unset"));
    }
    // Said to be stored before it is: what Gitea was told is kept could be gone with the machine (2.12 and newer).
    if found.get("persist_mode").and_then(Value::as_str) == Some("async") {
        refused.push(r#"persist_mode is "async", and must be unset"#.to_owned());
    }
    refused
}

/// The settings that are narrower than we need.
fn narrow(found: &Map<String, Value>, wanted: &Map<String, Value>) -> Vec<&'static str> {
    let mut narrow = Vec::new();
    if found.get("discard") != wanted.get("discard") {
        narrow.push("discard");
    }
    for limit in ["max_age", "max_msgs", "max_bytes"] {
        let has = number(found, limit);
        // None, or below nothing: no limit.
        if has > 0 && has < number(wanted, limit) {
            narrow.push(limit);
        }
    }
    // Also with `discard: new` the oldest one of the subject is dropped, unless that is refused by a setting of its own.
    let refuses = found.get(REFUSED_PER_SUBJECT) == Some(&Value::Bool(true));
    let has = number(found, PER_SUBJECT);
    if has > 0 && !(refuses && has >= MAX_MESSAGES) {
        narrow.push(PER_SUBJECT);
    }
    if number(found, "duplicate_window") < DUPLICATE_WINDOW {
        narrow.push("duplicate_window");
    }
    narrow
}

fn number(of: &Map<String, Value>, name: &str) -> i64 {
    of.get(name).and_then(Value::as_i64).unwrap_or(0)
}

fn differs(found: &Map<String, Value>, wanted: &Map<String, Value>, name: &str) -> String {
    let show = |of: &Map<String, Value>| of.get(name).map_or_else(|| "unset".to_owned(), ToString::to_string);
    format!("{name} is {}, and must be {}", show(found), show(wanted))
}

/// Whether a subject with wildcards takes everything of another one.
fn covers(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn names() -> Names {
        Names::new("CI_RUNNER", "ci.runner", "f66f031b".parse().unwrap())
    }

    fn with(changes: &Value) -> Map<String, Value> {
        let mut config = wanted(&names());
        config.extend(changes.as_object().unwrap().clone());
        config
    }

    /// CFG-12, F25, F26: what loses tasks is refused with the difference or repaired; what is wider stays.
    #[test]
    fn a_stream_is_held_against_what_we_need() {
        let refusals = [
            (json!({ "retention": "limits" }), r#"retention is "limits", and must be "workqueue""#),
            (json!({ "storage": "memory" }), r#"storage is "memory", and must be "file""#),
            (json!({ "subjects": ["ci.other.>"] }), "it takes ci.other.>, and must take ci.runner.>"),
            (json!({ "deny_delete": true }), "deny_delete is true, and must not be"),
            (
                json!({ "subject_transform": { "src": "ci.>", "dest": "x.>" } }),
                r#"subject_transform is {"dest":"x.>","src":"ci.>"}, and must be unset"#,
            ),
            (json!({ "persist_mode": "async" }), r#"persist_mode is "async", and must be unset"#),
        ];
        for (change, difference) in refusals {
            assert_eq!(judge(&with(&change), &names()), Verdict::Refuse { differences: vec![difference.to_owned()] });
        }
        for (change, name) in [
            (json!({ "discard": "old" }), "discard"),
            (json!({ "max_age": DAY }), "max_age"),
            (json!({ "max_msgs": 10_000 }), "max_msgs"),
            (json!({ "max_bytes": 1024 }), "max_bytes"),
            (json!({ "max_msgs_per_subject": 1_000_000 }), "max_msgs_per_subject"),
            (json!({ "max_msgs_per_subject": 99_999, "discard_new_per_subject": true }), "max_msgs_per_subject"),
            (json!({ "duplicate_window": 120 }), "duplicate_window"),
        ] {
            let Verdict::Repair { config, differences } = judge(&with(&change), &names()) else { panic!("{change}") };
            assert_eq!((&config, differences.len()), (&wanted(&names()), 1));
            assert!(differences[0].starts_with(name), "{differences:?}");
        }
        let wider = json!({ "max_age": 0, "max_msgs": -1, "max_bytes": -1, "subjects": ["a", ">"], "num_replicas": 5,
            "persist_mode": "default", "subject_transform": null });
        let refuses = json!({ "max_msgs_per_subject": 100_000, "discard_new_per_subject": true });
        for fits in [json!({}), wider, refuses] {
            assert_eq!(judge(&with(&fits), &names()), Verdict::Fits, "{fits}");
        }
    }

    /// CFG-12: an operator's own settings survive a repair, those of newer servers too.
    #[test]
    fn a_repair_keeps_what_it_does_not_know() {
        let found = with(&json!({ "max_age": DAY, "allow_msg_ttl": true, "placement": { "cluster": "east" } }));
        let Verdict::Repair { config, .. } = judge(&found, &names()) else { panic!("it is not repaired") };
        assert_eq!((&config["allow_msg_ttl"], &config["placement"]["cluster"]), (&json!(true), &json!("east")));
    }

    #[test]
    fn wildcards() {
        for (filter, subject, covered) in [
            ("ci.runner.>", "ci.runner.>", true),
            (">", "ci.runner.>", true),
            ("ci.>", "ci.runner.>", true),
            ("ci.*", "ci.runner.>", false),
            ("ci.*.>", "ci.runner.>", true),
            ("ci.runner.*", "ci.runner.>", false),
            ("ci.runner", "ci.runner.>", false),
            ("ci.runner.>.x", "ci.runner.y", true),
        ] {
            assert_eq!(covers(filter, subject), covered, "{filter} {subject}");
        }
    }
}
