//! Control repositories whose branches are environments.

use bunraku_model::RepositoryName;

use super::definition::endpoints;
use super::{Json, List, NoContent, SignedDelivery};
use crate::api::HookReply;
use crate::api::repositories::{
    NewRepository, RepositoryChange, RepositoryChanged, RepositorySummary, SyncRequested,
};

endpoints! {
    tag "repositories";

    /// List all control repositories.
    ListRepositories: Get "/v1/repositories" {
        access: Operator,
        needs: View on Everything,
        reply: List<RepositorySummary>,
    }

    /// Register a control repository. Its branches become environments.
    CreateRepository: Post "/v1/repositories" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<NewRepository>,
        reply: Json<RepositoryChanged>,
        object: ("repository", "name"),
        details: ["url", "rules"],
    }

    /// Show a control repository with its branches.
    ShowRepository: Get "/v1/repositories/{repository}" {
        access: Operator,
        needs: View on Everything,
        path: RepositoryName,
        reply: Json<RepositorySummary>,
    }

    /// Change the settings of a control repository.
    ChangeRepository: Put "/v1/repositories/{repository}" {
        access: Operator,
        needs: Administer on Everything,
        path: RepositoryName,
        body: Json<RepositoryChange>,
        reply: Json<RepositoryChanged>,
        details: ["url", "rules", "new_hook_secret"],
    }

    /// Unregister a control repository. Its environments stay.
    RemoveRepository: Delete "/v1/repositories/{repository}" {
        access: Operator,
        needs: Administer on Everything,
        path: RepositoryName,
        reply: NoContent,
    }

    /// Compare the branches with the environments, and deploy all of them.
    SyncRepository: Post "/v1/repositories/{repository}/sync" {
        access: Operator,
        needs: Deploy on Everything,
        path: RepositoryName,
        reply: Json<SyncRequested>,
    }

    /// Receive a push webhook and deploy the branches that changed.
    ///
    /// `X-Hub-Signature-256` has the HMAC-SHA256 of the body with the secret of the repository,
    /// or `X-Gitlab-Token` has the secret.
    ReceiveRepositoryPush: Post "/v1/repositories/{repository}/hook" {
        access: Anonymous,
        path: String,
        body: SignedDelivery,
        reply: Json<HookReply>,
        audited: ByService,
    }
}
