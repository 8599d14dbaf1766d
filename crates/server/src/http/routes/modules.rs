//! Extension modules and the keys that sign them.

use bunraku_wire::endpoints::{
    ListModuleEvents, ListModuleVersions, ListModules, ListRevokedModuleKeys, PublishModule,
    RemoveModuleVersion, RevokeModuleKey, ShowModuleKeys, ShowModuleVersion, TrustModuleKey,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListModules, list)
        .add(PublishModule, publish)
        .add(ListModuleVersions, versions)
        .add(ShowModuleVersion, show)
        .add(RemoveModuleVersion, remove)
        .add(ListModuleEvents, history)
        .add(ShowModuleKeys, keys)
        .add(TrustModuleKey, trust)
        .add(RevokeModuleKey, revoke)
        .add(ListRevokedModuleKeys, revoked)
}

/// Maximum number of events in one reply.
const EVENTS: usize = 200;

async fn list(call: Call<ListModules>) -> HandlerResult<ListModules> {
    Ok(call.services.modules.list().await?)
}

async fn publish(call: Call<PublishModule>) -> HandlerResult<PublishModule> {
    let by = call.by()?.to_owned();
    let published = call.services.modules.publish(call.body, &by).await?;
    call.notes.detail("module", published.name.clone());
    call.notes.detail("version", published.version.clone());
    call.notes.detail("signer", published.signer.clone());
    Ok(published)
}

async fn versions(call: Call<ListModuleVersions>) -> HandlerResult<ListModuleVersions> {
    Ok(call.services.modules.versions(&call.path).await?)
}

async fn show(call: Call<ShowModuleVersion>) -> HandlerResult<ShowModuleVersion> {
    let (module, version) = &call.path;
    Ok(call.services.modules.version(module, version).await?)
}

async fn remove(call: Call<RemoveModuleVersion>) -> HandlerResult<RemoveModuleVersion> {
    let (module, version) = &call.path;
    let by = call.by()?;
    call.services.modules.remove(module, version, by).await?;
    Ok(())
}

async fn history(call: Call<ListModuleEvents>) -> HandlerResult<ListModuleEvents> {
    Ok(call.services.modules.history(EVENTS).await?)
}

async fn keys(call: Call<ShowModuleKeys>) -> HandlerResult<ShowModuleKeys> {
    Ok(call.services.modules.keys().await?)
}

async fn trust(call: Call<TrustModuleKey>) -> HandlerResult<TrustModuleKey> {
    let trusted = call.services.modules.trust(&call.body.key, call.by()?);
    let trusted = trusted.await?;
    call.notes
        .detail("fingerprint", trusted.fingerprint.clone());
    Ok(trusted)
}

async fn revoke(call: Call<RevokeModuleKey>) -> HandlerResult<RevokeModuleKey> {
    let (by, request) = (call.by()?, &call.body);
    let revoked = (call.services.modules).revoke(&request.fingerprint, &request.reason, by);
    Ok(revoked.await?)
}

async fn revoked(call: Call<ListRevokedModuleKeys>) -> HandlerResult<ListRevokedModuleKeys> {
    Ok(call.services.modules.revoked().await?)
}
