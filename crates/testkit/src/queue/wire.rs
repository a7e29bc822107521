//! As much of the NATS protocol as one question and its answer need, without a runtime: what is looked at between two
//! events of a test must not depend on who else is scheduled.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Result, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

/// A server that is frozen does not hold a test up for longer.
const LIMIT: Duration = Duration::from_millis(500);

/// Where answers come to.
const INBOX: &str = "_INBOX.testkit";

/// A connection on loopback.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
    asked: u64,
}

impl Wire {
    pub(super) fn connect(port: u16, (user, pass): (&str, &str)) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let mut wire = Self { stream: BufReader::new(stream), asked: 0 };
        let who = json!({ "verbose": false, "user": user, "pass": pass, "headers": true, "no_responders": true });
        wire.send(format!("CONNECT {who}\r\nSUB {INBOX}.* 1\r\nPING\r\n").as_bytes())?;
        while wire.line()? != "PONG" {}
        Ok(wire)
    }

    /// Asks once.
    pub(super) fn ask(&mut self, subject: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.asked += 1;
        let inbox = format!("{INBOX}.{}", self.asked);
        let mut request = format!("PUB {subject} {inbox} {}\r\n", body.len()).into_bytes();
        request.extend_from_slice(body);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        loop {
            let line = self.line()?;
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            if !matches!(kind, "MSG" | "HMSG") {
                continue;
            }
            let (to, sizes) = (words.next().unwrap_or_default(), words.skip(1).collect::<Vec<_>>());
            let size = |word: Option<&&str>| word.and_then(|word| word.parse::<usize>().ok()).ok_or_else(strange);
            let mut content = vec![0; size(sizes.last())? + 2];
            self.stream.read_exact(&mut content)?;
            content.truncate(content.len() - 2);
            if to != inbox {
                continue;
            }
            if kind == "HMSG" {
                content = content.split_off(size(sizes.get(sizes.len().wrapping_sub(2)))?);
            }
            return if content.is_empty() { Err(Error::other("nobody answers")) } else { Ok(content) };
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The next line that is not about the connection itself.
    fn line(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            match line.split(' ').next().unwrap_or_default() {
                "PING" => self.send(b"PONG\r\n")?,
                "INFO" => {}
                "-ERR" => return Err(Error::other(line.to_owned())),
                _ => return Ok(line.to_owned()),
            }
        }
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::InvalidData, "not the NATS protocol")
}
