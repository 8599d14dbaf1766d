//! The kernel's links, addresses and routes, queried over rtnetlink.
//!
//! A pure parser reads the [`Message`]s and trusts no length in them. The thin part sends one dump
//! request per kind and reads until the kernel reports the end of the dump.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 0x301;
const HEADER: usize = 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TABLE_MAIN: u32 = 254;
const LINKDOWN: u32 = 16;

/// The time limit for an answer. The kernel answers immediately, but nothing may wait forever.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) address: Vec<u8>,
    pub(super) mtu: Option<u32>,
    /// The bond or bridge that the link belongs to.
    pub(super) master: Option<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Address {
    pub(super) index: u32,
    /// The label. IPv4 addresses have their own: `eth0:1`.
    pub(super) label: Option<String>,
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
}

/// A route of the main table that names the source address it uses.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SourceRoute {
    pub(super) index: u32,
    pub(super) source: IpAddr,
}

#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Dump {
    pub(super) links: Vec<Link>,
    pub(super) addresses: Vec<Address>,
    pub(super) routes: Vec<SourceRoute>,
}

/// Queries the running kernel.
pub(super) fn dump() -> io::Result<Dump> {
    let mut dump = Dump::default();
    for kind in [RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE] {
        ask(kind, &mut dump)?;
    }
    Ok(dump)
}

fn ask(kind: u16, dump: &mut Dump) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request(kind), SendFlags::empty(), &kernel)?;
    // The kernel fills at most 32 KiB at a time.
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if read(&buffer[..length], dump)? {
            return Ok(());
        }
    }
}

fn request(kind: u16) -> Vec<u8> {
    // The header, then the longest of the three bodies (`ifinfomsg`), all zero.
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(32u32.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.resize(32, 0);
    bytes
}

/// Reads one datagram. Returns true when the dump is complete.
fn read(datagram: &[u8], dump: &mut Dump) -> io::Result<bool> {
    for message in Messages(datagram) {
        match message.kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = number(message.body, 0).map_or(0, |code| code as i32);
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            RTM_NEWLINK => dump.links.extend(link(message.body)),
            RTM_NEWADDR => dump.addresses.extend(address(message.body)),
            RTM_NEWROUTE => {
                // A router has a million routes, but only a few source addresses.
                let route = route(message.body).filter(|route| !dump.routes.contains(route));
                dump.routes.extend(route);
            }
            _ => {}
        }
    }
    // Without this check, an empty or truncated datagram would cause an endless wait.
    if datagram.len() < HEADER {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    } else {
        Ok(false)
    }
}

struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = number(self.0, 0)? as usize;
        let kind = u16::from_ne_bytes(self.0.get(4..6)?.try_into().ok()?);
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    }
}

/// Returns the attributes after a body's fixed part: their kind and value.
fn attributes(body: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(fixed..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & 0x3fff, value))
    })
}

fn link(body: &[u8]) -> Option<Link> {
    const ADDRESS: u16 = 1;
    const NAME: u16 = 3;
    const MTU: u16 = 4;
    const MASTER: u16 = 10;
    let mut link = Link {
        index: number(body, 4)?,
        name: String::new(),
        address: Vec::new(),
        mtu: None,
        master: None,
    };
    for (kind, value) in attributes(body, 16) {
        match kind {
            ADDRESS => link.address = value.to_vec(),
            NAME => link.name = text(value),
            MTU => link.mtu = number(value, 0),
            MASTER => link.master = number(value, 0),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn address(body: &[u8]) -> Option<Address> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    const LABEL: u16 = 3;
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let (mut peer, mut local, mut label) = (None, None, None);
    for (kind, value) in attributes(body, 8) {
        match kind {
            ADDRESS => peer = ip(family, value),
            LOCAL => local = ip(family, value),
            LABEL => label = Some(text(value)),
            _ => {}
        }
    }
    Some(Address {
        index: number(body, 4)?,
        label,
        // On a point-to-point link, the other address is that of the remote end.
        address: local.or(peer)?,
        prefix,
    })
}

fn route(body: &[u8]) -> Option<SourceRoute> {
    const OIF: u16 = 4;
    const PREFSRC: u16 = 7;
    const TABLE: u16 = 15;
    let (family, destination) = (*body.first()?, *body.get(1)?);
    let mut table = u32::from(*body.get(4)?);
    let (mut index, mut source) = (None, None);
    for (kind, value) in attributes(body, 12) {
        match kind {
            OIF => index = number(value, 0),
            PREFSRC => source = ip(family, value),
            TABLE => table = number(value, 0)?,
            _ => {}
        }
    }
    let down = number(body, 8)? & LINKDOWN != 0;
    // Facter skips the default route of IPv6.
    let shown = family == AF_INET || destination > 0;
    (table == TABLE_MAIN && shown && !down).then_some(SourceRoute {
        index: index?,
        source: source?,
    })
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_a_loopback_link() {
        let dump = dump().unwrap();
        let loopback = dump.links.iter().find(|link| link.name == "lo").unwrap();
        assert!(loopback.mtu.is_some());
        assert!(dump.addresses.iter().all(|address| address.prefix <= 128));
    }

    #[test]
    fn a_cut_datagram_ends_the_dump_with_an_error() {
        assert!(read(&[], &mut Dump::default()).is_err());
        assert!(read(&[1, 2, 3], &mut Dump::default()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_datagram_is_read_without_panic(
            kind in proptest::sample::select(vec![2u16, 3, 16, 20, 24, 99]),
            length in 0u32..90,
            tail: Vec<u8>,
        ) {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(&tail);
            let _ = read(&bytes, &mut Dump::default());
            let _ = read(&tail, &mut Dump::default());
        }
    }
}
