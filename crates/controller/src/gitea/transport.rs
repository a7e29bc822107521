//! The way out to Gitea, for every room that goes there: the host's own certificate authorities, no proxy of the
//! environment (NEW-104), a deadline for the connection.

use std::io;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;
use tower_service::Service;

const CONNECT: Duration = Duration::from_secs(10);

/// The setting of the host's authorities, which is not ours.
pub const AUTHORITIES: &str = "SSL_CERT_FILE";

/// Plain or TLS connections, by the URL; each by the authorities of its moment.
#[derive(Clone)]
pub struct Connector {
    http: HttpConnector,
    authorities: &'static Authorities,
}

impl Connector {
    /// A connector of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::judging_by(&USED)
    }

    fn judging_by(authorities: &'static Authorities) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT));
        http.set_nodelay(true);
        Self { http, authorities }
    }
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

type Inner = HttpsConnector<HttpConnector>;

impl Service<Uri> for Connector {
    type Response = <Inner as Service<Uri>>::Response;
    type Error = <Inner as Service<Uri>>::Error;
    type Future = <Inner as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.authorities.now());
        builder.https_or_http().enable_http1().wrap_connector(self.http.clone()).call(to)
    }
}

static USED: LazyLock<Authorities> = LazyLock::new(|| Authorities::begin(of_host()));

/// Reads the host's authorities again (NEW-140): false while what is there cannot be used, and those of before are. Reads
/// files.
pub fn read_authorities_again() -> bool {
    USED.look(of_host())
}

/// `SSL_CERT_FILE` is honoured.
fn of_host() -> io::Result<ClientConfig> {
    Ok(ClientConfig::builder().with_native_roots()?.with_no_client_auth())
}

/// What servers are judged by.
struct Authorities(RwLock<Used>);

#[derive(Clone)]
struct Used {
    config: ClientConfig,
    from_host: bool,
}

impl Authorities {
    /// A host without any, like a bare container, gets the public ones.
    fn begin(host: io::Result<ClientConfig>) -> Self {
        let from_host = host.is_ok();
        let public = |_| ClientConfig::builder().with_webpki_roots().with_no_client_auth();
        Self(RwLock::new(Used { config: host.unwrap_or_else(public), from_host }))
    }

    fn now(&self) -> ClientConfig {
        self.0.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Takes note of what the host has now; a host that never had any may go on without.
    fn look(&self, host: io::Result<ClientConfig>) -> bool {
        let mut used = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match host {
            Ok(config) => *used = Used { config, from_host: true },
            Err(_) => return !used.from_host,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use rustls::RootCertStore;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use testkit::kubernetes::Kubernetes;
    use tower::ServiceExt as _;

    use super::*;

    fn of(authority: Option<&str>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = authority {
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        }
        ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
    }

    /// NEW-140, T24, F107: a server whose authority came after the start is reached by the next connection; what cannot be read
    /// changes nothing and is told, but on a host that never had any.
    #[tokio::test]
    async fn authorities_are_read_again() {
        let nothing = || Err(io::Error::from(io::ErrorKind::NotFound));
        let server = Kubernetes::start_with_tls().await;
        let authorities: &'static Authorities = Box::leak(Box::new(Authorities::begin(Ok(of(None)))));
        let connector = Connector::judging_by(authorities);
        let reached = async || connector.clone().oneshot(server.url().parse().unwrap()).await.is_ok();
        assert!(!reached().await, "its authority is not known");
        assert!(authorities.look(Ok(of(server.ca_pem()))));
        assert!(reached().await);
        assert!(!authorities.look(nothing()));
        assert!(reached().await, "what was there stays");
        assert!(Authorities::begin(nothing()).look(nothing()));
    }
}
