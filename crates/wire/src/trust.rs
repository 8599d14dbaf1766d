//! The CAs and revoked certificates that a client knows: fetched, stored beside its
//! certificate, and used for every new connection.
//!
//! A client accepts a bundle of CAs only from a server that it trusts already. It accepts a
//! revocation list only if one of these CAs signed it, and never an older list than the one it
//! has, so that nobody can make it forget a revocation.

use crate::api::{AuthorityView, OfferedLists};
use crate::certificate::{self, Certificate, CertificateError};
use crate::client::{Client, ClientError};
use crate::credentials::{Credentials, CredentialsError};
use crate::endpoints::{OfferRevocationLists, ShowAuthority, ShowRevocationList};
use crate::fingerprint::Fingerprint;
use crate::revocation::RevocationList;
use crate::tls::{ClientTls, Identity};

/// The most bytes of revocation lists that a client reads.
const LONGEST_LISTS: usize = 32 << 20;

/// What a look at the server changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrustChange {
    /// The CAs or the revocation lists changed: new connections should use them.
    pub is_changed: bool,
    /// The server asks this client to renew its certificate.
    pub must_renew: bool,
}

/// The reason why the CAs or lists could not be updated.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the server does not tell which CAs to trust")]
    Ask(#[source] Box<ClientError>),
    #[error("cannot use the CAs that the server named")]
    Authority(#[from] CertificateError),
    #[error("the server named a certificate that is not a CA: `{0}`")]
    NotAnAuthority(String),
    #[error("cannot store what the server said")]
    Credentials(#[from] CredentialsError),
}

/// Asks the server, and stores what is new beside the client's certificate.
pub async fn refresh(
    client: &Client,
    credentials: &Credentials,
) -> Result<TrustChange, TrustError> {
    let ask = |error| TrustError::Ask(Box::new(error));
    let view: AuthorityView = client.call(ShowAuthority).await.map_err(ask)?;
    let authorities = authorities_of(&view.ca)?;
    let mut change = TrustChange {
        is_changed: false,
        must_renew: view.renew,
    };
    if credentials.authority_pem()?.as_deref() != Some(view.ca.as_str()) {
        credentials.save_authority(&view.ca)?;
        change.is_changed = true;
    }
    let known = credentials.revocation_lists_pem();
    if view.epoch != credentials.epoch() {
        // The server was restored from a backup. It learns from this client what it forgot.
        if !known.is_empty() {
            let offer = OfferedLists {
                lists: known.clone(),
            };
            client
                .call_with(OfferRevocationLists, &offer)
                .await
                .map_err(ask)?;
        }
        credentials.save_epoch(view.epoch)?;
    }
    if !view.revocation_list.is_empty() && view.revocation_list != list_id(&known) {
        let fetched = fetch_lists(client).await.map_err(ask)?;
        let merged = newest_lists(&known, &fetched, &authorities);
        if merged != known {
            credentials.save_revocation_lists(&merged)?;
            change.is_changed = true;
        }
    }
    Ok(change)
}

/// Fetches the revocation lists. A text that is too long to be one is cut off, and then refused
/// as malformed.
async fn fetch_lists(client: &Client) -> Result<String, ClientError> {
    let mut download = client.fetch_pieces(ShowRevocationList).await?;
    let mut text = Vec::new();
    while let Some(piece) = download.next().await {
        text.extend_from_slice(&piece?);
        if text.len() > LONGEST_LISTS {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the TLS of a client with these credentials, with the revocation lists that it has.
pub fn client_tls(
    credentials: &Credentials,
    identity: Option<Identity>,
) -> Result<ClientTls, CredentialsError> {
    let authority_pem = credentials.authority_pem()?.unwrap_or_default();
    let lists = credentials.revocation_lists_pem();
    // A damaged file must not keep the client offline: it is fetched again.
    let usable = authorities_of(&authority_pem)
        .map(|authorities| newest_lists("", &lists, &authorities))
        .unwrap_or_default();
    Ok(ClientTls {
        authority_pem,
        revocation_lists_pem: usable,
        identity,
    })
}

/// Identifies a text with revocation lists.
pub fn list_id(pem: &str) -> String {
    if pem.is_empty() {
        return String::new();
    }
    Fingerprint::of(pem.as_bytes()).to_string()
}

fn authorities_of(pem: &str) -> Result<Vec<Certificate>, TrustError> {
    let chain = certificate::chain_from_pem(pem)?;
    chain
        .iter()
        .map(|der| {
            let one = Certificate::from_der(der)?;
            if one.is_authority {
                Ok(one)
            } else {
                Err(TrustError::NotAnAuthority(one.common_name))
            }
        })
        .collect()
}

/// Returns the newest list of each trusted CA.
fn newest_lists(known: &str, fetched: &str, authorities: &[Certificate]) -> String {
    let read = |text: &str| RevocationList::from_pem(text).unwrap_or_default();
    let trusted = |list: &RevocationList| {
        authorities
            .iter()
            .any(|authority| list.check_signature(authority).is_ok())
    };
    let mut newest: Vec<RevocationList> = Vec::new();
    for list in read(fetched).into_iter().chain(read(known)).filter(trusted) {
        match newest.iter_mut().find(|other| other.issuer == list.issuer) {
            Some(other) if other.number >= list.number => {}
            Some(other) => *other = list,
            None => newest.push(list),
        }
    }
    newest.iter().map(RevocationList::to_pem).collect()
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::authority::Authority;
    use crate::revocation::RevokedCertificate;
    use crate::serial::Serial;

    fn list(authority: &Authority, number: u64, revoked: &[u64]) -> String {
        let now = Timestamp::now();
        let revoked: Vec<_> = revoked
            .iter()
            .map(|serial| RevokedCertificate {
                serial: Serial::from(*serial),
                at: now,
            })
            .collect();
        authority
            .revocation_list(&revoked, number, now, SignedDuration::from_hours(24))
            .unwrap()
            .to_pem()
    }

    #[test]
    fn an_older_or_foreign_list_changes_nothing() {
        let now = Timestamp::now();
        let ours = Authority::create("ours", now).unwrap();
        let other = Authority::create("other", now).unwrap();
        let trusted = [ours.certificate().clone()];
        let (old, new) = (list(&ours, 3, &[]), list(&ours, 4, &[7]));
        assert_eq!(newest_lists("", &old, &trusted), old);
        assert_eq!(newest_lists(&old, &new, &trusted), new);
        assert_eq!(
            newest_lists(&new, &old, &trusted),
            new,
            "never an older one"
        );
        assert_eq!(newest_lists(&new, &list(&other, 9, &[]), &trusted), new);
        assert_eq!(newest_lists(&new, "garbage", &trusted), new);
        // Another CA with the same name cannot replace a list.
        let twin = Authority::create("ours", now).unwrap();
        assert_eq!(newest_lists(&new, &list(&twin, 9, &[]), &trusted), new);
        // While two CAs are trusted, both lists count.
        let both = [ours.certificate().clone(), other.certificate().clone()];
        let theirs = list(&other, 1, &[1]);
        let fetched = format!("{new}{theirs}");
        assert_eq!(newest_lists("", &fetched, &both), fetched);
        assert_eq!(newest_lists("", &fetched, &trusted), new);
    }
}
