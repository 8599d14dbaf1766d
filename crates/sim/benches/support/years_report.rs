//! The figures of one size, and the targets beside them.

use std::time::Duration;

use crate::years_fleet::{Content, Cost, Stored};

const MIB: f64 = 1_048_576.0;
/// The largest share of extra cost per node in a large fleet.
const MOST_GROWTH: f64 = 1.2;

/// The cost of converged runs.
#[derive(Default)]
pub(crate) struct RunCost {
    runs: u64,
    writes: u64,
    processor: Duration,
}

impl RunCost {
    pub(crate) fn add(&mut self, runs: u64, before: &Cost, after: &Cost) {
        self.runs += runs;
        self.writes += after.writes - before.writes;
        self.processor += after.processor - before.processor;
    }

    fn writes_each(&self) -> f64 {
        self.writes as f64 / self.runs as f64
    }

    fn seconds_each(&self) -> f64 {
        self.processor.as_secs_f64() / self.runs as f64
    }
}

/// Everything that was measured with one number of nodes.
pub(crate) struct SizeReport {
    pub(crate) nodes: u64,
    pub(crate) days: u64,
    pub(crate) runs_per_day: u64,
    pub(crate) executed: u64,
    pub(crate) content: Content,
    pub(crate) converged: RunCost,
    /// All writes, from the first join on.
    pub(crate) writes: u64,
    /// The number of compiled catalogs.
    pub(crate) compiles: u64,
    pub(crate) half: Stored,
    pub(crate) end: Stored,
    pub(crate) stall: Duration,
    pub(crate) collection: Duration,
    pub(crate) server_memory: u64,
    pub(crate) etcd_memory: u64,
    pub(crate) start: Duration,
    pub(crate) elapsed: Duration,
}

impl SizeReport {
    fn state_per_node(&self) -> f64 {
        self.end.state_bytes as f64 / self.nodes as f64
    }

    /// Calculated: the executed writes, and those of the runs that were not executed.
    fn writes_per_node_day(&self) -> f64 {
        let missing = (self.runs_per_day - self.executed) as f64;
        let executed = self.writes as f64 / (self.nodes * self.days) as f64;
        executed + missing * self.converged.writes_each()
    }

    /// Calculated from the executed converged runs.
    fn processor_per_node_day(&self) -> f64 {
        self.converged.seconds_each() * self.runs_per_day as f64
    }

    pub(crate) fn print(&self) {
        let place = match self.content {
            Content::Etcd => "etcd",
            Content::Directory => "a directory",
        };
        println!(
            "\n{} nodes, {} days, {} runs a day ({} executed, the others calculated), content in {place}, history in etcd, {:.0?}",
            self.nodes, self.days, self.runs_per_day, self.executed, self.elapsed
        );
        let end = &self.end;
        let line = |what: &str, figure: String| println!("  {what:<46} {figure}");
        line(
            "etcd keys",
            format!(
                "{} ({:.1} per node)",
                end.keys,
                end.keys as f64 / self.nodes as f64
            ),
        );
        line(
            "etcd size in use, compacted",
            format!("{:.1} MiB", end.etcd_in_use as f64 / MIB),
        );
        line(
            "  of it state, keys and values",
            format!("{:.1} MiB", end.state_bytes as f64 / MIB),
        );
        line(
            "  of it content",
            format!("{:.1} MiB", end.content_bytes as f64 / MIB),
        );
        line(
            "  of it history",
            format!("{:.1} MiB", end.history_bytes as f64 / MIB),
        );
        line(
            "content in a directory",
            format!("{:.1} MiB", end.directory_bytes as f64 / MIB),
        );
        line(
            "state per node",
            format!("{:.2} KB", self.state_per_node() / 1_000.0),
        );
        line("compiled catalogs", self.compiles.to_string());
        line(
            "writes of one converged run",
            format!("{:.2}", self.converged.writes_each()),
        );
        line(
            "writes per node and day, calculated",
            format!("{:.1}", self.writes_per_node_day()),
        );
        line(
            "processor time of one converged run",
            format!("{:.3} ms", self.converged.seconds_each() * 1e3),
        );
        line(
            "processor time per node and day, calculated",
            format!("{:.1} ms", self.processor_per_node_day() * 1e3),
        );
        line(
            "memory of server and simulated agents",
            format!("{:.0} MiB", self.server_memory as f64 / MIB),
        );
        line(
            "memory of etcd",
            format!("{:.0} MiB", self.etcd_memory as f64 / MIB),
        );
        line(
            "start until queries are answered",
            format!("{:.1?}", self.start),
        );
        line("longest call of an agent", format!("{:.1?}", self.stall));
        line("longest collection", format!("{:.1?}", self.collection));
    }
}

/// Prints every target with its figure. Returns whether all are met.
pub(crate) fn judge(reports: &[SizeReport]) -> bool {
    let mut met = true;
    let mut target = |what: String, figure: f64, most: f64, unit: &str| {
        let word = if figure <= most { "met   " } else { "MISSED" };
        met &= figure <= most;
        println!("  {word} {what}: {figure:.2} {unit}, target {most:.2}");
    };
    println!("\ntargets");
    for report in reports {
        let nodes = report.nodes;
        target(
            format!("{nodes} nodes, state per node"),
            report.state_per_node() / 1_000.0,
            20.0,
            "KB",
        );
        let growth = report.end.state_bytes as f64 / report.half.state_bytes as f64;
        target(
            format!("{nodes} nodes, state at the end by state at half time"),
            growth,
            1.1,
            "",
        );
        let (etcd, memory) = match nodes {
            0..=10_000 => (500.0, 1_000.0),
            _ => (2_000.0, 4_000.0),
        };
        target(
            format!("{nodes} nodes, etcd"),
            report.end.etcd_in_use as f64 / 1e6,
            etcd,
            "MB",
        );
        target(
            format!("{nodes} nodes, server memory"),
            report.server_memory as f64 / 1e6,
            memory,
            "MB",
        );
        target(
            format!("{nodes} nodes, writes of a converged run"),
            report.converged.writes_each(),
            2.0,
            "",
        );
    }
    if let [first, .., last] = reports {
        let growth = last.processor_per_node_day() / first.processor_per_node_day();
        let what = format!(
            "processor time per node, {} by {} nodes",
            last.nodes, first.nodes
        );
        target(what, growth, MOST_GROWTH, "");
        let growth = last.writes_per_node_day() / first.writes_per_node_day();
        let what = format!("writes per node, {} by {} nodes", last.nodes, first.nodes);
        target(what, growth, MOST_GROWTH, "");
    }
    met
}
