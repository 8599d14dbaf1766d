//! The values that pages are rendered from.

use askama::Template;

/// The severity of something: a colour, and a word for people who cannot see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    Good,
    /// In progress.
    Busy,
    /// Needs attention.
    Warn,
    Bad,
    #[default]
    Quiet,
}

impl Tone {
    /// Returns the class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Quiet => "quiet",
        }
    }
}

/// The section of the console that a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    Overview,
    Nodes,
    Runs,
    Cluster,
    Audit,
}

impl Section {
    pub const ALL: [Self; 5] = [
        Self::Overview,
        Self::Nodes,
        Self::Runs,
        Self::Cluster,
        Self::Audit,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Nodes => "Nodes",
            Self::Runs => "Runs",
            Self::Cluster => "Cluster",
            Self::Audit => "Audit log",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Nodes => "/nodes",
            Self::Runs => "/runs",
            Self::Cluster => "/cluster",
            Self::Audit => "/audit",
        }
    }
}

/// An entry in the breadcrumb trail of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crumb {
    pub title: String,
    pub path: String,
}

/// The frame of every page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub title: String,
    pub section: Section,
    pub crumbs: Vec<Crumb>,
    /// The health of the servers, in a few words.
    pub health: String,
    pub health_tone: Tone,
    /// The operator's name.
    pub operator: String,
    /// The time of the request.
    pub at: String,
    /// A warning above everything else.
    pub warning: Option<String>,
}

/// A number with a link to the items that it counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Count {
    pub number: usize,
    pub what: String,
    pub tone: Tone,
    pub path: String,
}

/// A node in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLine {
    pub name: String,
    pub environment: String,
    pub word: String,
    pub tone: Tone,
    pub since: String,
    /// `failed, 3 min ago`.
    pub last_run: String,
    pub facts: String,
    pub note: String,
}

/// A node run in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportLine {
    /// The id of the node run.
    pub run: String,
    pub node: String,
    pub state: String,
    pub tone: Tone,
    pub when: String,
    pub why: String,
    /// The id of the ordered run that caused it.
    pub ordered_run: Option<String>,
    /// `3 changed, 1 failed of 40`.
    pub counts: String,
    /// The first resources that failed.
    pub failures: Vec<String>,
}

/// An ordered run in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunLine {
    pub id: String,
    pub short: String,
    pub environment: String,
    pub nodes: usize,
    pub state: String,
    pub tone: Tone,
    pub asked: String,
    pub by: String,
    pub reason: String,
}

/// An environment in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentLine {
    pub name: String,
    pub code: String,
    pub compiled: String,
    pub tone: Tone,
    pub release: String,
    pub hold: Option<String>,
}

/// A server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerLine {
    pub name: String,
    pub state: String,
    pub tone: Tone,
    pub since: String,
    pub said_by: String,
    pub datastore: String,
    pub datastore_tone: Tone,
    pub address: String,
}

/// An event of the datastores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventLine {
    pub at: String,
    pub by: String,
    pub what: String,
}

/// A record of the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditLine {
    pub number: String,
    pub at: String,
    pub who: String,
    pub from: String,
    pub action: String,
    pub object: String,
    pub outcome: String,
    pub tone: Tone,
    pub reason: String,
}

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactLine {
    pub name: String,
    pub value: String,
}

/// A node's step in an ordered run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepLine {
    pub mark: String,
    pub node: String,
    /// The number of the group, from 1.
    pub group: u32,
    pub state: String,
    pub tone: Tone,
    pub detail: String,
    /// The id of the node's run, if it has started.
    pub report: Option<String>,
}

/// The overview page.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "overview.html")]
pub struct OverviewPage {
    pub frame: Frame,
    pub counts: Vec<Count>,
    pub environments: Vec<EnvironmentLine>,
    pub runs: Vec<RunLine>,
    /// The failed runs, newest first.
    pub failures: Vec<ReportLine>,
    pub reports: Vec<ReportLine>,
}

/// All nodes, unusual ones first.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "nodes.html")]
pub struct NodesPage {
    pub frame: Frame,
    pub counts: Vec<Count>,
    /// The text to search for in names.
    pub wanted: String,
    /// The status to filter by, if any.
    pub word: String,
    pub nodes: Vec<NodeLine>,
    /// The number of nodes beyond those shown.
    pub more: usize,
}

/// The audit log, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    pub frame: Frame,
    /// The filters; empty if they select everything.
    pub who: String,
    pub action: String,
    pub object: String,
    pub outcome: String,
    /// The page begins before this record.
    pub before: Option<u64>,
    pub records: Vec<AuditLine>,
    /// The next page begins before this record.
    pub next: Option<u64>,
}

/// The outcomes to filter by.
const OUTCOMES: &[&str] = &["succeeded", "refused", "failed", "unknown"];

impl AuditPage {
    fn is_filtered(&self) -> bool {
        let filters = [&self.who, &self.action, &self.object, &self.outcome];
        self.before.is_some() || filters.iter().any(|filter| !filter.is_empty())
    }
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "node.html")]
pub struct NodePage {
    pub frame: Frame,
    pub node: NodeLine,
    pub server: String,
    pub agent: String,
    /// `quarantined` or `failed`, if the newest compile failed.
    pub compile: Option<String>,
    /// Its problems and hints.
    pub compile_problems: Vec<String>,
    pub queue: Vec<String>,
    pub reports: Vec<ReportLine>,
    pub facts: Vec<FactLine>,
}

/// A resource in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceLine {
    pub name: String,
    /// The file and line of its declaration, if known.
    pub place: String,
    pub result: String,
    pub tone: Tone,
    pub took: String,
    pub messages: Vec<String>,
    pub changes: Vec<ChangeLine>,
}

/// A changed property in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeLine {
    pub property: String,
    pub from: String,
    pub to: String,
    pub diff: Vec<DiffLine>,
}

/// A line of a diff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiffLine {
    pub text: String,
}

impl DiffLine {
    /// Returns the class in the style sheet.
    pub fn class(&self) -> &'static str {
        match self.text.chars().next() {
            Some('+') => "added",
            Some('-') => "removed",
            _ => "",
        }
    }
}

/// A line of a run's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    pub text: String,
    pub tone: Tone,
}

/// The report of one node run.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "report.html")]
pub struct ReportPage {
    pub frame: Frame,
    pub node: String,
    pub run: String,
    pub state: String,
    pub tone: Tone,
    /// The causes, the release, the times and the counts.
    pub details: Vec<FactLine>,
    /// The id of the ordered run that caused it.
    pub ordered_run: Option<String>,
    /// The resources that were not in the desired state.
    pub resources: Vec<ResourceLine>,
    pub more: usize,
    pub unchanged: u64,
    pub log: Vec<LogLine>,
}

/// All ordered runs.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "runs.html")]
pub struct RunsPage {
    pub frame: Frame,
    pub runs: Vec<RunLine>,
    pub reactions: Vec<ReactionLine>,
}

/// Something that a reactor did, or could not do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReactionLine {
    pub when: String,
    pub trigger: String,
    pub tone: Tone,
    pub text: String,
}

/// One ordered run.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "run.html")]
pub struct RunPage {
    pub frame: Frame,
    pub run: RunLine,
    /// What the run is waiting for.
    pub waits: Vec<String>,
    pub groups: usize,
    /// The finished share of all steps, in percent.
    pub done: u8,
    /// True once the run has begun: the page then has a picture of the run times of the nodes.
    pub timeline: bool,
    pub steps: Vec<StepLine>,
    pub more: usize,
}

/// The cluster page.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "cluster.html")]
pub struct ClusterPage {
    pub frame: Frame,
    /// The name of the cluster; none for a single server.
    pub name: Option<String>,
    pub summary: String,
    pub tone: Tone,
    pub servers: Vec<ServerLine>,
    pub seen_by: String,
    pub elected: String,
    pub waits: Option<String>,
    pub hints: Vec<String>,
    /// The events, newest first.
    pub events: Vec<EventLine>,
}

/// The page for something that could not be shown, with the reason.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "problem.html")]
pub struct ProblemPage {
    pub title: String,
    pub message: String,
    pub hint: Option<String>,
}
