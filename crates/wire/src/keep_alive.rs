//! Dead peer detection by the kernel.
//!
//! A silent connection gets periodic TCP probes. If neither a probe nor data is acknowledged
//! for too long, the next read fails. Unlike our own pings, this costs no memory and causes
//! no wakeups, so an idle HTTP/1.1 stream uses it instead.
//!
//! Absent: a peer whose kernel works but whose program hangs. It continues to acknowledge.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The shortest span: the kernel counts in seconds, from one.
const SHORTEST: Duration = Duration::from_secs(1);

/// Number of probes between the first one and the end.
const PROBES: u32 = 4;

/// Enables a probe after `silence`, and the end of the connection after `patience` more
/// without an answer.
pub fn watch_for_dead_peer(
    socket: impl AsFd,
    silence: Duration,
    patience: Duration,
) -> io::Result<()> {
    let socket = socket.as_fd();
    let silence = silence.max(SHORTEST);
    let most = (silence + patience).as_millis();
    sockopt::set_tcp_keepidle(socket, silence)?;
    sockopt::set_tcp_keepintvl(socket, (patience / PROBES).max(SHORTEST))?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    // Also applies to data in flight, which would otherwise be sent again for a quarter of an
    // hour.
    sockopt::set_tcp_user_timeout(socket, u32::try_from(most).unwrap_or(u32::MAX))?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gets_the_probe_interval_and_the_limit() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let seconds = Duration::from_secs;
        watch_for_dead_peer(&socket, seconds(20), seconds(24)).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), seconds(20));
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), seconds(6));
        assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 4);
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 44_000);
    }

    #[test]
    fn spans_below_what_the_kernel_knows_are_taken_as_its_shortest() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let short = Duration::from_millis(300);
        watch_for_dead_peer(&socket, short, short).unwrap();
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), SHORTEST);
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), SHORTEST);
    }
}
