//! The calls of JetStream's API that this room makes, over one connection.
//!
//! What can happen to each: there is no connection, and it is *away*; it is *refused* with a code; *nobody* takes it
//! (JetStream is off, or the stream has no leader now); there is *no answer* in time, and then it may have been carried out
//! or not, or the user lacks the right, which the server tells to nobody but its log and the connection. Every call here
//! may be made again.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::{HeaderMap, NATS_MESSAGE_ID};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::response::Response;
use async_nats::{Client, Message, Request, RequestErrorKind, StatusCode, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::failure::Failure;

/// How often a call that waits for a connection looks for one.
const CONNECTED_YET: Duration = Duration::from_millis(20);

/// A message as it lies in a stream.
pub(super) struct Lying {
    pub(super) sequence: u64,
    pub(super) subject: String,
    /// Its `Nats-Msg-Id`, if it has one.
    pub(super) id: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) time: Timestamp,
}

/// A message as a consumer hands it out.
pub(super) struct Handed {
    pub(super) id: Option<String>,
    pub(super) body: Bytes,
    /// Where to say what became of it.
    pub(super) reply: Subject,
    pub(super) sequence: u64,
}

/// What the server says of a publish.
#[derive(Deserialize)]
pub(super) struct Stored {
    #[serde(rename = "seq")]
    pub(super) sequence: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
}

/// One connection's calls.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    /// How long an answer may take.
    answer: Duration,
}

impl Api {
    pub(super) fn new(client: Client, answer: Duration) -> Self {
        Self { client, answer }
    }

    /// The largest message the server takes, in bytes, headers included.
    pub(super) fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }

    /// Whether there is a connection now.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// One call of `$JS.API`.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| garbled(call, &error))?;
        self.api(call, body.into()).await
    }

    /// One call of `$JS.API` that asks for nothing but what its name says.
    pub(super) async fn ask_for<T: DeserializeOwned>(&self, call: &str) -> Result<T, Failure> {
        self.api(call, Bytes::new()).await
    }

    async fn api<T: DeserializeOwned>(&self, call: &str, body: Bytes) -> Result<T, Failure> {
        let what = format!("$JS.API.{call}");
        read(&what, &self.ask(&what, None, body).await?)
    }

    /// Stores a message; the answer says where, or that a message of this id lies there already.
    pub(super) async fn publish(&self, subject: &str, headers: HeaderMap, body: Bytes) -> Result<Stored, Failure> {
        let answer = self.ask(subject, Some(headers), body).await?;
        read(subject, &answer)
    }

    /// The message at this place; none when it is gone.
    pub(super) async fn at(&self, stream: &str, sequence: u64) -> Result<Option<Lying>, Failure> {
        self.lying(stream, &json!({ "seq": sequence })).await
    }

    /// The first message of the subject at or after this place.
    pub(super) async fn next(&self, stream: &str, subject: &str, from: u64) -> Result<Option<Lying>, Failure> {
        self.lying(stream, &json!({ "seq": from, "next_by_subj": subject })).await
    }

    /// The newest message of the subject, read from the stream's leader: never an older one than was written.
    pub(super) async fn last(&self, stream: &str, subject: &str) -> Result<Option<Lying>, Failure> {
        self.lying(stream, &json!({ "last_by_subj": subject })).await
    }

    async fn lying(&self, stream: &str, which: &serde_json::Value) -> Result<Option<Lying>, Failure> {
        #[derive(Deserialize)]
        struct Answer {
            message: Raw,
        }
        let call = format!("STREAM.MSG.GET.{stream}");
        match self.call::<Answer>(&call, which).await {
            Ok(Answer { message }) => message.decode().map(Some).map_err(|text| Failure::Garbled { what: call, text }),
            Err(failure) if failure.is(ErrorCode::NO_MESSAGE_FOUND) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Takes a message out by its place; one that is gone is `Ok`. Sealed bytes need not be overwritten.
    pub(super) async fn delete(&self, stream: &str, sequence: u64) -> Result<(), Failure> {
        self.take_out(stream, sequence, json!({ "seq": sequence, "no_erase": true })).await
    }

    /// The same of a message whose bytes are a secret in clear: the server overwrites them where they lie.
    pub(super) async fn erase(&self, stream: &str, sequence: u64) -> Result<(), Failure> {
        self.take_out(stream, sequence, json!({ "seq": sequence })).await
    }

    async fn take_out(&self, stream: &str, sequence: u64, body: serde_json::Value) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Done {}
        match self.call::<Done>(&format!("STREAM.MSG.DELETE.{stream}"), &body).await {
            Err(failure)
                if failure.is(ErrorCode::NO_MESSAGE_FOUND)
                    || failure.is(ErrorCode::SEQUENCE_NOT_FOUND)
                    || failure.is(ErrorCode::STREAM_MESSAGE_DELETE_FAILED) =>
            {
                self.at(stream, sequence).await.and_then(|still| if still.is_none() { Ok(()) } else { Err(failure) })
            }
            done => done.map(|Done {}| ()),
        }
    }

    /// The next message of a consumer; none when nothing comes within a quarter of a second. A server that is asked not
    /// to wait says "nothing" also of a message that was stored, or given back, a moment before.
    pub(super) async fn pull(&self, stream: &str, durable: &str) -> Result<Option<Handed>, Failure> {
        let what = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}");
        let one = Request::new().payload(Bytes::from_static(br#"{"batch":1,"expires":250000000}"#));
        // An inbox of its own: a message comes under its own subject, which the client's common inbox does not know.
        let answer = self.send(&what, one.inbox(self.client.new_inbox())).await?;
        match answer.status {
            None => {}
            Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => return Ok(None),
            Some(status) => {
                let text = answer.description.unwrap_or_default().to_string();
                return Err(Failure::Refused {
                    code: ErrorCode::CONSUMER_NOT_FOUND,
                    status: usize::from(status.as_u16()),
                    text: format!("{status} {text}"),
                });
            }
        }
        let reply = answer.reply.clone().ok_or_else(|| garbled(&what, &"no place for an acknowledgement"))?;
        let sequence = sequence_of(&reply).ok_or_else(|| garbled(&what, &reply))?;
        let id = answer.headers.as_ref().and_then(|headers| headers.get(NATS_MESSAGE_ID)).map(ToString::to_string);
        Ok(Some(Handed { id, body: answer.payload, reply, sequence }))
    }

    /// Says that a message is done with, and waits until the server has noted it.
    pub(super) async fn acknowledge(&self, reply: &Subject) -> Result<(), Failure> {
        self.ask(reply, None, Bytes::from_static(b"+ACK")).await.map(drop)
    }

    /// Gives a message back, and waits until the server has noted it: a pull that was sent before that finds nothing.
    /// Unheard it comes back all the same, when the time for an acknowledgement is over.
    pub(super) async fn give_back(&self, reply: &Subject, after: Duration) {
        let body = match after {
            Duration::ZERO => Bytes::from_static(b"-NAK"),
            after => format!("-NAK {{\"delay\":{}}}", after.as_nanos()).into(),
        };
        if let Err(failure) = self.ask(reply, None, body).await {
            tracing::debug!(component = "queue", ?failure, "nobody heard that a message is given back");
        }
    }

    /// Says that it is still being worked on.
    pub(super) async fn in_progress(&self, reply: &Subject) {
        if !self.is_connected() {
            return;
        }
        // It fails only when the client itself has ended; then nothing is held any more.
        let _ended = self.client.publish(reply.clone(), Bytes::from_static(b"+WPI")).await;
    }

    /// What the server publishes on these subjects. A subscription that fails says nothing, for ever.
    pub(super) async fn listen(&self, subjects: &[String]) -> impl futures::Stream<Item = Message> + Unpin + use<> {
        let mut all = Vec::new();
        for subject in subjects {
            match self.client.subscribe(subject.clone()).await {
                Ok(messages) => all.push(messages),
                Err(error) => tracing::warn!(component = "queue", subject, %error, "no subscription"),
            }
        }
        futures::stream::select_all(all)
    }

    async fn ask(&self, subject: &str, headers: Option<HeaderMap>, body: Bytes) -> Result<Message, Failure> {
        self.send(subject, headers.map_or_else(Request::new, |headers| Request::new().headers(headers)).payload(body))
            .await
    }

    async fn send(&self, subject: &str, request: Request) -> Result<Message, Failure> {
        let what = || subject.to_owned();
        if tokio::time::timeout(self.answer, self.connected()).await.is_err() {
            return Err(Failure::Away);
        }
        let request = request.timeout(Some(self.answer));
        // The client's own limit begins when the request is on its way; without a connection it never is.
        match tokio::time::timeout(self.answer, self.client.send_request(subject.to_owned(), request)).await {
            Ok(Ok(message)) => Ok(message),
            Err(_) => Err(Failure::Silent { what: what() }),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::TimedOut => Failure::Silent { what: what() },
                RequestErrorKind::NoResponders => Failure::Nobody { what: what() },
                _ => Failure::Garbled { what: what(), text: error.to_string() },
            }),
        }
    }

    /// Waits for a connection. What is sent without one goes out later, when the call has long failed and nobody listens for
    /// its answer any more.
    async fn connected(&self) {
        while !self.is_connected() {
            tokio::time::sleep(CONNECTED_YET).await;
        }
    }
}

fn read<T: DeserializeOwned>(what: &str, answer: &Message) -> Result<T, Failure> {
    match serde_json::from_slice(&answer.payload) {
        Ok(Response::Ok(value)) => Ok(value),
        Ok(Response::Err { error }) => {
            Err(Failure::Refused { code: error.error_code(), status: error.code(), text: error.to_string() })
        }
        Err(error) => Err(garbled(what, &error)),
    }
}

fn garbled(what: &str, text: &impl ToString) -> Failure {
    Failure::Garbled { what: what.to_owned(), text: text.to_string() }
}

/// The place of a message in its stream, from where its acknowledgement goes: `$JS.ACK.<stream>.<consumer>.<delivered>.
/// <place>…`, with a domain and an account hash before the stream on newer servers (NATS ADR-15).
fn sequence_of(reply: &str) -> Option<u64> {
    let tokens: Vec<&str> = reply.split('.').collect();
    let place = if tokens.len() == 9 { 5 } else { 7 };
    tokens.get(place)?.parse().ok()
}

/// `STREAM.MSG.GET`'s message.
#[derive(Deserialize)]
struct Raw {
    subject: String,
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: Timestamp,
}

impl Raw {
    fn decode(self) -> Result<Lying, String> {
        let text = |error: base64::DecodeError| error.to_string();
        let headers = STANDARD.decode(self.hdrs).map_err(text)?;
        let body = STANDARD.decode(self.data).map_err(text)?;
        Ok(Lying { sequence: self.seq, subject: self.subject, id: message_id(&headers), body, time: self.time })
    }
}

/// The `Nats-Msg-Id` of a block of headers.
fn message_id(headers: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(headers).ok()?;
    let value = |line: &str| Some(line.split_once(':').filter(|(name, _)| *name == "Nats-Msg-Id")?.1.trim().to_owned());
    text.split("\r\n").find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ids_are_read() {
        assert_eq!(sequence_of("$JS.ACK.CI_RUNNER.f66f031b-pod.2.17.5.1700000000000000000.3"), Some(17));
        assert_eq!(sequence_of("$JS.ACK._.hash.CI_RUNNER.f66f031b-pod.2.17.5.1700000000000000000.3.x"), Some(17));
        assert_eq!(sequence_of("$JS.ACK.CI_RUNNER"), None);
        let headers = b"NATS/1.0\r\nNats-Expected-Stream: S\r\nNats-Msg-Id: a.gitea-task-1.b\r\n\r\n";
        assert_eq!(message_id(headers).as_deref(), Some("a.gitea-task-1.b"));
        assert_eq!(message_id(b"NATS/1.0\r\n\r\n"), None);
    }
}
