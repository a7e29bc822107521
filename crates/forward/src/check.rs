//! What is no plain request and therefore not forwarded: tunnels, other protocols, targets that name another server.

use http::{
    Method, StatusCode, Version,
    header::{HOST, UPGRADE},
    request,
};

use crate::hop::tokens;

/// Why a request is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// CONNECT would open a tunnel past every check.
    #[error("CONNECT is not forwarded")]
    Connect,
    /// Another protocol could not be checked.
    #[error("a change of protocol is not forwarded")]
    Upgrade,
    /// The request line names a server (`GET http://host/…`); only a path is taken.
    #[error("the request target must be a path")]
    Target,
    /// Two readers could take two hosts from it (RFC 9112, section 3.2).
    #[error("a request has one Host")]
    Hosts,
}

impl Refused {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
            Self::Connect | Self::Target | Self::Hosts => StatusCode::BAD_REQUEST,
        }
    }
}

/// Checks that a request is one for a path on this server.
///
/// An offer of `h2c` alone is no refusal: common clients (that of Java) make it with every request to a plain address
/// and go on over HTTP/1.1 when it is ignored, as RFC 9110 section 7.8 allows.
///
/// # Errors
/// [`Refused`] for CONNECT, an upgrade, several hosts, and any target that is not in origin form.
pub fn check(head: &request::Parts) -> Result<(), Refused> {
    if head.method == Method::CONNECT {
        return Err(Refused::Connect);
    }
    if head.headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Refused::Hosts);
    }
    if tokens(&head.headers, UPGRADE).any(|protocol| !protocol.eq_ignore_ascii_case("h2c")) {
        return Err(Refused::Upgrade);
    }
    // Over HTTP/2 scheme and authority are fields of their own and always there.
    let names_a_server = head.version < Version::HTTP_2 && head.uri.authority().is_some();
    if names_a_server || !head.uri.path().starts_with('/') {
        return Err(Refused::Target);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use http::Request;

    use super::*;

    #[track_caller]
    fn verdict(request: http::request::Builder) -> Result<(), Refused> {
        check(&request.body(()).unwrap().into_parts().0)
    }

    /// NEW-97: CONNECT and absolute-form lines are refused.
    #[test]
    fn only_paths_pass() {
        assert_eq!(verdict(Request::get("/a/b?c=d")), Ok(()));
        assert_eq!(verdict(Request::get("http://other/a")), Err(Refused::Target));
        assert_eq!(verdict(Request::options("*")), Err(Refused::Target));
        assert_eq!(verdict(Request::get("/").header("host", "a").header("host", "a")), Err(Refused::Hosts));
        assert_eq!(verdict(Request::connect("other:443")), Err(Refused::Connect));
        assert_eq!(verdict(Request::get("https://us/a").version(Version::HTTP_2)), Ok(()));
        assert_eq!(verdict(Request::connect("https://us/a").version(Version::HTTP_2)), Err(Refused::Connect));
    }

    #[test]
    fn protocols_do_not_change() {
        assert_eq!(verdict(Request::get("/").header("upgrade", "websocket")), Err(Refused::Upgrade));
        assert_eq!(verdict(Request::get("/").header("upgrade", "h2c, websocket")), Err(Refused::Upgrade));
        assert_eq!(verdict(Request::get("/").header("upgrade", "H2C")), Ok(()));
    }
}
