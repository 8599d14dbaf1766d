//! Environments, their deploys, and their webhook.

use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::endpoints::{
    AssignEnvironment, ChangeEnvironment, CreateEnvironment, DeployEnvironment, ListEnvironments,
    ReceivePush, RemoveEnvironment, ShowDeploy, ShowEnvironment, UnpinEnvironment,
};

use bunraku_control::webhook_secrets::DeliveryProof;

use super::longest_wait;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListEnvironments, list)
        .add(CreateEnvironment, add)
        .add(ShowEnvironment, show)
        .add(ChangeEnvironment, change)
        .add(RemoveEnvironment, remove)
        .add(DeployEnvironment, deploy)
        .add(ShowDeploy, deploy_status)
        .add(UnpinEnvironment, unpin)
        .add(ReceivePush, hook)
        .add(AssignEnvironment, assign)
}

async fn list(call: Call<ListEnvironments>) -> HandlerResult<ListEnvironments> {
    let mut environments = call.services.environments.list().await?;
    if let Some(view) = call.view().await? {
        environments.retain(|environment| view.covers_environment(&environment.name));
    }
    Ok(environments)
}

async fn add(call: Call<CreateEnvironment>) -> HandlerResult<CreateEnvironment> {
    Ok(call.services.environments.add(&call.body).await?)
}

async fn show(call: Call<ShowEnvironment>) -> HandlerResult<ShowEnvironment> {
    Ok(call.services.environments.show(&call.path).await?)
}

async fn change(call: Call<ChangeEnvironment>) -> HandlerResult<ChangeEnvironment> {
    Ok(call
        .services
        .environments
        .change(&call.path, &call.body)
        .await?)
}

async fn remove(call: Call<RemoveEnvironment>) -> HandlerResult<RemoveEnvironment> {
    call.services.environments.remove(&call.path).await?;
    Ok(())
}

async fn deploy(call: Call<DeployEnvironment>) -> HandlerResult<DeployEnvironment> {
    let by = call.by()?;
    let deploy = call
        .services
        .environments
        .deploy(&call.path, &call.body, by)
        .await?;
    call.notes.detail("deploy", deploy.number);
    Ok(deploy)
}

async fn deploy_status(call: Call<ShowDeploy>) -> HandlerResult<ShowDeploy> {
    let (name, number) = &call.path;
    let wait = longest_wait(call.query.wait_seconds);
    let status = call
        .services
        .environments
        .deploy_status(name, *number, wait);
    Ok(status.await?)
}

async fn unpin(call: Call<UnpinEnvironment>) -> HandlerResult<UnpinEnvironment> {
    call.services.environments.unpin(&call.path).await?;
    Ok(())
}

/// The headers of a push, as GitHub, Gitea and GitLab send them.
pub(super) struct PushHeaders {
    pub(super) event: Option<String>,
    signature: Option<String>,
    token: Option<String>,
}

impl PushHeaders {
    pub(super) fn of(headers: &http::HeaderMap) -> Self {
        Self {
            event: header(headers, "x-github-event").or_else(|| header(headers, "x-gitlab-event")),
            signature: header(headers, "x-hub-signature-256"),
            token: header(headers, "x-gitlab-token"),
        }
    }

    pub(super) fn proof(&self) -> DeliveryProof<'_> {
        DeliveryProof {
            signature: self.signature.as_deref(),
            token: self.token.as_deref(),
        }
    }
}

async fn hook(call: Call<ReceivePush>) -> HandlerResult<ReceivePush> {
    let headers = PushHeaders::of(&call.headers);
    // A caller without a valid signature learns nothing, not even which names exist.
    let unsigned = || {
        ErrorReply::unauthenticated(
            "the delivery is not signed with this environment's secret",
            "set `X-Hub-Signature-256` to `sha256=` followed by the HMAC-SHA256 of the body in hexadecimal, or `X-Gitlab-Token` is the secret",
        )
    };
    let name = call.path.parse().map_err(|_| unsigned())?;
    let (event, proof) = (headers.event.as_deref(), headers.proof());
    let delivered = call
        .services
        .environments
        .deliver(&name, event, &proof, &call.body);
    delivered.await?.ok_or_else(unsigned)
}

pub(super) fn header(headers: &http::HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn assign(call: Call<AssignEnvironment>) -> HandlerResult<AssignEnvironment> {
    // Moving a node needs the right to do so in both environments.
    let wanted = AccessTarget::Environment(call.body.environment.clone());
    call.require_nodes(AccessVerb::Administer, [&call.path])
        .await?;
    call.require(AccessVerb::Administer, wanted).await?;
    let environments = &call.services.environments;
    environments
        .assign(&call.path, &call.body.environment)
        .await?;
    Ok(())
}
