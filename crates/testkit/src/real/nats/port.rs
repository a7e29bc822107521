//! A loopback port that stays ours while nobody listens on it.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use super::super::Error;

/// Bound, never listening: the kernel gives the port to nobody who asks for any, and lets a server that names it listen,
/// since both allow the reuse of an address that only one listens on.
pub(super) struct Port {
    _held: TcpSocket,
    number: u16,
}

impl Port {
    /// Another port than all that are held or used.
    pub(super) fn reserve() -> Result<Self, Error> {
        let bind = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let number = socket.local_addr()?.port();
            Ok(Self { _held: socket, number })
        };
        bind().map_err(|cause: std::io::Error| Error::system("find a free loopback port")(cause))
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The kernel's choice passes a held port by, and its name opens it.
    #[test]
    fn a_held_port_is_for_who_names_it() {
        let held: Vec<_> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        for _ in 0..200 {
            let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            assert!(held.iter().all(|port| port.number() != other));
        }
        for _ in 0..2 {
            std::net::TcpListener::bind(("127.0.0.1", held[0].number())).unwrap();
        }
    }
}
