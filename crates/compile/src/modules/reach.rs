//! What an environment's code may make the server fetch.
//!
//! A module's address comes from code. A person who can push code must not find out with it which files
//! the server has, or what listens on its own and on neighbouring machines. So code reaches local
//! files only if its own repository is one, and private addresses only if its own repository is at
//! one.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::code::is_local;

/// The addresses that code may name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ModuleReach {
    /// Public addresses.
    Public,
    /// Also addresses of private networks.
    Private,
    /// Also files, and this machine itself.
    Local,
}

impl ModuleReach {
    /// Returns the reach of code from this repository.
    pub async fn of_repository(url: &str) -> Self {
        if is_local(url) {
            return Self::Local;
        }
        let Some(host) = host_of(url) else {
            return Self::Public;
        };
        let found = addresses(host).await.into_iter().map(needed_for).max();
        // A repository on this machine, reached over the network, does not open its files.
        found.unwrap_or(Self::Public).min(Self::Private)
    }

    /// Returns the address of `url` to use, or `None` if it is out of reach. With a name, the
    /// address is pinned, so that it cannot change after this check.
    pub(super) async fn check(self, url: &str) -> Result<Option<SocketAddr>, OutOfReach> {
        let denied = || OutOfReach(crate::code::masked(url));
        if is_local(url) {
            return if self == Self::Local {
                Ok(None)
            } else {
                Err(denied())
            };
        }
        let host = host_of(url).ok_or_else(denied)?;
        let found = addresses(host).await;
        if found.iter().any(|address| needed_for(*address) > self) {
            return Err(denied());
        }
        Ok(found.first().map(|address| SocketAddr::new(*address, 0)))
    }
}

/// An address that code of this environment may not name.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is a file or a private address, which code from elsewhere may not name")]
pub struct OutOfReach(String);

/// Returns the reach that an address needs.
fn needed_for(address: IpAddr) -> ModuleReach {
    let address = address.to_canonical();
    let is_own = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let is_private = match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private() || v4.is_broadcast() || (a == 100 && (64..128).contains(&b)) || a == 0
        }
        IpAddr::V6(v6) => v6.is_unique_local() || embeds_v4(&v6),
    };
    // Link-local addresses lead to the metadata of a cloud, with credentials of the machine.
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_own || is_link_local {
        ModuleReach::Local
    } else if is_private {
        ModuleReach::Private
    } else {
        ModuleReach::Public
    }
}

/// Returns whether an address stands for one of IPv4 behind a translator.
fn embeds_v4(address: &Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[..2] == [0x64, 0xff9b] || segments[0] == 0x2002
}

/// Returns the host of an address: `https://user@host:1/x`, `ssh://…`, `user@host:path`.
fn host_of(url: &str) -> Option<&str> {
    let authority = match url.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next()?,
        None => url.split_once(':')?.0,
    };
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    if let Some(inside) = host.strip_prefix('[') {
        return inside.split(']').next().filter(|host| !host.is_empty());
    }
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    (!host.is_empty()).then_some(host)
}

/// Returns the addresses of a host; none if its name is not known here.
async fn addresses(host: &str) -> Vec<IpAddr> {
    match tokio::net::lookup_host((host, 0)).await {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn code_reaches_no_further_than_its_own_repository() {
        for (repository, reach) in [
            ("/srv/code.git", ModuleReach::Local),
            ("file:///srv/code.git", ModuleReach::Local),
            ("https://10.1.2.3/code.git", ModuleReach::Private),
            ("git@192.168.1.1:code.git", ModuleReach::Private),
            ("ssh://git@127.0.0.1:2222/code.git", ModuleReach::Private),
            ("https://93.184.216.34/code.git", ModuleReach::Public),
            ("https://name.invalid/code.git", ModuleReach::Public),
        ] {
            assert_eq!(
                ModuleReach::of_repository(repository).await,
                reach,
                "{repository}"
            );
        }
    }

    #[tokio::test]
    async fn files_and_private_addresses_are_out_of_reach_for_public_code() {
        for (url, needed) in [
            ("file:///etc/shadow", ModuleReach::Local),
            ("/etc/shadow", ModuleReach::Local),
            ("http://127.0.0.1:2379/version", ModuleReach::Local),
            ("http://localhost:2379/version", ModuleReach::Local),
            ("http://[::1]/x", ModuleReach::Local),
            ("http://[::ffff:127.0.0.1]/x", ModuleReach::Local),
            (
                "http://169.254.169.254/latest/meta-data",
                ModuleReach::Local,
            ),
            ("http://0.0.0.0/x", ModuleReach::Local),
            ("http://2130706433/x", ModuleReach::Local),
            ("https://user@10.0.0.1:8443/x", ModuleReach::Private),
            ("https://[fd00::1]/x", ModuleReach::Private),
            ("https://100.64.0.1/x", ModuleReach::Private),
            ("https://93.184.216.34/x", ModuleReach::Public),
        ] {
            for reach in [
                ModuleReach::Public,
                ModuleReach::Private,
                ModuleReach::Local,
            ] {
                let checked = reach.check(url).await;
                assert_eq!(checked.is_ok(), reach >= needed, "{url} with {reach:?}");
            }
        }
    }
}
