//! Environments, their deploys, and their webhook.

use bunraku_wire::endpoints::{
    AssignEnvironment, ChangeEnvironment, CreateEnvironment, DeployEnvironment, ListEnvironments,
    ReceivePush, RemoveEnvironment, ShowDeploy, ShowEnvironment,
};

use super::longest_wait;
use crate::http::endpoint::{Answer, Call, Routes};
use crate::http::reply::Refusal;

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
        .add(ReceivePush, hook)
        .add(AssignEnvironment, assign)
}

async fn list(call: Call<ListEnvironments>) -> Answer<ListEnvironments> {
    Ok(call.services.environments.list().await?)
}

async fn add(call: Call<CreateEnvironment>) -> Answer<CreateEnvironment> {
    Ok(call.services.environments.add(&call.body).await?)
}

async fn show(call: Call<ShowEnvironment>) -> Answer<ShowEnvironment> {
    Ok(call.services.environments.show(&call.path).await?)
}

async fn change(call: Call<ChangeEnvironment>) -> Answer<ChangeEnvironment> {
    Ok(call
        .services
        .environments
        .change(&call.path, &call.body)
        .await?)
}

async fn remove(call: Call<RemoveEnvironment>) -> Answer<RemoveEnvironment> {
    call.services.environments.remove(&call.path).await?;
    Ok(())
}

async fn deploy(call: Call<DeployEnvironment>) -> Answer<DeployEnvironment> {
    let by = call.by()?;
    Ok(call
        .services
        .environments
        .deploy(&call.path, &call.body, by)
        .await?)
}

async fn deploy_status(call: Call<ShowDeploy>) -> Answer<ShowDeploy> {
    let (name, number) = &call.path;
    let wait = longest_wait(call.query.wait_seconds);
    let status = call
        .services
        .environments
        .deploy_status(name, *number, wait);
    Ok(status.await?)
}

async fn hook(call: Call<ReceivePush>) -> Answer<ReceivePush> {
    let event = header(&call.headers, "x-github-event");
    let signature = header(&call.headers, "x-hub-signature-256");
    // A caller without a valid signature learns nothing, not even which names exist.
    let unsigned = || {
        Refusal::unauthenticated(
            "the delivery is not signed with this environment's secret",
            "`X-Hub-Signature-256` is `sha256=` and the body's HMAC-SHA256 in hexadecimal",
        )
    };
    let name = call.path.parse().map_err(|_| unsigned())?;
    let (event, signature) = (event.as_deref(), signature.as_deref());
    let delivered = call
        .services
        .environments
        .deliver(&name, event, signature, &call.body);
    delivered.await?.ok_or_else(unsigned)
}

pub(super) fn header(headers: &http::HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn assign(call: Call<AssignEnvironment>) -> Answer<AssignEnvironment> {
    let environments = &call.services.environments;
    environments
        .assign(&call.path, &call.body.environment)
        .await?;
    Ok(())
}
