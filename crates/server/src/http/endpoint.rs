//! Handlers of endpoints: each takes a [`Call`] and returns the endpoint's reply.
//!
//! Each handler is registered for an endpoint that `wire` defines. That definition determines
//! the types of its input and output. This is the only way to add a route.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;

use axum::RequestPartsExt;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use bunraku_control::Reach;
use bunraku_model::NodeName;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::{NEXT_PAGE_HEADER, Page, PageQuery, TOTAL_HEADER};
use bunraku_wire::endpoints::{
    BinaryContent, BodyLimit, CatalogDocument, Conditional, Definition, Endpoint, Json, JsonLines,
    JsonObject, List, MediaType, NoBody, NoContent, Package, Paged, PathParameters, PingAnswers,
    ReplyKind, RequestKind, ScopePlace, SignedDelivery, Text, Verb,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::audit::{self, AuditNotes, RecordedRequest};
use super::caller::{Caller, ConnectionInfo};
use super::permit::Permit;
use super::reply::ErrorReply;
use super::router::RouterOptions;
use super::routes::Services;

/// One parsed request to an endpoint.
pub(crate) struct Call<E: Endpoint<Request: Receive>> {
    pub(crate) services: Services,
    pub(crate) path: E::Path,
    pub(crate) query: E::Query,
    /// The page of a list that is paged.
    pub(crate) page: PageQuery,
    pub(crate) body: <E::Request as Receive>::Body,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// What the handler adds to the audit log.
    pub(crate) notes: AuditNotes,
    caller: Option<Caller>,
    permit: Option<Permit>,
    address: Option<String>,
}

/// The result of a handler.
pub(crate) type HandlerResult<E> = Result<<<E as Endpoint>::Reply as Respond>::Value, ErrorReply>;

impl<E: Endpoint<Request: Receive>> Call<E> {
    /// Returns the holder of the certificate. Fails only for anonymous endpoints.
    pub(crate) fn caller(&self) -> Result<&Caller, ErrorReply> {
        self.caller.as_ref().ok_or_else(|| {
            ErrorReply::unauthenticated("this needs a client certificate", "join first")
        })
    }

    /// Returns the caller's name.
    pub(crate) fn by(&self) -> Result<&str, ErrorReply> {
        self.caller().map(|caller| caller.name.as_str())
    }

    /// Returns what the rules allow the caller, if the caller is an operator. What nodes may do is
    /// decided by the services.
    pub(crate) fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Refuses an operator who may not do this to all of the nodes.
    pub(crate) fn require_nodes<'a>(
        &'a self,
        verb: AccessVerb,
        nodes: impl IntoIterator<Item = &'a NodeName>,
    ) -> BoxFuture<'a, Result<(), ErrorReply>> {
        match &self.permit {
            Some(permit) => permit.require_nodes(verb, nodes),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    /// Refuses an operator who may not do this to the target.
    pub(crate) async fn require(
        &self,
        verb: AccessVerb,
        target: AccessTarget,
    ) -> Result<(), ErrorReply> {
        match &self.permit {
            Some(permit) => permit.require(verb, vec![target]).await,
            None => Ok(()),
        }
    }

    /// Returns what an operator may view, or `None` if that is everything.
    pub(crate) async fn view(&self) -> Result<Option<Reach>, ErrorReply> {
        let Some(permit) = &self.permit else {
            return Ok(None);
        };
        let view = permit.reach(AccessVerb::View).await?;
        Ok((!view.is_everything()).then_some(view))
    }

    /// Returns whether the caller may see secrets of a node.
    pub(crate) async fn may_view_secrets(&self, node: &NodeName) -> Result<bool, ErrorReply> {
        match &self.permit {
            Some(permit) => {
                let secrets = permit.require_nodes(AccessVerb::ViewSecrets, [node]);
                Ok(secrets.await.is_ok())
            }
            None => Ok(true),
        }
    }

    /// Returns the caller's address, for logs and lists.
    pub(crate) fn address(&self) -> &str {
        self.address.as_deref().unwrap_or("unknown")
    }

    /// Reads a request. Keeps the parts for its record, even if it cannot be read.
    async fn read(
        services: Services,
        request: Request,
        limit: usize,
        recorded: &mut RecordedRequest,
    ) -> Result<Self, ErrorReply> {
        let (mut parts, body) = request.into_parts();
        let path = path_of::<E>(&mut parts, recorded).await?;
        let query = from_query(&parts)?;
        let page = if E::Reply::IS_PAGED {
            from_query(&parts)?
        } else {
            PageQuery::default()
        };
        let extensions = &parts.extensions;
        let address = extensions.get::<ConnectionInfo>();
        Ok(Self {
            services,
            path,
            query,
            page,
            caller: extensions.get::<Caller>().cloned(),
            permit: extensions.get::<Permit>().cloned(),
            address: address.map(|connection| connection.address.ip().to_string()),
            body: E::Request::receive(body, limit, &mut recorded.body).await?,
            notes: AuditNotes::default(),
            method: parts.method,
            headers: parts.headers,
        })
    }
}

fn from_query<T: DeserializeOwned>(parts: &Parts) -> Result<T, ErrorReply> {
    serde_urlencoded::from_str(parts.uri.query().unwrap_or_default()).map_err(|error| {
        ErrorReply::invalid(format!("the query parameters are not valid: {error}"))
    })
}

async fn path_of<E: Endpoint>(
    parts: &mut Parts,
    recorded: &mut RecordedRequest,
) -> Result<E::Path, ErrorReply> {
    let values = parts
        .extract::<RawPathParams>()
        .await
        .map_err(|error| ErrorReply::invalid(error.to_string()))?;
    recorded.path = values
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let values: Vec<&str> = values.iter().map(|(_, value)| value).collect();
    E::Path::parse(&values).map_err(ErrorReply::invalid)
}

/// A kind of request body that the server can read.
pub(crate) trait Receive: RequestKind {
    type Body: Send;

    /// Reads a body, and keeps its bytes for the record of the request if it is JSON.
    fn receive(
        body: Body,
        limit: usize,
        kept: &mut Bytes,
    ) -> impl Future<Output = Result<Self::Body, ErrorReply>> + Send;
}

impl Receive for NoBody {
    type Body = ();

    async fn receive(_: Body, _: usize, _: &mut Bytes) -> Result<(), ErrorReply> {
        Ok(())
    }
}

impl Receive for PingAnswers {
    type Body = Body;

    async fn receive(body: Body, _: usize, _: &mut Bytes) -> Result<Body, ErrorReply> {
        Ok(body)
    }
}

/// Reads a body as JSON.
macro_rules! receive_json {
    ($($kind:ident),*) => {$(
        impl<T: DeserializeOwned + Send + 'static> Receive for $kind<T>
        where
            Self: RequestKind,
        {
            type Body = T;

            async fn receive(
                body: Body,
                limit: usize,
                kept: &mut Bytes,
            ) -> Result<T, ErrorReply> {
                *kept = read_body(body, limit).await?;
                decoded(kept)
            }
        }
    )*};
}

receive_json!(Json, JsonObject);

impl Receive for Package {
    type Body = Bytes;

    async fn receive(body: Body, limit: usize, _: &mut Bytes) -> Result<Bytes, ErrorReply> {
        read_body(body, limit).await
    }
}

impl Receive for SignedDelivery {
    type Body = Bytes;

    async fn receive(body: Body, limit: usize, _: &mut Bytes) -> Result<Bytes, ErrorReply> {
        read_body(body, limit).await
    }
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorReply> {
    serde_json::from_slice(bytes)
        .map_err(|error| ErrorReply::invalid(format!("the request body is invalid: {error}")))
}

async fn read_body(body: Body, limit: usize) -> Result<Bytes, ErrorReply> {
    axum::body::to_bytes(body, limit).await.map_err(|error| {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            if error.is::<http_body_util::LengthLimitError>() {
                return ErrorReply::too_large(limit);
            }
            cause = error.source();
        }
        ErrorReply::invalid("the request body was incomplete".to_owned())
    })
}

/// A kind of reply that the server can write.
pub(crate) trait Respond: ReplyKind {
    type Value: Send;

    fn respond(value: Self::Value) -> Response;
}

/// Cuts a page out of a whole list that is sorted by `key`.
pub(crate) fn cut<T>(
    query: &PageQuery,
    items: Vec<T>,
    key: impl Fn(&T) -> String,
) -> Result<Page<T>, ErrorReply> {
    query
        .cut(items, key)
        .map_err(|error| ErrorReply::invalid(error.to_string()))
}

/// Writes a reply as JSON.
macro_rules! respond_with_json {
    ($($kind:ident => $value:ty),* $(,)?) => {$(
        impl<T: Serialize + Send> Respond for $kind<T>
        where
            Self: ReplyKind,
        {
            type Value = $value;

            fn respond(value: $value) -> Response {
                axum::Json(value).into_response()
            }
        }
    )*};
}

respond_with_json! {
    Json => T,
    JsonObject => T,
    List => Vec<T>,
}

impl<T: Serialize + Send> Respond for Paged<T>
where
    Self: ReplyKind,
{
    type Value = Page<T>;

    fn respond(page: Page<T>) -> Response {
        let mut reply = axum::Json(page.items).into_response();
        let total = page.total.map(|total| total.to_string());
        for (name, value) in [(NEXT_PAGE_HEADER, page.next), (TOTAL_HEADER, total)] {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                reply.headers_mut().insert(name, value);
            }
        }
        reply
    }
}

impl Respond for NoContent {
    type Value = ();

    fn respond((): ()) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl<M: MediaType> Respond for Text<M> {
    type Value = String;

    fn respond(text: String) -> Response {
        ([(header::CONTENT_TYPE, M::NAME)], text).into_response()
    }
}

impl<T> Respond for JsonLines<T>
where
    Self: ReplyKind,
{
    type Value = LineBody<T>;

    fn respond(lines: LineBody<T>) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "application/x-ndjson"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, lines.body).into_response()
    }
}

/// Implements [`Respond`] for replies whose handlers write the head themselves: entity tags,
/// ranges, encodings.
macro_rules! respond_with_head {
    ($(($($generics:tt)*) $kind:ty),+) => {
        $(impl $($generics)* Respond for $kind where Self: ReplyKind {
            type Value = Response;

            fn respond(response: Response) -> Response {
                response
            }
        })+
    };
}

respond_with_head!((<T>) Conditional<T>, () CatalogDocument, () BinaryContent);

/// A stream of values, one per line.
pub(crate) struct LineBody<T> {
    body: Body,
    values: PhantomData<fn() -> T>,
}

impl<T: Serialize> LineBody<T> {
    /// Sends values as they arrive. `None` is a heartbeat.
    pub(crate) fn new(values: impl Stream<Item = Option<T>> + Send + 'static) -> Self {
        let lines = values.map(|value| {
            Ok::<_, Infallible>(value.map_or(Bytes::from_static(b"\n"), |value| line(&value)))
        });
        Self::from_body(Body::from_stream(lines))
    }

    /// Wraps a body that already consists of such lines.
    pub(crate) fn from_body(body: Body) -> Self {
        Self {
            body,
            values: PhantomData,
        }
    }
}

fn line<T: Serialize>(value: &T) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("messages are plain data that JSON can hold");
    line.push(b'\n');
    Bytes::from(line)
}

/// Routes with their definitions.
pub(crate) struct Routes {
    router: Router<Services>,
    options: RouterOptions,
    registered: Vec<Definition>,
}

impl Routes {
    pub(crate) fn new(options: &RouterOptions) -> Self {
        Self {
            router: Router::new(),
            options: options.clone(),
            registered: Vec::new(),
        }
    }

    /// Adds the handler of an endpoint.
    pub(crate) fn add<E, F, A>(mut self, _: E, handler: F) -> Self
    where
        E: Endpoint<Request: Receive, Reply: Respond>,
        F: Fn(Call<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = HandlerResult<E>> + Send + 'static,
    {
        let limit = self.options.limit(E::DEFINITION.body_limit);
        let serve = move |State(services): State<Services>, request: Request| {
            let handler = handler.clone();
            async move {
                let mut recorded = RecordedRequest {
                    definition: &E::DEFINITION,
                    path: Vec::new(),
                    body: Bytes::new(),
                };
                let call =
                    match Call::<E>::read(services.clone(), request, limit, &mut recorded).await {
                        Ok(call) => call,
                        Err(refusal) => {
                            audit::record_refusal(&services, &recorded, &refusal).await;
                            return Err(refusal);
                        }
                    };
                let (notes, permit) = (call.notes.clone(), call.permit.clone());
                let value = audit::recorded(&services, recorded, notes, handler(call)).await?;
                refuse_unchecked::<E>(permit.as_ref())?;
                Ok::<_, ErrorReply>(E::Reply::respond(value))
            }
        };
        let methods = on(filter(E::DEFINITION.verb), serve);
        self.router = self.router.route(E::DEFINITION.template, methods);
        self.registered.push(E::DEFINITION);
        self
    }

    pub(crate) fn into_router(self) -> Router<Services> {
        self.router
    }

    #[cfg(test)]
    pub(crate) fn registered(&self) -> &[Definition] {
        &self.registered
    }
}

/// Withholds the reply of a handler that should have checked what it touched and did not.
fn refuse_unchecked<E: Endpoint>(permit: Option<&Permit>) -> Result<(), ErrorReply> {
    let must_ask = matches!(E::DEFINITION.needs, Some(needs) if needs.place == ScopePlace::Each);
    if must_ask && permit.is_some_and(|permit| !permit.was_asked()) {
        let endpoint = E::DEFINITION.name;
        tracing::error!(endpoint, "the handler did not check what the caller may do");
        return Err(ErrorReply::internal());
    }
    Ok(())
}

fn filter(verb: Verb) -> MethodFilter {
    match verb {
        Verb::Get => MethodFilter::GET,
        Verb::Post => MethodFilter::POST,
        Verb::Put => MethodFilter::PUT,
        Verb::Delete => MethodFilter::DELETE,
    }
}

impl RouterOptions {
    fn limit(&self, kind: BodyLimit) -> usize {
        match kind {
            BodyLimit::Usual => self.body_limit,
            BodyLimit::Large => self.facts_limit,
            BodyLimit::Package => bunraku_compile::modules::LARGEST_PACKAGE as usize,
        }
    }
}
