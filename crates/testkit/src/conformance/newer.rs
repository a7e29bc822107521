//! Questions about servers newer than what can be installed: the double answers from the contract alone.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as Verb};
use runner_proto::runner::v1::{DeclareRequest, Result as TaskResult};

use super::bench::{End, Held, context, finished, running, version};
use super::{Bench, Of, Question};
use crate::gitea::{Method, Status};
use crate::runner_client::RunnerClient;

/// Tried on Gitea's main branch of July 2026.
const CANCELLING: Of = Of::Newer { source: "contract §8, tried on main of 2026-07 (#37275)" };
const SUMMARY: Of = Of::Newer { source: "contract §5 and §12, 1.27" };
const VERSIONS: Of = Of::Newer { source: "contract §4.2, tried on main of 2026-07 (#38200)" };

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "1.27: Does the Declare reply tell of job summaries?",
        rules: &["capabilities_told"],
        of: SUMMARY,
        ask: |bench| Box::pin(capabilities(bench)),
    },
    Question {
        name: "1.27: Is a job summary taken from a running task only?",
        rules: &["artifacts_want_running"],
        of: SUMMARY,
        ask: |bench| Box::pin(summary(bench)),
    },
    Question {
        name: "1.27: Is a cancel put to a runner that declared `cancelling`?",
        rules: &["cancelling"],
        of: CANCELLING,
        ask: |bench| Box::pin(handshake(bench)),
    },
    Question {
        name: "1.27: Is a cancel put to a runner that did not?",
        rules: &[],
        of: CANCELLING,
        ask: |bench| Box::pin(no_handshake(bench)),
    },
    Question {
        name: "1.27: How does a task end that was asked to stop and reports success?",
        rules: &["cancelling_ends_cancelled"],
        of: CANCELLING,
        ask: |bench| Box::pin(ends_cancelled(bench)),
    },
    Question {
        name: "1.27: Are the steps of such a task stored, and does its token work?",
        rules: &["cancelling_takes_steps"],
        of: CANCELLING,
        ask: |bench| Box::pin(goes_on(bench)),
    },
    Question {
        name: "1.27: Are artifacts taken from such a task?",
        rules: &["artifacts_want_running"],
        of: CANCELLING,
        ask: |bench| Box::pin(no_artifacts(bench)),
    },
    Question {
        name: "1.27.1: Is a task asked to stop that has been silent for more than a minute?",
        rules: &["cancelling_wants_a_report"],
        of: Of::Newer { source: "contract §8 (#38616)" },
        ask: |bench| Box::pin(silent_before(bench)),
    },
    Question {
        name: "1.27: How does a task end that was asked to stop and falls silent?",
        rules: &["silent_cancelling_is_cancelled"],
        of: Of::Newer { source: "contract §6, tried on main of 2026-07" },
        ask: |bench| Box::pin(silent_after(bench)),
    },
    Question {
        name: "1.27: Does a heartbeat keep such a task open?",
        rules: &["heartbeat_keeps_alive"],
        of: Of::Newer { source: "contract §6, tried on main of 2026-07" },
        ask: |bench| Box::pin(kept_open(bench)),
    },
    Question {
        name: "1.27: Does a job's end raise the version while another waits?",
        rules: &["finish_bumps"],
        of: VERSIONS,
        ask: |bench| Box::pin(bump_at_the_end(bench)),
    },
    Question {
        name: "1.27: Does cancelling a waiting job raise the version?",
        rules: &["cancel_bumps"],
        of: VERSIONS,
        ask: |bench| Box::pin(bump_by_cancel(bench)),
    },
    Question {
        name: "1.27: Is no_more heard in a call without a new row?",
        rules: &["bare_no_more_ignored"],
        of: Of::Newer { source: "contract §9, tried on main of 2026-07 (#37631)" },
        ask: |bench| Box::pin(bare_no_more(bench)),
    },
];

async fn capabilities(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let body = serde_json::to_vec(&DeclareRequest::default())?;
    let answer = runner.raw(Method::Declare, headers, body.into()).await?;
    let told = answer.headers.get("x-gitea-actions-capabilities").and_then(|value| value.to_str().ok());
    ensure!(told == Some("job-summary"), "it tells {told:?}");
    Ok(())
}

/// A PUT of a step's summary, or a POST of an artifact, with the runtime token: its status.
async fn with_runtime_token(held: &Held, verb: Verb, path: &str) -> anyhow::Result<u16> {
    let token = context(&held.task, "gitea_runtime_token").context("a runtime token")?;
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}"))?);
    headers.insert("content-type", HeaderValue::from_static("text/markdown"));
    Ok(held.runner.send(verb, path, headers, Bytes::from_static(b"# Done")).await?.status.as_u16())
}

async fn summary(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let (run, job) = (context(&held.task, "run_id").context("a run")?, held.job);
    let path = format!("/api/actions_pipeline/_apis/pipelines/workflows/{run}/jobs/{job}/steps/0/summary");
    let running = with_runtime_token(&held, Verb::PUT, &path).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let ended = with_runtime_token(&held, Verb::PUT, &path).await?;
    ensure!((200..300).contains(&running) && ended >= 400, "{running}, after the end {ended}");
    Ok(())
}

/// A task whose runner declared `cancelling`, reported once.
async fn willing(bench: &Bench<'_>) -> anyhow::Result<Held> {
    let held = bench.held().await?;
    held.runner.declare(&[&bench.label], &["cancelling"]).await?;
    held.report(TaskResult::Unspecified, vec![running(0, 0, 1)]).await?;
    Ok(held)
}

/// Such a task after a user's cancel.
async fn asked(bench: &Bench<'_>) -> anyhow::Result<Held> {
    let held = willing(bench).await?;
    bench.side.cancel(held.job).await?;
    is(bench, &held, Status::Cancelling).await?;
    Ok(held)
}

async fn is(bench: &Bench<'_>, held: &Held, expected: Status) -> anyhow::Result<()> {
    let status = bench.look(held).await?.status;
    ensure!(status == expected, "the job is {status:?}");
    Ok(())
}

async fn handshake(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    let told = held.report(TaskResult::Unspecified, vec![running(0, 0, 1)]).await?;
    ensure!(told == TaskResult::Cancelled, "the reply says {told:?}");
    is(bench, &held, Status::Cancelling).await
}

async fn no_handshake(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.heartbeat().await?;
    bench.side.cancel(held.job).await?;
    is(bench, &held, Status::Cancelled).await
}

async fn ends_cancelled(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    let told = held.report(TaskResult::Success, vec![finished(0, 0, 1)]).await?;
    ensure!(told == TaskResult::Cancelled, "the reply says {told:?}");
    is(bench, &held, Status::Cancelled).await
}

async fn goes_on(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 0, 1), running(1, 1, 1)]).await?;
    let steps = bench.look(&held).await?.step_statuses();
    ensure!(steps == [Status::Success, Status::Running, Status::Waiting], "the steps are {steps:?}");
    let token = context(&held.task, "token").context("a token")?;
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}"))?);
    let status = held.runner.send(Verb::GET, "/api/v1/version", headers, Bytes::new()).await?.status;
    ensure!(status.is_success(), "the token is answered {status}");
    Ok(())
}

async fn no_artifacts(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    let path = "/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact";
    let status = with_runtime_token(&held, Verb::POST, path).await?;
    ensure!(status == 500, "an artifact is answered {status}");
    Ok(())
}

async fn silent_before(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = willing(bench).await?;
    bench.side.let_pass(std::time::Duration::from_secs(61)).await?;
    bench.side.cancel(held.job).await?;
    is(bench, &held, Status::Cancelled).await
}

async fn silent_after(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    bench.side.let_pass(bench.side.zombie_after()).await?;
    is(bench, &held, Status::Cancelled).await
}

async fn kept_open(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = asked(bench).await?;
    for _ in 0..6 {
        bench.side.let_pass(bench.side.zombie_after() / 3).await?;
        held.report(TaskResult::Unspecified, vec![running(0, 0, 1)]).await?;
    }
    is(bench, &held, Status::Cancelling).await
}

/// A job that waits, and one who looks at the version.
async fn waiting(bench: &Bench<'_>) -> anyhow::Result<(crate::gitea::JobId, RunnerClient)> {
    Ok((bench.push_one(bench.job("waits", 1)).await?, bench.runner(&[]).await?))
}

async fn bump_at_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let (_, watcher) = waiting(bench).await?;
    let before = version(&watcher).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let after = version(&watcher).await?;
    ensure!(after == before + 1, "the version went from {before} to {after}");
    Ok(())
}

async fn bump_by_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (job, watcher) = waiting(bench).await?;
    let before = version(&watcher).await?;
    bench.side.cancel(job).await?;
    let after = version(&watcher).await?;
    ensure!(after == before + 1, "the version went from {before} to {after}");
    Ok(())
}

async fn bare_no_more(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    held.log(1, &[], End::NoMore).await?;
    ensure!(super::log::sealed(&held, 1).await?, "the log is open");
    Ok(())
}
