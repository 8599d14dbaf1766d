//! Modules and keys on the server.

use std::path::Path;

use bunraku_wire::ClientError;
use bunraku_wire::api::modules::{
    ModuleEvent, ModuleKeys, PublishedModule, RevokeModuleKey, RevokedModuleKey, TrustModuleKey,
    TrustedModuleKey,
};
use bunraku_wire::endpoints::{
    self, Endpoint, ListModuleEvents, ListModuleVersions, ListModules, PublishModule,
    RemoveModuleVersion, ShowModuleKeys, ShowModuleVersion,
};

use super::source::{SourceArgs, read};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

/// Publishes a package. The server verifies it against the keys that servers trust.
pub(super) fn publish(source: &SourceArgs, context: &Context) -> Result<Exit, Failure> {
    let (name, package) = source.package()?;
    context.with_client(|client| async move {
        let pieces = futures::stream::iter([Ok::<_, std::io::Error>(package.into())]);
        let published = client.send_pieces(PublishModule, pieces);
        let published: PublishedModule = published.await.map_err(|error| {
            let failure = failed(&error);
            let message = format!("{}: {}", name.display(), failure.message());
            failure.with_message(message)
        })?;
        if context.global.json {
            output::json(&published)?;
            return Ok(Exit::Done);
        }
        output::write(&describe("published", &published))?;
        note!(
            "\nhint: to use it in an environment, add `{}: {}` to `modules.yaml`",
            published.name,
            published.version
        );
        Ok(Exit::Done)
    })
}

fn describe(what: &str, module: &PublishedModule) -> String {
    let mut text = format!(
        "{what} {} {}\n  types      {}\n  sha256     {}\n  signed by  {}  {}\n  published  {} by {}\n",
        module.name,
        module.version,
        module.types.join(", "),
        module.sha256,
        module.signed_by,
        module.signer,
        module.published,
        module.published_by
    );
    if let Some(refused) = &module.refused {
        text.push_str(&format!("  refused    {refused}\n"));
    }
    text
}

pub(super) fn list(context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let all: Vec<PublishedModule> = map_reply(client.call(ListModules).await)?;
        if context.global.json {
            output::json(&all)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["MODULE", "VERSION", "TYPES", "SIGNED BY", "STATUS"]);
        for module in &all {
            table.row(vec![
                module.name.clone(),
                module.version.clone(),
                module.types.join(", "),
                module.signed_by.chars().take(16).collect(),
                match &module.refused {
                    None => "published".to_owned(),
                    Some(refused) => format!("refused: {refused}"),
                },
            ]);
        }
        table.print()?;
        Ok(Exit::Done)
    })
}

pub(super) fn show(name: &str, version: Option<&str>, context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let found: Vec<PublishedModule> = match version {
            Some(version) => {
                let at = ShowModuleVersion.at((&name.to_owned(), &version.to_owned()));
                vec![map_reply(client.call(at).await)?]
            }
            None => map_reply(client.call(ListModuleVersions.at(&name.to_owned())).await)?,
        };
        if context.global.json {
            output::json(&found)?;
            return Ok(Exit::Done);
        }
        let texts: Vec<String> = found.iter().map(|one| describe("module", one)).collect();
        output::write(&texts.join("\n"))?;
        Ok(Exit::Done)
    })
}

pub(super) fn remove(name: &str, version: &str, context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let at = RemoveModuleVersion.at((&name.to_owned(), &version.to_owned()));
        map_reply(client.call(at).await)?;
        note!("Removed {name} {version}. Catalogs that pin it can still use it.");
        Ok(Exit::Done)
    })
}

pub(super) fn trust(file: &Path, context: &Context) -> Result<Exit, Failure> {
    let key = String::from_utf8(read(file)?).unwrap_or_default();
    context.with_client(|client| async move {
        let request = TrustModuleKey { key };
        let trusted = client.call_with(endpoints::TrustModuleKey, &request).await;
        let trusted: TrustedModuleKey = trusted.map_err(|error| failed(&error))?;
        if context.global.json {
            output::json(&trusted)?;
            return Ok(Exit::Done);
        }
        output::write(&format!("servers trust the key {}\n", trusted.fingerprint))?;
        note!("\nhint: to trust it on a node, copy the key to /etc/bunraku/module-keys there");
        Ok(Exit::Done)
    })
}

pub(super) fn revoke(fingerprint: &str, reason: &str, context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let request = RevokeModuleKey {
            fingerprint: fingerprint.to_owned(),
            reason: reason.to_owned(),
        };
        let revoked = client.call_with(endpoints::RevokeModuleKey, &request).await;
        let revoked: RevokedModuleKey = revoked.map_err(|error| failed(&error))?;
        if context.global.json {
            output::json(&revoked)?;
            return Ok(Exit::Done);
        }
        let text = format!("revoked {} on servers and nodes\n", revoked.fingerprint);
        output::write(&text)?;
        Ok(Exit::Done)
    })
}

pub(super) fn keys(context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let keys: ModuleKeys = map_reply(client.call(ShowModuleKeys).await)?;
        if context.global.json {
            output::json(&keys)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["KEY", "STATUS", "BY", "AT", "COMMENT"]);
        for key in keys.trusted {
            let comment = key.key.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
            let status = "trusted".to_owned();
            table.row(vec![
                key.fingerprint,
                status,
                key.by,
                key.at.to_string(),
                comment,
            ]);
        }
        for key in keys.revoked {
            let status = "revoked".to_owned();
            table.row(vec![
                key.fingerprint,
                status,
                key.by,
                key.at.to_string(),
                key.reason,
            ]);
        }
        table.print()?;
        Ok(Exit::Done)
    })
}

pub(super) fn log(context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let events: Vec<ModuleEvent> = map_reply(client.call(ListModuleEvents).await)?;
        if context.global.json {
            output::json(&events)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["AT", "BY", "WHAT", "SUBJECT", "DETAIL"]);
        for event in events {
            let at = event.at.to_string();
            table.row(vec![at, event.by, event.what, event.subject, event.detail]);
        }
        table.print()?;
        Ok(Exit::Done)
    })
}

fn map_reply<T>(reply: Result<T, ClientError>) -> Result<T, Failure> {
    reply.map_err(|error| failed(&error))
}
