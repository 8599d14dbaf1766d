//! The settings of all services of a server.

use std::path::PathBuf;
use std::time::Duration;

use bunraku_compile::ReleaseOptions;
use bunraku_compile::catalogs::CatalogOptions;
use bunraku_compile::code::CodeOptions;
use bunraku_compile::compiles::CompileOptions;
use bunraku_control::{
    AuditOptions, CertificateOptions, CommandOptions, FactOptions, HistoryBackends, ReportOptions,
};
use bunraku_model::ContentPlace;
use bunraku_orchestrate::OrchestrationOptions;

use crate::{ClusterLink, RateOptions, UpkeepOptions};

/// The settings of all services.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Directory of code, modules and credentials.
    pub data_dir: PathBuf,
    /// `true` if no other process can have the store open.
    pub exclusive_store: bool,
    /// `true` if the files of the store were copied since the last start.
    pub was_copied: bool,
    pub store_kind: &'static str,
    /// The place of content in a fleet that has none yet.
    pub content_place: ContentPlace,
    /// Silence after which a server counts as dead.
    pub server_ttl: Duration,
    /// Interval of empty lines on a silent command stream.
    pub heartbeat: Duration,
    /// An agent that does not answer for this long counts as lost.
    pub agent_silence: Duration,
    /// The budgets of each node.
    pub rates: RateOptions,
    /// This server's cluster member, if any.
    pub cluster: Option<ClusterLink>,
    pub audit: AuditOptions,
    pub certificates: CertificateOptions,
    pub commands: CommandOptions,
    pub facts: FactOptions,
    pub catalogs: CatalogOptions,
    pub code: CodeOptions,
    pub compiles: CompileOptions,
    pub releases: ReleaseOptions,
    pub reports: ReportOptions,
    /// The backends of history beside the state store.
    pub history: HistoryBackends,
    pub orchestration: OrchestrationOptions,
    /// The facts that nodes may see of each other.
    pub visible_facts: bunraku_query::VisibleFacts,
    pub upkeep: UpkeepOptions,
}

impl ServiceOptions {
    /// Returns the defaults, for a server that has its store to itself.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            exclusive_store: true,
            was_copied: false,
            store_kind: "embedded",
            content_place: ContentPlace::Default,
            server_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_secs(20),
            agent_silence: Duration::from_secs(90),
            rates: RateOptions::default(),
            cluster: None,
            audit: AuditOptions::default(),
            certificates: CertificateOptions::default(),
            commands: CommandOptions::default(),
            facts: FactOptions::default(),
            catalogs: CatalogOptions::default(),
            code: CodeOptions::default(),
            compiles: CompileOptions::default(),
            releases: ReleaseOptions::default(),
            reports: ReportOptions::default(),
            history: HistoryBackends::default(),
            orchestration: OrchestrationOptions::default(),
            visible_facts: bunraku_query::VisibleFacts::default(),
            upkeep: UpkeepOptions::default(),
        }
    }
}
