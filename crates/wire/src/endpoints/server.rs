//! The server itself: health, metrics, identity, and this API's description.

use serde_json::Value;

use super::definition::endpoints;
use super::{Json, JsonObject, OpenMetrics, PlainText, Text};
use crate::api::ServerStatus;

endpoints! {
    tag "server";

    /// Check that the process answers.
    CheckHealth: Get "/healthz" {
        access: AnyRole,
        reply: Text<PlainText>,
    }

    /// Check that the server can serve requests.
    ///
    /// Fails with 503 while the store does not answer and during a shutdown.
    CheckReadiness: Get "/readyz" {
        access: AnyRole,
        reply: Text<PlainText>,
        old_data: Refused,
    }

    /// Return metrics for Prometheus.
    ShowMetrics: Get "/metrics" {
        access: OperatorOrServer,
        needs: View on Everything,
        reply: Text<OpenMetrics>,
    }

    /// Show this server.
    ///
    /// Nodes do not get the number of connected agents: it is 0 for them.
    ShowServer: Get "/v1/server" {
        access: AnyRole,
        reply: Json<ServerStatus>,
    }

    /// Return this document.
    ShowOpenApi: Get "/v1/openapi.json" {
        access: AnyRole,
        reply: JsonObject<Value>,
    }
}
