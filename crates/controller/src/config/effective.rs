//! The printed views of the settings: what is in effect and from where (CFG-8, NEW-139), the reference, the schema.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::address::{without_password, without_users};
use super::raw::Raw;
use super::setting::{Kind, Need, Row, Shown, When};
use super::table::ROWS;

/// One line per setting: name, value, source. The content of a secret file is never read for it.
#[must_use]
pub fn text(raw: &Raw) -> String {
    let lines: Vec<_> = ROWS.iter().map(|row| line(raw, row)).collect();
    let width = |pick: fn(&(String, String, String)) -> &String| lines.iter().map(|l| pick(l).len()).max().unwrap_or(0);
    let (name, value) = (width(|l| &l.0), width(|l| &l.1).min(60));
    let mut out = String::new();
    for (n, v, source) in &lines {
        let _ = writeln!(out, "{n:name$}  {v:value$}  {source}");
    }
    out
}

/// The same as JSON: `{"schema":1,"settings":[{"name","value","source"}]}`; a value that nobody gave is null.
#[must_use]
pub fn json(raw: &Raw) -> Value {
    let settings: Vec<_> = ROWS
        .iter()
        .map(|row| {
            let given = raw.get(row.name);
            json!({
                "name": row.name,
                "value": given.map(|(text, _)| shown(row, text)),
                "source": given.map_or_else(|| "unset".to_owned(), |(_, source)| source.to_string()),
            })
        })
        .collect();
    json!({ "schema": 1, "settings": settings })
}

fn line(raw: &Raw, row: &Row) -> (String, String, String) {
    match raw.get(row.name) {
        Some((text, source)) => (row.name.to_owned(), shown(row, text), source.to_string()),
        None => (row.name.to_owned(), "-".to_owned(), "unset".to_owned()),
    }
}

fn shown(row: &Row, text: &str) -> String {
    match row.shown {
        Shown::Plain => without_password(text),
        Shown::Servers => without_users(text),
        Shown::SecretFile => format!("{text} (content not shown)"),
    }
}

/// The reference as a Markdown table.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from("| setting | type | needed | default | rule | meaning |\n|---|---|---|---|---|---|\n");
    for row in ROWS {
        let need = needed(row);
        let default = row.default.map_or_else(|| "–".to_owned(), |d| format!("`{d}`"));
        let _ = writeln!(
            out,
            "| `{}` | {} | {need} | {default} | {} | {} |",
            row.name,
            row.kind().as_str(),
            row.rule,
            row.doc
        );
    }
    out
}

fn needed(row: &Row) -> String {
    match (row.need, row.when) {
        (Need::Optional, When::Always) => "no".to_owned(),
        (Need::Required, When::Always) => "yes".to_owned(),
        (need, when) => format!("{}{}", if need == Need::Required { "" } else { "no; only " }, condition(when)),
    }
}

/// When a setting counts.
pub(super) fn condition(when: When) -> String {
    match when {
        When::Always => "always".to_owned(),
        When::With(component) => format!("with {component}"),
        When::JetStream => "with QUEUE=jetstream".to_owned(),
        When::WorkloadApi => "with IDENTITY_ISSUER=workload-api".to_owned(),
    }
}

/// What the file may write for a kind. A text is always right: it is what the environment says.
fn types(kind: Kind) -> Value {
    match kind {
        Kind::Integer => json!(["integer", "string"]),
        Kind::Flag => json!(["boolean", "string"]),
        Kind::List => json!(["array", "string"]),
        Kind::Duration | Kind::Path | Kind::SecretFile | Kind::Address | Kind::Text => json!("string"),
    }
}

/// JSON schema of the settings file: closed, so that an editor sees an unknown key as the program does.
#[must_use]
pub fn schema() -> Value {
    let properties: Map<_, _> = ROWS
        .iter()
        .map(|row| {
            let mut property = json!({
                "description": format!("{} It is {}. Needed: {}.", row.doc, row.rule, needed(row)),
                "type": types(row.kind()),
            });
            if row.kind() == Kind::List {
                property["items"] = json!({ "type": "string" });
            }
            if let Some(default) = row.default {
                property["default"] = json!(default);
            }
            (row.name.to_ascii_lowercase(), property)
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of gitea-dynamic-runner",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-139: the schema knows every setting by its key in the file, with a type that the file's reader takes.
    #[test]
    fn the_schema_is_closed_and_typed() {
        let schema = schema();
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"].as_object().map(Map::len), Some(ROWS.len()));
        for (name, types) in [
            ("local_capacity", json!(["integer", "string"])),
            ("look_ahead", json!(["integer", "string"])),
            ("allow_plaintext", json!(["boolean", "string"])),
            ("extra_labels", json!(["array", "string"])),
            ("components", json!(["array", "string"])),
            ("claim_limit", json!("string")),
            ("envelope_key_file", json!("string")),
        ] {
            assert_eq!(schema["properties"][name]["type"], types, "{name}");
        }
        let capacity = schema["properties"]["local_capacity"]["description"].as_str();
        let expect = "Slots of local-worker. It is an integer from 1 to 1024. Needed: no; only with local-worker.";
        assert_eq!(capacity, Some(expect));
    }

    /// NEW-139: one row per setting: name, type, need, default, rule, meaning.
    #[test]
    fn the_reference_is_a_table() {
        let reference = reference();
        assert_eq!(reference.lines().count(), ROWS.len() + 2);
        let row = "| `CLAIM_LIMIT` | duration | no | `2m` | a duration with unit, 1s to 1d | Longest time between a running \
                   executor and its claim. |";
        assert!(reference.lines().any(|line| line == row), "{reference}");
    }
}
