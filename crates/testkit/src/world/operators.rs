//! What operators of a world's controller see.

use std::path::Path;
use std::time::Duration;

use super::{SOON, World, must};

impl World {
    /// What `status` says to an operator: whether it is ready, and its words.
    ///
    /// # Panics
    /// It cannot be asked.
    pub async fn status(&self) -> (bool, String) {
        let mut command = tokio::process::Command::new(self.controller.program());
        command.args(["status", "--state"]).arg(self.state());
        let output = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await;
        let output = must(must(output, "status"), "status");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    /// What the controller's `/metrics` says.
    ///
    /// # Panics
    /// It cannot be asked.
    pub async fn metrics(&self) -> String {
        must(self.ask("/metrics").await, "/metrics").1
    }

    /// What the controller's server for operators answers: status and body.
    ///
    /// # Errors
    /// It does not listen, or does not answer.
    pub async fn ask(&self, path: &str) -> Result<(u16, String), String> {
        asked(&self.state(), path).await
    }

    /// Waits until the controller's server for operators answers so.
    ///
    /// # Panics
    /// It does not within `limit`.
    pub async fn operators_see(&self, path: &str, limit: Duration, fits: impl Fn(u16, &str) -> bool) {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let answer = self.ask(path).await;
            if answer.as_ref().is_ok_and(|(status, body)| fits(*status, body)) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{path}: not within {limit:?}; last seen: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What the server for operators of the controller of a state folder answers: status and body.
///
/// # Errors
/// It does not listen, or does not answer.
pub async fn asked(state: &Path, path: &str) -> Result<(u16, String), String> {
    let address = std::fs::read_to_string(state.join("ops.addr")).map_err(|error| error.to_string())?;
    asked_at(address.trim(), path).await
}

/// The same of one whose address is known.
///
/// # Errors
/// It does not listen, or does not answer.
pub async fn asked_at(address: &str, path: &str) -> Result<(u16, String), String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let text = |error: std::io::Error| error.to_string();
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let answer = tokio::time::timeout(SOON, exchange).await.map_err(|error| error.to_string())?.map_err(text)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no answer of HTTP: {answer}"))?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or_else(|| head.to_owned())?, body.to_owned()))
}
