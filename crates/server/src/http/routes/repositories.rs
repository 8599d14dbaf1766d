//! Control repositories whose branches are environments.

use bunraku_wire::endpoints::{
    ChangeRepository, CreateRepository, ListRepositories, ReceiveRepositoryPush, RemoveRepository,
    ShowRepository, SyncRepository,
};

use super::environments::PushHeaders;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListRepositories, list)
        .add(CreateRepository, add)
        .add(ShowRepository, show)
        .add(ChangeRepository, change)
        .add(RemoveRepository, remove)
        .add(SyncRepository, sync)
        .add(ReceiveRepositoryPush, hook)
}

async fn list(call: Call<ListRepositories>) -> HandlerResult<ListRepositories> {
    Ok(call.services.repositories.list().await?)
}

async fn add(call: Call<CreateRepository>) -> HandlerResult<CreateRepository> {
    let by = call.by()?;
    Ok(call.services.repositories.add(&call.body, by).await?)
}

async fn show(call: Call<ShowRepository>) -> HandlerResult<ShowRepository> {
    Ok(call.services.repositories.show(&call.path).await?)
}

async fn change(call: Call<ChangeRepository>) -> HandlerResult<ChangeRepository> {
    let by = call.by()?;
    let changed = call
        .services
        .repositories
        .change(&call.path, &call.body, by);
    Ok(changed.await?)
}

async fn remove(call: Call<RemoveRepository>) -> HandlerResult<RemoveRepository> {
    call.services.repositories.remove(&call.path).await?;
    Ok(())
}

async fn sync(call: Call<SyncRepository>) -> HandlerResult<SyncRepository> {
    let by = call.by()?;
    let requested = call
        .services
        .repositories
        .request_sync(&call.path, true, by);
    Ok(requested.await?)
}

async fn hook(call: Call<ReceiveRepositoryPush>) -> HandlerResult<ReceiveRepositoryPush> {
    let headers = PushHeaders::of(&call.headers);
    // A caller without a valid signature learns nothing, not even which names exist.
    let unsigned = || {
        ErrorReply::unauthenticated(
            "the delivery is not signed with this repository's secret",
            "`X-Hub-Signature-256` is `sha256=` and the body's HMAC-SHA256 in hexadecimal, or `X-Gitlab-Token` is the secret",
        )
    };
    let name = call.path.parse().map_err(|_| unsigned())?;
    let (event, proof) = (headers.event.as_deref(), headers.proof());
    let delivered = call
        .services
        .repositories
        .deliver(&name, event, &proof, &call.body);
    delivered.await?.ok_or_else(unsigned)
}
