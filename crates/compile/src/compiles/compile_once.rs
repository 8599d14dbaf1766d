//! One compile, from the current inputs to a catalog that can be stored.
//!
//! Nothing is written here: a proposed commit is compiled in the same way.

use bunraku_model::{Catalog, CatalogId, CodeId, EnvironmentName, FactSetId, NodeName};
use bunraku_wire::api::{CompileNote, CompileProblem, DeployedCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::attempts::AttemptRecord;
use super::compiled::config_version;
use super::compiler::CompileRequest;
use super::{CompileFailure, Compiles};
use crate::catalogs::CatalogFile;
use crate::code_questions::{AskedQuestion, CodeSession};
use bunraku_control::document;
use bunraku_control::nodes;
use bunraku_control::{EnvironmentSettings, ServiceError, keys};

/// A compiled catalog that is not stored yet.
#[derive(Debug)]
pub struct ProposedCatalog {
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub fact_set: FactSetId,
    pub id: CatalogId,
    pub catalog: Catalog,
    /// The files that the catalog refers to.
    pub files: Vec<CatalogFile>,
    /// Messages that the compiler logged.
    pub notes: Vec<CompileNote>,
    /// The version of the code, or else one that is derived from the catalog's id.
    pub config_version: String,
    /// Nodes whose outputs the catalog reads at run time.
    pub reads_from_nodes: Vec<NodeName>,
    /// Questions about other nodes.
    pub asked: Vec<AskedQuestion>,
}

/// Number of times that a compile is repeated immediately because data about
/// other nodes changed in between.
const REPEATS: usize = 5;

/// The result of an attempt.
pub(super) enum CompileAttempt {
    NoCode {
        environment: EnvironmentName,
    },
    NoFacts {
        environment: EnvironmentName,
        code_id: CodeId,
    },
    Made(Box<ProposedCatalog>),
    Failed {
        environment: EnvironmentName,
        code_id: CodeId,
        fact_set: FactSetId,
        problems: Vec<CompileProblem>,
        /// Questions about other nodes, until it failed.
        asked: Vec<AskedQuestion>,
        /// The deaths because of which it was not tried.
        quarantine: Option<AttemptRecord>,
    },
}

/// The inputs of an attempt, or the reason why there is none.
pub(super) enum PreparedCompile {
    Ready(EnvironmentName, Box<CompileRequest>),
    Nothing(CompileAttempt),
}

impl Compiles {
    /// Returns a node's newest facts and its environment's deployed code.
    pub(super) async fn prepare(&self, node: &NodeName) -> Result<PreparedCompile, CompileFailure> {
        let environment = self.environment_of(node).await.map_err(temporary)?;
        let Some(deployed) = self.deployed(&environment).await.map_err(temporary)? else {
            let nothing = CompileAttempt::NoCode { environment };
            return Ok(PreparedCompile::Nothing(nothing));
        };
        let code_id = deployed.code_id;
        let Some(request) = self
            .request_for(node, &environment, &code_id, true)
            .await
            .map_err(temporary)?
        else {
            return Ok(PreparedCompile::Nothing(CompileAttempt::NoFacts {
                environment,
                code_id,
            }));
        };
        Ok(PreparedCompile::Ready(environment, Box::new(request)))
    }

    /// Compiles a request.
    pub(super) async fn attempt_request(
        &self,
        environment: EnvironmentName,
        request: CompileRequest,
    ) -> Result<CompileAttempt, CompileFailure> {
        let (code_id, fact_set) = (request.code_id.clone(), request.fact_set);
        let (session, made) = self.compile_at_one_state(request).await?;
        match made {
            Ok(made) => Ok(CompileAttempt::Made(Box::new(made))),
            Err(CompileFailure::Problems(problems)) => Ok(CompileAttempt::Failed {
                environment,
                code_id,
                fact_set,
                problems,
                asked: session.questions().await,
                quarantine: None,
            }),
            Err(other) => Err(other),
        }
    }

    /// Compiles with answers about other nodes that are all from one state of
    /// the index. Repeats the compile if it read two states.
    async fn compile_at_one_state(
        &self,
        mut request: CompileRequest,
    ) -> Result<(CodeSession, Result<ProposedCatalog, CompileFailure>), CompileFailure> {
        for _ in 0..REPEATS {
            let session = self.code_session(&request.node);
            request.questions = Some(session.clone());
            let made = self.compile(&request).await;
            if let Some(error) = session.take_error().await {
                return Err(CompileFailure::temporary(error));
            }
            if !session.is_outdated().await {
                return Ok((session, made));
            }
        }
        Err(CompileFailure::temporary(ServiceError::Busy {
            message: "the data about other nodes changed during every attempt".to_owned(),
        }))
    }

    pub(super) fn code_session(&self, node: &NodeName) -> CodeSession {
        CodeSession::new(std::sync::Arc::clone(&self.inner.answers), node)
    }

    /// Compiles a node with code that need not be deployed, and writes nothing.
    /// The code must have been fetched with `Environments::fetch_commit`.
    pub async fn compile_for(
        &self,
        node: &NodeName,
        code_id: &CodeId,
    ) -> Result<ProposedCatalog, CompileFailure> {
        let environment = self.environment_of(node).await.map_err(temporary)?;
        let request = self.request_for(node, &environment, code_id, false).await;
        let request = request
            .map_err(temporary)?
            .ok_or_else(|| CompileFailure::message(format!("`{node}` has not sent facts yet")))?;
        self.compile_at_one_state(request).await?.1
    }

    pub async fn environment_of(&self, node: &NodeName) -> Result<EnvironmentName, ServiceError> {
        let environment = nodes::environment_of(&*self.inner.store, node).await?;
        environment.ok_or_else(|| ServiceError::no_such_node(node))
    }

    pub async fn deployed(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<DeployedCode>, ServiceError> {
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
        let settings = EnvironmentSettings::read(&*self.inner.store, environment).await?;
        Ok(Some(CompileRequest {
            node: node.clone(),
            environment: environment.clone(),
            code_id: code_id.clone(),
            facts: known.facts,
            fact_set: known.fact_set,
            extensions: self.certificate_extensions(node).await?,
            locks: Some(self.lock_reader(node, kept)),
            questions: Some(self.code_session(node)),
            ordering: settings.as_ref().and_then(|settings| settings.order),
            allows_external: (settings.as_ref())
                .is_some_and(|settings| settings.allows_external_compiler),
            fact_targeting: settings.is_some_and(|settings| settings.fact_targeting),
        }))
    }

    async fn compile(&self, request: &CompileRequest) -> Result<ProposedCatalog, CompileFailure> {
        let ready = self
            .inner
            .compilers
            .get(&request.environment, &request.code_id)
            .await?;
        let slots = self.inner.slots.of(&request.environment);
        let done = ready.compiler.compile(request, &slots).await?;
        let (mut catalog, mut notes, version) = (done.catalog, done.notes, done.version);
        drop_secret_exports(&mut catalog, &mut notes);
        catalog.name = request.node.to_string();
        catalog.environment = Some(json!(request.environment));
        catalog.code_id = Some(json!(request.code_id));
        // Code may bring a catalog with an order of its own. The environment's setting wins.
        catalog.ordering = request.ordering.or(catalog.ordering);
        let limit = self.inner.catalogs.options().max_files;
        let modules = ready.modules.clone();
        let work = move || {
            let mut files = ready
                .sources
                .make_static(&mut catalog)
                .map_err(CompileFailure::Problems)?;
            let pinned = ready.plugins.pin(&mut catalog, &mut files);
            pinned.map_err(CompileFailure::message)?;
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
                format!("the catalog refers to {count} files, which exceeds the limit of {limit}");
            return Err(CompileFailure::message(message));
        }
        let config_version = version.unwrap_or_else(|| config_version(id));
        catalog.version = Some(json!(config_version));
        catalog.catalog_uuid = Some(json!(uuid_of(id)));
        Ok(ProposedCatalog {
            environment: request.environment.clone(),
            code_id: request.code_id.clone(),
            fact_set: request.fact_set,
            reads_from_nodes: reads_from_nodes(&catalog),
            asked: match &request.questions {
                Some(session) => session.questions().await,
                None => Vec::new(),
            },
            config_version,
            id,
            catalog,
            files,
            notes,
        })
    }
}

/// Removes secrets from exported resources, as PuppetDB does: other nodes must
/// not receive them.
fn drop_secret_exports(catalog: &mut Catalog, notes: &mut Vec<CompileNote>) {
    for export in &mut catalog.exports {
        let is_secret = |name: &&String| export.is_sensitive(name);
        let secret: Vec<String> = export
            .parameters
            .keys()
            .filter(is_secret)
            .cloned()
            .collect();
        for name in secret {
            export.parameters.remove(&name);
            notes.push(CompileNote {
                level: "warning".to_owned(),
                message: format!(
                    "the secret parameter `{name}` of the exported {} is not exported",
                    export.reference()
                ),
                file: export.file.clone(),
                line: export.line,
                column: None,
            });
        }
        export.sensitive_parameters.clear();
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
