//! spire-controller-manager, as far as its ClusterStaticEntry objects show it: good entries of its class become
//! `rendered` and `set`, and `masked` instead where an older object says the same; bad ones never get a status.

use serde_json::{Value, json};

use crate::kubernetes::meta::{self, text};
use crate::kubernetes::resource::Resource;
use crate::kubernetes::store::Store;

/// Which entries it takes.
pub(crate) struct EntryManager {
    /// Entries of this class; `None` while it is away.
    pub(crate) class: Option<String>,
}

impl Default for EntryManager {
    fn default() -> Self {
        Self { class: Some("spire-mgmt-spire".to_owned()) }
    }
}

/// Writes what the manager says of an entry, and of the younger ones that it stood in the way of.
pub(super) fn judge(store: &mut Store, manager: &EntryManager, name: &str) {
    let Some(class) = &manager.class else { return };
    let ours = |entry: &&std::sync::Arc<Value>| text(entry, "/spec/className") == class && parses(entry);
    let mut entries: Vec<_> = store.all(Resource::ClusterStaticEntries, "").filter(ours).cloned().collect();
    entries.sort_by_key(|entry| store.birth(meta::uid(entry)));
    for (at, entry) in entries.iter().enumerate() {
        let same = |other: &std::sync::Arc<Value>| {
            ["spiffeID", "parentID", "selectors"].into_iter().all(|key| other["spec"][key] == entry["spec"][key])
        };
        let masked = entries[..at].iter().any(same);
        let set = !masked && is_taken_by_server(entry);
        let named = meta::name(entry) == name;
        // `set` is cleared by later passes: only the entry that this pass is about carries it.
        let had = entry.pointer("/status/rendered").is_some();
        if named || (had && entry["status"]["masked"] != Value::Bool(masked)) {
            let key = (Resource::ClusterStaticEntries, String::new(), meta::name(entry).to_owned());
            let status = json!({"rendered": true, "masked": masked, "set": set});
            // Its own write comes back as a change; the same status is no write, and that ends it.
            store.edit(&key, |entry| entry["status"] = status);
        }
    }
}

/// What its parser wants: IDs with a lower-case trust domain, selectors with a colon.
fn parses(entry: &Value) -> bool {
    let id = |id: &str| {
        let domain = id.strip_prefix("spiffe://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        !domain.is_empty() && !domain.contains(|each: char| each.is_ascii_uppercase())
    };
    let selectors = entry["spec"]["selectors"].as_array().map_or(&[][..], Vec::as_slice);
    let selector = |selector: &Value| selector.as_str().is_some_and(|text| text.contains(':'));
    id(text(entry, "/spec/spiffeID")) && id(text(entry, "/spec/parentID")) && selectors.iter().all(selector)
}

/// What SPIRE's server refuses without anybody being told.
fn is_taken_by_server(entry: &Value) -> bool {
    let path = text(entry, "/spec/spiffeID").strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'));
    let reserved = path.is_none_or(|(_, path)| path.is_empty() || path == "spire" || path.starts_with("spire/"));
    let selectors = entry["spec"]["selectors"].as_array().is_some_and(|list| !list.is_empty());
    !reserved && selectors && !text(entry, "/spec/x509SVIDTTL").starts_with('-')
}
