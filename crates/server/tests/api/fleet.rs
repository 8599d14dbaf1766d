//! Compiled catalogs without a compiler: written to the store as a compiler would.

use bunraku_compile::catalogs::{CatalogFile, CatalogOptions, Catalogs, FileSource, NewCatalog};
use bunraku_control::{Clock, keys};
use bunraku_model::catalog::{CatalogSource, SourceFile};
use bunraku_model::{Catalog, CatalogId, CodeId, ContentId, EnvironmentName};
use bunraku_store::Transaction;
use bunraku_wire::ClientError;
use bunraku_wire::api::{
    CreateRelease, ReleaseDetail, ReleaseReply, ReleaseState, ReleaseSummary, ReleaseTo, RunMode,
};
use bytes::Bytes;
use serde_json::json;

use crate::support::{TestServer, name};

pub(crate) fn environment(text: &str) -> EnvironmentName {
    EnvironmentName::new(text).expect("a name")
}

/// Stores a compiled catalog for a node: one file with this content.
pub(crate) async fn compile(server: &TestServer, node: &str, file: &str) -> CatalogId {
    compile_in(server, node, "production", "c1", file.as_bytes()).await
}

pub(crate) async fn compile_in(
    server: &TestServer,
    node: &str,
    environment_name: &str,
    code: &str,
    file: &[u8],
) -> CatalogId {
    let size = file.len() as u64;
    let resource =
        json!({"type": "File", "title": "/x", "parameters": {"source": "salt://x", "size": size}});
    compile_resources(server, node, environment_name, code, file, vec![resource]).await
}

/// Stores a compiled catalog for a node: these resources, with this file at `salt://x`.
pub(crate) async fn compile_resources(
    server: &TestServer,
    node: &str,
    environment_name: &str,
    code: &str,
    file: &[u8],
    resources: Vec<serde_json::Value>,
) -> CatalogId {
    let catalogs = Catalogs::new(
        server.shared.clone(),
        server.blobs.clone(),
        Clock::system(),
        CatalogOptions::default(),
    );
    let content = ContentId::of(file);
    let size = file.len() as u64;
    let source = CatalogSource::File(SourceFile { content, size });
    let resources = (resources.into_iter())
        .map(|resource| serde_json::from_value(resource).expect("a resource"))
        .collect();
    let code_id = CodeId(code.to_owned());
    let new = NewCatalog {
        node: name(node),
        environment: environment(environment_name),
        code_id: code_id.clone(),
        catalog: Catalog {
            name: node.to_owned(),
            environment: Some(json!(environment_name)),
            resources,
            sources: [("salt://x".to_owned(), source)].into(),
            ..Catalog::default()
        },
        files: vec![CatalogFile {
            content,
            from: FileSource::Bytes(Bytes::copy_from_slice(file)),
        }],
    };
    let (id, text) = catalogs.put(&new).await.expect("kept");
    let compiled = json!({
        "environment": environment_name, "catalog": id, "content": text, "code_id": code_id,
        "fact_set": ContentId::of(b"facts"), "compiled_at": "2026-01-01T00:00:00Z",
        "config_version": "1", "resources": 1,
    });
    let key = keys::compiled(&name(node));
    let value = serde_json::to_vec(&compiled).expect("JSON");
    let mut put = Transaction::new().put(key, value);
    let settings = keys::environment_settings(&environment(environment_name));
    if server.shared.get(&settings).await.expect("read").is_none() {
        let environment = json!({"url": "file:///nowhere", "policy": "manual", "created": "2026-01-01T00:00:00Z"});
        put = put.put(settings, environment.to_string());
    }
    let put = catalogs.hold_in(put, id, &format!("compiled/{node}")).await;
    let put = server.shared.commit(put.expect("kept")).await;
    assert!(put.expect("committed").is_committed());
    id
}

/// Creates a release, and waits until the nodes' targets are written.
pub(crate) async fn release(
    server: &TestServer,
    to: ReleaseTo,
    mode: RunMode,
) -> Option<ReleaseSummary> {
    let made = try_release(server, &release_to(to, mode))
        .await
        .expect("released");
    let release = made.release?;
    applied(server, &release).await;
    Some(release)
}

pub(crate) async fn applied(server: &TestServer, release: &ReleaseSummary) {
    let path = format!(
        "/v1/releases/{}/{}?wait_seconds=50",
        release.environment, release.number
    );
    let shown: ReleaseDetail = server.operator.get(&path).await.expect("shown");
    assert_ne!(shown.state, ReleaseState::Applying);
}

/// Requests a release of all nodes on this parent; without one, on the newest release.
pub(crate) async fn try_release_all(
    server: &TestServer,
    parent: Option<u64>,
) -> Result<ReleaseReply, ClientError> {
    let everything = CreateRelease {
        parent: parent.map(bunraku_model::ReleaseNumber),
        ..release_to(ReleaseTo::Everything, RunMode::Enforce)
    };
    try_release(server, &everything).await
}

/// A release on the newest one.
pub(crate) fn release_to(to: ReleaseTo, mode: RunMode) -> CreateRelease {
    CreateRelease {
        parent: None,
        to,
        mode,
        reason: None,
    }
}

pub(crate) async fn try_release(
    server: &TestServer,
    request: &CreateRelease,
) -> Result<ReleaseReply, ClientError> {
    server
        .operator
        .post("/v1/releases/production", request)
        .await
}
