//! Questions about what a task carries (§11).

use anyhow::{Context as _, ensure};
use runner_proto::runner::v1::Task;

use super::bench::{context, payload};
use super::{Bench, Of, Question};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Which secrets does a task carry?",
        rules: &["tokens_in_secrets"],
        of: Of::Both,
        ask: |bench| Box::pin(secrets(bench)),
    },
    Question {
        name: "Which variables does a task carry?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(variables(bench)),
    },
    Question {
        name: "Which keys does the context have?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(keys(bench)),
    },
    Question {
        name: "What do the keys of the context say of a push?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(values(bench)),
    },
    Question {
        name: "How does a missing runs-on arrive?",
        rules: &["missing_runs_on_is_empty_list"],
        of: Of::Both,
        ask: |bench| Box::pin(missing_runs_on(bench)),
    },
    Question {
        name: "What does the workflow of a task look like?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(workflow(bench)),
    },
    Question {
        name: "What does the runtime token claim?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(runtime_token(bench)),
    },
];

async fn secrets(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.hold(bench.job("j", 1).secret("PASSWORD", "hidden")).await?;
    let mut names: Vec<_> = held.task.secrets.keys().map(String::as_str).collect();
    names.sort_unstable();
    ensure!(names == ["GITEA_TOKEN", "GITHUB_TOKEN", "PASSWORD"], "the secrets are {names:?}");
    ensure!(held.task.secrets["PASSWORD"] == "hidden", "the secret has another value");
    let token = context(&held.task, "token");
    let same = ["GITEA_TOKEN", "GITHUB_TOKEN"].iter().all(|name| held.task.secrets.get(*name) == token.as_ref());
    ensure!(same && token.is_some_and(|token| token.len() == 40), "both are the token of the context, 40 digits");
    Ok(())
}

async fn variables(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.hold(bench.job("j", 1).var("COLOUR", "green")).await?;
    let vars: Vec<_> = held.task.vars.iter().collect();
    ensure!(vars == [(&"COLOUR".to_owned(), &"green".to_owned())], "the variables are {vars:?}");
    Ok(())
}

/// §11.2, in the order of the alphabet.
const KEYS: [&str; 36] = [
    "action",
    "action_path",
    "action_ref",
    "action_repository",
    "action_status",
    "actor",
    "api_url",
    "base_ref",
    "env",
    "event",
    "event_name",
    "event_path",
    "gitea_default_actions_url",
    "gitea_runtime_token",
    "graphql_url",
    "head_ref",
    "job",
    "path",
    "ref",
    "ref_name",
    "ref_protected",
    "ref_type",
    "repository",
    "repositoryUrl",
    "repository_owner",
    "retention_days",
    "run_attempt",
    "run_id",
    "run_number",
    "secret_source",
    "server_url",
    "sha",
    "token",
    "triggering_actor",
    "workflow",
    "workspace",
];

async fn keys(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let fields = &held.task.context.as_option().context("a context")?.fields;
    let mut keys: Vec<_> = fields.keys().map(String::as_str).collect();
    keys.sort_unstable();
    ensure!(keys == KEYS, "the keys are {keys:?}");
    Ok(())
}

async fn values(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let (url, repository) = (bench.side.url(), &bench.repository);
    let owner = repository.split('/').next().unwrap_or_default();
    for (key, expected) in [
        ("api_url", format!("{url}/api/v1").as_str()),
        ("server_url", &format!("{url}/")),
        ("gitea_default_actions_url", &url),
        ("repository", repository),
        ("repository_owner", owner),
        ("event_name", "push"),
        ("job", "j"),
        ("ref", "refs/heads/main"),
        ("ref_name", "main"),
        ("ref_type", "branch"),
        ("run_attempt", "1"),
        ("run_number", "1"),
        ("secret_source", "Actions"),
        ("workflow", "ci.yml"),
        ("workspace", ""),
        ("action", ""),
    ] {
        let value = context(&held.task, key);
        ensure!(value.as_deref() == Some(expected), "{key} is {value:?}, not {expected:?}");
    }
    let event = |task: &Task| {
        let event = task.context.as_option()?.fields.get("event")?;
        serde_json::to_value(event).ok()?.pointer("/repository/full_name")?.as_str().map(str::to_owned)
    };
    ensure!(event(&held.task).as_ref() == Some(repository), "the event is of {:?}", event(&held.task));
    Ok(())
}

async fn missing_runs_on(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.hold(bench.job("j", 1).runs_on([] as [&str; 0])).await?;
    let text = payload(&held.task);
    ensure!(text.contains("        runs-on: []\n"), "the workflow is {text}");
    Ok(())
}

async fn workflow(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = bench.job("on", 2).runs_on([&bench.label, &bench.second_label()]).env("TOP", "level");
    let runner = bench.runner(&[&bench.label, &bench.second_label()]).await?;
    bench.push_one(job).await?;
    let text = payload(&runner.take().await?.context("a task")?);
    let (one, two) = (&bench.label, bench.second_label());
    let expected = format!(
        "\"on\": push\nenv:\n    TOP: level\njobs:\n    \"on\":\n        name: \"on\"\n        runs-on:\n            \
         - {one}\n            - {two}\n        steps:\n            - run: echo 0\n            - run: echo 1\n"
    );
    ensure!(text == expected, "the workflow is\n{text}\nnot\n{expected}");
    Ok(())
}

async fn runtime_token(bench: &Bench<'_>) -> anyhow::Result<()> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let held = bench.held().await?;
    let token = context(&held.task, "gitea_runtime_token").context("a runtime token")?;
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).context("three parts")?)?;
    let claims: serde_json::Value = serde_json::from_slice(&claims)?;
    let run = context(&held.task, "run_id").context("a run")?;
    let scope = format!("Actions.Results:{run}:{}", held.job);
    ensure!(claims["scp"] == scope, "the scope is {}, not {scope}", claims["scp"]);
    ensure!(claims["TaskID"] == held.task.id && claims["JobID"] == held.job.0, "it is for {claims}");
    ensure!(claims["RunID"] == run.parse::<i64>()?, "it is for run {}", claims["RunID"]);
    let life = claims["exp"].as_i64().unwrap_or_default() - claims["nbf"].as_i64().unwrap_or_default();
    ensure!(life == 4 * 3600, "it lives for {life} s");
    Ok(())
}
