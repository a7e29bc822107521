//! One request to the loopback proxy, byte for byte as a step might write it, unusual targets included.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// The status of the answer, or what came instead.
pub(super) async fn ask(address: &str, method: &str, target: &str, headers: &[(String, String)]) -> String {
    match timeout(PATIENCE, exchange(address, method, target, headers)).await {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => format!("no answer: {error}"),
        Err(_) => "no answer in time".to_owned(),
    }
}

async fn exchange(address: &str, method: &str, target: &str, headers: &[(String, String)]) -> std::io::Result<String> {
    let authority = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).await?;
    let mut request = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {authority}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split_whitespace().nth(1).unwrap_or("nothing");
    Ok(status.to_owned())
}
