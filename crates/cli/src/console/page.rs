//! The common parts of all pages: their data source, their frame, and the page that replaces one
//! that cannot be rendered.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use bunraku_console::{Crumb, Frame, ProblemPage, Section, Template, Tone};
use bunraku_model::NodeName;
use bunraku_wire::api::cluster::ClusterStatus;
use bunraku_wire::client::{Decode, ReplyOf};
use bunraku_wire::endpoints::{Endpoint, Locate, NoBody, ShowCluster};
use bunraku_wire::{Client, ClientError};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::cluster_view::is_whole;
use crate::output::count;

/// The data source of the pages.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) operator: NodeName,
}

/// The servers, as far as the operator may see them.
pub(super) enum Servers {
    Single,
    Cluster(Box<ClusterStatus>),
    /// The access rules hide them.
    Hidden,
}

impl Source {
    pub(super) async fn call<L>(&self, at: L) -> Result<ReplyOf<L::Endpoint>, PageError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply: Decode>>,
    {
        self.client.call(at).await.map_err(PageError::from)
    }

    pub(super) async fn servers(&self) -> Result<Servers, PageError> {
        match self.client.call(ShowCluster).await {
            Ok(status) => Ok(Servers::Cluster(Box::new(status))),
            // The server is not a member of a cluster.
            Err(error) if error.status() == Some(409) => Ok(Servers::Single),
            Err(error) if error.status() == Some(403) => Ok(Servers::Hidden),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn frame(&self, title: &str, section: Section, servers: &Servers) -> Frame {
        let (health, health_tone) = health(servers);
        Frame {
            title: title.to_owned(),
            section,
            crumbs: Vec::new(),
            health,
            health_tone,
            operator: self.operator.to_string(),
            at: local(Timestamp::now()),
            warning: warning(servers),
        }
    }

    /// Returns the frame of a page below the section's own page.
    pub(super) fn frame_below(&self, title: &str, section: Section, servers: &Servers) -> Frame {
        let crumb = Crumb {
            title: section.title().to_owned(),
            path: section.path().to_owned(),
        };
        Frame {
            crumbs: vec![crumb],
            ..self.frame(title, section, servers)
        }
    }
}

fn health(servers: &Servers) -> (String, Tone) {
    let status = match servers {
        Servers::Single => return ("one server".to_owned(), Tone::Good),
        Servers::Hidden => return ("limited access".to_owned(), Tone::Quiet),
        Servers::Cluster(status) => status,
    };
    let servers = count(status.members.len(), "server");
    let tone = tone_of(status);
    let health = match tone {
        Tone::Bad => "no majority".to_owned(),
        Tone::Good => format!("{servers}, healthy"),
        _ => format!("{servers}, degraded"),
    };
    (health, tone)
}

/// Returns the tone for the cluster status.
pub(super) fn tone_of(status: &ClusterStatus) -> Tone {
    match (status.without_majority_seconds, is_whole(status)) {
        (Some(_), _) => Tone::Bad,
        (None, true) => Tone::Good,
        (None, false) => Tone::Warn,
    }
}

fn warning(servers: &Servers) -> Option<String> {
    let Servers::Cluster(status) = servers else {
        return None;
    };
    let lasting = status.without_majority_seconds?;
    Some(format!(
        "The datastores have had no majority for {lasting} s. This page may be stale, and nothing can be changed."
    ))
}

/// Removes the backticks with which terminal output marks code.
pub(super) fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Formats a time in this machine's time zone.
pub(super) fn local(time: Timestamp) -> String {
    let zoned = time.to_zoned(TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(super) fn rendered(page: &impl Template) -> Result<Response, PageError> {
    match page.render() {
        Ok(text) => Ok(Html(text).into_response()),
        Err(error) => Err(PageError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            title: "Cannot render this page",
            message: error.to_string(),
            hint: None,
        }),
    }
}

/// The reason why a page cannot be shown.
#[derive(Debug)]
pub(super) struct PageError {
    status: StatusCode,
    title: &'static str,
    message: String,
    hint: Option<String>,
}

impl PageError {
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            title: "Not found",
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn forbidden(message: &str, hint: &str) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            title: "Access denied",
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        }
    }
}

impl From<ClientError> for PageError {
    fn from(error: ClientError) -> Self {
        let (status, title) = match error.status() {
            Some(403) => (StatusCode::FORBIDDEN, "Access denied"),
            Some(404) => (StatusCode::NOT_FOUND, "Not found"),
            Some(_) => (StatusCode::BAD_GATEWAY, "The server refused the request"),
            None => (StatusCode::BAD_GATEWAY, "No server answers"),
        };
        let mut message = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            message.push_str(&format!(": {source}"));
        }
        Self {
            status,
            title,
            message,
            hint: error.hint(),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let page = ProblemPage {
            title: self.title.to_owned(),
            message: plain(&self.message),
            hint: self.hint.as_deref().map(plain),
        };
        let text = page.render().unwrap_or_else(|error| error.to_string());
        (self.status, Html(text)).into_response()
    }
}
