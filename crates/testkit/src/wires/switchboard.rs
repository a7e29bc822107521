//! One address for several servers, as a Service of Kubernetes is one: each connection goes to one whose port is open, in
//! turns.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Dropping it takes no further connection.
pub struct Switchboard {
    address: SocketAddr,
    hung_up: watch::Sender<()>,
    keeper: JoinHandle<()>,
}

impl Switchboard {
    /// At a port of this address.
    ///
    /// # Errors
    /// There is no port.
    pub async fn at(address: IpAddr, servers: Vec<SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let (address, hung_up) = (listener.local_addr()?, watch::Sender::new(()));
        let hears = hung_up.subscribe();
        let keeper = tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((client, _)) = listener.accept().await {
                let mut order = servers.clone();
                order.rotate_left(turn % servers.len().max(1));
                turn += 1;
                tokio::spawn(connection(client, order, hears.clone()));
            }
        });
        Ok(Self { address, hung_up, keeper })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection: whoever has one takes his turn anew.
    pub fn hang_up(&self) {
        self.hung_up.send_replace(());
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Carries to the first that takes it; to nobody when none does.
async fn connection(mut client: TcpStream, order: Vec<SocketAddr>, mut hung_up: watch::Receiver<()>) {
    hung_up.mark_unchanged();
    for server in order {
        if let Ok(mut server) = TcpStream::connect(server).await {
            // The end of either is the end of both.
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = hung_up.changed() => {}
            }
            return;
        }
    }
}
