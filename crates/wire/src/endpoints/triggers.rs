//! Triggers: fired, limited, listed.

use bunraku_model::TriggerName;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, List, NoContent, Paged};
use crate::api::triggers::{
    FireReply, FireTrigger as FireTriggerRequest, PermitTrigger as PermitTriggerRequest,
    TriggerEvent, TriggerLimits, TriggerSummary,
};

/// Which trigger events to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TriggerEventsQuery {
    /// Only events of this trigger.
    #[param(value_type = Option<String>)]
    pub trigger: Option<TriggerName>,
    /// The largest number of events, newest first. Default: 50.
    pub most: Option<usize>,
}

endpoints! {
    tag "triggers";

    /// Fire a trigger: start a run on each of its nodes.
    ///
    /// A node may do so only if the definition of the trigger permits it (`fired_by`, `hosts`).
    FireTrigger: Post "/v1/triggers/{trigger}/fire" {
        access: NodeOrOperator,
        needs: Run on Each,
        path: TriggerName,
        body: Json<FireTriggerRequest>,
        reply: Json<FireReply>,
        details: ["hosts", "query"],
    }

    /// List the triggers that have limits or pending firings.
    ListTriggers: Get "/v1/triggers" {
        access: Operator,
        needs: View on Everything,
        reply: Paged<TriggerSummary>,
    }

    /// Show a trigger.
    ShowTrigger: Get "/v1/triggers/{trigger}" {
        access: Operator,
        needs: View on Everything,
        path: TriggerName,
        reply: Json<TriggerSummary>,
    }

    /// Set the limits of a trigger.
    LimitTrigger: Put "/v1/triggers/{trigger}" {
        access: Operator,
        needs: Administer on Everything,
        path: TriggerName,
        body: Json<TriggerLimits>,
        reply: NoContent,
        details: ["fired_by", "hosts"],
    }

    /// Let nodes fire a trigger, and keep the rest of its definition.
    PermitTrigger: Post "/v1/triggers/{trigger}/permissions" {
        access: Operator,
        needs: Administer on Everything,
        path: TriggerName,
        body: Json<PermitTriggerRequest>,
        reply: NoContent,
        details: ["fired_by", "hosts", "replace"],
    }

    /// Remove the limits of a trigger.
    RemoveTriggerLimits: Delete "/v1/triggers/{trigger}" {
        access: Operator,
        needs: Administer on Everything,
        path: TriggerName,
        reply: NoContent,
    }

    /// List trigger events, newest first.
    ListTriggerEvents: Get "/v1/trigger-events" {
        access: Operator,
        needs: View on Everything,
        query: TriggerEventsQuery,
        reply: List<TriggerEvent>,
    }
}
