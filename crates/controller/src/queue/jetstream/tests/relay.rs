//! A wire between the engine and its server that can lose what the server says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Dropping it breaks the wire.
pub(super) struct Relay {
    address: SocketAddr,
    deaf: Arc<AtomicBool>,
    cut: watch::Sender<u64>,
}

impl Relay {
    /// Relays every connection to the server's port.
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, deaf) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (cut, cuts) = watch::channel(0);
        let heard = Arc::clone(&deaf);
        tokio::spawn(async move {
            let mut over = cuts.clone();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { return };
                        tokio::spawn(wire(client, port, Arc::clone(&heard), cuts.clone()));
                    }
                    gone = over.changed() => if gone.is_err() { return },
                }
            }
        });
        Self { address, deaf, cut }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// From now on nothing arrives of what the server says; it hears everything.
    pub(super) fn lose_answers(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Cuts every connection; new ones are whole.
    pub(super) fn mend(&self) {
        self.deaf.store(false, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn wire(mut client: TcpStream, port: u16, deaf: Arc<AtomicBool>, mut cuts: watch::Receiver<u64>) {
    cuts.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = tokio::io::copy(&mut from_client, &mut to_server);
    let down = async {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            if !deaf.load(Ordering::SeqCst) && to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
        _ = cuts.changed() => {}
    }
}
