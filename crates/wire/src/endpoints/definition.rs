//! What an endpoint is, and the macro that defines some.

use std::fmt;

use bunraku_model::access::AccessVerb;
use serde_json::Value;

use super::kinds::{QueryParameters, ReplyKind, RequestKind};
use super::location::Location;
use super::openapi::Schemas;
use super::path::PathParameters;

/// One endpoint: a unit type that names its messages.
///
/// Only [`endpoints!`] implements it, so every endpoint is in [`super::all`].
pub trait Endpoint: Copy + Send + Sync + 'static + sealed::Sealed {
    /// The values in the path, in its order; `()` for none.
    type Path: PathParameters;
    /// The parameters after the `?`.
    type Query: QueryParameters;
    type Request: RequestKind;
    type Reply: ReplyKind;

    const DEFINITION: Definition;

    /// The endpoint with these values in its path.
    fn at(self, path: <Self::Path as PathParameters>::Borrowed<'_>) -> Location<Self>
    where
        Self::Query: Default,
    {
        Location::new::<Self>(path, &Self::Query::default())
    }

    /// The endpoint with these values in its path and query.
    fn with_query(
        self,
        path: <Self::Path as PathParameters>::Borrowed<'_>,
        query: &Self::Query,
    ) -> Location<Self> {
        Location::new::<Self>(path, query)
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Everything about an endpoint but its types.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name of the type, such as `ListNodes`.
    pub name: &'static str,
    pub verb: Verb,
    /// The path, with `{node}` for a value.
    pub template: &'static str,
    pub access: Access,
    /// What an operator's rules must allow. `None` if no operator may call it, or if everybody may.
    pub needs: Option<Needs>,
    /// The group that it belongs to in the OpenAPI document.
    pub tag: &'static str,
    /// The doc comment of the type.
    pub documentation: &'static str,
    pub old_data: OldData,
    pub body_limit: BodyLimit,
    pub audited: Audited,
    /// The kind of object that a change is made to, and the member of the request that names it.
    /// Without it, the first value in the path is the object.
    pub object: Option<(&'static str, &'static str)>,
    /// The members of the request that the audit log contains. Never a secret.
    pub details: &'static [&'static str],
    /// Parameters, body and replies for the OpenAPI document.
    pub(super) describe: fn(&mut Schemas) -> Value,
    /// Whether bytes are a body of this endpoint.
    pub(super) can_read: fn(&[u8]) -> bool,
}

impl Definition {
    /// Returns whether these bytes are a body that the endpoint accepts.
    pub fn can_read(&self, body: &[u8]) -> bool {
        (self.can_read)(body)
    }

    /// The names of the values in the path, in its order.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        let pieces = self.template.split('{').skip(1);
        pieces.filter_map(|piece| piece.split_once('}').map(|(name, _)| name))
    }

    /// The name of the action in the audit log: the name of the type in lower case, with hyphens.
    pub fn action(&self) -> String {
        let mut action = String::new();
        for (place, letter) in self.name.char_indices() {
            if letter.is_ascii_uppercase() && place > 0 {
                action.push('-');
            }
            action.push(letter.to_ascii_lowercase());
        }
        action
    }

    /// The first paragraph of the documentation.
    pub fn summary(&self) -> String {
        self.paragraphs().next().unwrap_or_default()
    }

    /// The other paragraphs of the documentation.
    pub fn details(&self) -> String {
        let rest: Vec<String> = self.paragraphs().skip(1).collect();
        rest.join("\n\n")
    }

    fn paragraphs(&self) -> impl Iterator<Item = String> {
        let paragraphs = self
            .documentation
            .split("\n \n")
            .flat_map(|text| text.split("\n\n"));
        paragraphs
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|text| !text.is_empty())
    }
}

/// The HTTP method of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

impl From<Verb> for http::Method {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Get => Self::GET,
            Verb::Post => Self::POST,
            Verb::Put => Self::PUT,
            Verb::Delete => Self::DELETE,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The callers that an endpoint answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Anybody, without a certificate.
    Anonymous,
    /// Anybody with a valid certificate.
    AnyRole,
    Operator,
    /// Operators and servers.
    OperatorOrServer,
    /// The node in the path and nobody else.
    OwnNode,
    OwnNodeOrOperator,
    /// Any node, and operators. What a node gets or may change is decided by the service.
    NodeOrOperator,
}

impl Access {
    /// The callers in words, for the OpenAPI document.
    pub fn description(self) -> &'static str {
        match self {
            Self::Anonymous => "anybody, without a certificate",
            Self::AnyRole => "anybody with a valid certificate",
            Self::Operator => "operators",
            Self::OperatorOrServer => "operators and servers",
            Self::OwnNode => "the node in the path",
            Self::OwnNodeOrOperator => "the node in the path, and operators",
            Self::NodeOrOperator => "nodes and operators",
        }
    }
}

/// What an operator's access rules must allow for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    pub verb: AccessVerb,
    pub place: ScopePlace,
}

/// Where a request says what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopePlace {
    /// Nowhere: it is about everything.
    Everything,
    /// `{environment}` in the path.
    Environment,
    /// `{node}` in the path.
    Node,
    /// In the body, the query or the stored data. The handler checks everything that it touches,
    /// and shows only what the caller may view.
    Each,
}

impl ScopePlace {
    /// The place in words, for the OpenAPI document.
    pub fn description(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Environment => "the environment in the path",
            Self::Node => "the node in the path",
            Self::Each => "each node or environment concerned",
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {}", self.verb, self.place.description())
    }
}

/// Whether an endpoint may answer from data that may be stale, while no
/// majority of the datastores answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OldData {
    /// It only shows something.
    Allowed,
    /// It changes something, or somebody acts on the reply.
    Refused,
}

impl OldData {
    /// The rule for endpoints that do not state one.
    pub(super) const fn usual(verb: Verb) -> Self {
        match verb {
            Verb::Get => Self::Allowed,
            Verb::Post | Verb::Put | Verb::Delete => Self::Refused,
        }
    }
}

/// Whether calls of an endpoint are in the audit log. Refused callers always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audited {
    /// It changes nothing.
    No,
    /// It changes something: recorded before it begins, and with its outcome before the reply.
    Change,
    /// A node's normal operation: facts, reports, presence, renewals of leases.
    Routine,
    /// The service records the change in the transaction that makes it. Endpoints that anybody may
    /// call need this: a record before the check of a token or signature would let strangers fill
    /// the log.
    ByService,
}

impl Audited {
    /// The rule for endpoints that do not state one.
    pub(super) const fn usual(verb: Verb) -> Self {
        match verb {
            Verb::Get => Self::No,
            Verb::Post | Verb::Put | Verb::Delete => Self::Change,
        }
    }
}

/// The server's limit for the size of the request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLimit {
    Usual,
    /// Fact sets, and plans of thousands of nodes.
    Large,
    /// Module packages.
    Package,
}

/// Defines endpoints, and `DEFINITIONS` with all of them.
macro_rules! endpoints {
    (tag $tag:literal; $(
        $(#[doc = $doc:literal])+
        $name:ident: $verb:ident $template:literal {
            access: $access:ident,
            $(needs: $need:ident on $place:ident,)?
            $(path: $path:ty,)?
            $(query: $query:ty,)?
            $(body: $body:ty,)?
            reply: $reply:ty,
            $(old_data: $old_data:ident,)?
            $(body_limit: $limit:ident,)?
            $(audited: $audited:ident,)?
            $(object: ($kind:literal, $member:literal),)?
            $(details: [$($detail:literal),+],)?
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl $crate::endpoints::definition::sealed::Sealed for $name {}

            impl $crate::endpoints::Endpoint for $name {
                type Path = $crate::endpoints::definition::first_type!($($path,)? (),);
                type Query =
                    $crate::endpoints::definition::first_type!($($query,)? $crate::endpoints::NoQuery,);
                type Request =
                    $crate::endpoints::definition::first_type!($($body,)? $crate::endpoints::NoBody,);
                type Reply = $reply;

                const DEFINITION: $crate::endpoints::Definition = $crate::endpoints::Definition {
                    name: stringify!($name),
                    verb: $crate::endpoints::Verb::$verb,
                    template: $template,
                    access: $crate::endpoints::Access::$access,
                    needs: $crate::endpoints::definition::first_value!(
                        $(Some($crate::endpoints::Needs {
                            verb: ::bunraku_model::access::AccessVerb::$need,
                            place: $crate::endpoints::ScopePlace::$place,
                        }),)?
                        None,
                    ),
                    tag: $tag,
                    documentation: concat!($($doc, "\n"),+),
                    old_data: $crate::endpoints::definition::first_value!(
                        $($crate::endpoints::OldData::$old_data,)?
                        $crate::endpoints::OldData::usual($crate::endpoints::Verb::$verb),
                    ),
                    body_limit: $crate::endpoints::definition::first_value!(
                        $($crate::endpoints::BodyLimit::$limit,)?
                        $crate::endpoints::BodyLimit::Usual,
                    ),
                    audited: $crate::endpoints::definition::first_value!(
                        $($crate::endpoints::Audited::$audited,)?
                        $crate::endpoints::Audited::usual($crate::endpoints::Verb::$verb),
                    ),
                    object: $crate::endpoints::definition::first_value!(
                        $(Some(($kind, $member)),)?
                        None,
                    ),
                    details: $crate::endpoints::definition::first_value!(
                        $(&[$($detail),+],)?
                        &[],
                    ),
                    describe: $crate::endpoints::openapi::describe::<$name>,
                    can_read: <<$name as $crate::endpoints::Endpoint>::Request
                        as $crate::endpoints::RequestKind>::can_read,
                };
            }
        )+

        pub(super) const DEFINITIONS: &[$crate::endpoints::Definition] =
            &[$(<$name as $crate::endpoints::Endpoint>::DEFINITION),+];
    };
}

macro_rules! first_type {
    ($first:ty, $($rest:ty,)*) => {
        $first
    };
}

macro_rules! first_value {
    ($first:expr, $($rest:expr,)*) => {
        $first
    };
}

pub(super) use {endpoints, first_type, first_value};
