//! Access control. A browser acts for every site that it has open, and every user of this machine
//! can reach its loopback address. So the console requires a key, which the browser keeps for this
//! console only. The host name that the browser used must be the console's own.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bunraku_model::ContentId;
use uuid::Uuid;

use super::page::PageError;

pub(super) struct ConsoleAuth {
    key: String,
    /// The name of the cookie. Browsers keep cookies by host, not by port, so each console has its
    /// own.
    cookie: String,
    hosts: [String; 2],
}

impl ConsoleAuth {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            key: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
            cookie: format!("bunraku_console_{}", address.port()),
            hosts: [address.to_string(), format!("localhost:{}", address.port())],
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Compares hashes, so that the duration reveals nothing about the key.
    fn is_key(&self, given: &str) -> bool {
        ContentId::of(given.as_bytes()) == ContentId::of(self.key.as_bytes())
    }

    fn is_ours(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
        host.is_some_and(|host| self.hosts.iter().any(|own| own == host))
    }

    fn has_valid_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|it| it.to_str().ok());
        cookies
            .flat_map(|text| text.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .any(|(name, value)| name == self.cookie && self.is_key(value))
    }

    /// Accepts the key from the address and redirects, so that the address bar no longer shows it.
    fn let_in(&self, path: &str) -> Response {
        // A path with two slashes would lead to another host.
        let path = if path.starts_with("//") { "/" } else { path };
        let cookie = format!(
            "{}={}; HttpOnly; SameSite=Strict; Path=/",
            self.cookie, self.key
        );
        let headers = [
            (header::SET_COOKIE, cookie),
            (header::LOCATION, path.to_owned()),
        ];
        (StatusCode::SEE_OTHER, headers).into_response()
    }

    fn check(&self, request: &Request) -> Result<Option<Response>, PageError> {
        if !self.is_ours(request.headers()) {
            return Err(PageError::forbidden(
                "this console does not serve that host name",
                "open the address that `bunraku console` printed",
            ));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(PageError::forbidden(
                "the console is read-only",
                "use the CLI to make changes",
            ));
        }
        let query = request.uri().query().unwrap_or_default();
        if let Some(given) = query.strip_prefix("key=") {
            return if self.is_key(given) {
                Ok(Some(self.let_in(request.uri().path())))
            } else {
                Err(no_key())
            };
        }
        if self.has_valid_cookie(request.headers()) {
            Ok(None)
        } else {
            Err(no_key())
        }
    }
}

fn no_key() -> PageError {
    PageError::forbidden(
        "this browser has no access key for this console",
        "open the address that `bunraku console` printed when it started",
    )
}

/// Guards every page.
pub(super) async fn guard(
    State(door): State<Arc<ConsoleAuth>>,
    request: Request,
    next: Next,
) -> Response {
    // The style and script of the pages are not secret, and the refusal page needs them too.
    let open = ["/console.css", "/console.js"].contains(&request.uri().path());
    let mut response = match door.check(&request) {
        Ok(None) => next.run(request).await,
        Err(_) if open && door.is_ours(request.headers()) => next.run(request).await,
        Ok(Some(response)) => response,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, bunraku_console::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
