//! The plugins that a node fetches before it collects facts.
//!
//! They come from the commit that is deployed to the node's environment, because the node's next
//! catalog is compiled from that commit and from those facts.

use bunraku_model::{ContentId, NodeName};
use bunraku_wire::api::{NodePlugins, PluginsFile};

use super::{CompileFailure, Compiles};
use crate::code::{CodeError, PluginRecord};
use bunraku_control::ServiceError;

impl Compiles {
    /// Returns the plugins of a node's environment.
    pub async fn plugins_of(&self, node: &NodeName) -> Result<NodePlugins, ServiceError> {
        let environment = self.environment_of(node).await?;
        let Some(deployed) = self.deployed(&environment).await? else {
            return Ok(NodePlugins {
                environment,
                code_id: None,
                archive: None,
            });
        };
        let (compilers, code_id) = (&self.inner.compilers, &deployed.code_id);
        let code = compilers.code();
        let of_commit = |record: &PluginRecord| record.code_id == *code_id;
        let mut record = code.plugins(&environment).await.map_err(unavailable)?;
        if !record.as_ref().is_some_and(of_commit) {
            // Of the nodes that ask after a deploy, one causes the work.
            let _one = self.inner.archiving.lock().await;
            record = code.plugins(&environment).await.map_err(unavailable)?;
            if !record.as_ref().is_some_and(of_commit) {
                let ready = compilers.get(&environment, code_id).await;
                let ready = ready.map_err(failed)?;
                let work = move || ready.plugins.archive();
                let archive = tokio::task::spawn_blocking(work).await;
                let archive = archive
                    .map_err(|error| ServiceError::internal("cannot archive the plugins", error))?
                    .map_err(ServiceError::invalid)?;
                let bytes = archive.map(|archive| archive.bytes.clone());
                let kept = code.keep_plugins(&environment, code_id, bytes).await;
                record = Some(kept.map_err(unavailable)?);
            }
        }
        let archive = record.and_then(|record| record.archive);
        Ok(NodePlugins {
            environment,
            code_id: Some(deployed.code_id),
            archive: archive.map(|file| PluginsFile {
                content: file.content,
                size: file.size,
            }),
        })
    }

    /// Returns whether the content is the archive of the plugins of a node's environment.
    pub async fn is_plugins_of(
        &self,
        node: &NodeName,
        id: ContentId,
    ) -> Result<bool, ServiceError> {
        let environment = match self.environment_of(node).await {
            Ok(environment) => environment,
            Err(ServiceError::NotFound { .. }) => return Ok(false),
            Err(other) => return Err(other),
        };
        let code = self.inner.compilers.code();
        let record = code.plugins(&environment).await.map_err(unavailable)?;
        let archive = record.and_then(|record| record.archive);
        Ok(archive.is_some_and(|file| file.content == id))
    }
}

fn unavailable(error: CodeError) -> ServiceError {
    match error {
        CodeError::Service(error) => error,
        error => ServiceError::internal("cannot store the plugins", error),
    }
}

fn failed(failure: CompileFailure) -> ServiceError {
    failure.into_service_error("the environment's code is not ready")
}
