//! Removes a server from the cluster permanently.
//!
//! A removal record stays. If the server starts again with its old data, it reads the record
//! and stops. It can join again with a new directory.

use bunraku_model::NodeName;
use bunraku_store::{Transaction, TransactionOutcome};
use bunraku_wire::api::cluster::{DatastoreRecord, MemberRecord, MemberState, RemovedMember, keys};

use super::Cluster;
use bunraku_control::{ServiceError, document};

/// Returns the reason why a server cannot be removed. The checks follow the order in which an
/// operator must act.
fn refuse(
    name: &NodeName,
    state: Option<MemberState>,
    datastores: &[DatastoreRecord],
    left: usize,
) -> Option<ServiceError> {
    let keeps_data = |one: &DatastoreRecord| one.name.as_ref() == Some(name);
    if datastores.iter().any(keeps_data) {
        return Some(ServiceError::conflict(
            format!("`{name}` stores data"),
            format!("move its datastore to another server first: `bunraku cluster drain {name}`"),
        ));
    }
    if left == 2 {
        return Some(ServiceError::conflict(
            format!(
                "without `{name}`, two servers would be left, and these would stop if either of them failed"
            ),
            "add another server first",
        ));
    }
    if matches!(state, Some(MemberState::Alive | MemberState::Suspect)) {
        return Some(ServiceError::conflict(
            format!("`{name}` is alive"),
            "stop it first; its agents switch to the other servers",
        ));
    }
    None
}

impl Cluster {
    /// Removes a server that stores no data and is not running.
    pub async fn remove(&self, name: &NodeName, by: &str) -> Result<(), ServiceError> {
        let sight = self.link()?.0.view();
        let known = document::read::<MemberRecord>(&*self.store, &keys::member(name)).await?;
        let known = known.ok_or_else(|| ServiceError::NotFound {
            what: format!("the server `{name}`"),
            hint: Some("list the servers with `bunraku cluster status`".to_owned()),
        })?;
        let datastores = document::read::<Vec<DatastoreRecord>>(&*self.store, keys::DATASTORES);
        let datastores = datastores.await?;
        let left = self.members().await?.len().saturating_sub(1);
        let state = if sight.seen_by == *name {
            Some(MemberState::Alive)
        } else {
            sight
                .members
                .iter()
                .find(|it| it.name == *name)
                .map(|it| it.state)
        };
        let kept = datastores
            .as_ref()
            .map_or(&[][..], |stored| &stored.document);
        if let Some(refusal) = refuse(name, state, kept, left) {
            return Err(refusal);
        }
        let note = RemovedMember {
            name: name.clone(),
            at: self.clock.now(),
            by: by.to_owned(),
        };
        let transaction = Transaction::new()
            .when_unchanged(&keys::member(name), Some(&known.entry))
            .when_unchanged(keys::DATASTORES, datastores.as_ref().map(|it| &it.entry))
            .delete(keys::member(name))
            .delete(keys::order(name))
            .put(keys::removed(name), document::encode(&note));
        match self.store.commit(transaction).await? {
            TransactionOutcome::Committed(_) => {
                tracing::warn!(member = %name, by, "a server was removed from the cluster");
                Ok(())
            }
            TransactionOutcome::Refused(_) => Err(ServiceError::Busy {
                message: "the datastores changed in the meantime; try again".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).expect("a name")
    }

    fn refusal_reason(state: Option<MemberState>, keeps: bool, left: usize) -> String {
        let datastore = DatastoreRecord {
            id: 1,
            name: Some(name("s4")),
            client_url: String::new(),
            peer_url: String::new(),
            learner: false,
            healthy: false,
        };
        let datastores = keeps.then_some(datastore);
        refuse(&name("s4"), state, datastores.as_slice(), left)
            .map_or_else(|| "removed".to_owned(), |refusal| refusal.to_string())
    }

    #[test]
    fn only_a_server_that_keeps_nothing_and_does_not_run_is_removed() {
        let dead = Some(MemberState::Dead);
        assert_eq!(refusal_reason(dead, false, 3), "removed");
        assert_eq!(refusal_reason(Some(MemberState::Left), false, 1), "removed");
        assert_eq!(refusal_reason(None, false, 3), "removed");
        assert!(refusal_reason(dead, true, 3).contains("stores data"));
        assert!(refusal_reason(dead, false, 2).contains("two servers would be left"));
        assert!(refusal_reason(Some(MemberState::Alive), false, 3).contains("is alive"));
        assert!(refusal_reason(Some(MemberState::Suspect), false, 3).contains("is alive"));
    }
}
