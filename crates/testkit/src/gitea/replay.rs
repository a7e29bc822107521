//! Sends the recorded requests to the double and compares its answers with Gitea's, field by field.
//!
//! Placeholders of the recording stand for what the double hands out. Errors that a proxy injected while the trace was
//! recorded are ordered as faults. Beyond the answers, the steps that the double stored are compared with those sent.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use buffa::Message as _;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, RegisterRequest, RegisterResponse,
    Result as TaskResult, TaskState, UpdateLogRequest, UpdateLogResponse, UpdateTaskRequest, UpdateTaskResponse,
};
use serde_json::Value;

use super::clock::{from_wire, whole_seconds};
use super::{FaultSpec, Gitea, JobId, JobSpec, Method, Rules, Settings, Status, StepSpec};
use crate::runner_client::{Credentials, RawAnswer, RunnerClient};
use crate::traces::{Exchange, Trace, same};

const RECORDED_URL: &str = "http://gitea.invalid:3000";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// The answers: what was recorded of Gitea.
    Answers,
    /// Also the steps that the double stored with those that were sent. Gitea's own store was not recorded, so this
    /// shows nothing about Gitea.
    AnswersAndSteps,
}

/// Replays a trace against a double with these rules.
///
/// # Errors
///
/// With the first difference; the outermost context is its place in the trace.
pub async fn replay(trace: &Trace, rules: Rules, compare: Compare) -> anyhow::Result<()> {
    if trace.cases.is_empty() { replay_messages(trace, rules, compare).await } else { replay_cases(trace, rules).await }
}

/// A double that is about to see a recorded runner.
struct Stage {
    gitea: Gitea,
    client: RunnerClient,
    job: Option<JobId>,
    words: BTreeMap<String, &'static str>,
}

async fn replay_messages(trace: &Trace, rules: Rules, compare: Compare) -> anyhow::Result<()> {
    let mut stage = set_up(trace, rules).await?;
    let mut cancelled = false;
    for (number, exchange) in trace.messages.iter().enumerate() {
        let cancels = exchange.response.pointer("/state/result") == Some(&Value::from("RESULT_CANCELLED"));
        if cancels && !std::mem::replace(&mut cancelled, true) {
            stage.gitea.cancel(stage.job.context("a cancelled trace has a job")?);
        }
        let place = format!("{} #{number} {}", trace.name, exchange.method.as_deref().unwrap_or("http"));
        let result = match exchange.known_method() {
            Some(method) => stage.exchange(method, exchange, compare).await,
            None => stage.plain(exchange).await,
        };
        result.context(place)?;
    }
    Ok(())
}

/// Brings the double to where Gitea was when the recording began.
async fn set_up(trace: &Trace, rules: Rules) -> anyhow::Result<Stage> {
    let answers = trace.messages.iter().map(|exchange| &exchange.response);
    let number =
        |pointer: &str| answers.clone().find_map(|answer| answer.pointer(pointer)?.as_str()?.parse::<i64>().ok());
    let named = |pointer: &str| answers.clone().find_map(|answer| answer.pointer(pointer)?.as_str());
    let fetched = answers.clone().find_map(|answer| answer.pointer("/task/context"));
    let specs = fetched.map(|context| jobs(trace, context)).transpose()?.unwrap_or_default();
    let before = i64::try_from(specs.len()).unwrap_or_default();
    let settings = Settings {
        first_runner: number("/runner/id").unwrap_or(3),
        first_task: number("/task/id").unwrap_or(1) - (before - 1).max(0),
        first_run: number("/task/context/run_id").unwrap_or(1),
        first_version: number("/tasksVersion").unwrap_or(1) - before,
        ..Settings::default()
    };
    let gitea = Gitea::start_with(rules, settings).await;
    let registers = trace.messages.iter().any(|exchange| exchange.known_method() == Some(Method::Register));
    let client = if registers {
        RunnerClient::anonymous(&gitea.url())
    } else {
        let labels = ["pod", "self-hosted", "oncepod"];
        RunnerClient::new(&gitea.url(), gitea.register(named("/runner/name").unwrap_or("base"), labels))
    };
    let mut stage = Stage { gitea, client, job: None, words: BTreeMap::new() };
    let replaced = specs.into_iter().map(|spec| with_url(spec, &stage.gitea.url())).collect();
    let jobs = stage.gitea.push(replaced);
    if let [_, _] = jobs[..] {
        stage.run_needed_job().await?;
    }
    stage.job = jobs.last().copied();
    Ok(stage)
}

/// The recorded job, and before it the job that it needs.
fn jobs(trace: &Trace, context: &Value) -> anyhow::Result<Vec<JobSpec>> {
    let text = |key: &str| context[key].as_str().unwrap_or_default().to_owned();
    let mut job = JobSpec::new(text("job")).repository(text("repository")).event(text("event_name"));
    for key in ["actor", "run_number", "sha", "triggering_actor"] {
        job = job.context(key, text(key));
    }
    job = job.event_payload(context["event"].clone()).workflow(None, text("workflow"));
    let payload = trace.messages.iter().find_map(|exchange| exchange.workflow_payload_text.clone());
    let step = |name: &str, script: &str| StepSpec::run(script).name(name);
    Ok(match trace.name {
        "job-success" => {
            let steps = vec![StepSpec::default(); 5];
            vec![job.runs_on(["pod"]).steps(steps).payload(payload.context("the trace has the payload")?)]
        }
        "job-failure" => {
            let steps = [
                step("uses the output", "echo \"got ${{ needs.build.outputs.v }}\""),
                step("fails", "echo about to fail\nexit 3\n"),
                step("never", "echo never"),
                step("always", "echo always").when("always()"),
            ];
            let needed = JobSpec::new("build").repository(text("repository")).runs_on(["pod"]);
            let job = job.workflow(Some("baseline"), text("workflow")).env("TOP", "level").needs(["build"]);
            vec![needed, job.runs_on(["pod", "self-hosted"]).steps(steps)]
        }
        "job-cancelled" => vec![job.runs_on(["pod"]).steps([
            StepSpec::uses("lab/post-action@main").name("with post").with("word", "hi"),
            step("sleeps", "trap 'echo got TERM; exit 9' TERM\nfor i in $(seq 60); do echo tick $i; sleep 1; done\n"),
            step("after", "echo after"),
            step("cleanup", "for i in $(seq 6); do echo cleaning $i; sleep 1; done\n").when("always()"),
        ])],
        "once-quick" => vec![job.runs_on(["oncepod"]).steps([
            step("one", "echo one"),
            step("two", "echo \"::error::something\"\necho \"done\" >> \"$GITHUB_STEP_SUMMARY\"\n"),
        ])],
        "once-sigterm" => vec![job.runs_on(["oncepod"]).steps([
            StepSpec::run("echo first"),
            step("sleeper", "echo start; for i in $(seq 40); do sleep 1; echo t$i; done\n"),
            step("always", "echo always-ran").when("always()"),
        ])],
        _ => {
            let payload = payload.context("the trace has the payload")?;
            let steps =
                vec![StepSpec::default(); payload.matches("- run:").count() + payload.matches("- name:").count()];
            vec![job.runs_on(["oncepod"]).steps(steps).payload(payload)]
        }
    })
}

fn with_url(mut spec: JobSpec, url: &str) -> JobSpec {
    let words = BTreeMap::from([(RECORDED_URL.to_owned(), url)]);
    spec.event = spec.event.map(|event| reworded(&event, &words));
    spec
}

impl Stage {
    /// The build that `job-failure` needs: it succeeds with one output.
    async fn run_needed_job(&self) -> anyhow::Result<()> {
        let builder = RunnerClient::new(&self.gitea.url(), self.gitea.register("builder", ["pod"]));
        let task = builder.take().await?.context("the needed job is waiting")?;
        let state = TaskState { id: task.id, result: TaskResult::Success.into(), ..Default::default() };
        let outputs = [("v".to_owned(), "forty-two".to_owned())].into_iter().collect();
        builder.update_task(&UpdateTaskRequest { state: Some(state).into(), outputs, ..Default::default() }).await?;
        Ok(())
    }

    async fn exchange(&mut self, method: Method, exchange: &Exchange, compare: Compare) -> anyhow::Result<()> {
        if let Some(fault) = injected(exchange) {
            self.gitea.fail_next(method, fault);
        }
        let token = self.gitea.registration_token();
        let request = reworded(&exchange.request, &BTreeMap::from([("REGISTRATION_TOKEN".to_owned(), token.as_str())]));
        let mut headers = HeaderMap::new();
        for (name, value) in &exchange.request_headers {
            if !name.starts_with("x-runner-") {
                headers.insert(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
            }
        }
        headers.remove("accept-encoding");
        let answer = self.client.raw(method, headers, encoded(method, &request)?).await?;
        ensure!(answer.status.as_u16() == exchange.status, "HTTP {} for {}", answer.status, exchange.status);
        let told = decoded(method, &answer)?;
        self.learn(method, &told);
        let told = reworded(&told, &self.words);
        ensure!(alike(&told, &exchange.response), "answered {told} for {}", exchange.response);
        if compare == Compare::AnswersAndSteps && method == Method::UpdateTask && exchange.status == 200 {
            self.compare_steps(&request)?;
        }
        Ok(())
    }

    /// Learns what stands for the placeholders.
    fn learn(&mut self, method: Method, answer: &Value) {
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        if method == Method::Register
            && let (Some(uuid), Some(token)) = (text("/runner/uuid"), text("/runner/token"))
        {
            self.client = RunnerClient::new(&self.gitea.url(), Credentials::new(uuid, token));
        }
        let credentials = self.client.credentials().cloned();
        let (uuid, token) = credentials.map(|own| (own.uuid, own.token)).unzip();
        let known = [
            (uuid, "RUNNER_UUID"),
            (token, "RUNNER_TOKEN"),
            (text("/task/context/token"), "JOB_TOKEN"),
            (text("/task/context/gitea_runtime_token"), "RUNTIME_JWT"),
            (Some(self.gitea.url()), RECORDED_URL),
        ];
        self.words.extend(known.into_iter().filter_map(|(own, recorded)| Some((own?, recorded))));
    }

    /// What the request says of the steps is what the double has stored, unless the task was cancelled.
    fn compare_steps(&self, request: &Value) -> anyhow::Result<()> {
        let request: UpdateTaskRequest = serde_json::from_value(request.clone())?;
        let state = self.gitea.state(self.job.context("an update has a job")?);
        if state.status == Status::Cancelled {
            return Ok(());
        }
        for sent in &request.state.steps {
            let stored = &state.steps[usize::try_from(sent.id)?];
            let started = sent.started_at.as_option().and_then(from_wire).map(whole_seconds);
            let result = sent.result.as_known().unwrap_or_default();
            let status = Status::of(result).unwrap_or(started.map_or(Status::Waiting, |_| Status::Running));
            let range = (stored.log_index, stored.log_length);
            ensure!(stored.status == status && stored.started == started, "step {}: {stored:?}", sent.id);
            ensure!(range == (sent.log_index, sent.log_length), "step {}: rows {range:?}", sent.id);
        }
        Ok(())
    }

    /// A request that was no RunnerService call; only its status was recorded.
    async fn plain(&self, exchange: &Exchange) -> anyhow::Result<()> {
        let recorded = exchange.http.as_deref().and_then(|http| http.split_once(' '));
        let (verb, path) = recorded.context("verb and path")?;
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/proto"))]);
        let anonymous = RunnerClient::anonymous(&self.gitea.url());
        let answer = anonymous.send(verb.parse()?, path, headers, Bytes::new()).await?;
        ensure!(answer.status.as_u16() == exchange.status, "{verb} {path}: HTTP {}", answer.status);
        Ok(())
    }
}

/// A genuine Connect error is not Gitea's: something in between answered.
fn injected(exchange: &Exchange) -> Option<FaultSpec> {
    let body = exchange.response.to_string();
    matches!(exchange.status, 401 | 503).then(|| FaultSpec::answer(exchange.status, "application/json", body))
}

/// `errors.json`: task 5 has ended with one row; runner A held it, runner B did not.
async fn replay_cases(trace: &Trace, rules: Rules) -> anyhow::Result<()> {
    let settings = Settings { first_task: 5, first_version: 5, ..Settings::default() };
    let gitea = Gitea::start_with(rules, settings).await;
    let (owner, other) = (gitea.register("a", ["pod"]), gitea.register("b", ["pod"]));
    gitea.push(vec![JobSpec::new("j").runs_on(["pod"])]);
    let client = RunnerClient::new(&gitea.url(), owner.clone());
    let task = client.take().await?.context("the job is waiting")?.id;
    let row = runner_proto::runner::v1::LogRow { content: "row".into(), ..Default::default() };
    let log = UpdateLogRequest { task_id: task, rows: vec![row], no_more: true, ..Default::default() };
    client.update_log(&log).await?;
    client.update(TaskState { id: task, result: TaskResult::Success.into(), ..Default::default() }).await?;
    for exchange in &trace.cases {
        let case = exchange.case.as_deref().unwrap_or_default();
        let credentials = match case {
            "wrong token" => Some(Credentials::new(&owner.uuid, "nope")),
            "unknown uuid" => Some(Credentials::new("nope", &owner.token)),
            "task of another runner" => Some(other.clone()),
            "no credentials" => None,
            case if case.starts_with("register") => None,
            _ => Some(owner.clone()),
        };
        let anonymous = RunnerClient::anonymous(&gitea.url());
        let client = credentials.map_or(anonymous, |own| RunnerClient::new(&gitea.url(), own));
        compare_case(&client, exchange).await.with_context(|| format!("{}: {case}", trace.name))?;
    }
    Ok(())
}

async fn compare_case(client: &RunnerClient, exchange: &Exchange) -> anyhow::Result<()> {
    let mut headers = HeaderMap::new();
    for (name, value) in &exchange.request_headers {
        headers.insert(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
    }
    let body: Vec<u8> = match &exchange.request {
        // The recording keeps bytes as characters of the same number.
        Value::String(text) => text.chars().map(|each| u8::try_from(u32::from(each))).collect::<Result<_, _>>()?,
        message => serde_json::to_vec(message)?,
    };
    let verb = exchange.verb.as_deref().unwrap_or("POST").parse()?;
    let method = exchange.method.as_deref().unwrap_or_default();
    let path = format!("/api/actions/runner.v1.RunnerService/{method}");
    let answer = client.send(verb, &path, headers, body.into()).await?;
    let text = String::from_utf8(answer.body.to_vec())?;
    ensure!(answer.status.as_u16() == exchange.status, "HTTP {}: {text}", answer.status);
    let content_type = answer.headers.get(CONTENT_TYPE).map(|value| value.to_str()).transpose()?;
    ensure!(content_type == exchange.content_type.as_deref(), "content type {content_type:?}");
    let told = match &exchange.response {
        Value::String(_) => Value::String(text),
        _ => serde_json::from_str(&text)?,
    };
    ensure!(same(&told, &exchange.response), "answered {told} for {}", exchange.response);
    Ok(())
}

fn encoded(method: Method, request: &Value) -> anyhow::Result<Bytes> {
    fn encode<M: buffa::Message + serde::de::DeserializeOwned>(json: &Value) -> anyhow::Result<Bytes> {
        Ok(serde_json::from_value::<M>(json.clone())?.encode_to_vec().into())
    }
    match method {
        Method::Ping => Ok(Bytes::new()),
        Method::Register => encode::<RegisterRequest>(request),
        Method::Declare => encode::<DeclareRequest>(request),
        Method::FetchTask => encode::<FetchTaskRequest>(request),
        Method::UpdateTask => encode::<UpdateTaskRequest>(request),
        Method::UpdateLog => encode::<UpdateLogRequest>(request),
    }
}

fn decoded(method: Method, answer: &RawAnswer) -> anyhow::Result<Value> {
    let body = &answer.body[..];
    if answer.status != http::StatusCode::OK {
        return Ok(serde_json::from_slice(body)?);
    }
    Ok(match method {
        Method::Ping => Value::Null,
        Method::Register => serde_json::to_value(RegisterResponse::decode_from_slice(body)?)?,
        Method::Declare => serde_json::to_value(DeclareResponse::decode_from_slice(body)?)?,
        Method::FetchTask => serde_json::to_value(FetchTaskResponse::decode_from_slice(body)?)?,
        Method::UpdateTask => serde_json::to_value(UpdateTaskResponse::decode_from_slice(body)?)?,
        Method::UpdateLog => serde_json::to_value(UpdateLogResponse::decode_from_slice(body)?)?,
    })
}

/// Puts other words for some in every text of a message.
fn reworded(json: &Value, words: &BTreeMap<String, &str>) -> Value {
    match json {
        Value::String(text) => {
            let replace = |text: String, (from, to): (&String, &&str)| text.replace(from.as_str(), to);
            Value::String(words.iter().fold(text.clone(), replace))
        }
        Value::Array(items) => items.iter().map(|item| reworded(item, words)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), reworded(value, words)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// As [`same`], and a difference in a workflow can be read.
fn alike(told: &Value, recorded: &Value) -> bool {
    let text = |json: &Value| {
        let payload = json.pointer("/task/workflowPayload")?.as_str()?;
        String::from_utf8(STANDARD.decode(payload).ok()?).ok()
    };
    text(told) == text(recorded) && same(told, recorded)
}
