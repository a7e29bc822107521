//! Entries of a SPIRE server.

use serde_json::Value;

/// What an entry is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntrySpec {
    /// Who the workload becomes.
    pub id: String,
    /// Whose workload it is.
    pub parent: String,
    /// `type:value`, all of which must fit.
    pub selectors: Vec<String>,
    /// Seconds; 0 is the server's default.
    pub ttl: u64,
    /// A hint for the workload; empty for none.
    pub hint: String,
}

impl EntrySpec {
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec!["-spiffeID".to_owned(), self.id.clone(), "-parentID".to_owned(), self.parent.clone()];
        for selector in &self.selectors {
            words.extend(["-selector".to_owned(), selector.clone()]);
        }
        if self.ttl > 0 {
            words.extend(["-x509SVIDTTL".to_owned(), self.ttl.to_string()]);
        }
        if !self.hint.is_empty() {
            words.extend(["-hint".to_owned(), self.hint.clone()]);
        }
        words
    }
}

/// An entry as the server shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpireEntry {
    /// Its own id.
    pub entry: String,
    /// What it says; selectors in order of the alphabet.
    pub spec: EntrySpec,
}

impl SpireEntry {
    pub(super) fn read(entry: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = |value: &Value| format!("spiffe://{}{}", text(&value["trust_domain"]), text(&value["path"]));
        let selector = |value: &Value| format!("{}:{}", text(&value["type"]), text(&value["value"]));
        let mut selectors: Vec<_> = entry["selectors"].as_array().into_iter().flatten().map(selector).collect();
        selectors.sort();
        let ttl = &entry["x509_svid_ttl"];
        let ttl = ttl.as_u64().or_else(|| ttl.as_str()?.parse().ok()).unwrap_or_default();
        let spec = EntrySpec {
            id: id(&entry["spiffe_id"]),
            parent: id(&entry["parent_id"]),
            selectors,
            ttl,
            hint: text(&entry["hint"]),
        };
        Self { entry: text(&entry["id"]), spec }
    }

    /// An alias of nodes, which the server or an operator made: not a workload's.
    pub(crate) fn is_node_alias(&self) -> bool {
        self.spec.selectors.iter().any(|selector| selector.starts_with("spiffe_id:"))
    }
}
