//! Access rules: stored once for all servers, and decided on for every request of an operator.
//!
//! A decision reads the newest rules from the store, so a rule counts on every server as soon as
//! the reply to `grant` or `revoke` was sent. The rules are also followed: open streams learn of
//! changes, and requests that may be answered from old data use the rules that were last seen.
//!
//! An absent document means the rules that every fleet begins with ([`AccessRules::first`]), so
//! data of earlier versions needs no conversion.
//!
//! Absent: which rule an endpoint needs (`wire`), and the requests themselves (`server`).

mod explain;
mod reach;

use std::collections::BTreeSet;
use std::sync::Arc;

use bunraku_model::NodeName;
use bunraku_model::access::{
    AccessGrant, AccessHolder, AccessRule, AccessRules, AccessScope, AccessVerb, GroupName, RuleId,
    RulesError,
};
use bunraku_store::{Follow, KeyValue, Revision, SharedStore, StoreError};
use bunraku_wire::api::{AccessRuleEntry, GrantAccessRequest};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use reach::Reach;

use crate::clock::Clock;
use crate::document::{self, Decision};
use crate::find_nodes::{FindNodes, check_node_query};
use crate::{ServiceError, keys};

/// The rules, as of one revision.
#[derive(Clone, Debug)]
pub struct KnownRules {
    pub rules: AccessRules,
    /// `None` if they were never changed.
    pub modified: Option<Revision>,
}

/// The holder of an operator's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatorIdentity {
    pub name: NodeName,
    pub groups: BTreeSet<GroupName>,
}

impl OperatorIdentity {
    pub fn holder(&self) -> AccessHolder<'_> {
        AccessHolder {
            name: Some(&self.name),
            groups: &self.groups,
        }
    }
}

/// The handle on the access service.
#[derive(Clone)]
pub struct Access {
    store: SharedStore,
    clock: Clock,
    queries: Arc<dyn FindNodes>,
    /// The newest rules that this server has seen.
    known: Arc<watch::Sender<Option<Arc<KnownRules>>>>,
}

impl Access {
    pub fn new(store: SharedStore, clock: Clock, queries: Arc<dyn FindNodes>) -> Self {
        Self {
            store,
            clock,
            queries,
            known: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Follows the rules until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut follow = Follow::new(self.store.clone(), keys::ACCESS_RULES);
        loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => return,
                event = follow.next() => event,
            };
            let learned = event.map_err(ServiceError::from).and_then(|event| {
                let mut puts = event.into_puts();
                puts.retain(|entry| entry.key == keys::ACCESS_RULES);
                self.learn(puts.last()).map(|_| ())
            });
            if let Err(error) = learned {
                tracing::error!(error = %error, "cannot follow the access rules");
            }
        }
    }

    /// Returns the newest rules in the store. `may_be_old` allows those that were last seen while
    /// the store does not answer.
    pub async fn newest(&self, may_be_old: bool) -> Result<Arc<KnownRules>, ServiceError> {
        match self.store.get(keys::ACCESS_RULES).await {
            Ok(entry) => self.learn(entry.as_ref()),
            Err(error @ (StoreError::Unavailable(_) | StoreError::Closed)) if may_be_old => {
                let known = self.known.borrow().clone();
                known.ok_or_else(|| error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the rules that this server has seen last, and their changes from now on.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<KnownRules>>> {
        self.known.subscribe()
    }

    /// Keeps rules that are newer than those known, and returns the newest.
    fn learn(&self, entry: Option<&KeyValue>) -> Result<Arc<KnownRules>, ServiceError> {
        let modified = entry.map(|entry| entry.modified);
        if let Some(known) = &*self.known.borrow()
            && known.modified >= modified
        {
            return Ok(Arc::clone(known));
        }
        let rules = entry.map(document::decode::<AccessRules>).transpose()?;
        let fresh = Arc::new(KnownRules {
            rules: rules.unwrap_or_else(AccessRules::first),
            modified,
        });
        let mut newest = Arc::clone(&fresh);
        self.known.send_if_modified(|known| match known {
            Some(known) if known.modified >= modified => {
                newest = Arc::clone(known);
                false
            }
            known => {
                *known = Some(fresh);
                true
            }
        });
        Ok(newest)
    }

    /// Adds a rule. Returns it, and whether it is new.
    pub async fn grant(
        &self,
        request: &GrantAccessRequest,
        by: &str,
    ) -> Result<(AccessRule, bool), ServiceError> {
        check_scope(&request.grants, &request.scope)?;
        let wanted = AccessRule {
            id: 0,
            subject: request.subject.clone(),
            grants: request.grants.clone(),
            scope: request.scope.clone(),
            by: by.to_owned(),
            since: Some(self.clock.now()),
            reason: request.reason.clone(),
        };
        let granted = self
            .change(|rules| {
                let (rule, is_new) = rules.grant(wanted.clone()).map_err(refused)?;
                Ok((is_new, (rule, is_new)))
            })
            .await?;
        let AccessRule {
            id,
            subject,
            grants,
            scope,
            ..
        } = &granted.0;
        if granted.1 {
            tracing::info!(rule = id, %subject, %grants, %scope, by, "granted access");
        }
        Ok(granted)
    }

    /// Revokes a rule. One that would leave no administrator among `operators` is kept, unless
    /// `allow_lockout` is set.
    pub async fn revoke(
        &self,
        id: RuleId,
        operators: &[OperatorIdentity],
        allow_lockout: bool,
        by: &str,
    ) -> Result<AccessRule, ServiceError> {
        let revoked = self
            .change(|rules| {
                let rule = rules.revoke(id).map_err(refused)?;
                let mut left = operators.iter();
                let is_lockout = rule.is_administration()
                    && !left.any(|operator| rules.is_administrator(&operator.holder()));
                if is_lockout && !allow_lockout {
                    return Err(ServiceError::conflict(
                        format!(
                            "rule {id} is the last one that lets somebody with a valid certificate change access rules"
                        ),
                        "grant `administrator` to somebody else first with `bunraku access grant`; `--allow-lockout` revokes it anyway",
                    ));
                }
                Ok((true, rule))
            })
            .await?;
        tracing::info!(rule = id, subject = %revoked.subject, by, "revoked access");
        Ok(revoked)
    }

    /// Changes the rules in one transaction that compares all of them.
    async fn change<T>(
        &self,
        decide: impl Fn(&mut AccessRules) -> Result<(bool, T), ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut result = None;
        document::update(&*self.store, keys::ACCESS_RULES, |current| {
            let mut rules: AccessRules = current.unwrap_or_else(AccessRules::first);
            let (is_changed, decided) = decide(&mut rules)?;
            result = Some(decided);
            Ok(if is_changed {
                Decision::Write(rules)
            } else {
                Decision::Keep
            })
        })
        .await?;
        // Streams on this server learn of it at once. Requests read the store in any case.
        if let Err(error) = self.newest(false).await {
            tracing::warn!(error = %error, "cannot read the changed access rules yet");
        }
        result.ok_or_else(|| ServiceError::invalid("nothing was decided"))
    }
}

/// The entry of a rule for lists, with the reason why it allows nothing.
pub fn rule_entry(rule: &AccessRule) -> AccessRuleEntry {
    let problem = match &rule.scope {
        AccessScope::Nodes(query) => check_node_query(query)
            .err()
            .map(|error| format!("its query cannot be read: {error}")),
        AccessScope::Everything | AccessScope::Environment(_) => None,
    };
    AccessRuleEntry {
        problem,
        ..AccessRuleEntry::new(rule.clone())
    }
}

/// Refuses a rule that could never allow anything.
fn check_scope(grants: &AccessGrant, scope: &AccessScope) -> Result<(), ServiceError> {
    if let AccessScope::Nodes(query) = scope {
        check_node_query(query)?;
    }
    let AccessGrant::Verbs(verbs) = grants else {
        return Ok(());
    };
    if *scope != AccessScope::Everything && verbs.contains(&AccessVerb::Sign) {
        return Err(ServiceError::Invalid {
            message: "`sign` cannot be limited: a node that joins has no environment yet"
                .to_owned(),
            hint: Some("grant it without `--environment` and `--nodes`".to_owned()),
        });
    }
    Ok(())
}

fn refused(error: RulesError) -> ServiceError {
    match error {
        RulesError::Missing(id) => ServiceError::NotFound {
            what: format!("access rule {id}"),
            hint: Some("list the rules with `bunraku access list`".to_owned()),
        },
        error @ RulesError::TooMany => ServiceError::conflict(
            error.to_string(),
            "revoke rules, or grant to groups instead of names",
        ),
    }
}
