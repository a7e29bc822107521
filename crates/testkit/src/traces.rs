//! The recorded traffic of a real Gitea 1.26.0 and the official runner 1.0.8, as test data.
//!
//! Credentials in it are placeholders. The files are copies; nothing in this crate writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gitea::Method;

/// A recorded file.
#[derive(Debug, Clone, Deserialize)]
pub struct Trace {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// Calls in order.
    #[serde(default)]
    pub messages: Vec<Exchange>,
    /// Error answers, independent of each other.
    #[serde(default)]
    pub cases: Vec<Exchange>,
    /// Webhooks.
    #[serde(default)]
    pub deliveries: Vec<Value>,
}

/// A request and its answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Exchange {
    /// RunnerService method; absent for other HTTP requests.
    pub method: Option<String>,
    /// Verb and path of another HTTP request.
    pub http: Option<String>,
    /// What an error case is about.
    pub case: Option<String>,
    /// Verb of an error case.
    pub verb: Option<String>,
    /// Headers that matter.
    #[serde(default)]
    pub request_headers: BTreeMap<String, String>,
    /// The message in JSON form, or a text that is none.
    #[serde(default)]
    pub request: Value,
    /// HTTP status.
    pub status: u16,
    /// Content type of an error answer.
    #[serde(default)]
    pub content_type: Option<String>,
    /// The message in JSON form, a Connect error, or a text.
    #[serde(default)]
    pub response: Value,
    /// The task's workflow, decoded.
    pub workflow_payload_text: Option<String>,
}

impl Exchange {
    /// The method, if it is one that Gitea has.
    #[must_use]
    pub fn known_method(&self) -> Option<Method> {
        Method::ALL.into_iter().find(|method| self.method.as_deref() == Some(method.name()))
    }
}

const FILES: [(&str, &str); 11] = [
    ("errors", include_str!("../traces/errors.json")),
    ("fetch-unauthenticated", include_str!("../traces/fetch-unauthenticated.json")),
    ("fetch-unavailable", include_str!("../traces/fetch-unavailable.json")),
    ("job-cancelled", include_str!("../traces/job-cancelled.json")),
    ("job-failure", include_str!("../traces/job-failure.json")),
    ("job-success", include_str!("../traces/job-success.json")),
    ("once-facade-503", include_str!("../traces/once-facade-503.json")),
    ("once-quick", include_str!("../traces/once-quick.json")),
    ("once-sigterm", include_str!("../traces/once-sigterm.json")),
    ("register-declare-idle", include_str!("../traces/register-declare-idle.json")),
    ("webhook-workflow-job", include_str!("../traces/webhook-workflow-job.json")),
];

/// All recorded files.
///
/// # Errors
///
/// If a file is not what [`Trace`] describes.
pub fn all() -> Result<Vec<Trace>, serde_json::Error> {
    let read = |(name, text): (&'static str, &str)| Ok(Trace { name, ..serde_json::from_str(text)? });
    FILES.into_iter().map(read).collect()
}

/// Decodes a message in JSON form as `M`, takes it through the binary form and encodes it again.
///
/// # Errors
///
/// If one of the steps refuses.
pub fn round_trip<M>(json: &Value) -> anyhow::Result<Value>
where
    M: buffa::Message + Serialize + serde::de::DeserializeOwned,
{
    let message: M = serde_json::from_value(json.clone())?;
    let message = M::decode_from_slice(&message.encode_to_vec())?;
    Ok(serde_json::to_value(message)?)
}

/// Whether two JSON texts say the same; the numbers 4 and 4.0 do.
#[must_use]
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use runner_proto::runner::v1::{
        DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, RegisterRequest, RegisterResponse,
        UpdateLogRequest, UpdateLogResponse, UpdateTaskRequest, UpdateTaskResponse,
    };

    use super::*;

    #[track_caller]
    fn check<M>(place: &str, json: &Value)
    where
        M: buffa::Message + Serialize + serde::de::DeserializeOwned,
    {
        let back = round_trip::<M>(json).unwrap();
        assert!(same(json, &back), "{place}: {json} came back as {back}");
    }

    /// Contract §2: every field that Gitea and the runner really send has its number and its form.
    #[test]
    fn every_message_of_every_trace_comes_back_equal() {
        let mut messages = 0;
        for trace in all().unwrap() {
            for (number, exchange) in trace.messages.iter().enumerate() {
                let place = format!("{} #{number}", trace.name);
                let Some(method) = exchange.known_method() else { continue };
                let ok = exchange.status == 200;
                let (request, response) = (&exchange.request, &exchange.response);
                match method {
                    Method::Register => check::<RegisterRequest>(&place, request),
                    Method::Declare => check::<DeclareRequest>(&place, request),
                    Method::FetchTask => check::<FetchTaskRequest>(&place, request),
                    Method::UpdateTask => check::<UpdateTaskRequest>(&place, request),
                    Method::UpdateLog => check::<UpdateLogRequest>(&place, request),
                    Method::Ping => continue,
                }
                match method {
                    Method::Register if ok => check::<RegisterResponse>(&place, response),
                    Method::Declare if ok => check::<DeclareResponse>(&place, response),
                    Method::FetchTask if ok => check::<FetchTaskResponse>(&place, response),
                    Method::UpdateTask if ok => check::<UpdateTaskResponse>(&place, response),
                    Method::UpdateLog if ok => check::<UpdateLogResponse>(&place, response),
                    _ => {}
                }
                messages += 1;
            }
        }
        assert_eq!(messages, 79, "the traces have this many RunnerService messages");
    }

    /// Contract §15: the signature is the bare hexadecimal HMAC-SHA256 of the raw body.
    #[test]
    fn webhooks_are_signed_over_their_raw_body() {
        use hmac::{Hmac, KeyInit as _, Mac as _};

        let mut deliveries = 0;
        for delivery in all().unwrap().iter().flat_map(|trace| &trace.deliveries) {
            let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"s3cret").unwrap();
            mac.update(delivery["raw_body"].as_str().unwrap().as_bytes());
            let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(delivery["headers"]["X-Gitea-Signature"], hex);
            deliveries += 1;
        }
        assert_eq!(deliveries, 3);
    }
}
