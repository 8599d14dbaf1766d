//! Approvals: some environments require that someone other than the requester approves a run or a
//! release.
//!
//! An approval is bound to exactly what was requested: a run to the id of its plan, a release to the
//! newest release and to the catalog that each node would get. If that changes, the approval does
//! not apply any more. A decision is one transaction on the request, so that two operators cannot
//! both decide. A run waits for it in its own log (`orchestration/turn.rs`); an approved release is
//! created by whichever server sees the approval first.
//!
//! Absent: who may approve. The API checks the caller's role; here only the requester is refused.

use std::collections::BTreeMap;

use bunraku_compile::Releases;
use bunraku_control::audit::AuditAction;
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::environment_settings::EnvironmentSettings;
use bunraku_control::{ServiceAudit, ServiceError, keys, nodes};
use bunraku_cues::due;
use bunraku_model::EnvironmentName;
use bunraku_plan::{PlanId, RunPlan};
use bunraku_store::{SharedStore, Store, Transaction, settle};
use bunraku_wire::api::approvals::{
    Approval, ApprovalDecision, ApprovalPolicy, ApprovalSubject, DecideApproval, DecisionKind,
};
use bunraku_wire::api::{AuditSource, CreateRelease, ReleaseReply};
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The number of requests that are kept.
const KEPT: usize = 1_000;

/// The handle on the service.
#[derive(Clone)]
pub struct Approvals {
    store: SharedStore,
    clock: Clock,
    releases: Releases,
    audit: ServiceAudit,
}

impl Approvals {
    pub fn new(store: SharedStore, clock: Clock, releases: Releases, audit: ServiceAudit) -> Self {
        Self {
            store,
            clock,
            releases,
            audit,
        }
    }

    /// Creates approved releases until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let all = due::each_entry(&self.store, keys::APPROVALS, |key| async move {
            self.perform(&key).await
        });
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = all => {}
        }
    }

    /// Creates a release, or requests its approval if the environment requires one.
    pub async fn release(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
        by: &str,
        override_reason: Option<&str>,
    ) -> Result<ReleaseReply, ServiceError> {
        let policy = policy_of(&*self.store, environment.as_str()).await?;
        if !policy.releases {
            return self.releases.create(environment, request, by).await;
        }
        let proposed = self.releases.proposed(environment, request).await?;
        let now = self.clock.now();
        let mut approval = Approval {
            id: Uuid::now_v7().to_string(),
            environment: environment.to_string(),
            subject: ApprovalSubject::Release {
                request: request.clone(),
                parent: proposed.parent,
                digest: proposed.digest.clone(),
                nodes: proposed.nodes,
            },
            requested_by: by.to_owned(),
            requested: now,
            expires: later(now, policy.expires_seconds),
            reason: request.reason.clone(),
            decision: None,
            result: None,
        };
        if let Some(reason) = override_reason {
            refuse_empty(reason)?;
            approval.decision = Some(overridden(by, reason, now));
            let reply = (self.releases)
                .create_expecting(environment, request, by, &proposed.digest)
                .await?;
            approval.result = Some(result_of(&reply));
            put(&*self.store, &approval).await?;
            return Ok(reply);
        }
        if proposed.nodes == 0 {
            return self.releases.create(environment, request, by).await;
        }
        put(&*self.store, &approval).await?;
        document::forget_oldest(&*self.store, keys::APPROVALS, KEPT).await?;
        Ok(ReleaseReply {
            release: None,
            hold: None,
            approval: Some(approval),
        })
    }

    /// Returns all requests, newest first.
    pub async fn list(&self) -> Result<Vec<Approval>, ServiceError> {
        let mut all = Vec::new();
        for entry in document::read_all(&*self.store, keys::APPROVALS).await? {
            all.push(document::decode(&entry)?);
        }
        all.reverse();
        Ok(all)
    }

    /// Finds a request by its id, or by the beginning or the end of it.
    pub async fn find(&self, id: &str) -> Result<Approval, ServiceError> {
        let mut found: Vec<Approval> = (self.list().await?.into_iter())
            .filter(|one| one.id.starts_with(id) || one.id.ends_with(id))
            .collect();
        match (found.len(), found.pop()) {
            (1, Some(found)) => Ok(found),
            (0, _) => Err(ServiceError::NotFound {
                what: format!("approval `{id}`"),
                hint: Some("list the requests with `bunraku approval list`".to_owned()),
            }),
            (many, _) => Err(ServiceError::invalid(format!(
                "`{id}` matches {many} requests"
            ))),
        }
    }

    /// Approves or rejects a request. Nobody approves their own.
    pub async fn decide(
        &self,
        id: &str,
        decide: &DecideApproval,
        by: &str,
    ) -> Result<Approval, ServiceError> {
        let id = self.find(id).await?.id;
        let (key, now) = (keys::approval(&id), self.clock.now());
        let decided = document::update(&*self.store, &key, |current: Option<Approval>| {
            let mut approval = current.ok_or_else(|| ServiceError::NotFound {
                what: format!("approval `{id}`"),
                hint: None,
            })?;
            if let Some(decision) = &approval.decision {
                return Err(ServiceError::conflict(
                    format!(
                        "{} has decided already: {}",
                        decision.by,
                        approval.state(now)
                    ),
                    format!("see it with `bunraku approval show {id}`"),
                ));
            }
            if approval.expires <= now {
                return Err(ServiceError::conflict(
                    format!("the request expired at {:.0}", approval.expires),
                    "ask the requester to start again",
                ));
            }
            if decide.approve && approval.requested_by == by {
                return Err(ServiceError::Forbidden {
                    message: "you cannot approve your own request".to_owned(),
                    hint: Some(
                        "ask another operator. In an emergency, start it with \
                         `--override-approval REASON`"
                            .to_owned(),
                    ),
                });
            }
            approval.decision = Some(ApprovalDecision {
                by: by.to_owned(),
                at: now,
                kind: if decide.approve {
                    DecisionKind::Approved
                } else {
                    DecisionKind::Rejected
                },
                reason: decide.reason.clone(),
            });
            Ok(Decision::Write(approval))
        })
        .await?;
        tracing::info!(
            approval = id,
            by,
            approve = decide.approve,
            "a request was decided"
        );
        self.perform(&key).await?;
        let shown = document::read::<Approval>(&*self.store, &key).await?;
        shown
            .map(|shown| shown.document)
            .or(decided)
            .ok_or_else(|| ServiceError::NotFound {
                what: format!("approval `{id}`"),
                hint: None,
            })
    }

    /// Creates the release of an approved request, once.
    async fn perform(&self, key: &str) -> Result<(), ServiceError> {
        let Some(read) = document::read::<Approval>(&*self.store, key).await? else {
            return Ok(());
        };
        let mut approval = read.document;
        let approved =
            (approval.decision.as_ref()).filter(|decision| decision.kind == DecisionKind::Approved);
        let (Some(decision), None) = (approved, &approval.result) else {
            return Ok(());
        };
        let ApprovalSubject::Release {
            request,
            parent,
            digest,
            ..
        } = &approval.subject
        else {
            return Ok(());
        };
        let environment = EnvironmentName::new(approval.environment.clone())
            .map_err(|error| ServiceError::invalid(error.to_string()))?;
        let request = CreateRelease {
            parent: Some(*parent),
            ..request.clone()
        };
        let by = format!("{}, approved by {}", approval.requested_by, decision.by);
        let made = (self.releases)
            .create_expecting(&environment, &request, &by, digest)
            .await;
        approval.result = Some(match made {
            Ok(reply) => result_of(&reply),
            Err(error @ (ServiceError::Store(_) | ServiceError::Unavailable { .. })) => {
                return Err(error);
            }
            Err(error) => format!("refused: {error}"),
        });
        let action = AuditAction::new("create-approved-release")
            .on("environment", &environment)
            .detail("approval", approval.id.clone())
            .detail("result", approval.result.clone())
            .because(approval.reason.as_deref())
            .by(by, AuditSource::Server);
        let transaction = Transaction::new()
            .when_unchanged(key, Some(&read.entry))
            .put(key, document::encode(&approval));
        let transaction = self.audit.record_in(transaction, action);
        // Refused: another server has written the result.
        settle(&*self.store, transaction).await?;
        Ok(())
    }
}

fn result_of(reply: &ReleaseReply) -> String {
    match &reply.release {
        Some(release) => format!("release {}", release.number),
        None => "nothing to release".to_owned(),
    }
}

/// Returns the policy of an environment. One that does not exist requires nothing.
pub(crate) async fn policy_of(
    store: &dyn Store,
    environment: &str,
) -> Result<ApprovalPolicy, ServiceError> {
    let Ok(environment) = EnvironmentName::new(environment) else {
        return Ok(ApprovalPolicy::default());
    };
    let settings = EnvironmentSettings::read(store, &environment).await?;
    Ok(settings
        .and_then(|settings| settings.approval)
        .unwrap_or_default())
}

/// Returns the environment and the policy that apply to a run of a plan: those of its nodes. The
/// environment that a plan names comes from its author, so it does not decide alone.
pub(crate) async fn policy_of_plan(
    store: &dyn Store,
    plan: &RunPlan,
) -> Result<Option<(EnvironmentName, ApprovalPolicy)>, ServiceError> {
    let mut policies: BTreeMap<EnvironmentName, ApprovalPolicy> = BTreeMap::new();
    for entry in document::read_all(store, keys::ENVIRONMENTS).await? {
        if let Some((name, "settings")) = keys::parse_environment_key(&entry.key) {
            let settings: EnvironmentSettings = document::decode(&entry)?;
            if let Some(policy) = settings.approval.filter(|policy| policy.runs) {
                policies.insert(name, policy);
            }
        }
    }
    if policies.is_empty() {
        return Ok(None);
    }
    let named = EnvironmentName::new(plan.environment.clone()).ok();
    let mut found = named.filter(|named| policies.contains_key(named));
    for node in plan.nodes().into_keys() {
        if found.is_some() {
            break;
        }
        let of = nodes::environment_of(store, node).await?;
        found = of.filter(|of| policies.contains_key(of));
    }
    Ok(found.and_then(|found| {
        let policy = *policies.get(&found)?;
        Some((found, policy))
    }))
}

/// Returns the approval of a plan that is still valid.
pub(crate) async fn approved_plan(
    store: &dyn Store,
    wanted: PlanId,
    now: Timestamp,
) -> Result<Option<(Approval, String)>, ServiceError> {
    for entry in document::read_all(store, keys::APPROVALS).await? {
        let approval: Approval = document::decode(&entry)?;
        let decision = approval.decision.clone();
        if let (ApprovalSubject::Run { plan, .. }, Some(decision)) = (&approval.subject, decision)
            && *plan == wanted
            && decision.kind == DecisionKind::Approved
            && approval.expires > now
        {
            return Ok(Some((approval, decision.by)));
        }
    }
    Ok(None)
}

pub(crate) fn overridden(by: &str, reason: &str, at: Timestamp) -> ApprovalDecision {
    ApprovalDecision {
        by: by.to_owned(),
        at,
        kind: DecisionKind::Overridden,
        reason: Some(reason.to_owned()),
    }
}

pub(crate) fn refuse_empty(reason: &str) -> Result<(), ServiceError> {
    if reason.trim().is_empty() {
        return Err(ServiceError::invalid(
            "to go ahead without approval, give a reason",
        ));
    }
    Ok(())
}

pub(crate) async fn put(store: &dyn Store, approval: &Approval) -> Result<(), ServiceError> {
    let key = keys::approval(&approval.id);
    let transaction = Transaction::new().put(key, document::encode(approval));
    settle(store, transaction).await?;
    Ok(())
}

pub(crate) fn later(now: Timestamp, seconds: u64) -> Timestamp {
    let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
