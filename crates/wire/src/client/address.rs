//! The address of a server, as people write it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// The default port.
pub const DEFAULT_PORT: u16 = 8150;

/// A host and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerAddress {
    host: String,
    port: u16,
}

/// The error for text that does not name a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the address of a server (write `host`, `host:port` or `[::1]:port`)")]
pub struct InvalidAddress(String);

impl ServerAddress {
    /// Checks that the host is a name or an address.
    pub fn new(host: &str, port: u16) -> Result<Self, InvalidAddress> {
        let host = host.to_ascii_lowercase();
        match ServerName::try_from(host.as_str()) {
            Ok(_) if port != 0 => Ok(Self { host, port }),
            _ => Err(InvalidAddress(host)),
        }
    }

    /// Returns the name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, which is never zero.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn tls_name(&self) -> ServerName<'static> {
        ServerName::try_from(self.host.clone()).expect("checked when the address was made")
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || InvalidAddress(text.to_owned());
        let rest = text.trim();
        let rest = rest.strip_prefix("https://").unwrap_or(rest);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.parse::<std::net::Ipv6Addr>().is_ok() {
            return Self::new(rest, DEFAULT_PORT).map_err(|_| refuse());
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or_else(refuse)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| refuse())?;
                (
                    host,
                    after.strip_prefix(':').or(after.is_empty().then_some("")),
                )
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, Some("")),
            },
        };
        let port = match port.ok_or_else(refuse)? {
            "" if rest.ends_with(':') => return Err(refuse()),
            "" => DEFAULT_PORT,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| refuse())?
            }
            _ => return Err(refuse()),
        };
        Self::new(host, port).map_err(|_| refuse())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

crate::text_form::serde_as_text!(ServerAddress);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, canonical) in [
            ("bunraku", "bunraku:8150"),
            ("Bunraku.Example.net:1", "bunraku.example.net:1"),
            ("https://a.example:8140/", "a.example:8140"),
            ("127.0.0.1", "127.0.0.1:8150"),
            ("::1", "[::1]:8150"),
            ("[::1]:9000", "[::1]:9000"),
        ] {
            let address: ServerAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(address));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", ":1", "a:", "a:0", "a:65536", "a:+1", "a b", "a/b", "[a]:1", "[::1", "http://a",
        ] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_writing_reads_back(text in "\\PC{0,60}") {
            if let Ok(address) = text.parse::<ServerAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
