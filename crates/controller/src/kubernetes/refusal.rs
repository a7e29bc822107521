//! What the API server said instead of doing what it was asked for.

use std::fmt;
use std::time::Duration;

/// Why a call did not succeed, as a room can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such object (404).
    NotFound,
    /// An object of that name exists (409 AlreadyExists).
    Exists,
    /// Another version of the object is stored, or another object has the name (409).
    Conflict,
    /// A resource quota is used up, or was made a moment ago and nobody has counted yet what is used of it (403).
    Quota,
    /// Our rights do not include it (401, 403).
    Forbidden,
    /// The object breaks a rule of the server or of an admission (400, 422, 403 of an admission).
    Invalid,
    /// The server has forgotten that version (410): list anew.
    Expired,
    /// Nothing of the above: the server is overloaded, away or did not answer. It may have been carried out.
    Unavailable,
}

/// The quota's admission says it in words only: these, with the quota's name and numbers behind them.
pub const QUOTA: [&str; 2] = ["exceeded quota", "status unknown for quota"];

/// What admission says with a 403 while it cannot judge yet: its caches are being filled after a start of the API server, or
/// the account of a Pod could not be read, which is not the same as that there is none.
fn cannot_judge_yet(message: &str) -> bool {
    let unread_account = message.contains("error looking up service account") && !message.contains("not found");
    message.contains("not yet ready to handle request") || unread_account
}

/// What the authorizer says with a 403. A webhook may say whatever it likes, but the server puts its own words before them.
fn is_of_the_authorizer(message: &str) -> bool {
    let of_webhook = message.starts_with("admission webhook ") && message.contains("denied the request");
    !of_webhook && message.contains(" cannot ") && message.contains("User ")
}

/// One call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// What kind.
    pub kind: RefusalKind,
    /// What the server said, or what became of the connection. It never holds what was sent.
    pub message: String,
    /// Not before this has passed, where the server said so.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Refusal {
    /// What an error of the client means.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self { kind: RefusalKind::Unavailable, message: error.to_string(), retry_after: None };
        };
        let kind = kind_of(status.code, &status.reason, &status.message);
        let said = format!("the Kubernetes API answered {} {}: {}", status.code, status.reason, status.message);
        let seconds = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        Self {
            kind,
            message: remedy(kind, status.code).map_or_else(|| said.clone(), |remedy| format!("{said}; {remedy}")),
            retry_after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
        }
    }

    /// No answer came within `limit`.
    #[must_use]
    pub fn silent(limit: Duration) -> Self {
        let message = format!("the Kubernetes API gave no answer within {} s", limit.as_secs());
        Self { kind: RefusalKind::Unavailable, message, retry_after: None }
    }

    /// The call was not begun: those before it took longer than `limit`.
    #[must_use]
    pub fn crowded(limit: Duration) -> Self {
        let message = format!("the Kubernetes API answers none of the calls under way within {} s", limit.as_secs());
        Self { kind: RefusalKind::Unavailable, message, retry_after: None }
    }

    /// It is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == RefusalKind::NotFound
    }
}

/// What to do about rights: the same whatever was refused (T77).
fn remedy(kind: RefusalKind, code: u16) -> Option<&'static str> {
    match (kind, code) {
        (RefusalKind::Forbidden, 401) => Some("its token is not accepted: look at KUBERNETES_TOKEN_FILE"),
        (RefusalKind::Forbidden, _) => {
            Some("give the controller's account this right again: the chart's Role and ClusterRole have it")
        }
        _ => None,
    }
}

fn kind_of(code: u16, reason: &str, message: &str) -> RefusalKind {
    match (code, reason) {
        (404, _) => RefusalKind::NotFound,
        (409, "AlreadyExists") => RefusalKind::Exists,
        (409, _) => RefusalKind::Conflict,
        (410, _) => RefusalKind::Expired,
        (403, _) if QUOTA.iter().any(|words| message.contains(words)) => RefusalKind::Quota,
        (403, _) if cannot_judge_yet(message) => RefusalKind::Unavailable,
        // Every other 403 is an admission's.
        (401, _) => RefusalKind::Forbidden,
        (403, _) if is_of_the_authorizer(message) => RefusalKind::Forbidden,
        (400 | 403 | 422, _) => RefusalKind::Invalid,
        _ => RefusalKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T77, F154: what to do stands beside what the authorizer said, and beside nothing else.
    #[test]
    fn a_missing_right_has_its_remedy() {
        let said = |code, message: &str| {
            let status = kube::core::Status::failure(message, "Reason").with_code(code);
            Refusal::of(&kube::Error::Api(Box::new(status))).message
        };
        let right = said(403, r#"pods is forbidden: User "u" cannot list resource "pods" in the namespace "n""#);
        assert!(right.contains("cannot list") && right.ends_with("Role and ClusterRole have it"), "{right}");
        assert!(said(401, "Unauthorized").ends_with("KUBERNETES_TOKEN_FILE"));
        assert!(said(409, "it was changed").ends_with("it was changed"));
    }

    /// NEW-66, NEW-71, F62: what can be waited for is told apart from what cannot.
    #[test]
    fn refusals_are_told_apart() {
        let forbidden =
            r#"pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n""#;
        let quota = r#"pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4"#;
        let uncounted = r#"pods "p" is forbidden: status unknown for quota: q, resources: pods"#;
        let starting = r#"pods "p" is forbidden: not yet ready to handle request"#;
        let unread = r#"pods "p" is forbidden: error looking up service account n/s: Get "x": EOF"#;
        let no_account = r#"pods "p" is forbidden: error looking up service account n/s: serviceaccount "s" not found"#;
        let security = r#"pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged"#;
        let denied = r#"admission webhook "w" denied the request: User "u" cannot have Pods on Mondays"#;
        let away = r#"Internal error occurred: failed calling webhook "w": failed to call webhook: EOF"#;
        let rows = [
            (404, "NotFound", "", RefusalKind::NotFound),
            (409, "AlreadyExists", "", RefusalKind::Exists),
            (409, "Conflict", "", RefusalKind::Conflict),
            (410, "Expired", "", RefusalKind::Expired),
            (403, "Forbidden", quota, RefusalKind::Quota),
            (403, "Forbidden", uncounted, RefusalKind::Quota),
            (403, "Forbidden", forbidden, RefusalKind::Forbidden),
            (401, "Unauthorized", "Unauthorized", RefusalKind::Forbidden),
            (403, "Forbidden", starting, RefusalKind::Unavailable),
            (403, "Forbidden", unread, RefusalKind::Unavailable),
            (403, "Forbidden", no_account, RefusalKind::Invalid),
            (403, "Forbidden", security, RefusalKind::Invalid),
            (403, "Forbidden", denied, RefusalKind::Invalid),
            (400, "", denied, RefusalKind::Invalid),
            (500, "InternalError", away, RefusalKind::Unavailable),
            (422, "Invalid", "", RefusalKind::Invalid),
            (429, "TooManyRequests", "", RefusalKind::Unavailable),
            (500, "InternalError", "", RefusalKind::Unavailable),
            (503, "ServiceUnavailable", "", RefusalKind::Unavailable),
        ];
        for (code, reason, message, kind) in rows {
            assert_eq!(kind_of(code, reason, message), kind, "{code} {reason} {message}");
        }
    }
}
