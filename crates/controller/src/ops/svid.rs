//! `gitea-dynamic-runner svid`: the identities that the Workload API gives to this process.

use std::time::Duration;

use serde::Serialize;
use spiffe::WorkloadApiClient;

use super::client::root_cause;
use crate::config::WorkloadEndpoint;

/// One identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Svid {
    /// The SPIFFE ID.
    pub spiffe_id: String,
    /// What the issuer says it is for.
    pub hint: Option<String>,
}

/// What `--json` prints: schema 1, the array never null.
#[derive(Debug, Serialize)]
pub struct Svids {
    /// 1.
    pub schema: u32,
    /// In the order of the Workload API: the first is the default one.
    pub svids: Vec<Svid>,
}

/// Why there is none. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SvidError {
    /// The variable is missing or malformed: a usage error.
    #[error(
        "SPIFFE_ENDPOINT_SOCKET {0}; inside a job it is set, elsewhere set it to unix:///path of a Workload API socket"
    )]
    Endpoint(&'static str),
    /// Nothing there, or no identity for this process.
    #[error("the Workload API at {at} gave no identity: {cause}")]
    None {
        /// The address.
        at: String,
        /// What happened.
        cause: String,
    },
}

/// Asks once, with a deadline.
///
/// # Errors
/// [`SvidError`].
pub async fn fetch(endpoint: Option<&str>, deadline: Duration) -> Result<Svids, SvidError> {
    let text = endpoint.map(str::trim).filter(|text| !text.is_empty()).ok_or(SvidError::Endpoint("is not set"))?;
    WorkloadEndpoint::parse(text).map_err(|_| SvidError::Endpoint("is neither unix:///path nor tcp://IP:port"))?;
    let none = |cause: String| SvidError::None { at: text.to_owned(), cause };
    let asked = async {
        let client = WorkloadApiClient::connect_to(text).await.map_err(|e| none(root_cause(&e)))?;
        client.fetch_all_x509_svids().await.map_err(|e| none(root_cause(&e)))
    };
    let svids = tokio::time::timeout(deadline, asked)
        .await
        .map_err(|_| none(format!("no answer within {} s", deadline.as_secs())))??;
    let svid = |svid: spiffe::X509Svid| Svid {
        spiffe_id: svid.spiffe_id().to_string(),
        hint: svid.hint().filter(|hint| !hint.is_empty()).map(str::to_owned),
    };
    Ok(Svids { schema: 1, svids: svids.into_iter().map(svid).collect() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What a job sees when it asks for its own identity.
    #[tokio::test]
    async fn the_identity_that_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let domain = "ci.example.org".parse().unwrap();
        let issuer = crate::identity::BuiltInIssuer::open(&dir.path().join("keys"), &domain).unwrap();
        let id = "spiffe://ci.example.org/ci/acme/app/build";
        let served = issuer.serve(dir.path().join("workload.sock"), id.parse().unwrap()).await.unwrap();
        let svids = fetch(Some(&served.endpoint()), Duration::from_secs(10)).await.unwrap();
        let json = serde_json::to_value(&svids).unwrap();
        assert_eq!((&json["schema"], &json["svids"][0]["spiffe_id"]), (&1.into(), &id.into()));
        assert_eq!(svids.svids.len(), 1);
        // The executor's small program answers the same word.
        let offered = executor::identity::offered(&served.endpoint(), Duration::from_secs(10)).await;
        assert_eq!(offered, Ok(vec![id.to_owned()]));
        served.stop().await;
    }

    #[tokio::test]
    async fn endpoints_that_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix://{}/none.sock", dir.path().display());
        for (endpoint, part) in [
            (None, "is not set; inside a job"),
            (Some(" "), "is not set"),
            (Some("/run/x.sock"), "is neither unix:///path nor tcp://IP:port"),
            (Some(socket.as_str()), "gave no identity: no such file or directory"),
        ] {
            let error = fetch(endpoint, Duration::from_secs(5)).await.unwrap_err().to_string();
            assert!(error.contains(part), "{endpoint:?}: {error}");
        }
    }

    /// T31, NEW-11, F10: a Workload API that accepts and never answers does not hold a job up for ever.
    #[tokio::test]
    async fn a_silent_workload_api() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let endpoint = format!("unix://{}", path.display());
        let asked = fetch(Some(&endpoint), Duration::from_millis(50));
        let error = tokio::time::timeout(Duration::from_secs(10), asked).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
}
