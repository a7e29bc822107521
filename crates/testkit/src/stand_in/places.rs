//! What the executor wrote for the runner: configuration and registration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::runner_client::Credentials;

/// Both files, read as the official runner reads them.
pub(super) struct Places {
    /// Where RunnerService is: the executor's proxy.
    pub(super) address: String,
    /// What the proxy accepts.
    pub(super) credentials: Credentials,
    /// The runner's name.
    pub(super) name: String,
    /// Labels, without schema.
    pub(super) labels: Vec<String>,
    /// First pause between two FetchTask calls.
    pub(super) fetch_interval: Duration,
    /// Longest pause.
    pub(super) fetch_interval_max: Duration,
    /// Deadline of one FetchTask.
    pub(super) fetch_timeout: Duration,
    /// A third of the time for each of the two last calls.
    pub(super) close_timeout: Duration,
}

impl Places {
    pub(super) fn read(config: &Path) -> anyhow::Result<Self> {
        let config = json(config)?;
        let setting = |pointer: &str| {
            let text = config.pointer(pointer).and_then(Value::as_str);
            text.with_context(|| format!("the configuration has no {pointer}"))
        };
        let pause = |pointer: &str| duration(setting(pointer)?);
        let registration = json(&PathBuf::from(setting("/runner/file")?))?;
        let text = |name: &str| {
            let text = registration.get(name).and_then(Value::as_str);
            text.map(str::to_owned).with_context(|| format!("the registration has no {name}"))
        };
        let labels = registration.get("labels").and_then(Value::as_array).cloned().unwrap_or_default();
        let labels: Vec<_> = labels.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        ensure!(!labels.is_empty() && labels.iter().all(|label| label.ends_with(":host")), "labels {labels:?}");
        Ok(Self {
            address: text("address")?,
            credentials: Credentials::new(text("uuid")?, text("token")?),
            name: text("name")?,
            labels: labels.iter().filter_map(|label| label.split(':').next()).map(str::to_owned).collect(),
            fetch_interval: pause("/runner/fetch_interval")?,
            fetch_interval_max: pause("/runner/fetch_interval_max")?,
            fetch_timeout: pause("/runner/fetch_timeout")?,
            close_timeout: pause("/runner/report_close_timeout")?,
        })
    }
}

fn json(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// `200ms`, `5s`, `2m`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let at = text.find(|each: char| !each.is_ascii_digit()).with_context(|| format!("{text:?} has no unit"))?;
    let (count, unit) = text.split_at(at);
    let count: u64 = count.parse().with_context(|| format!("{text:?}"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        "m" => Ok(Duration::from_secs(60 * count)),
        unit => anyhow::bail!("unit {unit:?}"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn durations() {
        let of = |text| duration(text).unwrap();
        assert_eq!((of("200ms"), of("5s"), of("2m")), (Duration::from_millis(200), Duration::from_secs(5), of("120s")));
        assert!(duration("5").is_err() && duration("5h").is_err() && duration("s").is_err());
    }
}
