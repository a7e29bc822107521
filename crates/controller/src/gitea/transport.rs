//! The way out to Gitea, for every room that goes there: the host's own certificate authorities, no proxy of the
//! environment (NEW-104), a deadline for the connection.

use std::sync::OnceLock;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

const CONNECT: Duration = Duration::from_secs(10);

/// Plain or TLS connections, by the URL.
#[must_use]
pub fn connector() -> HttpsConnector<HttpConnector> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    http.set_nodelay(true);
    HttpsConnectorBuilder::new().with_tls_config(tls().clone()).https_or_http().enable_http1().wrap_connector(http)
}

/// The host's authorities (`SSL_CERT_FILE` is honoured), read once; a host without any, like a bare container, gets the
/// public ones.
fn tls() -> &'static ClientConfig {
    static TLS: OnceLock<ClientConfig> = OnceLock::new();
    TLS.get_or_init(|| match ClientConfig::builder().with_native_roots() {
        Ok(host) => host.with_no_client_auth(),
        Err(_) => ClientConfig::builder().with_webpki_roots().with_no_client_auth(),
    })
}
