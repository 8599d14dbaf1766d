//! Reactors, and the webhook that reports outside events to them.

use super::definition::endpoints;
use super::{Json, List, SignedDelivery};
use crate::api::reactors::{
    EventHookReply, ReactorStatus, ReactorVerdict, TestReactors as TestReactorsRequest,
};

endpoints! {
    tag "reactors";

    /// List the reactors of all environments.
    ListReactors: Get "/v1/reactors" {
        access: Operator,
        needs: View on Each,
        reply: List<ReactorStatus>,
    }

    /// Show how each reactor would react to an event. Nothing is fired.
    TestReactors: Post "/v1/reactors/test" {
        access: Operator,
        needs: View on Everything,
        body: Json<TestReactorsRequest>,
        reply: List<ReactorVerdict>,
        audited: No,
    }

    /// Receive events from outside.
    ///
    /// The caller proves that it knows the secret of the environment: as a bearer token in
    /// `Authorization`, or with the HMAC-SHA256 of the body in `X-Hub-Signature-256`.
    ReceiveEvents: Post "/v1/hooks/{environment}/events/{hook}" {
        access: Anonymous,
        path: (String, String),
        body: SignedDelivery,
        reply: Json<EventHookReply>,
        audited: ByService,
    }
}
