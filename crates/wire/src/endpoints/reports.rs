//! Reports of node runs: written event by event, listed, followed.

use bunraku_model::{NodeName, NodeRunId};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, JsonLines};
use crate::api::{
    NumberedEvent, ReportBatch, ReportPage, ReportReceipt, ReportStreamMessage, ReportSummary,
};

/// Which reports to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReportsQuery {
    /// Only reports of this node.
    #[param(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// Only runs that did not succeed, or whose node is lost.
    #[serde(default)]
    pub failed: bool,
    /// Only runs that have not ended.
    #[serde(default)]
    pub unfinished: bool,
    /// Reports per page, at most 1000. Default: 50.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// Where to start in the events of one report.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// The number of the first event to return.
    #[serde(default)]
    pub from: u64,
}

/// Which events to stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReportStreamQuery {
    /// Only events of this node.
    #[param(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// The cursor of the last message that was received. Default: only new events.
    pub cursor: Option<String>,
}

endpoints! {
    tag "reports";

    /// Add events to the report of a node run.
    ///
    /// Events that are already stored are ignored. A batch that would leave a gap is refused
    /// with 409; `wanted` is then the number of the next event.
    AddReportEvents: Post "/v1/nodes/{node}/reports/{id}/events" {
        access: OwnNode,
        path: (NodeName, NodeRunId),
        body: Json<ReportBatch>,
        reply: Json<ReportReceipt>,
        audited: Routine,
    }

    /// List reports, newest first.
    ListReports: Get "/v1/reports" {
        access: Operator,
        needs: View on Each,
        query: ReportsQuery,
        reply: Json<ReportPage>,
    }

    /// Follow the events of all reports.
    FollowReports: Get "/v1/reports/stream" {
        access: Operator,
        needs: View on Each,
        query: ReportStreamQuery,
        reply: JsonLines<ReportStreamMessage>,
    }

    /// Find a report by the id of its run, or the beginning of that id.
    FindReport: Get "/v1/reports/{id}" {
        access: Operator,
        needs: View on Each,
        path: String,
        reply: Json<ReportSummary>,
    }

    /// Show one report of a node.
    ShowReport: Get "/v1/nodes/{node}/reports/{id}" {
        access: Operator,
        needs: View on Node,
        path: (NodeName, NodeRunId),
        reply: Json<ReportSummary>,
    }

    /// Return the events of a report that are stored now.
    ListReportEvents: Get "/v1/nodes/{node}/reports/{id}/events" {
        access: Operator,
        needs: View on Node,
        path: (NodeName, NodeRunId),
        query: EventsQuery,
        reply: JsonLines<NumberedEvent>,
    }

    /// Follow the events of a report until its run ends or its node is lost.
    ///
    /// The report does not have to exist yet.
    FollowReport: Get "/v1/nodes/{node}/reports/{id}/stream" {
        access: Operator,
        needs: View on Node,
        path: (NodeName, NodeRunId),
        query: EventsQuery,
        reply: JsonLines<NumberedEvent>,
    }
}
