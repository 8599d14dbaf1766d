//! Reserved ports for servers that are started on this machine.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Below the range that the kernel uses for outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of 127.0.0.1 that stays ours, even while no server listens on it yet, or while the server
/// restarts.
///
/// The port is bound, so nobody who asks the kernel for a port gets it. It may be shared with a
/// server that sets `SO_REUSEADDR`, as servers do: the server that is given the number.
#[derive(Debug)]
pub struct HeldPort {
    number: u16,
    _socket: OwnedFd,
}

impl HeldPort {
    /// Reserves any port that is free for TCP and UDP.
    pub fn any() -> std::io::Result<Self> {
        let mut last = None;
        for _ in 0..1_000 {
            let random = uuid::Uuid::new_v4().as_u128() % u128::from(COUNT);
            let number = FIRST + u16::try_from(random).unwrap_or_default();
            match Self::take(number) {
                Ok(held) => return Ok(held),
                Err(error) => last = Some(error),
            }
        }
        let last = last.map(|error| error.to_string()).unwrap_or_default();
        Err(std::io::Error::other(format!(
            "no port between {FIRST} and {} of 127.0.0.1 was free in 1000 tries: {last}",
            FIRST + COUNT
        )))
    }

    fn take(number: u16) -> std::io::Result<Self> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, number);
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&socket, &address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Servers do not share UDP ports, so these cannot be held.
        UdpSocket::bind(address)?;
        Ok(Self {
            number,
            _socket: socket,
        })
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_held_port_is_unavailable_to_others_until_it_is_released() {
        let held = HeldPort::any().expect("one is free");
        assert!(HeldPort::take(held.number()).is_err());
        // The server starts, and then restarts.
        for _ in 0..2 {
            let server = TcpListener::bind(("127.0.0.1", held.number())).expect("let in");
            assert!(TcpListener::bind(("127.0.0.1", held.number())).is_err());
            drop(server);
            assert!(HeldPort::take(held.number()).is_err());
        }
        let number = held.number();
        drop(held);
        HeldPort::take(number).expect("let go");
    }

    #[test]
    fn a_port_with_a_server_is_not_taken() {
        let held = HeldPort::any().expect("one is free");
        let number = held.number();
        let server = TcpListener::bind(("127.0.0.1", number)).expect("let in");
        drop(held);
        assert!(HeldPort::take(number).is_err());
        drop(server);
        let server = UdpSocket::bind(("127.0.0.1", number)).expect("free");
        assert!(HeldPort::take(number).is_err());
        drop(server);
    }
}
