//! A gate that a job step waits at, so that a test acts in the middle of a job without guessing times.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Error;

/// A closed gate. Dropping it cuts off who still waits.
pub struct Gate {
    address: SocketAddr,
    arrived: watch::Receiver<usize>,
    open: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Gate {
    /// A new, closed gate on the loopback interface.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn new() -> Result<Self, Error> {
        Self::at(Ipv4Addr::LOCALHOST).await
    }

    /// The same at another address of this machine.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub async fn at(address: Ipv4Addr) -> Result<Self, Error> {
        let listener = TcpListener::bind((address, 0)).await.map_err(Error::system("listen for a gate"))?;
        let address = listener.local_addr().map_err(Error::system("address of a gate"))?;
        let (count, arrived) = watch::channel(0);
        let (open, opened) = watch::channel(false);
        let keeper = tokio::spawn(keep(listener, count, opened));
        Ok(Self { address, arrived, open, keeper })
    }

    /// The line of bash that waits at this gate; it fails when the gate is gone.
    #[must_use]
    pub fn wait_here(&self) -> String {
        let (host, port) = (self.address.ip(), self.address.port());
        format!("exec 9<>/dev/tcp/{host}/{port} && read -r word <&9 && test \"$word\" = open && exec 9>&-")
    }

    /// Returns when `count` arrivals were seen since the gate was made.
    ///
    /// # Errors
    /// They did not come within `limit`.
    pub async fn arrived(&self, count: usize, limit: Duration) -> Result<(), Error> {
        let mut arrived = self.arrived.clone();
        let last = *self.arrived.borrow();
        match timeout(limit, arrived.wait_for(|seen| *seen >= count)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Deadline {
                what: format!("{count} arrivals at the gate"),
                limit,
                last: format!("{} arrivals", last.max(*self.arrived.borrow())),
            }),
        }
    }

    /// Opens the gate for those who wait and all who come later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(listener: TcpListener, count: watch::Sender<usize>, opened: watch::Receiver<bool>) {
    while let Ok((mut visitor, _)) = listener.accept().await {
        count.send_modify(|seen| *seen += 1);
        let mut opened = opened.clone();
        tokio::spawn(async move {
            if opened.wait_for(|open| *open).await.is_ok() {
                let _ = visitor.write_all(b"open\n").await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_shell_waits_until_the_gate_opens() {
        let gate = Gate::new().await.unwrap();
        let mut shell = tokio::process::Command::new("bash").args(["-c", &gate.wait_here()]).spawn().unwrap();
        gate.arrived(1, Duration::from_secs(10)).await.unwrap();
        assert!(shell.try_wait().unwrap().is_none(), "passed a closed gate");
        gate.open();
        assert!(shell.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn a_gate_that_is_gone_fails_the_step() {
        let gate = Gate::new().await.unwrap();
        let mut shell = tokio::process::Command::new("bash").args(["-c", &gate.wait_here()]).spawn().unwrap();
        gate.arrived(1, Duration::from_secs(10)).await.unwrap();
        drop(gate);
        assert!(!shell.wait().await.unwrap().success());
    }
}
