//! A wire to a server that can be cut: then nothing comes through, and nobody is told so.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Dropping it takes no further connection.
pub struct Cable {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Cable {
    /// From a port of loopback to this server.
    ///
    /// # Errors
    /// There is no port.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, is_cut) = (listener.local_addr()?, watch::Sender::new(false));
        let cut = is_cut.subscribe();
        let keeper = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server, cut.clone()));
            }
        });
        Ok(Self { address, is_cut, keeper })
    }

    /// Its near end.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing comes through.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// New connections are whole; those that were cut end.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn connection(mut client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let through = async {
        if !*cut.borrow() {
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => return,
                _ = cut.wait_for(|cut| *cut) => {}
            }
        }
        let _mended_or_over = cut.wait_for(|cut| !*cut).await;
    };
    through.await;
}
