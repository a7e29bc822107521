//! Answers outside RunnerService: Connect's error form, which every client of the facade understands (requirements §1.5).

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use connectrpc::ErrorCode;
use serde_json::json;

/// The word of a status in the metric of requests.
pub(super) fn word(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "ok",
        401 => ErrorCode::Unauthenticated.as_str(),
        403 => ErrorCode::PermissionDenied.as_str(),
        429 => ErrorCode::ResourceExhausted.as_str(),
        503 => ErrorCode::Unavailable.as_str(),
        400..=499 => ErrorCode::InvalidArgument.as_str(),
        500..=599 => ErrorCode::Internal.as_str(),
        _ => "other",
    }
}

/// 401, with the word for what is missing.
pub(super) fn unauthenticated(missing: &str) -> Response {
    let body = json!({
        "code": ErrorCode::Unauthenticated.as_str(),
        "message": format!("no valid {missing} for a live assignment"),
        "missing": missing,
    });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

/// 503 while the facade is not ready for anybody (NEW-105).
pub(super) fn not_ready(message: &str) -> Response {
    let body = json!({ "code": ErrorCode::Unavailable.as_str(), "message": message, "missing": "facade" });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

/// An error with a code and a text.
pub(super) fn error(code: ErrorCode, message: &str) -> Response {
    (code.http_status(), Json(json!({ "code": code.as_str(), "message": message }))).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// NEW-105: an executor reads what is missing from either refusal.
    #[tokio::test]
    async fn a_refusal_says_in_one_word_what_is_missing() {
        for (response, word) in [(not_ready("later"), "facade"), (unauthenticated("identity"), "identity")] {
            let body = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
            let said: domain::executor_api::NotReady = serde_json::from_slice(&body).unwrap();
            assert_eq!(said.missing, word);
        }
    }

    /// NEW-130: a status is counted under the code that stands in its body.
    #[test]
    fn every_code_has_its_word() {
        for code in [ErrorCode::ResourceExhausted, ErrorCode::Unavailable, ErrorCode::Unauthenticated] {
            assert_eq!(word(error(code, "").status()), code.as_str());
        }
    }
}
