//! Extension modules and the keys that sign them.

use super::definition::endpoints;
use super::{Json, List, NoContent, Package};
use crate::api::modules::{
    ModuleEvent, ModuleKeys, PublishedModule, RevokeModuleKey as RevokeModuleKeyRequest,
    RevokedModuleKey, TrustModuleKey as TrustModuleKeyRequest, TrustedModuleKey,
};

endpoints! {
    tag "modules";

    /// List all published versions of all modules.
    ListModules: Get "/v1/modules" {
        access: Operator,
        needs: View on Everything,
        reply: List<PublishedModule>,
    }

    /// Publish a signed module package.
    PublishModule: Post "/v1/modules" {
        access: Operator,
        needs: Deploy on Everything,
        body: Package,
        reply: Json<PublishedModule>,
        body_limit: Package,
    }

    /// List the published versions of a module.
    ListModuleVersions: Get "/v1/modules/{module}" {
        access: Operator,
        needs: View on Everything,
        path: String,
        reply: List<PublishedModule>,
    }

    /// Show one version of a module.
    ShowModuleVersion: Get "/v1/modules/{module}/{version}" {
        access: Operator,
        needs: View on Everything,
        path: (String, String),
        reply: Json<PublishedModule>,
    }

    /// Remove a version of a module.
    ///
    /// Catalogs that use it keep it.
    RemoveModuleVersion: Delete "/v1/modules/{module}/{version}" {
        access: Operator,
        needs: Deploy on Everything,
        path: (String, String),
        reply: NoContent,
    }

    /// List module events, newest first: published, removed, trusted, revoked.
    ListModuleEvents: Get "/v1/module-events" {
        access: Operator,
        needs: View on Everything,
        reply: List<ModuleEvent>,
    }

    /// Show the module keys that servers trust, and the revoked ones.
    ShowModuleKeys: Get "/v1/module-keys" {
        access: Operator,
        needs: View on Everything,
        reply: Json<ModuleKeys>,
    }

    /// Trust a module key on servers.
    ///
    /// Nodes have their own list of trusted keys.
    TrustModuleKey: Post "/v1/module-keys" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<TrustModuleKeyRequest>,
        reply: Json<TrustedModuleKey>,
    }

    /// Revoke a module key on servers and on all nodes.
    ///
    /// This cannot be undone.
    RevokeModuleKey: Post "/v1/module-keys/revoke" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<RevokeModuleKeyRequest>,
        reply: Json<RevokedModuleKey>,
        object: ("module-key", "fingerprint"),
    }

    /// List the fingerprints of revoked module keys.
    ListRevokedModuleKeys: Get "/v1/module-keys/revoked" {
        access: AnyRole,
        reply: List<String>,
    }
}
