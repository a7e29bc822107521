//! The words that steps are made of, one per line of `run:`.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// How the runner takes a wish to end its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// As the official one.
    Obey,
    /// It goes on as if nothing had happened, but reports nothing any more.
    Mute,
    /// It ends its process without a final report.
    Leave,
    /// It goes on, reports and all.
    Ignore,
}

/// One word of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// `say TEXT`: one row.
    Say(String),
    /// `sleep MS`.
    Sleep(Duration),
    /// `burst N [BYTES]`: rows `row 1` to `row N`, filled up to BYTES.
    Burst { rows: usize, bytes: usize },
    /// `gate NAME`: waits until the test opens it.
    Gate(String),
    /// `hang`: until somebody ends it.
    Hang,
    /// `fail`: the step is a failure.
    Fail,
    /// `output KEY VALUE`: of the job.
    Output(String, String),
    /// `need JOB KEY VALUE`: fails unless the needed job had this output.
    Need { job: String, key: String, value: String },
    /// `on-cancel obey|mute|leave|ignore`, from here on.
    OnCancel(Manners),
    /// `on-sigterm obey|mute|leave|ignore`, from here on.
    OnSigterm(Manners),
    /// `vanish`: the process ends at once, with exit code 0.
    Vanish,
    /// `kill-executor`: SIGKILL to the parent.
    KillExecutor,
    /// `terminate-self`: SIGTERM to the runner.
    TerminateSelf,
    /// `leave-behind`: a process in a session of its own.
    LeaveBehind,
    /// `try declare|fetch|success|bare-success|failure|state|another-task|rows`: a call past the reporter; its answer is
    /// told to the desk. `success` closes every step, `bare-success` names none, `another-task` is of somebody else's.
    Try(String),
    /// `proxy METHOD TARGET [HEADER=VALUE …]`: a request to the proxy; the status is told to the desk.
    Proxy { method: String, target: String, headers: Vec<(String, String)> },
}

/// A job's steps.
pub(super) fn of_payload(payload: &[u8]) -> anyhow::Result<Vec<Vec<Word>>> {
    let text = std::str::from_utf8(payload)?;
    let value: Value = serde_saphyr::from_str(text).context("the payload")?;
    let jobs = value.get("jobs").and_then(Value::as_object).context("the payload has no jobs")?;
    let job = jobs.values().next().context("the payload has no job")?;
    let runs_on = job.get("runs-on").context("the job has no runs-on")?;
    if runs_on.as_array().is_some_and(Vec::is_empty) || runs_on.is_null() {
        bail!("the official runner would take Docker: runs-on is empty");
    }
    let steps = job.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
    steps.iter().map(|step| words(step.get("run").and_then(Value::as_str).unwrap_or_default())).collect()
}

fn words(script: &str) -> anyhow::Result<Vec<Word>> {
    script.lines().map(str::trim).filter(|line| !line.is_empty()).map(word).collect()
}

fn word(line: &str) -> anyhow::Result<Word> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let parts: Vec<&str> = rest.split_whitespace().collect();
    let part = |at: usize| parts.get(at).copied().with_context(|| format!("{line:?} lacks a part"));
    Ok(match verb {
        // What the default job of the double says.
        "say" | "echo" => Word::Say(rest.to_owned()),
        "sleep" => Word::Sleep(Duration::from_millis(part(0)?.parse()?)),
        "burst" => Word::Burst { rows: part(0)?.parse()?, bytes: part(1).map_or(Ok(0), str::parse)? },
        "gate" => Word::Gate(part(0)?.to_owned()),
        "hang" => Word::Hang,
        "fail" => Word::Fail,
        "output" => Word::Output(part(0)?.to_owned(), part(1)?.to_owned()),
        "need" => Word::Need { job: part(0)?.to_owned(), key: part(1)?.to_owned(), value: part(2)?.to_owned() },
        "on-cancel" => Word::OnCancel(manners(part(0)?)?),
        "on-sigterm" => Word::OnSigterm(manners(part(0)?)?),
        "vanish" => Word::Vanish,
        "kill-executor" => Word::KillExecutor,
        "terminate-self" => Word::TerminateSelf,
        "leave-behind" => Word::LeaveBehind,
        "try" => Word::Try(part(0)?.to_owned()),
        "proxy" => Word::Proxy {
            method: part(0)?.to_owned(),
            target: part(1)?.to_owned(),
            headers: parts.iter().skip(2).filter_map(|header| header.split_once('=')).map(owned).collect(),
        },
        verb => bail!("the stand-in has no word {verb:?}"),
    })
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn manners(text: &str) -> anyhow::Result<Manners> {
    Ok(match text {
        "obey" => Manners::Obey,
        "mute" => Manners::Mute,
        "leave" => Manners::Leave,
        "ignore" => Manners::Ignore,
        text => bail!("no manners {text:?}"),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_payload_is_steps_of_words() {
        let payload = "jobs:\n  j:\n    runs-on: local\n    steps:\n      - run: |\n          say a b\n          sleep 5\n      \
                       - run: proxy GET /x a=b\n";
        let proxy = Word::Proxy { method: "GET".into(), target: "/x".into(), headers: vec![owned(("a", "b"))] };
        let first = vec![Word::Say("a b".into()), Word::Sleep(Duration::from_millis(5))];
        assert_eq!(of_payload(payload.as_bytes()).unwrap(), [first, vec![proxy]]);
        assert!(of_payload(b"jobs:\n  j:\n    runs-on: []\n").is_err());
        assert!(words("dance").is_err() && words("gate").is_err());
    }
}
