//! The signer itself: the CA, the policy, the log, and the decision on each request.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_model::{ContentId, Role};
use bunraku_wire::api::cluster::AuthorityFiles;
use bunraku_wire::authority::{DirectoryError, PuppetError};
use bunraku_wire::revocation::RevokedCertificate;
use bunraku_wire::{Authority, Certificate, Grant, Request, Serial};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::caller::Caller;
use crate::message::{
    Answer, Ask, AuthorityDescription, IssuerChoice, PuppetLists, Refusal, RefusalKind, SignAsk,
};
use crate::policy::SigningPolicy;
use crate::rate::SigningRate;
use crate::revoked::RevokedSerials;
use crate::signature_log::SignatureLog;

/// The lifetime of a revocation list. Servers ask for a new one long before it ends.
const LIST_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The directory with the CA that will replace the current one.
const NEXT: &str = "next";

/// The kind of CA directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignerKind {
    Own,
    Puppet,
}

/// The settings of a signer.
#[derive(Clone, Debug)]
pub struct SignerOptions {
    pub kind: SignerKind,
    /// The directory of the CA.
    pub directory: PathBuf,
    /// The directory of the log and of what the signer remembers.
    pub state: PathBuf,
    pub policy: SigningPolicy,
}

/// The reason why a signer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the CA")]
    Own(#[from] DirectoryError),
    #[error("cannot use the CA")]
    Puppet(#[from] PuppetError),
    #[error("cannot use {}", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The CA that signs now, and the one that will replace it.
#[derive(Clone)]
struct Authorities {
    current: Arc<Authority>,
    next: Option<Arc<Authority>>,
}

/// The signer.
pub struct Signer {
    /// The directory of an own CA; `None` in memory and for a Puppet CA.
    directory: Option<PathBuf>,
    policy: SigningPolicy,
    authorities: Mutex<Authorities>,
    log: Option<SignatureLog>,
    revoked: Mutex<RevokedSerials>,
    rate: Mutex<SigningRate>,
    operator_keys: Mutex<OperatorKeys>,
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signer {
    /// Opens the CA. The first start of an own CA creates it.
    pub fn open(options: SignerOptions, now: Timestamp) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::State { path, source }
        };
        let SignerOptions {
            kind,
            directory,
            state,
            policy,
        } = options;
        bunraku_files::create_private_directory(&state).map_err(failed(&state))?;
        let (current, next) = match kind {
            SignerKind::Own => {
                let current = Authority::load_or_create(&directory, now)?;
                let place = directory.join(NEXT);
                let next = if place.join("ca.pem").exists() {
                    Some(Arc::new(Authority::load_or_create(&place, now)?))
                } else {
                    None
                };
                // After a crash between the two steps of a promotion.
                let next = next
                    .filter(|next: &Arc<Authority>| next.fingerprint() != current.fingerprint());
                (current, next)
            }
            SignerKind::Puppet => (Authority::from_puppet(&directory)?, None),
        };
        let log = SignatureLog::new(state.join("signatures.log"));
        let mut rate = SigningRate::default();
        for (role, at) in signed_before(&log).map_err(failed(log.path()))? {
            rate.count(role, at);
        }
        let (revoked, keys) = (state.join("revoked"), state.join("operators.json"));
        Ok(Self {
            directory: (kind == SignerKind::Own).then_some(directory),
            policy,
            authorities: Mutex::new(Authorities {
                current: Arc::new(current),
                next,
            }),
            revoked: Mutex::new(RevokedSerials::open(&revoked).map_err(failed(&revoked))?),
            operator_keys: Mutex::new(OperatorKeys::open(&keys).map_err(failed(&keys))?),
            log: Some(log),
            rate: Mutex::new(rate),
        })
    }

    /// Creates a signer that allows everything and logs nothing, for a test's own process.
    pub fn in_memory(authority: Arc<Authority>) -> Self {
        Self {
            directory: None,
            policy: SigningPolicy::permissive(),
            authorities: Mutex::new(Authorities {
                current: authority,
                next: None,
            }),
            log: None,
            revoked: Mutex::default(),
            rate: Mutex::default(),
            operator_keys: Mutex::default(),
        }
    }

    /// Returns the fingerprint of the current CA.
    pub fn fingerprint(&self) -> String {
        locked(&self.authorities).current.fingerprint().to_string()
    }

    /// Answers one request. Blocks: it signs, writes and syncs.
    pub fn answer(&self, ask: Ask, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        match ask {
            Ask::Describe => self.describe().map(Answer::Description),
            Ask::Sign(ask) => self.sign(&ask, caller, now),
            Ask::RevocationLists { revoked, number } => {
                self.revocation_lists(&revoked, number, caller, now)
            }
            Ask::RevokeInPuppet { serials } => self.revoke_in_puppet(&serials, caller, now),
            Ask::PuppetLists { unless } => self.puppet_lists(unless.as_deref()),
            Ask::Revoked => Ok(Answer::Revoked {
                serials: locked(&self.revoked).all(),
            }),
            Ask::Export => self.export(caller, now),
            Ask::PrepareNext => self.prepare_next(caller, now),
            Ask::AdoptNext { sealed } => self.adopt_next(&sealed, caller, now),
            Ask::PromoteNext { fingerprint } => self.promote_next(&fingerprint, caller, now),
            Ask::DropNext => self.drop_next(caller, now),
        }
    }

    fn authorities(&self) -> Authorities {
        locked(&self.authorities).clone()
    }

    fn describe(&self) -> Result<AuthorityDescription, Refusal> {
        let Authorities { current, next } = self.authorities();
        let sealed_next = match (&next, self.policy.shares_key) {
            (Some(next), true) => Some(current.seal(next).map_err(cannot("encrypt the next CA"))?),
            _ => None,
        };
        Ok(AuthorityDescription {
            certificates: current.certificates_pem(),
            next: next.map(|next| next.certificates_pem()),
            sealed_next,
            is_puppet: current.puppet_directory().is_some(),
        })
    }

    fn sign(&self, ask: &SignAsk, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        let request = Request::from_pem(&ask.certificate_request)
            .map_err(|error| Refusal::invalid(format!("the request is refused: {error}")))?;
        let Authorities { current, next } = self.authorities();
        let trusted: Vec<&Certificate> = std::iter::once(current.certificate())
            .chain(next.as_ref().map(|next| next.certificate()))
            .collect();
        let name = request.name().as_str();
        let operator =
            self.policy
                .check(ask, name, caller, &trusted, &locked(&self.revoked), now)?;
        if ask.role == Role::Operator && operator.is_none() && self.log.is_some() {
            locked(&self.operator_keys).check(name, &request)?;
        }
        let issuer = match ask.issuer {
            IssuerChoice::Current => &current,
            IssuerChoice::Next => next
                .as_ref()
                .ok_or_else(|| Refusal::invalid("this signer has no next CA"))?,
        };
        // Counted before signing, so that parallel requests cannot exceed the limit.
        {
            let mut rate = locked(&self.rate);
            rate.check(ask.role, &self.policy.most_per_hour, now)?;
            rate.count(ask.role, now);
        }
        let (ip_addresses, dns_names) = split(&ask.server_names);
        let grant = Grant {
            name: request.name().clone(),
            role: ask.role,
            groups: ask.groups.clone(),
            lifetime: SignedDuration::from_secs(ask.lifetime_seconds),
            dns_names,
            ip_addresses,
            serial: None,
        };
        let signed = issuer
            .sign(&request, &grant, now)
            .map_err(|error| Refusal::invalid(format!("cannot sign the request: {error}")))?;
        self.record(
            "certificate",
            caller,
            now,
            json!({
                "name": signed.name,
                "role": signed.role,
                "serial": signed.serial,
                "fingerprint": signed.fingerprint.to_string(),
                "key": ContentId::of(request.public_key_info()),
                "not_after": signed.not_after,
                "server_names": ask.server_names,
                "groups": ask.groups,
                "operator": operator,
                "issuer": issuer.certificate().common_name,
            }),
        )?;
        Ok(Answer::Signed {
            certificate: signed.pem,
        })
    }

    fn revocation_lists(
        &self,
        revoked: &[RevokedCertificate],
        number: u64,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let Authorities { current, next } = self.authorities();
        locked(&self.revoked)
            .learn(revoked.iter().map(|entry| &entry.serial))
            .map_err(cannot("remember the revoked certificates"))?;
        let mut pem = String::new();
        for authority in [Some(current), next].into_iter().flatten() {
            let list = authority
                .revocation_list(revoked, number, now, LIST_LIFETIME)
                .map_err(cannot("create the revocation list"))?;
            pem.push_str(&list.to_pem());
        }
        let details = json!({"number": number, "revoked": revoked.len()});
        self.record("revocation list", caller, now, details)?;
        Ok(Answer::Lists { pem })
    }

    fn revoke_in_puppet(
        &self,
        serials: &[Serial],
        caller: &Caller,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let current = self.authorities().current;
        let Some(directory) = current.puppet_directory() else {
            return Ok(Answer::Done);
        };
        locked(&self.revoked)
            .learn(serials)
            .map_err(cannot("remember the revoked certificates"))?;
        directory
            .revoke(&current, serials, now)
            .map_err(cannot("write Puppet's revocation list"))?;
        self.record("revocation", caller, now, json!({ "serials": serials }))?;
        Ok(Answer::Done)
    }

    fn puppet_lists(&self, unless: Option<&str>) -> Result<Answer, Refusal> {
        let current = self.authorities().current;
        let Some(directory) = current.puppet_directory() else {
            return Ok(Answer::PuppetLists { lists: None });
        };
        let cannot_read = "read Puppet's revocation list";
        let metadata =
            std::fs::metadata(directory.revocation_list_path()).map_err(cannot(cannot_read))?;
        let modified = metadata.modified().map_err(cannot(cannot_read))?;
        let stamp = format!("{modified:?} {}", metadata.len());
        if unless == Some(stamp.as_str()) {
            return Ok(Answer::PuppetLists { lists: None });
        }
        Ok(Answer::PuppetLists {
            lists: Some(PuppetLists {
                pem: directory
                    .revocation_lists_pem()
                    .map_err(cannot(cannot_read))?,
                revoked: directory.revoked(&current).map_err(cannot(cannot_read))?,
                stamp,
            }),
        })
    }

    fn export(&self, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        let Authorities { current, .. } = self.authorities();
        if !self.policy.shares_key || current.puppet_directory().is_some() {
            return Err(Refusal::forbidden(
                "this signer does not give its key to other servers",
                "let the new server use the same signer: `signer` under [server.authority]",
            ));
        }
        self.record("key given to a joining server", caller, now, json!({}))?;
        Ok(Answer::Exported(AuthorityFiles {
            certificates: current.certificates_pem(),
            key: current.key_pem().to_owned(),
        }))
    }

    /// Creates the next CA, or returns the one that exists, so that a repeated request does no
    /// harm.
    fn prepare_next(&self, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        let mut authorities = locked(&self.authorities);
        if authorities.current.puppet_directory().is_some() {
            return Err(Refusal::forbidden(
                "a Puppet CA cannot be rotated here",
                "replace it with Puppet's own tools",
            ));
        }
        if authorities.next.is_none() {
            let next = match &self.directory {
                Some(directory) => Authority::load_or_create(&directory.join(NEXT), now)
                    .map_err(cannot("create the next CA"))?,
                None => Authority::create(&format!("Bunraku CA {now}"), now)
                    .map_err(cannot("create the next CA"))?,
            };
            let fingerprint = next.fingerprint().to_string();
            let details = json!({ "fingerprint": fingerprint });
            self.record("next CA created", caller, now, details)?;
            authorities.next = Some(Arc::new(next));
        }
        drop(authorities);
        self.describe().map(Answer::Description)
    }

    fn adopt_next(&self, sealed: &str, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        let mut authorities = locked(&self.authorities);
        let next = authorities
            .current
            .unseal(sealed)
            .map_err(cannot("open the next CA"))?;
        let known = authorities.next.as_ref().map(|next| next.fingerprint());
        if known != Some(next.fingerprint()) {
            if let Some(directory) = &self.directory {
                let place = directory.join(NEXT);
                remove(&place).map_err(cannot("replace the next CA"))?;
                write_authority(&place, &next).map_err(cannot("write the next CA"))?;
            }
            let details = json!({ "fingerprint": next.fingerprint().to_string() });
            self.record("next CA adopted", caller, now, details)?;
            authorities.next = Some(Arc::new(next));
        }
        drop(authorities);
        self.describe().map(Answer::Description)
    }

    fn promote_next(
        &self,
        fingerprint: &str,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let mut authorities = locked(&self.authorities);
        if authorities.current.fingerprint().to_string() != fingerprint {
            let next = authorities
                .next
                .clone()
                .filter(|next| next.fingerprint().to_string() == fingerprint)
                .ok_or_else(|| Refusal::invalid("this signer does not have the next CA"))?;
            let former = authorities.current.fingerprint().to_string();
            if let Some(directory) = &self.directory {
                next.replace_in(directory)
                    .map_err(cannot("replace the CA"))?;
            }
            let details = json!({ "fingerprint": fingerprint, "former": former });
            self.record("CA replaced", caller, now, details)?;
            authorities.current = next;
        }
        authorities.next = None;
        if let Some(directory) = &self.directory {
            remove(&directory.join(NEXT)).map_err(cannot("remove the former directory"))?;
        }
        drop(authorities);
        self.describe().map(Answer::Description)
    }

    fn drop_next(&self, caller: &Caller, now: Timestamp) -> Result<Answer, Refusal> {
        let mut authorities = locked(&self.authorities);
        if let Some(next) = authorities.next.take() {
            let details = json!({ "fingerprint": next.fingerprint().to_string() });
            self.record("next CA deleted", caller, now, details)?;
        }
        if let Some(directory) = &self.directory {
            remove(&directory.join(NEXT)).map_err(cannot("delete the next CA"))?;
        }
        drop(authorities);
        self.describe().map(Answer::Description)
    }

    /// Logs what is about to leave. What cannot be logged does not leave.
    fn record(
        &self,
        what: &str,
        caller: &Caller,
        now: Timestamp,
        details: Value,
    ) -> Result<(), Refusal> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let mut entry = match details {
            Value::Object(entry) => entry,
            _ => Map::new(),
        };
        entry.insert("what".to_owned(), what.into());
        entry.insert("caller".to_owned(), caller.name.clone().into());
        log.append(now, entry).map_err(|error| Refusal {
            kind: RefusalKind::Failed,
            message: format!("the signer cannot write its log: {error}"),
            hint: Some("check the disk of the signer".to_owned()),
        })
    }
}

fn cannot<E: std::error::Error>(what: &str) -> impl FnOnce(E) -> Refusal {
    let what = format!("cannot {what}");
    move |error| Refusal::failed(&what, &error)
}

fn write_authority(place: &Path, authority: &Authority) -> io::Result<()> {
    bunraku_files::create_private_directory(place)?;
    let key = place.join("ca.key");
    bunraku_files::replace(&key, authority.key_pem().as_bytes(), 0o600)?;
    let certificates = authority.certificates_pem();
    bunraku_files::replace(&place.join("ca.pem"), certificates.as_bytes(), 0o644)
}

fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn split(names: &[String]) -> (Vec<std::net::IpAddr>, Vec<String>) {
    let mut addresses = Vec::new();
    let mut dns_names = Vec::new();
    for name in names {
        match name.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => dns_names.push(name.clone()),
        }
    }
    (addresses, dns_names)
}

/// Returns the certificates in the log that count towards the limit per hour.
fn signed_before(log: &SignatureLog) -> io::Result<Vec<(Role, Timestamp)>> {
    let entries = log.recent()?;
    Ok(entries
        .iter()
        .filter(|entry| entry.get("what").and_then(Value::as_str) == Some("certificate"))
        .filter_map(|entry| {
            let role = entry.get("role")?.as_str()?.parse().ok()?;
            Some((role, entry.get("at")?.as_str()?.parse().ok()?))
        })
        .collect())
}

/// The keys of the operators that need no proof: each name belongs to its first key.
#[derive(Default)]
struct OperatorKeys {
    path: Option<PathBuf>,
    keys: BTreeMap<String, ContentId>,
}

impl OperatorKeys {
    fn open(path: &Path) -> io::Result<Self> {
        let keys = match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            path: Some(path.to_owned()),
            keys,
        })
    }

    fn check(&mut self, name: &str, request: &Request) -> Result<(), Refusal> {
        let key = ContentId::of(request.public_key_info());
        match self.keys.get(name) {
            Some(known) if *known == key => return Ok(()),
            Some(_) => {
                return Err(Refusal::forbidden(
                    format!("the operator `{name}` has another key"),
                    "if its credentials are lost, remove its line from operators.json in the signer's directory, and restart the signer",
                ));
            }
            None => {}
        }
        self.keys.insert(name.to_owned(), key);
        if let Some(path) = &self.path {
            let text = serde_json::to_vec_pretty(&self.keys).expect("names and hashes are JSON");
            bunraku_files::replace(path, &text, 0o600)
                .map_err(cannot("remember the operator's key"))?;
        }
        Ok(())
    }
}
