//! Questions about what jobs reach beside RunnerService: artifacts and the job's token (§8, §12).

use anyhow::{Context as _, ensure};
use http::{HeaderMap, HeaderValue, Method as Verb, StatusCode};
use runner_proto::runner::v1::Result as TaskResult;
use serde_json::{Value, json};

use super::bench::{Held, context};
use super::{Bench, Of, Question};
use crate::runner_client::RawAnswer;

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Does the URL of an artifact (v4) carry the Host of the request?",
        rules: &["artifact_urls_follow_host"],
        of: Of::Both,
        ask: |bench| Box::pin(host(bench)),
    },
    Question {
        name: "Does the URL of an artifact (v4) follow X-Forwarded-Proto?",
        rules: &["artifact_urls_follow_scheme"],
        of: Of::Both,
        ask: |bench| Box::pin(scheme(bench)),
    },
    Question {
        name: "Does the URL of an artifact (v3) carry the Host of the request?",
        rules: &["artifact_urls_follow_host"],
        of: Of::Both,
        ask: |bench| Box::pin(third_version(bench)),
    },
    Question {
        name: "Is an artifact taken after the end of its task?",
        rules: &["artifacts_want_running"],
        of: Of::Both,
        ask: |bench| Box::pin(after_the_end(bench)),
    },
    Question {
        name: "Does the job's token open REST and git, and until when?",
        rules: &["job_token_dies"],
        of: Of::Both,
        ask: |bench| Box::pin(token_until_the_end(bench)),
    },
    Question {
        name: "Does a cancel close REST to the job's token?",
        rules: &["job_token_dies"],
        of: Of::Both,
        ask: |bench| Box::pin(token_until_the_cancel(bench)),
    },
];

/// The name that a proxy was reached by.
const PROXY: &str = "proxy.invalid:8001";

/// A POST of JSON as the job with this authorization, sent to the proxy's name.
async fn post(held: &Held, path: &str, scheme: &str, body: Value) -> anyhow::Result<RawAnswer> {
    let mut headers = HeaderMap::new();
    let token = context(&held.task, "gitea_runtime_token").context("a runtime token")?;
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}"))?);
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("host", HeaderValue::from_static(PROXY));
    headers.insert("x-forwarded-proto", HeaderValue::from_str(scheme)?);
    Ok(held.runner.send(Verb::POST, path, headers, body.to_string().into()).await?)
}

/// Begins an artifact of the fourth version.
async fn create(held: &Held, scheme: &str) -> anyhow::Result<RawAnswer> {
    let body = json!({
        "workflow_run_backend_id": context(&held.task, "run_id"), "workflow_job_run_backend_id": held.job.to_string(),
        "name": "parcel", "version": 4,
    });
    post(held, "/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact", scheme, body).await
}

/// The URL under this key.
fn url(answer: &RawAnswer, key: &str) -> anyhow::Result<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let told: Value = serde_json::from_str(&text).with_context(|| format!("{} {text}", answer.status))?;
    told[key].as_str().map(str::to_owned).with_context(|| format!("{} {text}", answer.status))
}

async fn host(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let url = url(&create(&held, "http").await?, "signedUploadUrl")?;
    let start = format!("http://{PROXY}/twirp/github.actions.results.api.v1.ArtifactService/UploadArtifact?sig=");
    ensure!(url.starts_with(&start), "the URL is {url}");
    Ok(())
}

async fn scheme(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let url = url(&create(&held, "https").await?, "signedUploadUrl")?;
    ensure!(url.starts_with(&format!("https://{PROXY}/")), "the URL is {url}");
    Ok(())
}

async fn third_version(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let run = context(&held.task, "run_id").context("a run")?;
    let path = format!("/api/actions_pipeline/_apis/pipelines/workflows/{run}/artifacts");
    let answer = post(&held, &path, "http", json!({"Type": "actions_storage", "Name": "parcel"})).await?;
    let url = url(&answer, "fileContainerResourceUrl")?;
    ensure!(url.starts_with(&format!("http://{PROXY}{path}/")) && url.ends_with("/upload"), "the URL is {url}");
    Ok(())
}

async fn after_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Success, vec![]).await?;
    let answer = create(&held, "http").await?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == StatusCode::INTERNAL_SERVER_ERROR, "{} {text}", answer.status);
    ensure!(text.contains("task is not running"), "{text}");
    Ok(())
}

/// The statuses of a REST and a git request with the job's token.
async fn reach(bench: &Bench<'_>, held: &Held) -> anyhow::Result<[u16; 2]> {
    let token = context(&held.task, "token").context("a token")?;
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}"))?);
    let get = async |path: &str| held.runner.send(Verb::GET, path, headers.clone(), "".into()).await;
    let rest = get(&format!("/api/v1/repos/{}", bench.repository)).await?;
    let git = get(&format!("/{}.git/info/refs?service=git-upload-pack", bench.repository)).await?;
    Ok([rest, git].map(|answer| answer.status.as_u16()))
}

async fn token_until_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let before = reach(bench, &held).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let after = reach(bench, &held).await?;
    ensure!((before, after) == ([200, 200], [401, 401]), "REST and git: {before:?}, after the end {after:?}");
    Ok(())
}

async fn token_until_the_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.cancel(held.job).await?;
    let after = reach(bench, &held).await?;
    ensure!(after == [401, 401], "REST and git: {after:?}");
    Ok(())
}
