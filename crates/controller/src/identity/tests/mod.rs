//! The issuer and the facade's TLS as their users see them: through the real `spiffe` crate over real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod handshakes;
mod refusals;
mod rotation;
mod serving;

use std::{future::Future, path::PathBuf, time::Duration};

use domain::identity::{SpiffeId, TrustDomain};
use executor::identity::{FacadeConnector, Identity};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Longest wait for anything that must happen.
const DEADLINE: Duration = Duration::from_secs(20);
/// Lives so short that a test sees rotation happen by itself.
const BRISK: Lifetimes = Lifetimes {
    leaf: Duration::from_secs(3),
    authority: Duration::from_secs(12),
    announcement: Duration::from_millis(500),
};

fn domain() -> TrustDomain {
    "td.test".parse().unwrap()
}

fn id(path: &str) -> SpiffeId {
    format!("spiffe://td.test/{path}").parse().unwrap()
}

/// One issuer in a folder of its own.
struct Host {
    dir: TempDir,
    issuer: BuiltInIssuer,
}

impl Host {
    fn new() -> Self {
        Self::with(Lifetimes::default())
    }

    fn with(lifetimes: Lifetimes) -> Self {
        // The first one counts; it is the same in every test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let issuer = BuiltInIssuer::open_with(&dir.path().join("keys"), &domain(), lifetimes).unwrap();
        Self { dir, issuer }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn serve(&self, name: &str) -> ServedIdentity {
        self.issuer.serve(self.socket(name), id(name)).await.unwrap()
    }
}

/// A facade that says who called and echoes what it is sent.
struct Facade {
    url: http::Uri,
    callers: mpsc::UnboundedReceiver<Result<Option<Peer>, String>>,
}

impl Facade {
    async fn start(acceptor: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (tell, callers) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, tell) = (acceptor.clone(), tell.clone());
                tokio::spawn(async move {
                    let mut stream = match acceptor.accept(stream).await {
                        Err(error) => return tell.send(Err(error.to_string())).unwrap_or_default(),
                        Ok(stream) => stream,
                    };
                    tell.send(Ok(peer(&stream))).unwrap_or_default();
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
                });
            }
        });
        Self { url, callers }
    }

    /// Who came through the handshake, or why nobody did. One that lets somebody without an identity through has failed.
    async fn caller(&mut self) -> Result<Peer, String> {
        let caller = timeout(DEADLINE, self.callers.recv()).await.unwrap().unwrap();
        caller.map(|peer| peer.expect("the handshake let somebody without an identity through"))
    }
}

async fn identity(served: &ServedIdentity, id: &SpiffeId) -> Identity {
    executor::identity::exact(&served.endpoint(), id, DEADLINE).await.unwrap()
}

/// One byte there and back; what a refused client sees only now is an error here.
async fn ping<S>(stream: &mut S) -> std::io::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0]).await.map(|_| ())
}

async fn call(connector: &FacadeConnector, url: &http::Uri) -> Result<(), Box<dyn std::error::Error>> {
    ping(&mut connector.dial(url).await?).await?;
    Ok(())
}

/// Looks again until it holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(DEADLINE, wait).await.is_ok(), "{what}");
}
