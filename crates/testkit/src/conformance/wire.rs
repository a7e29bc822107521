//! Questions about errors and shapes on the wire: status, content type, inner code, text (§1, §3, §14).

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, StatusCode};
use runner_proto::runner::v1::{RegisterRequest, RegisterResponse, Result as TaskResult, TaskState, UpdateLogRequest};
use serde_json::{Value, json};

use super::bench::{End, Held};
use super::{Bench, Of, Question};
use crate::gitea::Method;
use crate::runner_client::{CallError, Credentials, Encoding, RawAnswer, RunnerClient};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "How are wrong, unknown and missing credentials refused?",
        rules: &["errors_are_500"],
        of: Of::Both,
        ask: |bench| Box::pin(credentials(bench)),
    },
    Question {
        name: "How is a registration without a name, or with an unknown token, refused?",
        rules: &["name_checked", "registration_token_checked"],
        of: Of::Both,
        ask: |bench| Box::pin(registration(bench)),
    },
    Question {
        name: "What does the answer to Register tell?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(registered(bench)),
    },
    Question {
        name: "What does the answer to Declare tell?",
        rules: &["declare_hides_token", "declare_replaces_labels"],
        of: Of::Both,
        ask: |bench| Box::pin(declared(bench)),
    },
    Question {
        name: "How is a report on a task of another runner refused?",
        rules: &["foreign_task_refused", "errors_are_500"],
        of: Of::Both,
        ask: |bench| Box::pin(foreign(bench)),
    },
    Question {
        name: "How is a report on a task that never was refused?",
        rules: &["unknown_task_refused"],
        of: Of::Both,
        ask: |bench| Box::pin(unknown(bench)),
    },
    Question {
        name: "What becomes of an UpdateTask without a state?",
        rules: &["missing_state_panics", "panic_is_text"],
        of: Of::Both,
        ask: |bench| Box::pin(no_state(bench)),
    },
    Question {
        name: "How is a row for an archived log refused?",
        rules: &["archived_refuses", "errors_are_500"],
        of: Of::Both,
        ask: |bench| Box::pin(archived(bench)),
    },
    Question {
        name: "Which verbs, content types and methods are served?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(routing(bench)),
    },
    Question {
        name: "How is a body refused that is no message?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(broken_body(bench)),
    },
    Question {
        name: "What becomes of a deadline of a millisecond, and of one that is no number?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(deadlines(bench)),
    },
    Question { name: "What does Ping answer?", rules: &[], of: Of::Both, ask: |bench| Box::pin(ping(bench)) },
    Question {
        name: "Are JSON, fields that nobody knows, and zipped answers understood?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(json_and_gzip(bench)),
    },
];

const UNREGISTERED: &str = "rpc error: code = Unauthenticated desc = unregistered runner";

/// The refusal that Gitea gives: HTTP 500, `unknown`, this text (§3.2).
pub(super) fn refused_as<T>(answer: Result<T, CallError>, message: &str) -> anyhow::Result<()> {
    let Err(CallError::Refused { status, body, .. }) = answer else {
        bail!("expected {message:?}, got {:?}", answer.err());
    };
    let told: Value = serde_json::from_str(&body).with_context(|| format!("the body is {body:?}"))?;
    ensure!(status == 500 && told == json!({"code": "unknown", "message": message}), "HTTP {status}: {body}");
    Ok(())
}

/// Status, content type and body in one.
fn is(answer: &RawAnswer, status: StatusCode, content_type: &str, body: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let told = answer.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == status && told == content_type && body(&text), "{} {told:?} {text:?}", answer.status);
    Ok(())
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    pairs.iter().map(pair).collect()
}

async fn credentials(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let own = runner.credentials().context("registered")?;
    let url = bench.side.url();
    let wrong = RunnerClient::new(&url, Credentials::new(&own.uuid, "0".repeat(40)));
    let nobody = RunnerClient::new(&url, Credentials::new(uuid::Uuid::new_v4().to_string(), &own.token));
    for client in [wrong, nobody, RunnerClient::anonymous(&url)] {
        refused_as(client.take().await, UNREGISTERED)?;
        refused_as(client.declare(&[], &[]).await, UNREGISTERED)?;
    }
    Ok(())
}

async fn registration(bench: &Bench<'_>) -> anyhow::Result<()> {
    let client = RunnerClient::anonymous(&bench.side.url());
    refused_as(client.register("question", "nope", &[]).await.map(drop), "runner registration token not found")?;
    let token = bench.side.registration_token(&crate::gitea::Scope::Global).await?;
    refused_as(client.register("", &token, &[]).await.map(drop), "missing runner token, name")
}

async fn registered(bench: &Bench<'_>) -> anyhow::Result<()> {
    let token = bench.side.registration_token(&crate::gitea::Scope::Repository(bench.repository.clone())).await?;
    let request = RegisterRequest {
        name: "question".into(),
        token: token.clone(),
        labels: vec![bench.label.clone()],
        version: "v9".into(),
        ..Default::default()
    };
    let client = RunnerClient::anonymous(&bench.side.url());
    let answer: RegisterResponse = client.call(Method::Register, &request).await?;
    let runner = answer.runner.into_option().context("a runner")?;
    ensure!(runner.id > 0 && runner.uuid.len() == 36 && runner.token.len() == 40, "{} {}", runner.id, runner.uuid);
    let told = (runner.name.as_str(), runner.version.as_str(), &runner.labels, runner.ephemeral);
    ensure!(told == ("question", "v9", &vec![bench.label.clone()], false), "{told:?}");
    let again = bench.side.registration_token(&crate::gitea::Scope::Repository(bench.repository.clone())).await?;
    ensure!(token == again, "the registration token was used up");
    Ok(())
}

async fn declared(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&["old"]).await?;
    let answer = runner.declare(&[&bench.label], &["cancelling"]).await?;
    let told = answer.runner.into_option().context("a runner")?;
    ensure!(told.token.is_empty(), "it tells the token");
    let uuid = &runner.credentials().context("registered")?.uuid;
    let shown = (&told.uuid, told.name.as_str(), told.version.as_str(), &told.labels);
    ensure!(shown == (uuid, "question", "testkit", &vec![bench.label.clone()]), "{shown:?}");
    Ok(())
}

async fn foreign(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let thief = Held { runner: bench.runner(&[]).await?, job: held.job, task: held.task.clone() };
    let update = thief.runner.update(thief.state(TaskResult::Success, vec![])).await;
    refused_as(update, "rpc error: code = Internal desc = update task: invalid runner for task")?;
    let log = thief.runner.update_log(&thief.log_request(0, &["x"], End::More)).await;
    refused_as(log, "rpc error: code = Internal desc = invalid runner for task")?;
    ensure!(held.heartbeat().await? == TaskResult::Unspecified, "the task has a result");
    Ok(())
}

async fn unknown(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let update = runner.update(TaskState { id: 999_999, ..Default::default() }).await;
    refused_as(update, "rpc error: code = Internal desc = update task: resource does not exist")?;
    let request = UpdateLogRequest { task_id: 999_999, ..Default::default() };
    let text = "rpc error: code = Internal desc = get task: task with id 999999: resource does not exist";
    refused_as(runner.update_log(&request).await, text)
}

async fn no_state(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let json = headers(&[("content-type", "application/json")]);
    let answer = runner.raw(Method::UpdateTask, json, Bytes::from_static(b"{}")).await?;
    is(&answer, StatusCode::INTERNAL_SERVER_ERROR, "application/json", |text| text.trim() == "Internal Server Error")
}

async fn archived(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::NoMore).await?;
    let late = held.runner.update_log(&held.log_request(1, &["b"], End::More)).await;
    refused_as(late, "rpc error: code = AlreadyExists desc = log file has been archived")
}

async fn routing(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let empty = |_: &str| true;
    let text = headers(&[("content-type", "text/plain")]);
    is(&runner.raw(Method::FetchTask, text, "x".into()).await?, StatusCode::UNSUPPORTED_MEDIA_TYPE, "", empty)?;
    let send = async |verb: Verb, method: &str| {
        let path = format!("/api/actions/runner.v1.RunnerService/{method}");
        runner.send(verb, &path, headers(&[("content-type", "application/json")]), "{}".into()).await
    };
    is(&send(Verb::PUT, "FetchTask").await?, StatusCode::METHOD_NOT_ALLOWED, "", empty)?;
    let unknown = send(Verb::POST, "Nope").await?;
    is(&unknown, StatusCode::NOT_FOUND, "text/plain; charset=utf-8", |text| text == "404 page not found\n")
}

async fn broken_body(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    for (content_type, body, cause) in [
        ("application/json", &b"{"[..], "unexpected EOF"),
        ("application/proto", &b"\xff\xff"[..], "cannot parse invalid wire-format data"),
    ] {
        let answer = runner.raw(Method::FetchTask, headers(&[("content-type", content_type)]), body.into()).await?;
        is(&answer, StatusCode::BAD_REQUEST, "application/json", |text| {
            let told: Value = serde_json::from_str(text).unwrap_or_default();
            // The space after `proto:` is now one, now another (§1).
            let message = told["message"].as_str().unwrap_or_default().replace('\u{a0}', " ");
            let start = "unmarshal message: unmarshal into *runnerv1.FetchTaskRequest: proto: ";
            told["code"] == "invalid_argument" && message == format!("{start}{cause}")
        })?;
    }
    Ok(())
}

/// So often a call may be answered within a millisecond.
const PROMPT: usize = 100;

async fn deadlines(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let none = headers(&[("content-type", "application/json"), ("connect-timeout-ms", "x")]);
    let answer = runner.raw(Method::FetchTask, none, "{}".into()).await?;
    is(&answer, StatusCode::BAD_REQUEST, "application/json", |text| text.contains("parse timeout: strconv.ParseInt"))?;
    let short = headers(&[("content-type", "application/json"), ("connect-timeout-ms", "1")]);
    // A quick side may keep even this one now and then.
    for _ in 0..PROMPT {
        let answer = runner.raw(Method::FetchTask, short.clone(), "{}".into()).await?;
        if answer.status != StatusCode::OK {
            let cause = |text: &str| text.contains("deadline_exceeded");
            return is(&answer, StatusCode::GATEWAY_TIMEOUT, "application/json", cause);
        }
    }
    bail!("{PROMPT} calls kept a deadline of a millisecond")
}

async fn ping(bench: &Bench<'_>) -> anyhow::Result<()> {
    let client = RunnerClient::anonymous(&bench.side.url());
    let json = headers(&[("content-type", "application/json")]);
    let answer = client.raw(Method::Ping, json, r#"{"data":"you"}"#.into()).await?;
    is(&answer, StatusCode::OK, "application/json", |text| {
        serde_json::from_str::<Value>(text).is_ok_and(|told| told == json!({"data": "Hello, you!"}))
    })
}

async fn json_and_gzip(bench: &Bench<'_>) -> anyhow::Result<()> {
    let long = "x".repeat(4000);
    let runner = bench.runner(&[&bench.label]).await?.encoding(Encoding::Json);
    bench.side.push(vec![bench.job("a", 1).secret("LONG", long.as_str()), bench.job("b", 1)]).await?;
    let task = runner.take().await?.context("a task")?;
    ensure!(task.secrets["LONG"] == long, "the secret has {} bytes", task.secrets["LONG"].len());
    let zipped = headers(&[("content-type", "application/json"), ("accept-encoding", "gzip")]);
    let answer = runner.raw(Method::FetchTask, zipped, r#"{"nobody":"knows"}"#.into()).await?;
    let encoding = answer.headers.get("content-encoding").and_then(|value| value.to_str().ok());
    ensure!(answer.status == StatusCode::OK, "a field that nobody knows: {}", answer.status);
    ensure!(encoding == Some("gzip") && answer.body.starts_with(&[0x1f, 0x8b]), "the encoding is {encoding:?}");
    Ok(())
}
