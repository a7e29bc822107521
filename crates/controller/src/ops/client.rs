//! `gitea-dynamic-runner status`: asks the ops server and shows the answer.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::address;
use super::status::{SCHEMA, StatusSnapshot};

const DEADLINE: Duration = Duration::from_secs(5);
const LARGEST: usize = 16 * 1024 * 1024;

/// Why there is no status to show. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// No controller has run on this state folder.
    #[error("no controller has run on {0}; name its state folder with --state, or its OPS_LISTEN with --ops")]
    NoAddress(String),
    /// Nothing answers.
    #[error("no controller answers at {at}: {cause}; is it running?")]
    Away {
        /// The address.
        at: String,
        /// What happened.
        cause: String,
    },
    /// Something else answers.
    #[error("what answers at {at} is not a controller's ops server: {cause}")]
    Foreign {
        /// The address.
        at: String,
        /// What was seen.
        cause: String,
    },
}

/// The address of the controller of a state folder.
///
/// # Errors
/// [`StatusError::NoAddress`].
pub fn of_state(state: &Path) -> Result<String, StatusError> {
    let address = address::read(state).ok_or_else(|| StatusError::NoAddress(state.display().to_string()))?;
    Ok(format!("http://{address}"))
}

/// Asks for the status; the JSON text as it came, and read.
///
/// # Errors
/// Nothing answers within 5 s, or something else does.
pub async fn ask(ops: &str) -> Result<(String, StatusSnapshot), StatusError> {
    let at = ops.trim_end_matches('/').to_owned();
    let away = |cause: String| StatusError::Away { at: at.clone(), cause };
    let foreign = |cause: String| StatusError::Foreign { at: at.clone(), cause };
    let url: http::Uri = format!("{at}/status").parse().map_err(|_| away("it is not a URL".into()))?;
    let client: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = async {
        let response = client.get(url).await.map_err(|e| away(root_cause(&e)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|e| away(e.to_string()))?;
        Ok((status, body.to_bytes()))
    };
    let (status, body) =
        tokio::time::timeout(DEADLINE, answer).await.map_err(|_| away("no answer within 5 s".into()))??;
    if status != http::StatusCode::OK {
        return Err(foreign(format!("HTTP {status}")));
    }
    let snapshot: StatusSnapshot = serde_json::from_slice(&body).map_err(|_| foreign("no status JSON".into()))?;
    if snapshot.schema != SCHEMA {
        return Err(foreign(format!("schema {} and not {SCHEMA}", snapshot.schema)));
    }
    Ok((String::from_utf8_lossy(&body).into_owned(), snapshot))
}

/// The innermost cause of an error: `Connection refused` instead of `client error (Connect)`.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}
