//! Admits servers to the cluster, with a token or after verification over SSH.
//!
//! Over SSH, only a server that an operator has named beforehand can join, with its address. That
//! a host is in `known_hosts` is not enough: every machine of a site may be.
//!
//! Over SSH, the reply tells the requesting server nothing. This server connects back to the
//! given address, to a machine that SSH itself verifies. It compares the key found there with
//! the key in the request, and writes the data that a member needs to that directory. A
//! server that impersonates another machine therefore only causes a connection to that
//! machine, and gains nothing.

use bunraku_store::{Compare, Transaction, TransactionOutcome};
use bunraku_wire::api::cluster::{
    ClusterJoinRequest, ClusterSshJoinRequest, ClusterSshWelcome, ClusterWelcome, JoiningServer,
    MemberRecord, keys,
};

use super::{Cluster, ExpectedServer, StoredInvitation, hash, not_invited};
use bunraku_control::{AuditAction, ServiceError, document};

/// Number of digits in the name of the directory in which a joining server waits.
const PLACE: usize = 64;

fn not_verified(server: &JoiningServer, why: &str) -> ServiceError {
    ServiceError::Forbidden {
        message: format!("`{}` could not be verified over SSH: {why}", server.name),
        hint: Some("see the log of that server, or join with a token".to_owned()),
    }
}

/// Returns the refusal of a server that no operator has named.
fn not_expected(server: &JoiningServer, host: &str) -> ServiceError {
    ServiceError::Forbidden {
        message: format!("no operator expects `{}` at {host}", server.name),
        hint: Some(format!(
            "run `bunraku cluster expect {} --address {host}` on a server of the cluster first",
            server.name
        )),
    }
}

/// Returns the host of `HOST:PORT`, which goes onto a program's command line.
pub(super) fn host_of(address: &str) -> Option<&str> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    let is_one = !host.is_empty() && !host.starts_with('-') && host.bytes().all(plain);
    is_one.then_some(host)
}

fn is_place(text: &str) -> bool {
    text.len() == PLACE && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Cluster {
    /// Admits a server. The transaction that makes it a member also deletes the invitation.
    /// After a lost reply, the server needs a new invitation to join again.
    pub async fn join(&self, request: &ClusterJoinRequest) -> Result<ClusterWelcome, ServiceError> {
        self.link()?;
        let key = keys::token(&hash(&request.token));
        let stored = document::read::<StoredInvitation>(&*self.store, &key).await?;
        let invited = stored.filter(|stored| stored.document.expires > self.clock.now());
        let invitation = invited.ok_or_else(not_invited)?;
        let spend = Transaction::new()
            .when(Compare::Modified(key.clone(), invitation.entry.modified))
            .delete(key);
        let by = &invitation.document.made_by;
        if self.let_in(&request.server, spend, by).await? {
            self.welcome().await
        } else {
            Err(not_invited())
        }
    }

    /// Admits a server that this one can verify over SSH.
    pub async fn join_over_ssh(
        &self,
        request: &ClusterSshJoinRequest,
    ) -> Result<ClusterSshWelcome, ServiceError> {
        let link = self.link()?;
        if !link.0.speaks_ssh() {
            return Err(ServiceError::conflict(
                "this server does not verify others over SSH",
                "set [server.cluster.ssh] there, or join with a token from `bunraku cluster invite`",
            ));
        }
        let server = &request.server;
        let host = host_of(&server.member_address)
            .filter(|_| is_place(&request.place))
            .ok_or_else(|| ServiceError::invalid("the address or the directory is invalid"))?;
        // Before anything is sent to that address: a stranger cannot make this server connect.
        let expected_key = keys::expected(&server.name);
        let expected = document::read::<ExpectedServer>(&*self.store, &expected_key)
            .await?
            .filter(|expected| {
                expected.document.expires > self.clock.now()
                    && expected.document.host.eq_ignore_ascii_case(host)
            })
            .ok_or_else(|| not_expected(server, host))?;
        let _turn = self.looking.try_acquire().map_err(|_| ServiceError::Busy {
            message: "another server is being verified; try again".to_owned(),
        })?;
        let read = link.0.read_key(host, &request.place).await;
        let key = read.map_err(|error| {
            tracing::warn!(server = %server.name, host, error = %error, "cannot verify a joining server over SSH");
            not_verified(server, "it is unreachable or not waiting there")
        })?;
        if key.trim() != request.key {
            tracing::error!(server = %server.name, host, "a joining server presented a key that differs from the one on its machine");
            return Err(not_verified(server, "the key on its machine is different"));
        }
        let by = format!(
            "SSH to {host}, expected by {}",
            expected.document.expected_by
        );
        let spend = Transaction::new()
            .when(Compare::Modified(
                expected_key.clone(),
                expected.entry.modified,
            ))
            .delete(expected_key);
        if !self.let_in(server, spend, &by).await? {
            return Err(ServiceError::Busy {
                message: format!("`{}` changed meanwhile; try again", server.name),
            });
        }
        let text = document::encode(&self.welcome().await?);
        let placed = link.0.place_welcome(host, &request.place, &text).await;
        placed.map_err(|error| {
            tracing::warn!(server = %server.name, host, error = %error, "cannot send the keys to a verified server");
            not_verified(server, "the connection was lost before it had received its keys")
        })?;
        Ok(ClusterSshWelcome {
            verified_by: link.0.view().seen_by,
        })
    }

    /// Adds a server as a member, together with `transaction`. Returns `false` and does
    /// nothing if the data changed in the meantime.
    async fn let_in(
        &self,
        server: &JoiningServer,
        transaction: Transaction,
        by: &str,
    ) -> Result<bool, ServiceError> {
        let member = keys::member(&server.name);
        let known = document::read::<MemberRecord>(&*self.store, &member).await?;
        if let Some(known) = &known
            && known.document.member_address != server.member_address
        {
            return Err(ServiceError::conflict(
                format!(
                    "`{}` is already a member, at {}",
                    server.name, known.document.member_address
                ),
                "set another name with `--name`",
            ));
        }
        let record = MemberRecord {
            name: server.name.clone(),
            member_address: server.member_address.clone(),
            api_address: server.api_address.clone(),
            client_url: server.client_url.clone(),
            peer_url: server.peer_url.clone(),
            eligible: server.eligible,
            draining: false,
            joined: self.clock.now(),
        };
        let transaction = transaction
            .when_unchanged(&member, known.as_ref().map(|known| &known.entry))
            .delete(keys::removed(&server.name))
            .put(member, document::encode(&record));
        let action = AuditAction::new("join-cluster")
            .on("server", &server.name)
            .detail("member_address", server.member_address.clone())
            .detail("admitted_by", by);
        let transaction = self.audit.record_in(transaction, action);
        let outcome = self.store.commit(transaction).await?;
        let is_in = matches!(outcome, TransactionOutcome::Committed(_));
        if is_in {
            tracing::warn!(member = %server.name, by, "a server joined the cluster");
        }
        Ok(is_in)
    }

    async fn welcome(&self) -> Result<ClusterWelcome, ServiceError> {
        let mut welcome = self
            .link()?
            .0
            .welcome()
            .map_err(|error| ServiceError::internal("cannot pass on the members' CA", error))?;
        welcome.authority = self.certificates.export_authority().await?;
        welcome.members = self.members().await?;
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_a_command_line_is_a_host_and_nothing_else() {
        assert_eq!(host_of("192.0.2.1:8151"), Some("192.0.2.1"));
        assert_eq!(host_of("[2001:db8::1]:8151"), Some("2001:db8::1"));
        assert_eq!(host_of("db-1.example.com:8151"), Some("db-1.example.com"));
        for hostile in [
            "-oProxyCommand=x:1",
            "a b:1",
            "a;b:1",
            ":1",
            "a",
            "$(x):1",
            "a@b:1",
        ] {
            assert_eq!(host_of(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn a_place_is_digits_and_leads_nowhere_else() {
        assert!(is_place(&"0af9".repeat(16)));
        assert!(!is_place(&"../".repeat(22)[..64]));
        assert!(!is_place("0af9"));
        assert!(!is_place(&"0ag9".repeat(16)));
    }
}
