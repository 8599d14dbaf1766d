//! Releases: created, compared, rolled back, held.

use bunraku_model::{EnvironmentName, ReleaseNumber};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, NoContent, ReleaseSelector};
use crate::api::{
    CreateRelease as CreateReleaseRequest, FleetDiff, HoldRequest,
    OverrideRelease as OverrideReleaseRequest, ReleaseDetail, ReleaseHold, ReleaseList,
    ReleaseReply, RollbackRequest,
};

/// Which releases to compare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReleaseDiffQuery {
    /// The older release; 0 for an empty one. Default: the parent of `after`.
    #[param(value_type = Option<u64>)]
    pub before: Option<ReleaseNumber>,
    /// The newer release. Default: the newest one.
    #[param(value_type = Option<u64>)]
    pub after: Option<ReleaseNumber>,
    /// Compare the newest release with the catalogs that are held.
    #[serde(default)]
    pub held: bool,
}

/// How long to wait for a release.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReleaseWaitQuery {
    /// Wait until every node's target shows the release, for at most this long.
    #[serde(default)]
    pub wait_seconds: u64,
    /// Also wait for nodes that are compiled from the release's code.
    #[serde(default)]
    pub complete: bool,
}

endpoints! {
    tag "releases";

    /// List the releases of an environment, newest first.
    ListReleases: Get "/v1/releases/{environment}" {
        access: Operator,
        needs: View on Environment,
        path: EnvironmentName,
        reply: Json<ReleaseList>,
    }

    /// Create a release.
    CreateRelease: Post "/v1/releases/{environment}" {
        access: Operator,
        needs: Release on Each,
        path: EnvironmentName,
        body: Json<CreateReleaseRequest>,
        reply: Json<ReleaseReply>,
        details: ["to", "mode", "parent"],
    }

    /// Show a release with its catalogs; can wait until it is applied.
    ///
    /// `current` is the newest release.
    ShowRelease: Get "/v1/releases/{environment}/{number}" {
        access: Operator,
        needs: View on Environment,
        path: (EnvironmentName, ReleaseSelector),
        query: ReleaseWaitQuery,
        reply: Json<ReleaseDetail>,
    }

    /// Roll back: create a release with the catalogs of an older one.
    RollBackRelease: Post "/v1/releases/{environment}/rollback" {
        access: Operator,
        needs: Release on Environment,
        path: EnvironmentName,
        body: Json<RollbackRequest>,
        reply: Json<ReleaseReply>,
        details: ["release", "parent"],
    }

    /// Compare two releases.
    CompareReleases: Get "/v1/releases/{environment}/diff" {
        access: Operator,
        needs: View on Environment,
        path: EnvironmentName,
        query: ReleaseDiffQuery,
        reply: Json<FleetDiff>,
    }

    /// Stop automatic releases of an environment.
    HoldReleases: Put "/v1/releases/{environment}/hold" {
        access: Operator,
        needs: Release on Environment,
        path: EnvironmentName,
        body: Json<HoldRequest>,
        reply: Json<ReleaseHold>,
    }

    /// Resume automatic releases of an environment.
    ResumeReleases: Delete "/v1/releases/{environment}/hold" {
        access: Operator,
        needs: Release on Environment,
        path: EnvironmentName,
        reply: NoContent,
    }

    /// Create a release without the approval that the environment requires.
    OverrideRelease: Post "/v1/releases/{environment}/override" {
        access: Operator,
        needs: Release on Each,
        path: EnvironmentName,
        body: Json<OverrideReleaseRequest>,
        reply: Json<ReleaseReply>,
        details: ["request.to", "request.mode", "request.parent", "reason"],
    }
}
