//! The console: web pages for people.
//!
//! A page is rendered from a view value, in which everything is already text. Nothing here sends
//! requests to a server, and nothing here can change anything: the only forms are filters, and the
//! only links lead to other pages.
//!
//! Every text is escaped, because names and messages come from untrusted machines.

mod view;

/// Renders a page.
pub use askama::Template;

pub use view::{
    AuditLine, AuditPage, ChangeLine, ClusterPage, Count, Crumb, DiffLine, EnvironmentLine,
    EventLine, FactLine, Frame, LogLine, NodeLine, NodePage, NodesPage, OverviewPage, ProblemPage,
    ReactionLine, ReportLine, ReportPage, ResourceLine, RunLine, RunPage, RunsPage, Section,
    ServerLine, StepLine, Tone,
};

/// The style sheet of every page, served as a separate file, like the script. The pages contain no
/// inline scripts or styles, so a browser can be configured to accept none.
pub const STYLE: &str = include_str!("../assets/console.css");
pub const SCRIPT: &str = include_str!("../assets/console.js");

/// The `content-security-policy` header: nothing from anywhere else.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
