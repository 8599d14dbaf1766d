//! An endpoint with the values of one request in its path and query.

use std::fmt;
use std::marker::PhantomData;

use super::definition::Endpoint;
use super::path::{self, PathParameters};

/// The path and query of a request to one endpoint.
pub struct Location<E> {
    path: String,
    endpoint: PhantomData<fn() -> E>,
}

impl<E> Location<E> {
    pub(super) fn new<T>(
        values: <T::Path as PathParameters>::Borrowed<'_>,
        query: &T::Query,
    ) -> Self
    where
        T: Endpoint,
    {
        let mut path = path::fill(T::DEFINITION.template, &T::Path::write(values));
        let query = serde_urlencoded::to_string(query)
            .expect("query parameters are flat structs of scalars");
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        Self {
            path,
            endpoint: PhantomData,
        }
    }

    /// Path and query as they are in the request.
    pub fn as_str(&self) -> &str {
        &self.path
    }
}

impl<E> Clone for Location<E> {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            endpoint: PhantomData,
        }
    }
}

impl<E> fmt::Display for Location<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl<E> fmt::Debug for Location<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({})", self.path)
    }
}

/// A [`Location`], or an endpoint that needs no values.
pub trait Locate {
    type Endpoint: Endpoint;

    fn location(self) -> Location<Self::Endpoint>;
}

impl<E: Endpoint> Locate for Location<E> {
    type Endpoint = E;

    fn location(self) -> Location<E> {
        self
    }
}

impl<E: Endpoint> Locate for &Location<E> {
    type Endpoint = E;

    fn location(self) -> Location<E> {
        self.clone()
    }
}

impl<E: Endpoint<Path = (), Query: Default>> Locate for E {
    type Endpoint = E;

    fn location(self) -> Location<E> {
        self.at(())
    }
}
