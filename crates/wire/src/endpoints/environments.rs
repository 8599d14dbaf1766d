//! Environments, their deploys, and their webhook.

use bunraku_model::EnvironmentName;

use super::definition::endpoints;
use super::{Json, List, NoContent, SignedDelivery, WaitQuery};
use crate::api::{
    Deploy, DeployRequest, DeployStatus, EnvironmentChange, EnvironmentChanged, EnvironmentDetail,
    EnvironmentSummary, HookReply, NewEnvironment,
};

endpoints! {
    tag "environments";

    /// List all environments.
    ListEnvironments: Get "/v1/environments" {
        access: Operator,
        needs: View on Each,
        reply: List<EnvironmentSummary>,
    }

    /// Create an environment.
    CreateEnvironment: Post "/v1/environments" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<NewEnvironment>,
        reply: Json<EnvironmentChanged>,
        object: ("environment", "name"),
        details: ["url", "branch", "policy", "allow_external_compiler"],
    }

    /// Show an environment with its deploys and current problems.
    ShowEnvironment: Get "/v1/environments/{environment}" {
        access: Operator,
        needs: View on Environment,
        path: EnvironmentName,
        reply: Json<EnvironmentDetail>,
    }

    /// Change the settings of an environment.
    ChangeEnvironment: Put "/v1/environments/{environment}" {
        access: Operator,
        needs: Administer on Environment,
        path: EnvironmentName,
        body: Json<EnvironmentChange>,
        reply: Json<EnvironmentChanged>,
        details: ["url", "branch", "policy", "allow_external_compiler", "new_hook_secret", "poll_seconds", "fact_targeting", "approval"],
    }

    /// Remove an environment that has no nodes.
    RemoveEnvironment: Delete "/v1/environments/{environment}" {
        access: Operator,
        needs: Administer on Environment,
        path: EnvironmentName,
        reply: NoContent,
    }

    /// Deploy code.
    DeployEnvironment: Post "/v1/environments/{environment}/deploys" {
        access: Operator,
        needs: Deploy on Environment,
        path: EnvironmentName,
        body: Json<DeployRequest>,
        reply: Json<Deploy>,
        details: ["commit", "pin"],
    }

    /// Show the state of a deploy; can wait until it is finished.
    ShowDeploy: Get "/v1/environments/{environment}/deploys/{number}" {
        access: Operator,
        needs: View on Environment,
        path: (EnvironmentName, u64),
        query: WaitQuery,
        reply: Json<DeployStatus>,
    }

    /// Lift the pin of an environment, so that pushes deploy again.
    UnpinEnvironment: Delete "/v1/environments/{environment}/pin" {
        access: Operator,
        needs: Deploy on Environment,
        path: EnvironmentName,
        reply: NoContent,
    }

    /// Receive a push webhook and deploy.
    ///
    /// `X-Hub-Signature-256` has the HMAC-SHA256 of the body with the secret of the environment,
    /// or `X-Gitlab-Token` has the secret.
    ReceivePush: Post "/v1/hooks/{environment}" {
        access: Anonymous,
        path: String,
        body: SignedDelivery,
        reply: Json<HookReply>,
        audited: ByService,
    }
}
