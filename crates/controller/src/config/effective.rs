//! The printed views of the settings: what is in effect and from where (CFG-8, NEW-139), the reference, the schema.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::raw::Raw;
use super::setting::{Need, Row, Shown, When};
use super::table::ROWS;
use super::value::without_password;

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
        Shown::SecretFile => format!("{text} (content not shown)"),
    }
}

/// The reference as a Markdown table.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from("| setting | needed | default | rule | meaning |\n|---|---|---|---|---|\n");
    for row in ROWS {
        let need = match (row.need, row.when) {
            (Need::Optional, When::Always) => "no".to_owned(),
            (Need::Required, When::Always) => "yes".to_owned(),
            (need, when) => format!("{}{}", if need == Need::Required { "" } else { "no; only " }, condition(when)),
        };
        let default = row.default.map_or_else(|| "–".to_owned(), |d| format!("`{d}`"));
        let _ = writeln!(out, "| `{}` | {need} | {default} | {} | {} |", row.name, row.rule, row.doc);
    }
    out
}

fn condition(when: When) -> String {
    match when {
        When::Always => "always".to_owned(),
        When::With(component) => format!("with {component}"),
        When::JetStream => "with QUEUE=jetstream".to_owned(),
        When::WorkloadApi => "with IDENTITY_ISSUER=workload-api".to_owned(),
    }
}

/// JSON schema of the settings file: closed, so that an editor sees an unknown key as the program does.
#[must_use]
pub fn schema() -> Value {
    let properties: Map<_, _> = ROWS
        .iter()
        .map(|row| {
            let mut property = json!({
                "description": format!("{} It is {}.", row.doc, row.rule),
                "type": ["string", "integer", "boolean", "array"],
                "items": { "type": "string" },
            });
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
