//! The console's pages, served on this machine with an operator's credentials.
//!
//! Invariants: every request to a server is a GET. Only someone with the printed key gets a page,
//! and no other site that a browser has open does.

mod access;
mod audit;
mod cluster;
mod nodes;
mod overview;
mod page;
mod report;
mod runs;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, http::header};
use bunraku_model::NodeName;
use bunraku_wire::Client;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::termination_signal;
use crate::{json_mode, output};
use access::ConsoleAuth;
use page::{PageError, Source, rendered};

/// Serves pages until the process is asked to end.
pub(crate) async fn serve(
    client: Client,
    operator: NodeName,
    listen: SocketAddr,
) -> Result<Exit, Failure> {
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|error| Failure::new(format!("cannot listen on {listen}")).caused_by(&error))?;
    let address = listener.local_addr()?;
    let door = Arc::new(ConsoleAuth::new(address));
    let pages = pages(Source { client, operator }, Arc::clone(&door));
    let address = format!("http://{address}/?key={}", door.key());
    if json_mode::is_on() {
        output::json_line(&serde_json::json!({"console": address}))?;
    } else {
        output::write(&format!("{address}\n"))?;
    }
    note!("Open this address in a browser on this machine. Press Ctrl-C to stop the console.");
    let _terminal = crate::waiting::TerminalInUse::new();
    axum::serve(listener, pages)
        .with_graceful_shutdown(async {
            if let Err(error) = termination_signal().await {
                tracing::error!(error = %error, "cannot listen for signals");
            }
        })
        .await?;
    Ok(Exit::Done)
}

fn pages(source: Source, door: Arc<ConsoleAuth>) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/nodes", get(nodes))
        .route("/nodes/{node}", get(node))
        .route("/reports/{run}", get(report))
        .route("/runs", get(runs))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/timeline.svg", get(timeline))
        .route("/cluster", get(cluster))
        .route("/audit", get(audit))
        .route("/console.css", get(style))
        .route("/console.js", get(script))
        .fallback(not_found)
        .with_state(source)
        .layer(middleware::from_fn_with_state(door, access::guard))
}

async fn overview(State(source): State<Source>) -> Result<Response, PageError> {
    rendered(&overview::page(&source).await?)
}

async fn nodes(
    State(source): State<Source>,
    Query(wanted): Query<nodes::NodeFilter>,
) -> Result<Response, PageError> {
    rendered(&nodes::all(&source, &wanted).await?)
}

async fn node(
    State(source): State<Source>,
    Path(node): Path<String>,
) -> Result<Response, PageError> {
    rendered(&nodes::one(&source, &node).await?)
}

async fn report(
    State(source): State<Source>,
    Path(run): Path<String>,
) -> Result<Response, PageError> {
    rendered(&report::page(&source, &run).await?)
}

async fn runs(State(source): State<Source>) -> Result<Response, PageError> {
    rendered(&runs::all(&source).await?)
}

async fn run(State(source): State<Source>, Path(run): Path<String>) -> Result<Response, PageError> {
    rendered(&runs::one(&source, &run).await?)
}

async fn timeline(
    State(source): State<Source>,
    Path(run): Path<String>,
) -> Result<Response, PageError> {
    let picture = runs::timeline(&source, &run).await?;
    Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response())
}

async fn cluster(State(source): State<Source>) -> Result<Response, PageError> {
    rendered(&cluster::page(&source).await?)
}

async fn audit(
    State(source): State<Source>,
    Query(wanted): Query<audit::AuditFilter>,
) -> Result<Response, PageError> {
    rendered(&audit::page(&source, &wanted).await?)
}

async fn style() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, bunraku_console::STYLE).into_response()
}

async fn script() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, bunraku_console::SCRIPT).into_response()
}

async fn not_found() -> PageError {
    PageError::not_found("page not found")
}
