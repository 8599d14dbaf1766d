//! Join tokens.

use bunraku_wire::endpoints::{CreateToken, ListTokens, RevokeToken};

use crate::http::endpoint::{Call, HandlerResult, Routes, cut};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListTokens, list)
        .add(CreateToken, create)
        .add(RevokeToken, revoke)
}

async fn list(call: Call<ListTokens>) -> HandlerResult<ListTokens> {
    let tokens = call.services.certificates.tokens().await?;
    cut(&call.page, tokens, |token| token.id.clone())
}

async fn create(call: Call<CreateToken>) -> HandlerResult<CreateToken> {
    let created = call
        .services
        .certificates
        .create_token(&call.body, call.by()?)
        .await?;
    call.notes.detail("id", created.entry.id.clone());
    Ok(created)
}

async fn revoke(call: Call<RevokeToken>) -> HandlerResult<RevokeToken> {
    call.services.certificates.revoke_token(&call.path).await?;
    Ok(())
}
