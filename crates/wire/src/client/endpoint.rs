//! Calls to the endpoints of the API, with types from their definitions.
//!
//! [`Client::call`] is for endpoints without a request body, and [`Client::call_with`] for
//! those with one. Streams, transfers and conditional requests have their own methods.

use bytes::Bytes;
use futures::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BoxError, Call, Client, ClientError, ConditionalReply, Download, Lines};
use crate::api::{Page, PageQuery};
use crate::endpoints::{
    BinaryContent, CatalogDocument, Conditional, Endpoint, Json, JsonLines, JsonObject, List,
    Locate, NoBody, NoContent, Package, Paged, Pem, ReplyKind, RequestKind, Text,
};

/// A request body that the client writes as JSON.
pub trait Encode: RequestKind {
    type Value: Serialize;
}

/// Implements a trait for kinds of messages that carry values of type `T` as JSON.
macro_rules! json_kinds {
    ($trait:ident requires $kind:ident, $bound:ident: $($type:ident => $value:ty),+ $(,)?) => {
        $(impl<T: $bound> $trait for $type<T>
        where
            Self: $kind,
        {
            type Value = $value;
        })+
    };
}

json_kinds!(Encode requires RequestKind, Serialize: Json => T, JsonObject => T);

/// A reply that the client reads as one JSON value.
pub trait Decode: ReplyKind {
    type Value: DeserializeOwned;

    /// Appends a page to the pages before it.
    fn append(_all: &mut Self::Value, _page: Self::Value) {}
}

json_kinds!(
    Decode requires ReplyKind, DeserializeOwned:
    Json => T, JsonObject => T, List => Vec<T>, Conditional => T,
);

impl Decode for CatalogDocument {
    type Value = serde_json::Value;
}

impl Decode for NoContent {
    type Value = ();
}

/// The client follows all pages.
impl<T: DeserializeOwned> Decode for Paged<T>
where
    Self: ReplyKind,
{
    type Value = Vec<T>;

    fn append(all: &mut Vec<T>, page: Vec<T>) {
        all.extend(page);
    }
}

/// A reply that the client reads piece by piece.
pub trait Transfer: ReplyKind {}

impl Transfer for BinaryContent {}
impl Transfer for CatalogDocument {}
impl Transfer for Text<Pem> {}

/// The value that an endpoint replies with.
pub type ReplyOf<E> = <<E as Endpoint>::Reply as Decode>::Value;

impl Client {
    /// Calls an endpoint that takes no body.
    ///
    /// ```no_run
    /// # async fn list(client: &bunraku_wire::Client) -> Result<(), bunraku_wire::ClientError> {
    /// use bunraku_wire::endpoints::ListNodes;
    /// let nodes = client.call(ListNodes).await?;
    /// # Ok(()) }
    /// ```
    pub async fn call<L>(&self, at: L) -> Result<ReplyOf<L::Endpoint>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply: Decode>>,
    {
        type Reply<L> = <<L as Locate>::Endpoint as Endpoint>::Reply;
        if !Reply::<L>::IS_PAGED {
            return self.json(new_call(at)).await;
        }
        let (verb, location) = (L::Endpoint::DEFINITION.verb, at.location());
        let mut query = PageQuery::default();
        let (mut all, mut next) = self.page(verb.into(), location.as_str(), &query).await?;
        while let Some(after) = next.0.filter(|next| query.after.as_ref() != Some(next)) {
            query.after = Some(after);
            let page;
            (page, next) = self.page(verb.into(), location.as_str(), &query).await?;
            Reply::<L>::append(&mut all, page);
        }
        Ok(all)
    }

    /// Calls an endpoint that lists something, and returns the first entries: at most `limit`, or
    /// all without one.
    pub async fn first<L, T>(&self, at: L, limit: Option<usize>) -> Result<Page<T>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply = Paged<T>>>,
        T: DeserializeOwned,
    {
        let (verb, location) = (L::Endpoint::DEFINITION.verb, at.location());
        let mut found = Page {
            items: Vec::new(),
            next: None,
            total: None,
        };
        loop {
            let left = limit.map(|limit| limit.saturating_sub(found.items.len()));
            if left == Some(0) {
                return Ok(found);
            }
            let query = PageQuery {
                limit: left,
                after: found.next.take(),
            };
            let (page, (next, total)): (Vec<T>, _) =
                self.page(verb.into(), location.as_str(), &query).await?;
            found.items.extend(page);
            (found.next, found.total) = (next, total.or(found.total));
            if found.next.is_none() || found.next == query.after {
                return Ok(found);
            }
        }
    }

    async fn page<T: DeserializeOwned>(
        &self,
        method: http::Method,
        location: &str,
        query: &PageQuery,
    ) -> Result<(T, PageHeaders), ClientError> {
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        let between = match (query.is_empty(), location.contains('?')) {
            (true, _) => "",
            (false, true) => "&",
            (false, false) => "?",
        };
        let call = Call::new(method, &format!("{location}{between}{query}"));
        let mut headers = (None, None);
        let value = self
            .json_and(call, |response| headers = page_headers(response))
            .await?;
        Ok((value, headers))
    }

    /// Calls an endpoint with a body. A POST is never sent twice.
    pub async fn call_with<L, B>(
        &self,
        at: L,
        body: &B,
    ) -> Result<ReplyOf<L::Endpoint>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request: Encode<Value = B>, Reply: Decode>>,
        B: Serialize,
    {
        self.json(new_call(at).with_json(body)?).await
    }

    /// Calls an endpoint, unless its reply still has this entity tag.
    pub async fn call_if_changed<L, T>(
        &self,
        at: L,
        etag: Option<&str>,
    ) -> Result<ConditionalReply<T>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply = Conditional<T>>>,
        T: DeserializeOwned,
    {
        self.get_if_changed(at.location().as_str(), etag).await
    }

    /// Opens a stream of JSON lines.
    pub async fn follow<L, T>(&self, at: L) -> Result<Lines<T>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply = JsonLines<T>>>,
        T: DeserializeOwned,
    {
        self.stream(at.location().as_str()).await
    }

    /// Fetches content piece by piece.
    pub async fn fetch_pieces<L>(&self, at: L) -> Result<Download, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply: Transfer>>,
    {
        self.download(at.location().as_str()).await
    }

    /// Fetches content piece by piece. It may be compressed with gzip: check
    /// its encoding.
    pub async fn fetch_compressed<L>(&self, at: L) -> Result<Download, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = NoBody, Reply: Transfer>>,
    {
        self.download_compressed(at.location().as_str()).await
    }

    /// Sends a package piece by piece.
    pub async fn send_pieces<L, E>(
        &self,
        at: L,
        pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Result<ReplyOf<L::Endpoint>, ClientError>
    where
        L: Locate<Endpoint: Endpoint<Request = Package, Reply: Decode>>,
        E: Into<BoxError> + 'static,
    {
        let verb = L::Endpoint::DEFINITION.verb;
        self.upload_stream(verb.into(), at.location().as_str(), pieces)
            .await
    }
}

/// The cursor of the next page, and the number of entries in the whole list.
type PageHeaders = (Option<String>, Option<usize>);

fn page_headers(response: &http::HeaderMap) -> PageHeaders {
    let text = |name| Some(response.get(name)?.to_str().ok()?.to_owned());
    let total = text(crate::api::TOTAL_HEADER);
    (
        text(crate::api::NEXT_PAGE_HEADER),
        total.and_then(|total| total.parse().ok()),
    )
}

fn new_call<L: Locate>(at: L) -> Call {
    let verb = L::Endpoint::DEFINITION.verb;
    Call::new(verb.into(), at.location().as_str())
}
