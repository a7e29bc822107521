//! Addresses: of a Gitea, of the facade, of a Workload API, and where to listen. Like [`super::value`], nothing here
//! guesses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;

use super::setting::Problem;
use super::value::invalid;

/// The address of a Gitea: absolute http(s), host in lower case, without trailing `/`, userinfo, query or fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiteaUrl {
    text: String,
    host: String,
    tls: bool,
}

impl GiteaUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, without a password that may stand in it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let url = parts(text)?;
        let host = url.host.to_ascii_lowercase();
        let port = url.port.map(|p| format!(":{p}")).unwrap_or_default();
        let scheme = if url.tls { "https" } else { "http" };
        let path = url.path.trim_end_matches('/');
        if path.ends_with("/api/actions") || path.ends_with("/api/v1") {
            return invalid("it names the API; give the address as in the browser");
        }
        Ok(Self { text: format!("{scheme}://{host}{port}{path}"), host, tls: url.tls })
    }

    /// The address without trailing `/`: what the instance id is derived from (requirements §1.3).
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The base of the runner service: the address and `/api/actions` (requirements §1.1).
    #[must_use]
    pub fn actions_base(&self) -> String {
        format!("{}/api/actions", self.text)
    }

    /// Whether a password or token would cross a network in clear text.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.tls && !is_loopback(&self.host)
    }
}

impl fmt::Display for GiteaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The address executors reach the facade at: absolute https, nothing but scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacadeUrl(String);

impl FacadeUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let url = parts(text)?;
        if !url.tls {
            return invalid("it is not https");
        }
        if !matches!(url.path, "" | "/") {
            return invalid("it has a path");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The text, without trailing `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

struct Parts<'a> {
    tls: bool,
    host: String,
    port: Option<u16>,
    path: &'a str,
}

fn parts(text: &str) -> Result<Parts<'_>, Problem> {
    let Some((scheme, rest)) = text.split_once("://") else { return invalid("it has no scheme") };
    let tls = match scheme {
        "https" => true,
        "http" => false,
        other => return invalid(format!("{other:?} is neither http nor https")),
    };
    if rest.contains('#') {
        return invalid("it has a fragment");
    }
    let Ok(uri) = text.parse::<Uri>() else { return invalid("it is not a URL") };
    let Some(authority) = uri.authority() else { return invalid("it has no host") };
    if authority.as_str().contains('@') {
        return invalid("it has a user or password in it");
    }
    if uri.query().is_some() {
        return invalid("it has a query");
    }
    if authority.host().is_empty() || authority.as_str().ends_with(':') {
        return invalid("it has no host");
    }
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    Ok(Parts { tls, host: authority.host().to_owned(), port: authority.port_u16(), path })
}

/// Whether a host is this one, however it resolves: `localhost` by its name, everything else by its number.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Cuts a password out of a URL, for texts that people see.
#[must_use]
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{}", &rest[end..]),
        None => text.to_owned(),
    }
}

/// Cuts every user and password out of a list of addresses, also one that is written wrongly: everything before its last
/// `@` but the first scheme.
#[must_use]
pub fn without_users(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| scheme.bytes().all(|b| b.is_ascii_lowercase())) {
        Some(scheme) => format!("{scheme}://***@{host}"),
        None => format!("***@{host}"),
    }
}

/// A Workload API address by the SPIFFE standard: `unix:///abs/path` or `tcp://IP:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadEndpoint(String);

impl WorkloadEndpoint {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is of neither form.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let unix = text.strip_prefix("unix://").is_some_and(|path| path.starts_with('/') && path.len() > 1);
        let tcp = text.strip_prefix("tcp://").is_some_and(|addr| addr.parse::<SocketAddr>().is_ok());
        if unix || tcp { Ok(Self(text.to_owned())) } else { Err(Problem::Breaks) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `:port` (every IPv4 address) or `ip:port`.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Problem> {
    match text.strip_prefix(':') {
        Some(port) => port.parse().map(|port| (Ipv4Addr::UNSPECIFIED, port).into()).map_err(|_| Problem::Breaks),
        None => text.parse().map_err(|_| Problem::Breaks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn gitea(text: &str, expect: Result<&str, &str>) {
        let got = GiteaUrl::parse(text).map(|url| url.text);
        match (expect, got) {
            (Ok(text), Ok(got)) => assert_eq!(got, text),
            (Err(part), Err(Problem::Invalid(why))) => assert!(why.contains(part), "{text}: {why}"),
            (_, got) => panic!("{text}: {got:?}"),
        }
    }

    /// §2.1, F155: the address of a Gitea.
    #[test]
    fn gitea_addresses() {
        gitea("https://Git.Example.org/", Ok("https://git.example.org"));
        gitea("https://git.example.org:3000/sub/", Ok("https://git.example.org:3000/sub"));
        gitea("http://[::1]:3000", Ok("http://[::1]:3000"));
        gitea("git.example.org", Err("no scheme"));
        gitea("ssh://git.example.org", Err("neither http nor https"));
        gitea("https://", Err(""));
        gitea("https://user:hunter2@git.example.org", Err("user or password"));
        gitea("https://git.example.org/?a=b", Err("query"));
        gitea("https://git.example.org/#a", Err("fragment"));
        gitea("https://git.example.org/api/v1", Err("names the API"));
        gitea("https://git example.org", Err("not a URL"));
    }

    /// F97: what leaves the host in clear text.
    #[test]
    fn exposure() {
        let exposed = |text| GiteaUrl::parse(text).is_ok_and(|u| u.is_exposed());
        for safe in ["https://git.example.org", "http://127.0.0.1:3000", "http://localhost", "http://[::1]:1"] {
            assert!(!exposed(safe), "{safe}");
        }
        for open in ["http://git.example.org", "http://10.0.0.1", "http://localhost.example.org"] {
            assert!(exposed(open), "{open}");
        }
    }

    /// NEW-141: a password in a URL is not shown.
    #[test]
    fn passwords_are_cut_out() {
        assert_eq!(without_password("nats://u:p@ss@h:4222/x@y"), "nats://***@h:4222/x@y");
        assert_eq!(without_password("https://h/p"), "https://h/p");
    }

    /// NEW-141: nor are those of a list, however they are written.
    #[test]
    fn passwords_of_a_list_are_cut_out() {
        assert_eq!(without_users("tls://a:1,tls://b"), "tls://a:1,tls://b");
        for (text, shown) in [
            ("tls://u:p@a,tls://u:p@b", "tls://***@b"),
            ("tls://u:p/x@a", "tls://***@a"),
            ("tls://u:p://x@a,tls://b", "tls://***@a,tls://b"),
            ("u:p@a", "***@a"),
            ("u:p@a,tls://b", "***@a,tls://b"),
            ("u:p,tls://v:q@b", "***@b"),
        ] {
            assert_eq!(without_users(text), shown);
        }
    }
}
