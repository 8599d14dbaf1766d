//! The console: pages that people look at.
//!
//! A page is made from a view value, which says everything in words already.
//! Nothing here asks a server, and nothing here could change anything: there
//! are no forms but filters, and no links but to other pages.
//!
//! Every text is escaped: names and messages come from machines that nobody
//! has to trust.

mod view;

/// Renders a page.
pub use askama::Template;

pub use view::{
    ClusterPage, Count, Crumb, EnvironmentLine, EventLine, FactLine, Frame, NodeLine, NodePage,
    NodesPage, OverviewPage, ProblemPage, ReportLine, RunLine, RunPage, RunsPage, Section,
    ServerLine, StepLine, Tone,
};

/// What every page needs, served as files of their own: the pages carry no
/// scripts and no styles, so a browser can be told to accept none.
pub const STYLE: &str = include_str!("../assets/console.css");
pub const SCRIPT: &str = include_str!("../assets/console.js");

/// For the `content-security-policy` header: nothing from anywhere else.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
