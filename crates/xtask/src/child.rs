//! A program that works for us: with a deadline, its output kept in a log file and shown only when it fails.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::say::Step;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// How it ended, and what it wrote.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    lines: Vec<(Stream, String)>,
}

impl Finished {
    /// The lines of both streams, in the order they came.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(_, line)| line.as_str())
    }

    /// What it wrote to standard output.
    pub(crate) fn out(&self) -> String {
        let lines = self.lines.iter().filter(|(stream, _)| *stream == Stream::Out);
        lines.map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The last lines of both streams, in the order they came.
    pub(crate) fn tail(&self, count: usize) -> String {
        let lines = self.lines.iter().skip(self.lines.len().saturating_sub(count));
        lines.map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// Runs a program to its end. The step shows its last line.
///
/// # Errors
/// It cannot be started, or is not done within `limit` and was killed.
pub(crate) async fn run(mut command: Command, limit: Duration, step: &mut Step) -> anyhow::Result<Finished> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("start {name}"))?;
    let (sender, mut receiver) = mpsc::channel(64);
    forward(child.stdout.take(), Stream::Out, sender.clone());
    forward(child.stderr.take(), Stream::Err, sender);
    let end = Instant::now() + limit;
    let late = || format!("{name}: not done within {} min; killed", limit.as_secs() / 60);
    let mut lines = Vec::new();
    let mut last = String::new();
    loop {
        let soon = end.min(Instant::now() + Duration::from_secs(1));
        match timeout_at(soon, receiver.recv()).await {
            Ok(Some((stream, line))) => {
                // What is meant for programs is no progress for people.
                if stream == Stream::Err {
                    last.clone_from(&line);
                }
                lines.push((stream, line));
            }
            Ok(None) => break,
            Err(_) if Instant::now() >= end => bail!(late()),
            Err(_) => {}
        }
        step.tick(&last);
    }
    let status = timeout_at(end, child.wait()).await.with_context(late)?.with_context(|| format!("wait for {name}"))?;
    Ok(Finished { status, lines })
}

/// As [`run`], and keeps the output in a file; anything but success is an error with the end of the output.
pub(crate) async fn run_logged(
    command: Command,
    limit: Duration,
    step: &mut Step,
    log: &Path,
) -> anyhow::Result<Finished> {
    let shown = format!("{:?}", command.as_std()).replace('"', "");
    let finished = run(command, limit, step).await?;
    let text = format!("$ {shown}\n{}\n", finished.tail(usize::MAX));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(log);
    let write = |file: &mut std::fs::File| std::io::Write::write_all(file, text.as_bytes());
    file.as_mut()
        .map_or_else(|error| Err(std::io::Error::from(error.kind())), write)
        .with_context(|| format!("write {}", log.display()))?;
    if !finished.status.success() {
        bail!("{shown}\nended with {}:\n{}\n(all of it: {})", finished.status, finished.tail(20), log.display());
    }
    Ok(finished)
}

fn forward(
    pipe: Option<impl tokio::io::AsyncRead + Unpin + Send + 'static>,
    stream: Stream,
    sender: mpsc::Sender<(Stream, String)>,
) {
    let Some(pipe) = pipe else { return };
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            if sender.send((stream, String::from_utf8_lossy(&line).into_owned())).await.is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_and_status_are_kept() {
        let mut step = Step::begin("test");
        let done = run(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(60), &mut step).await.unwrap();
        assert_eq!((done.out().as_str(), done.status.code()), ("out", Some(3)));
        assert!(done.tail(2).contains("err"));
    }

    #[tokio::test]
    async fn a_deadline_kills() {
        let mut step = Step::begin("test");
        let late = run(shell("exec sleep 60"), Duration::from_millis(100), &mut step).await;
        assert!(late.err().unwrap().to_string().contains("not done within"));
    }

    #[tokio::test]
    async fn a_failure_shows_its_words_and_its_log() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut step = Step::begin("test");
        let failed = run_logged(shell("echo no such module; exit 1"), Duration::from_secs(60), &mut step, log.path());
        let text = failed.await.err().unwrap().to_string();
        assert!(text.contains("no such module") && text.contains(&log.path().display().to_string()), "{text}");
        assert!(std::fs::read_to_string(log.path()).unwrap().contains("no such module"));
    }
}
