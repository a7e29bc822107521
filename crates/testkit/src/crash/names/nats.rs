//! What the calls to NATS are called: by what they are for, and the job that they are about.

use std::sync::Arc;

use serde_json::Value;

use super::super::relay::Name;
use super::super::stage::Cast;

/// What is repeated as long as a controller lives; the first times stand for all.
const BY_THE_CLOCK: &str = ", by the clock";

/// Names the calls of a scene.
pub(in crate::crash) fn of_messages(cast: Arc<Cast>) -> Name {
    Arc::new(move |subject: &str, content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        if let Some(call) = subject.strip_prefix("$JS.API.") {
            return Some(format!("NATS {}", api(&cast, call, &text)));
        }
        if subject.starts_with("$JS.ACK.") {
            let what = if text.starts_with("+ACK") { "acknowledge" } else { "give back" };
            return Some(format!("NATS {what}"));
        }
        if subject.starts_with("$KV.") {
            return Some(format!("NATS write {}", record(&cast, subject)));
        }
        subject.starts_with("ci.runner.").then(|| format!("NATS store{}", job_in(&cast, &text)))
    })
}

fn api(cast: &Cast, call: &str, body: &str) -> String {
    if call.starts_with("CONSUMER.MSG.NEXT.") {
        return "pull".to_owned();
    }
    let which: Value = serde_json::from_str(body.trim()).unwrap_or_default();
    if call.starts_with("STREAM.MSG.GET.") {
        let text = |name: &str| which[name].as_str().unwrap_or_default().to_owned();
        return match (text("last_by_subj"), text("next_by_subj")) {
            (last, _) if !last.is_empty() => format!("read {}", record(cast, &last)),
            (_, next) if next.starts_with("$KV.") => format!("list {}", record(cast, &next)),
            (_, next) if !next.is_empty() => "read on".to_owned(),
            _ => "read a place".to_owned(),
        };
    }
    // A consumer is named after the instance, which is another one in each run.
    let steady = |token: &&str| !token.contains(|each: char| each.is_ascii_lowercase());
    let call = call.split('.').filter(steady).collect::<Vec<_>>().join(".");
    let repeated = if call.starts_with("STREAM.INFO.") { BY_THE_CLOCK } else { "" };
    format!("{call}{repeated}")
}

/// `$KV.<bucket>.<instance>.<kind>.<key in hexadecimal>`, or the lease.
fn record(cast: &Cast, subject: &str) -> String {
    let mut tokens = subject.split('.').skip(1);
    if tokens.next().is_some_and(|bucket| bucket.ends_with("_LEADER")) {
        return format!("the lease{BY_THE_CLOCK}");
    }
    let kind = tokens.nth(1).unwrap_or_default().to_owned();
    format!("{kind}{}", job_in(cast, &tokens.next().and_then(of_hex).unwrap_or_default()))
}

fn of_hex(text: &str) -> Option<String> {
    let digits: Option<Vec<u32>> = text.chars().map(|each| each.to_digit(16)).collect();
    let bytes = digits?.chunks_exact(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1])).collect::<Result<_, _>>();
    String::from_utf8(bytes.ok()?).ok()
}

fn job_in(cast: &Cast, text: &str) -> String {
    let number = text.split_once("gitea-task-").map(|(_, rest)| rest.split(|each: char| !each.is_ascii_digit()).next());
    let task = number.flatten().and_then(|number| number.parse().ok());
    task.map_or_else(String::new, |task| format!(" of {}", cast.job_of_task(task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal() {
        assert_eq!(of_hex("6769").as_deref(), Some("gi"));
        assert_eq!((of_hex("*"), of_hex("")), (None, Some(String::new())));
    }
}
