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

/// An error with a code and a text.
pub(super) fn error(code: ErrorCode, message: &str) -> Response {
    (code.http_status(), Json(json!({ "code": code.as_str(), "message": message }))).into_response()
}
