//! The servers of a cluster.

use bunraku_wire::endpoints::{
    DrainServer, ExpectServer, ForgetExpectedServer, InviteServer, JoinCluster, JoinClusterOverSsh,
    ListServers, RemoveServer, ShowCluster,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ShowCluster, status)
        .add(ListServers, servers)
        .add(InviteServer, invite)
        .add(JoinCluster, join)
        .add(JoinClusterOverSsh, join_over_ssh)
        .add(ExpectServer, expect)
        .add(ForgetExpectedServer, forget_expected)
        .add(RemoveServer, remove)
        .add(DrainServer, drain)
}

async fn status(call: Call<ShowCluster>) -> HandlerResult<ShowCluster> {
    Ok(call.services.cluster.status().await?)
}

async fn servers(call: Call<ListServers>) -> HandlerResult<ListServers> {
    Ok(call.services.cluster.servers())
}

async fn invite(call: Call<InviteServer>) -> HandlerResult<InviteServer> {
    let by = call.by()?;
    Ok(call.services.cluster.invite(&call.body, by).await?)
}

async fn join(call: Call<JoinCluster>) -> HandlerResult<JoinCluster> {
    Ok(call.services.cluster.join(&call.body).await?)
}

async fn expect(call: Call<ExpectServer>) -> HandlerResult<ExpectServer> {
    call.services
        .cluster
        .expect(&call.path, &call.body, call.by()?)
        .await?;
    Ok(())
}

async fn forget_expected(call: Call<ForgetExpectedServer>) -> HandlerResult<ForgetExpectedServer> {
    call.services.cluster.forget_expected(&call.path).await?;
    Ok(())
}

async fn join_over_ssh(call: Call<JoinClusterOverSsh>) -> HandlerResult<JoinClusterOverSsh> {
    Ok(call.services.cluster.join_over_ssh(&call.body).await?)
}

async fn remove(call: Call<RemoveServer>) -> HandlerResult<RemoveServer> {
    call.services.cluster.remove(&call.path, call.by()?).await?;
    Ok(())
}

async fn drain(call: Call<DrainServer>) -> HandlerResult<DrainServer> {
    call.services.cluster.drain(&call.path, &call.body).await?;
    Ok(())
}
