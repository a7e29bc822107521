//! The settings of NATS: servers, names of stream and subjects, logins. Nothing here guesses, and nothing here contacts
//! anything.
//!
//! Limits of the names are those of nats-server 2.10 and newer: a stream's name becomes one subject token and a folder,
//! a subject lies below its 4096 bytes of one protocol line together with whatever is appended to it.

use std::fmt;
use std::path::PathBuf;

use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::SecretFile;
use super::address::is_loopback;
use super::setting::Problem;
use super::value::{absolute, invalid};

/// Where NATS is, what we use there, and as whom. No `Debug`: it holds passwords.
pub struct Nats {
    /// The servers of one cluster, in the order given, at least one. Those in clear text are permitted.
    pub servers: Vec<NatsUrl>,
    /// Authorities that a server's certificate must come from, PEM; none: the system's.
    pub ca: Option<PathBuf>,
    /// The stream.
    pub stream: StreamName,
    /// What every subject of ours begins with.
    pub subject_base: SubjectBase,
    /// Whether messages of the earlier controller are taken over (NEW-41).
    pub accept_v1: bool,
    /// Whose rights the publishing connection has.
    pub producer: Login,
    /// Whose rights the consuming connection has; another user (CFG-3).
    pub worker: Login,
}

/// A user of NATS. No `Debug`: it holds a password.
pub struct Login {
    /// The name.
    pub user: String,
    /// The password, as it was when the settings were read.
    pub password: SecretFile,
}

/// One server: `tls://host:port` or `nats://host:port`, without anything else; the port may be left out and is 4222.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsUrl {
    text: String,
    host: String,
    tls: bool,
}

impl NatsUrl {
    /// Reads one address.
    ///
    /// # Errors
    /// What is wrong with it, without repeating any of it: a password may stand anywhere in it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        if text.contains('@') {
            return invalid(
                "it has a user or password in it, which would be shown; set NATS_PRODUCER_USER, NATS_WORKER_USER and their \
                 password files",
            );
        }
        let Some((scheme, rest)) = text.split_once("://") else { return invalid("a server has no scheme") };
        let tls = match scheme {
            "tls" => true,
            "nats" => false,
            "wss" | "ws" => return invalid("this build speaks no WebSocket; name the server's tls:// address"),
            _ => return invalid("a server's scheme is neither tls nor nats"),
        };
        let Ok(uri) = text.parse::<Uri>() else { return invalid("a server is not a URL") };
        let Some(authority) = uri.authority().filter(|a| a.as_str() == rest.trim_end_matches('/')) else {
            return invalid("a server has more than scheme, host and port");
        };
        let host = authority.host().to_ascii_lowercase();
        if host.is_empty() {
            return invalid("a server has no host");
        }
        // Not by `port()`, which says none where it is no port.
        let port = match authority.as_str()[host.len()..].strip_prefix(':').map(str::parse::<u16>) {
            None => 4222,
            Some(Ok(port)) if port != 0 => port,
            Some(_) => return invalid("a server's port is not from 1 to 65535"),
        };
        Ok(Self { text: format!("{scheme}://{host}:{port}"), host, tls })
    }

    /// The address with its port.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether passwords and tasks would cross a network in clear text.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.tls && !is_loopback(&self.host)
    }
}

impl fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One or several servers, with commas between them.
pub(super) fn servers(text: &str) -> Result<Vec<NatsUrl>, Problem> {
    let mut servers = Vec::new();
    for server in text.split(',') {
        let server = NatsUrl::parse(server.trim())?;
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    Ok(servers)
}

/// The name of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamName(String);

impl StreamName {
    /// Reads a name.
    ///
    /// # Errors
    /// When NATS would not take it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b'.' | b'*' | b'>' | b'/' | b'\\');
        let good = (1..=255).contains(&text.len()) && text.bytes().all(legal);
        if good { Ok(Self(text.to_owned())) } else { Err(Problem::Breaks) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What subjects begin with, without the `.` behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectBase(String);

impl SubjectBase {
    /// Reads a base; one trailing `.` is dropped.
    ///
    /// # Errors
    /// When it has a token that NATS would not take, a wildcard, or one that NATS keeps for itself (`$…`, `_INBOX`).
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let base = text.strip_suffix('.').unwrap_or(text);
        let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b'*' | b'>');
        let token = |t: &str| !t.is_empty() && t.bytes().all(legal);
        let reserved = base.starts_with('$') || base.split('.').next() == Some("_INBOX");
        let good = base.len() <= 255 && !reserved && base.split('.').all(token);
        if good { Ok(Self(base.to_owned())) } else { Err(Problem::Breaks) }
    }

    /// The tokens, with `.` between them only.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a user.
pub(super) fn user(text: &str) -> Result<String, Problem> {
    let good = text.len() <= 255 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    if good { Ok(text.to_owned()) } else { Err(Problem::Breaks) }
}

/// The path of a file with at least one certificate. The client reads it again for each connection: a new authority
/// takes effect with the next one.
pub(super) fn ca_file(text: &str) -> Result<PathBuf, Problem> {
    let path = absolute(text)?;
    let pem = std::fs::read(&path).map_err(|error| Problem::Unreadable(super::secret::plain(&error)))?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if certificates.is_empty() => invalid("the file has no certificate"),
        Ok(_) => Ok(path),
        Err(error) => invalid(format!("the file is not PEM: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<&str, &str>) {
        let got = servers(text).map(|list| list.iter().map(NatsUrl::as_str).collect::<Vec<_>>().join(","));
        match (expect, got) {
            (Ok(list), Ok(got)) => assert_eq!(got, list),
            (Err(part), Err(Problem::Invalid(why))) => {
                assert!(why.contains(part) && !why.contains("hunter2"), "{text}: {why}");
            }
            (_, got) => panic!("{text}: {got:?}"),
        }
    }

    /// T44, CFG-13, NEW-141: addresses of servers; what is wrong is told, and never with a password.
    #[test]
    fn addresses_of_servers() {
        check("tls://NATS.example.org", Ok("tls://nats.example.org:4222"));
        check("tls://a:1, nats://[::1]:2/ ,tls://a:1", Ok("tls://a:1,nats://[::1]:2"));
        check("nats.example.org:4222", Err("no scheme"));
        check("http://nats.example.org", Err("neither tls nor nats"));
        check("wss://nats.example.org", Err("no WebSocket"));
        check("ws://nats.example.org", Err("no WebSocket"));
        check("tls://", Err("not a URL"));
        check("tls://:4222", Err("no host"));
        check("tls://a:", Err("port"));
        check("tls://a:0", Err("port"));
        check("tls://a:99999", Err("port"));
        check("tls://a/path", Err("more than"));
        check("tls://a?x=1", Err("more than"));
        check("tls://a,", Err("no scheme"));
        for with_password in [
            "tls://me:hunter2@a",
            "tls://a,tls://me:hunter2@b",
            "me:hunter2@a:4222",
            "tls://me:h/hunter2@a",
            "tls://hunter2@a,tls://b",
        ] {
            check(with_password, Err("user or password"));
        }
    }

    /// F36, NEW-48: what leaves the host in clear text.
    #[test]
    fn exposure() {
        let exposed = |text: &str| NatsUrl::parse(text).unwrap().is_exposed();
        for safe in ["tls://nats.example.org", "nats://127.0.0.1", "nats://localhost:1", "nats://[::1]"] {
            assert!(!exposed(safe), "{safe}");
        }
        for open in ["nats://nats.example.org", "nats://10.0.0.1:4222", "nats://localhost.example.org", "nats://[::2]"]
        {
            assert!(exposed(open), "{open}");
        }
    }

    /// T44, CFG-12: names that NATS takes, and one trailing dot.
    #[test]
    fn names_of_stream_and_subjects() {
        for good in ["CI_RUNNER", "a", "ci-runner", &"x".repeat(255)] {
            assert!(StreamName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "\u{e4}", "a\u{7f}", &"x".repeat(256)] {
            assert!(StreamName::parse(bad).is_err(), "{bad}");
        }
        let base = |text: &str| SubjectBase::parse(text).map(|base| base.0);
        assert_eq!(base("ci.runner").as_deref(), Ok("ci.runner"));
        assert_eq!(base("ci.runner.").as_deref(), Ok("ci.runner"));
        assert_eq!(base("ci").as_deref(), Ok("ci"));
        for bad in ["", ".", "ci..runner", "ci.runner..", ".ci", "ci.*", "ci.>", "c i", "$JS.ci", "_INBOX.x", "\u{e4}"]
        {
            assert!(base(bad).is_err(), "{bad}");
        }
        assert!(user("ci-producer").is_ok() && user("a b").is_err() && user("").is_err());
    }

    /// T44, CFG-13: the file of authorities is looked into.
    #[test]
    fn authorities() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            ca_file(path.to_str().unwrap())
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        assert!(file("good", &certificate.pem()).is_ok());
        assert!(matches!(file("none", "nothing"), Err(Problem::Invalid(why)) if why.contains("no certificate")));
        assert!(
            matches!(file("key", &key.serialize_pem()), Err(Problem::Invalid(why)) if why.contains("no certificate"))
        );
        assert!(matches!(file("cut", &certificate.pem()[..60]), Err(Problem::Invalid(why)) if why.contains("PEM")));
        assert!(matches!(ca_file("/nowhere/ca"), Err(Problem::Unreadable(_))));
        assert!(ca_file("ca.pem").is_err());
    }
}
