//! The reasons for a failed TLS handshake, in words that say what to do.

use rustls::{AlertDescription, CertificateError, Error};

/// The reason why one side did not accept the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsRefusal {
    /// The server's certificate is from an authority that we do not trust.
    ServerUnknown,
    /// The server's certificate has expired, by our clock.
    ServerExpired,
    /// The server's certificate starts in the future, by our clock.
    ServerNotYetValid,
    /// The server's certificate is for another name.
    ServerOtherName,
    /// The server's certificate was revoked.
    ServerRevoked,
    /// Our certificate has expired, according to the server.
    OwnExpired,
    /// Our certificate was revoked, according to the server.
    OwnRevoked,
    /// Our certificate is from an authority that the server does not trust.
    OwnUnknown,
    /// The server requires a certificate and we presented none.
    OwnMissing,
    /// The server refuses our certificate without a specific reason.
    OwnRefused,
    /// The program at the address does not speak TLS and HTTP.
    NotAServer,
    /// Anything else.
    Other,
}

/// The error of the TLS library, in words for people.
#[derive(Debug)]
pub struct TlsCause(pub rustls::Error);

impl std::fmt::Display for TlsCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) = &self.0
        else {
            return self.0.fmt(f);
        };
        let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
        let wanted = expected.to_str();
        write!(f, "it is for {}, not for {wanted}", names.join(", "))
    }
}

impl std::error::Error for TlsCause {}

/// Returns the name in a text such as `DnsName("web-1")`.
fn bare_name(presented: &str) -> &str {
    let inside = presented
        .split_once('(')
        .map_or(presented, |(_, name)| name);
    inside.trim_end_matches(')').trim_matches('"')
}

impl TlsRefusal {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(why) => Self::of_server(why),
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::InvalidMessage(_) | Error::NoApplicationProtocol => Self::NotAServer,
            _ => Self::Other,
        }
    }

    fn of_server(why: &CertificateError) -> Self {
        match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Self::ServerExpired
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::ServerNotYetValid
            }
            CertificateError::Revoked => Self::ServerRevoked,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::ServerOtherName
            }
            _ => Self::ServerUnknown,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateExpired => Self::OwnExpired,
            AlertDescription::CertificateRevoked => Self::OwnRevoked,
            // The second occurs when both authorities have the same name.
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Self::OwnUnknown,
            AlertDescription::CertificateRequired => Self::OwnMissing,
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => Self::OwnRefused,
            AlertDescription::NoApplicationProtocol => Self::NotAServer,
            _ => Self::Other,
        }
    }

    /// Returns a description of the failure.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerUnknown => "the server's certificate is not from the trusted CA",
            Self::ServerExpired => "the server's certificate has expired",
            Self::ServerNotYetValid => "the server's certificate is not valid yet",
            Self::ServerOtherName => "the server's certificate is for another name",
            Self::ServerRevoked => "the server's certificate was revoked",
            Self::OwnExpired => "the server reports that this certificate has expired",
            Self::OwnRevoked => "the server reports that this certificate is revoked",
            Self::OwnUnknown => "the server does not trust the CA of this certificate",
            Self::OwnMissing => "the server requires a client certificate",
            Self::OwnRefused => "the server rejected this certificate",
            Self::NotAServer => "this address does not belong to a Bunraku server",
            Self::Other => "TLS failed",
        }
    }

    /// Returns a hint on what to do about it.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::ServerUnknown => {
                "compare the CA fingerprint on both sides; if the server has a new CA, join again with a new token"
            }
            Self::ServerExpired | Self::ServerNotYetValid => {
                "check this machine's clock; if it is right, the server needs a new certificate"
            }
            Self::ServerOtherName => {
                "use a name that is in the server's certificate, or restart the server with `--name-alias` and this name"
            }
            Self::ServerRevoked => "use another server",
            Self::OwnExpired => {
                "check this machine's clock; if it is right, join again with a new token"
            }
            Self::OwnRevoked | Self::OwnUnknown | Self::OwnRefused => "join again with a new token",
            Self::OwnMissing => "join first",
            Self::NotAServer => "check the address and the port",
            Self::Other => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_other_names_is_described_without_types_of_the_library() {
        let cause = TlsCause(Error::InvalidCertificate(
            CertificateError::NotValidForNameContext {
                expected: "vm".try_into().expect("a name"),
                presented: vec![
                    "DnsName(\"localhost\")".to_owned(),
                    "IpAddress(127.0.0.1)".to_owned(),
                ],
            },
        ));
        assert_eq!(
            cause.to_string(),
            "it is for localhost, 127.0.0.1, not for vm"
        );
    }
}
