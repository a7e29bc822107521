//! Headers that concern one connection and must not pass to the next (RFC 9110, section 7.6.1).

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, TRANSFER_ENCODING},
};

/// Those that are never forwarded, named by `Connection` or not. `Trailer` is not among them: trailers do pass.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Removes the headers of this hop, those that `Connection` names included. The framing of the body is left to the next
/// connection: a length beside a transfer encoding is a lie about it and goes too (RFC 9112, section 6.3).
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// What `Connection` names, except what describes the message itself: a sender cannot ask us to lose its host, its
/// length or the credentials that the request is judged by.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    const END_TO_END: [HeaderName; 5] =
        [http::header::HOST, CONTENT_LENGTH, http::header::CONTENT_TYPE, http::header::AUTHORIZATION, COOKIE];
    tokens(headers, CONNECTION).filter_map(|name| name.parse().ok()).filter(|name| !END_TO_END.contains(name)).collect()
}

/// The comma-separated members of a header, over all its lines.
pub(crate) fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// HTTP/2 may split `Cookie` into several lines; HTTP/1.1 has one (RFC 9113, section 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).into_iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<_> = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    // Joined from legal values by a legal separator, so that it is legal.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    #[track_caller]
    fn check(lines: &[(&str, &str)], left: &[(&str, &str)]) {
        let mut headers = map(lines);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(left));
    }

    #[test]
    fn headers_of_the_hop_stay_behind() {
        let all: Vec<_> = HOP_BY_HOP.iter().map(|name| (*name, "x-none")).chain([("x-kept", "1")]).collect();
        check(&all, &[("x-kept", "1")]);
        check(&[("trailer", "x-sum"), ("accept", "a")], &[("trailer", "x-sum"), ("accept", "a")]);
    }

    #[test]
    fn what_connection_names_stays_behind_over_all_its_lines() {
        check(
            &[
                ("connection", "close, X-One"),
                ("connection", " x-two ,,"),
                ("x-one", "1"),
                ("x-two", "2"),
                ("x-three", "3"),
            ],
            &[("x-three", "3")],
        );
    }

    #[test]
    fn connection_cannot_take_away_what_the_message_is_judged_by() {
        check(
            &[("connection", "authorization, host, content-length, cookie"), ("authorization", "a"), ("host", "h")],
            &[("authorization", "a"), ("host", "h")],
        );
    }

    #[test]
    fn a_length_beside_a_transfer_encoding_goes() {
        check(&[("transfer-encoding", "chunked"), ("content-length", "5")], &[]);
        check(&[("content-length", "5")], &[("content-length", "5")]);
    }

    #[test]
    fn cookie_lines_become_one() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=1; b=2")]));
    }
}
