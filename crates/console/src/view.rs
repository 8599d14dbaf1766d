//! The values that pages are made from.

use askama::Template;

/// How good or bad something is: a colour and a word for those who see none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    Good,
    /// At work.
    Busy,
    /// Somebody should look at it.
    Warn,
    Bad,
    #[default]
    Quiet,
}

impl Tone {
    /// The class in the style sheet.
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

/// Where in the console a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    Overview,
    Nodes,
    Runs,
    Cluster,
}

impl Section {
    pub const ALL: [Self; 4] = [Self::Overview, Self::Nodes, Self::Runs, Self::Cluster];

    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Nodes => "Nodes",
            Self::Runs => "Runs",
            Self::Cluster => "Cluster",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Nodes => "/nodes",
            Self::Runs => "/runs",
            Self::Cluster => "/cluster",
        }
    }
}

/// A step on the way to a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crumb {
    pub title: String,
    pub path: String,
}

/// What is around every page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub title: String,
    pub section: Section,
    pub crumbs: Vec<Crumb>,
    /// How the servers are, in a few words.
    pub health: String,
    pub health_tone: Tone,
    /// Who looks.
    pub operator: String,
    /// When it was asked.
    pub at: String,
    /// Above everything else.
    pub warning: Option<String>,
}

/// A number that leads to what it counts.
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
    pub facts: String,
    pub note: String,
}

/// A node run in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportLine {
    pub node: String,
    pub state: String,
    pub tone: Tone,
    pub when: String,
    pub why: String,
    /// `3 changed, 1 failed of 40`.
    pub counts: String,
    /// The first that failed.
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

/// Something that happened to the datastores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventLine {
    pub at: String,
    pub by: String,
    pub what: String,
}

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactLine {
    pub name: String,
    pub value: String,
}

/// A node's part in an ordered run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepLine {
    pub mark: String,
    pub node: String,
    /// Counted from 1.
    pub group: u32,
    pub state: String,
    pub tone: Tone,
    pub detail: String,
}

/// Everything at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "overview.html")]
pub struct OverviewPage {
    pub frame: Frame,
    pub counts: Vec<Count>,
    pub environments: Vec<EnvironmentLine>,
    pub runs: Vec<RunLine>,
    /// The newest first.
    pub failures: Vec<ReportLine>,
    pub reports: Vec<ReportLine>,
}

/// All nodes, what is unusual first.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "nodes.html")]
pub struct NodesPage {
    pub frame: Frame,
    pub counts: Vec<Count>,
    /// What is looked for in names.
    pub wanted: String,
    /// The status that is looked for, if one is.
    pub word: String,
    pub nodes: Vec<NodeLine>,
    /// How many there are beyond those that are shown.
    pub more: usize,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "node.html")]
pub struct NodePage {
    pub frame: Frame,
    pub node: NodeLine,
    pub server: String,
    pub agent: String,
    pub queue: Vec<String>,
    pub reports: Vec<ReportLine>,
    pub facts: Vec<FactLine>,
}

/// All ordered runs.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "runs.html")]
pub struct RunsPage {
    pub frame: Frame,
    pub runs: Vec<RunLine>,
}

/// One ordered run.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "run.html")]
pub struct RunPage {
    pub frame: Frame,
    pub run: RunLine,
    pub groups: usize,
    /// Of all steps, in percent.
    pub done: u8,
    /// A picture of when each node ran, once the run has begun.
    pub timeline: bool,
    pub steps: Vec<StepLine>,
    pub more: usize,
}

/// The servers among themselves.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "cluster.html")]
pub struct ClusterPage {
    pub frame: Frame,
    /// Nothing, where one server is all there is.
    pub name: Option<String>,
    pub summary: String,
    pub tone: Tone,
    pub servers: Vec<ServerLine>,
    pub seen_by: String,
    pub elected: String,
    pub waits: Option<String>,
    pub hints: Vec<String>,
    /// The newest first.
    pub events: Vec<EventLine>,
}

/// What could not be shown, and why.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "problem.html")]
pub struct ProblemPage {
    pub title: String,
    pub message: String,
    pub hint: Option<String>,
}
