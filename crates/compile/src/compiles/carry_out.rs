//! One compile, from the current inputs to a catalog that can be stored.
//!
//! Nothing is written here: a proposed commit is compiled in the same way.

use bunraku_model::{Catalog, CatalogId, CodeId, EnvironmentName, FactSetId, NodeName};
use bunraku_wire::api::{CompileNote, CompileProblem, Deployed};
use serde_json::{Value, json};
use uuid::Uuid;

use super::compiled::config_version;
use super::compiler::CompileRequest;
use super::{CompileFailure, Compiles};
use crate::catalogs::CatalogFile;
use bunraku_control::document;
use bunraku_control::nodes;
use bunraku_control::{ServiceError, keys};

/// A compiled catalog that is not stored yet.
#[derive(Debug)]
pub struct Proposed {
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub fact_set: FactSetId,
    pub id: CatalogId,
    pub catalog: Catalog,
    /// The files that the catalog refers to.
    pub files: Vec<CatalogFile>,
    /// Messages that the compiler logged.
    pub notes: Vec<CompileNote>,
    /// Nodes whose outputs the catalog reads at run time.
    pub reads_from_nodes: Vec<NodeName>,
}

/// The result of an attempt.
pub(super) enum Attempt {
    NoCode {
        environment: EnvironmentName,
    },
    NoFacts {
        environment: EnvironmentName,
        code_id: CodeId,
    },
    Made(Box<Proposed>),
    Failed {
        environment: EnvironmentName,
        code_id: CodeId,
        fact_set: FactSetId,
        problems: Vec<CompileProblem>,
    },
}

impl Compiles {
    /// Compiles a node's newest facts with its environment's deployed code.
    pub(super) async fn attempt(&self, node: &NodeName) -> Result<Attempt, CompileFailure> {
        let environment = self.environment_of(node).await.map_err(temporary)?;
        let Some(deployed) = self.deployed(&environment).await.map_err(temporary)? else {
            return Ok(Attempt::NoCode { environment });
        };
        let code_id = deployed.code_id;
        let Some(request) = self
            .request_for(node, &environment, &code_id, true)
            .await
            .map_err(temporary)?
        else {
            return Ok(Attempt::NoFacts {
                environment,
                code_id,
            });
        };
        match self.make(&request).await {
            Ok(made) => Ok(Attempt::Made(Box::new(made))),
            Err(CompileFailure::Problems(problems)) => Ok(Attempt::Failed {
                environment,
                code_id,
                fact_set: request.fact_set,
                problems,
            }),
            Err(temporary) => Err(temporary),
        }
    }

    /// Compiles a node with code that need not be deployed, and writes nothing.
    /// The code must have been fetched with `Environments::fetch_commit`.
    pub async fn compile_for(
        &self,
        node: &NodeName,
        code_id: &CodeId,
    ) -> Result<Proposed, CompileFailure> {
        let environment = self.environment_of(node).await.map_err(temporary)?;
        let request = self.request_for(node, &environment, code_id, false).await;
        let request = request
            .map_err(temporary)?
            .ok_or_else(|| CompileFailure::said(format!("`{node}` has sent no facts yet")))?;
        self.make(&request).await
    }

    pub async fn environment_of(&self, node: &NodeName) -> Result<EnvironmentName, ServiceError> {
        let environment = nodes::environment_of(&*self.inner.store, node).await?;
        environment.ok_or_else(|| ServiceError::no_such_node(node))
    }

    pub async fn deployed(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<Deployed>, ServiceError> {
        let key = keys::environment_deployed(environment);
        let found = document::read(&*self.inner.store, &key).await?;
        Ok(found.map(|found| found.document))
    }

    pub(super) async fn request_for(
        &self,
        node: &NodeName,
        environment: &EnvironmentName,
        code_id: &CodeId,
        kept: bool,
    ) -> Result<Option<CompileRequest>, ServiceError> {
        let known = match self.inner.facts.show(node).await {
            Ok(known) => known,
            Err(ServiceError::NotFound { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        Ok(Some(CompileRequest {
            node: node.clone(),
            environment: environment.clone(),
            code_id: code_id.clone(),
            facts: known.facts,
            fact_set: known.fact_set,
            extensions: self.certificate_extensions(node).await?,
            locks: Some(self.lock_reader(node, kept)),
        }))
    }

    async fn make(&self, request: &CompileRequest) -> Result<Proposed, CompileFailure> {
        let ready = self
            .inner
            .compilers
            .get(&request.environment, &request.code_id)
            .await?;
        let done = ready.compiler.compile(request, &self.inner.slots).await?;
        let (mut catalog, notes) = (done.catalog, done.notes);
        catalog.name = request.node.to_string();
        catalog.environment = Some(json!(request.environment));
        catalog.code_id = Some(json!(request.code_id));
        let limit = self.inner.catalogs.options().max_files;
        let modules = ready.modules.clone();
        let work = move || {
            let files = ready
                .sources
                .make_static(&mut catalog)
                .map_err(CompileFailure::Problems)?;
            Ok::<_, CompileFailure>((catalog, files))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (mut catalog, mut files) = done.map_err(CompileFailure::temporary)??;
        modules.pin(&mut catalog, &mut files).await?;
        let hash = move || (catalog.id(), catalog);
        let hashed = tokio::task::spawn_blocking(hash).await;
        let (id, mut catalog) = hashed.map_err(CompileFailure::temporary)?;
        if files.len() > limit {
            let count = files.len();
            let message =
                format!("the catalog refers to {count} files, and at most {limit} are kept");
            return Err(CompileFailure::said(message));
        }
        catalog.version = Some(json!(config_version(id)));
        catalog.catalog_uuid = Some(json!(uuid_of(id)));
        Ok(Proposed {
            environment: request.environment.clone(),
            code_id: request.code_id.clone(),
            fact_set: request.fact_set,
            reads_from_nodes: reads_from_nodes(&catalog),
            id,
            catalog,
            files,
            notes,
        })
    }
}

/// Derives the UUID from the catalog's content, so that it is reproducible.
fn uuid_of(id: CatalogId) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&id.0.as_bytes()[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Returns the nodes that the front end recorded on resources.
fn reads_from_nodes(catalog: &Catalog) -> Vec<NodeName> {
    let mut nodes: Vec<NodeName> = catalog
        .resources
        .iter()
        .filter_map(|resource| resource.other.get("reads_from_nodes")?.as_array())
        .flatten()
        .filter_map(|read| NodeName::new(read.get("node").and_then(Value::as_str)?).ok())
        .collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn temporary(error: ServiceError) -> CompileFailure {
    CompileFailure::temporary(error)
}
