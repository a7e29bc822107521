//! Plays spire-controller-manager, which is no package to be had: ClusterStaticEntry and ClusterSPIFFEID objects become
//! entries of a SPIRE server, as that program was seen to do it. Entries that no object declares are deleted; one
//! duration that cannot be read stops everything; the older of two alike wins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::workload_ids;
use crate::kubernetes::Client;
use crate::real::Error;
use crate::real::spire::{EntrySpec, SpireServer};

/// Of the objects.
pub(super) const PATH: &str = "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries";
/// Between two looks; the real one watches.
const LOOK: Duration = Duration::from_millis(50);
/// It goes over everything this often even if nothing changed.
const COLLECT: Duration = Duration::from_secs(10);

/// The running manager; it ends when this is dropped.
pub(super) struct EntryManager(JoinHandle<()>);

impl EntryManager {
    pub(super) fn start(client: Client, server: Arc<SpireServer>, class: &'static str) -> Self {
        Self(tokio::spawn(async move {
            let (mut seen, mut last) = (None, Instant::now());
            loop {
                // An API server or a SPIRE server that is away is asked again.
                if let Ok((objects, workloads)) = declared(&client, &server, class).await {
                    let specs: Vec<_> = objects.iter().map(|object| object["spec"].clone()).collect();
                    let state = (specs, workloads.clone());
                    if seen.as_ref() != Some(&state) || last.elapsed() > COLLECT {
                        let done = pass(&client, &server, class, (&objects, workloads)).await;
                        seen = done.is_ok().then_some(state);
                        last = Instant::now();
                    }
                }
                sleep(LOOK).await;
            }
        }))
    }
}

impl Drop for EntryManager {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All static entries, and those of workloads.
async fn declared(client: &Client, server: &SpireServer, class: &str) -> Result<(Vec<Value>, Vec<EntrySpec>), Error> {
    let domain = &server.settings().trust_domain;
    Ok((objects(client).await?, workload_ids::entries(client, domain, class).await?))
}

/// All objects, the oldest first.
async fn objects(client: &Client) -> Result<Vec<Value>, Error> {
    let list = client.get(PATH).await?.object(PATH)?;
    let mut objects = list["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    objects.sort_by_key(|each| (text(&each["metadata"]["creationTimestamp"]), text(&each["metadata"]["uid"])));
    Ok(objects)
}

async fn pass(
    client: &Client,
    server: &SpireServer,
    class: &str,
    (objects, workloads): (&[Value], Vec<EntrySpec>),
) -> Result<(), Error> {
    let mut plan = plan(class, objects).map_err(Error::system("read a duration"))?;
    // They have no object of their own that would be told.
    plan.extend(workloads.into_iter().map(|entry| Wanted { name: String::new(), entry, masked: false }));
    let mut status: BTreeMap<String, Value> = BTreeMap::new();
    let present = server.entries().await?;
    for entry in present
        .iter()
        .filter(|entry| !entry.is_node_alias() && entry.spec.selectors.iter().any(|s| s.starts_with("k8s:")))
    {
        if !plan.iter().any(|wanted| !wanted.masked && wanted.entry == entry.spec) {
            server.delete_entry(&entry.entry).await?;
        }
    }
    for wanted in &plan {
        let there = present.iter().any(|entry| entry.spec == wanted.entry);
        // `set` is true only in the pass that wrote the entry.
        let set = !wanted.masked && !there && server.create_entry(&wanted.entry).await.is_ok();
        let said = json!({"rendered": true, "masked": wanted.masked, "set": set});
        status.insert(wanted.name.clone(), said);
    }
    for (name, said) in status {
        let had = objects.iter().find(|object| object["metadata"]["name"] == name.as_str());
        if had.is_some_and(|had| had["status"] != said) {
            client.patch(&format!("{PATH}/{name}/status"), &json!({"status": said})).await?;
        }
    }
    Ok(())
}

/// An object that could be rendered.
struct Wanted {
    name: String,
    entry: EntrySpec,
    masked: bool,
}

/// What the objects amount to.
fn plan(class: &str, objects: &[Value]) -> Result<Vec<Wanted>, String> {
    let mut plan: Vec<Wanted> = Vec::new();
    for object in objects {
        let spec = &object["spec"];
        let ttl = seconds(spec["x509SVIDTTL"].as_str().unwrap_or_default())?;
        let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
        let list = spec["selectors"].as_array().into_iter().flatten();
        let mut selectors: Vec<_> = list.map(|each| each.as_str().unwrap_or_default().to_owned()).collect();
        selectors.sort();
        let parsed = [text("spiffeID"), text("parentID")].iter().all(|id| is_id(id));
        if text("className") != class || !parsed || !selectors.iter().all(|selector| selector.contains(':')) {
            continue;
        }
        let entry = EntrySpec { id: text("spiffeID"), parent: text("parentID"), selectors, ttl, hint: text("hint") };
        let same = |other: &Wanted| {
            (&other.entry.id, &other.entry.parent, &other.entry.selectors)
                == (&entry.id, &entry.parent, &entry.selectors)
        };
        let masked = plan.iter().any(same);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        plan.push(Wanted { name, entry, masked });
    }
    Ok(plan)
}

fn is_id(id: &str) -> bool {
    let domain = id.strip_prefix("spiffe://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    !domain.is_empty() && domain.bytes().all(inner)
}

/// Whole seconds of a Go duration; nothing is 0.
fn seconds(text: &str) -> Result<u64, String> {
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let bad = || format!("{text:?} is no duration");
        let end = rest.find(|each: char| !each.is_ascii_digit() && each != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|each: char| each.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return Err(bad()),
        };
        sum += number.parse::<f64>().map_err(|_| bad())? * scale;
        rest = tail;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
    Ok(sum as u64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_duration_is_whole_seconds_and_nonsense_stops_everything() {
        assert_eq!(["", "60s", "1m30s", "1500ms", "1h"].map(|text| seconds(text).unwrap()), [0, 60, 90, 1, 3600]);
        assert!(seconds("forever").is_err() && seconds("5").is_err());
    }

    #[test]
    fn the_older_of_two_alike_wins_and_what_cannot_be_parsed_is_left_out() {
        let object = |name: &str, class: &str, id: &str| {
            json!({"metadata": {"name": name}, "spec": {"className": class, "spiffeID": id,
                "parentID": "spiffe://td.test/n", "selectors": ["k8s:ns:a"]}})
        };
        let objects = [
            object("a", "c", "spiffe://td.test/x"),
            object("b", "c", "spiffe://td.test/x"),
            object("other", "d", "spiffe://td.test/y"),
            object("bad", "c", "spiffe://TD.test/z"),
        ];
        let plan = plan("c", &objects).unwrap();
        let said: Vec<_> = plan.iter().map(|wanted| (wanted.name.as_str(), wanted.masked)).collect();
        assert_eq!(said, [("a", false), ("b", true)]);
    }
}
