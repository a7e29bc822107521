//! The two calls a registration needs, Ping and Register (contract §1, §14.2), with answers told apart finely enough
//! to say what is wrong with an address. Everything after the registration is the gitea room's.

use std::time::Duration;

use buffa::Message;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use runner_proto::ping::v1::{PingRequest, PingResponse};
use runner_proto::runner::v1::{RegisterRequest, RegisterResponse, Runner};
use zeroize::Zeroizing;

use super::error::StartError;
use crate::config::GiteaUrl;
use crate::gitea::{AGENT, Connector};
use crate::ops::client::root_cause;

const PROTO: &str = "application/proto";

/// Answers of these two procedures are small.
const LARGEST: usize = 256 * 1024;

/// One Gitea.
pub(super) struct Wire<'a> {
    url: &'a GiteaUrl,
    patience: Duration,
    client: Client<Connector, Full<Bytes>>,
}

/// What came instead of an answer.
enum Failure {
    /// The request never left.
    NotSent(String),
    /// It may have arrived.
    NoAnswer(String),
    /// Somebody else answered.
    Foreign(String),
    /// Gitea said no, in these words.
    Refused(String),
}

impl<'a> Wire<'a> {
    /// `patience` is the deadline of one call.
    pub(super) fn new(url: &'a GiteaUrl, patience: Duration) -> Self {
        Self { url, patience, client: Client::builder(TokioExecutor::new()).build(Connector::new()) }
    }

    /// Whether a Gitea with Actions is there. Changes nothing on the other side.
    pub(super) async fn ping(&self) -> Result<(), StartError> {
        let request = PingRequest { data: "gitea-dynamic-runner".to_owned(), ..Default::default() };
        let answer = self.call::<_, PingResponse>("ping.v1.PingService/Ping", &request).await;
        let url = self.url.to_string();
        match answer {
            Ok(_) => Ok(()),
            Err(Failure::NotSent(cause) | Failure::NoAnswer(cause)) => Err(StartError::Unreachable { url, cause }),
            Err(Failure::Foreign(seen)) => Err(StartError::NotGitea { url, seen }),
            Err(Failure::Refused(text)) => Err(StartError::NotGitea { url, seen: format!("Ping is refused: {text}") }),
        }
    }

    /// Makes the runner row and returns it. Its UUID and token are told this once only.
    pub(super) async fn register(&self, name: &str, token: &str, labels: Vec<String>) -> Result<Runner, StartError> {
        let request = RegisterRequest {
            name: name.to_owned(),
            token: token.to_owned(),
            version: AGENT.to_owned(),
            labels,
            ..Default::default()
        };
        let answer = self.call::<_, RegisterResponse>("runner.v1.RunnerService/Register", &request).await;
        drop(Zeroizing::new(request.token));
        let url = self.url.to_string();
        match answer {
            Ok(answer) => {
                let runner = answer.runner.into_option().filter(|r| !r.uuid.is_empty() && !r.token.is_empty());
                runner.ok_or(StartError::NotGitea { url, seen: "its answer to Register names no runner".into() })
            }
            Err(Failure::NotSent(cause)) => Err(StartError::Unreachable { url, cause }),
            Err(Failure::NoAnswer(cause)) => Err(StartError::AnswerLost { url, name: name.to_owned(), cause }),
            Err(Failure::Foreign(seen)) => Err(StartError::NotGitea { url, seen }),
            Err(Failure::Refused(text)) => {
                // Redacted before it is cut (NEW-141).
                let text = domain::excerpt::without(token, &text, 300);
                if text.contains("registration token") {
                    Err(StartError::TokenRefused { url, text })
                } else {
                    Err(StartError::Refused { url, text })
                }
            }
        }
    }

    async fn call<M: Message, R: Message>(&self, procedure: &str, message: &M) -> Result<R, Failure> {
        let uri = format!("{}/{procedure}", self.url.actions_base());
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, PROTO)
            .header(header::USER_AGENT, AGENT)
            .header("connect-protocol-version", "1")
            .body(Full::new(Bytes::from(message.encode_to_vec())))
            .map_err(|error| Failure::NotSent(error.to_string()))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => Failure::NotSent(root_cause(&error)),
                false => Failure::NoAnswer(root_cause(&error)),
            })?;
            answer(response).await
        };
        let late = |_| Failure::NoAnswer(format!("no answer within {} s", self.patience.as_secs_f32().ceil()));
        let body = tokio::time::timeout(self.patience, exchange).await.map_err(late)??;
        R::decode_from_slice(&body).map_err(|_| Failure::Foreign("its answer cannot be decoded".into()))
    }
}

async fn answer(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(|e| Failure::NoAnswer(e.to_string()))?.to_bytes();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("no content type");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
    if parts.status == StatusCode::OK && kind == PROTO {
        return Ok(body);
    }
    if parts.status.is_redirection() {
        return Err(Failure::Foreign(format!("it sends us on to {}", location(parts.headers.get(header::LOCATION)))));
    }
    // An error of the service is JSON whatever was asked (contract §3.1).
    #[derive(serde::Deserialize)]
    struct Refusal {
        code: String,
        #[serde(default)]
        message: String,
    }
    if !parts.status.is_success()
        && let Ok(Refusal { code, message }) = serde_json::from_slice(&body)
    {
        let text = message.rsplit_once(" desc = ").map_or(message.as_str(), |(_, text)| text).trim();
        return Err(Failure::Refused(if text.is_empty() { code } else { text.to_owned() }));
    }
    Err(Failure::Foreign(match parts.status {
        StatusCode::OK if kind == "text/html" => "a web page came instead of an API's answer".into(),
        StatusCode::NOT_FOUND => "there is no /api/actions below this address (HTTP 404)".into(),
        status => format!("HTTP {} with {kind}", status.as_u16()),
    }))
}

/// Where a redirect leads, without a query, which may hold a secret.
fn location(value: Option<&HeaderValue>) -> String {
    let text = value.and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
    crate::config::address::without_password(text.split('?').next().unwrap_or_default())
}
