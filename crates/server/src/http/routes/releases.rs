//! Releases.

use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_wire::api::{ReleaseReply, ReleaseState, ReleaseTo};
use bunraku_wire::endpoints::{
    CreateRelease, HoldReleases, ListReleases, OverrideRelease, ReleaseSelector, ResumeReleases,
    RollBackRelease, ShowRelease,
};

use super::{Services, longest_wait};
use crate::http::audit::AuditNotes;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::reply::ErrorReply;
use bunraku_control::ServiceError;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListReleases, list)
        .add(CreateRelease, create)
        .add(OverrideRelease, create_unapproved)
        .add(ShowRelease, show)
        .add(RollBackRelease, rollback)
        .add(HoldReleases, hold)
        .add(ResumeReleases, resume)
}

async fn list(call: Call<ListReleases>) -> HandlerResult<ListReleases> {
    call.services.environments.require(&call.path).await?;
    Ok(call.services.releases.list(&call.path).await?)
}

async fn create(call: Call<CreateRelease>) -> HandlerResult<CreateRelease> {
    match &call.body.to {
        ReleaseTo::Nodes { nodes } if !nodes.is_empty() => {
            call.require_nodes(AccessVerb::Release, nodes).await?;
        }
        // These also decide about nodes that join later.
        _ => {
            let target = AccessTarget::Environment(call.path.clone());
            call.require(AccessVerb::Release, target).await?;
        }
    }
    let by = call.by()?;
    call.services.environments.require(&call.path).await?;
    let made = (call.services.approvals)
        .release(&call.path, &call.body, by, None)
        .await?;
    note(&call.notes, &made);
    Ok(made)
}

async fn create_unapproved(call: Call<OverrideRelease>) -> HandlerResult<OverrideRelease> {
    let target = AccessTarget::Environment(call.path.clone());
    call.require(AccessVerb::Release, target).await?;
    let by = call.by()?;
    call.services.environments.require(&call.path).await?;
    let reason = Some(call.body.reason.as_str());
    let made = (call.services.approvals)
        .release(&call.path, &call.body.request, by, reason)
        .await?;
    note(&call.notes, &made);
    Ok(made)
}

async fn show(call: Call<ShowRelease>) -> HandlerResult<ShowRelease> {
    let (environment, number) = &call.path;
    call.services.environments.require(environment).await?;
    let number = newest_or(&call.services, environment, *number).await?;
    let most = longest_wait(call.query.wait_seconds);
    let shown = tokio::select! {
        shown = call.services.releases.show_applied(environment, number, call.query.complete, most) => shown?,
        () = call.services.shutdown.cancelled() => call.services.releases.show(environment, number).await?,
    };
    if !most.is_zero() && shown.state == ReleaseState::Current {
        // A caller that waited until the release was applied must see that here.
        call.services.board.catch_up(&shown.map).await?;
    }
    Ok(shown)
}

/// Returns the selected release or the newest. "Nothing is released" is a different answer
/// from "no such release".
async fn newest_or(
    services: &Services,
    environment: &EnvironmentName,
    selected: ReleaseSelector,
) -> Result<Option<ReleaseNumber>, ErrorReply> {
    if let ReleaseSelector::Number(number) = selected {
        return Ok(Some(number));
    }
    if services.releases.newest(environment).await?.is_none() {
        let nothing = ServiceError::NotFound {
            what: format!("a release of `{environment}`"),
            hint: Some(format!(
                "create the first one with `bunraku release create {environment}`"
            )),
        };
        return Err(nothing.into());
    }
    Ok(None)
}

async fn rollback(call: Call<RollBackRelease>) -> HandlerResult<RollBackRelease> {
    let by = call.by()?;
    call.services.environments.require(&call.path).await?;
    let made = call
        .services
        .releases
        .rollback(&call.path, &call.body, by)
        .await?;
    note(&call.notes, &made);
    Ok(made)
}

/// Adds the release to the audit log.
fn note(notes: &AuditNotes, made: &ReleaseReply) {
    match (&made.release, &made.approval) {
        (Some(release), _) => notes.detail("release", release.number.0),
        (None, Some(approval)) => {
            notes.detail("approval", approval.id.clone());
            notes.message(format!("waits for approval {}", approval.id));
        }
        (None, None) => notes.message("there was nothing to release".to_owned()),
    }
}

async fn hold(call: Call<HoldReleases>) -> HandlerResult<HoldReleases> {
    let by = call.by()?;
    call.services.environments.require(&call.path).await?;
    Ok(call
        .services
        .releases
        .hold(&call.path, &call.body, by)
        .await?)
}

async fn resume(call: Call<ResumeReleases>) -> HandlerResult<ResumeReleases> {
    call.services.environments.require(&call.path).await?;
    if call.services.releases.resume(&call.path).await? {
        Ok(())
    } else {
        Err(ServiceError::NotFound {
            what: format!("a hold on `{}`", call.path),
            hint: Some("its automatic releases are not paused".to_owned()),
        }
        .into())
    }
}
