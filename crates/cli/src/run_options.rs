//! How a plan runs: what each node applies, noop, limits. `plan` and `run` share these options,
//! because the id of a plan covers them.

use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_plan::run::{NodeLimit, OnFailure, OrderedRunSubject, RolloutCheck, RunOptions};

use crate::duration::HumanDuration;
use crate::failure::Failure;

#[derive(clap::Args, Clone)]
pub(crate) struct RunOptionArguments {
    /// Only show what would change
    #[arg(long)]
    noop: bool,
    /// Maximum number of nodes to run at a time, or a percentage such as `20%`
    #[arg(long, value_name = "N|P%")]
    batch: Option<NodeLimit>,
    /// Run this many nodes first; continue if all of them succeed
    #[arg(long, value_name = "N", default_value_t = 0)]
    canary: u32,
    /// After the canaries, wait this long before anything else starts
    #[arg(long, value_name = "SPAN")]
    soak: Option<HumanDuration>,
    /// After the soak time, continue only if this passes: `manual` (see `bunraku run confirm`), a
    /// URL that a server requests, `query:QUERY` that must find none of the nodes that have run, or
    /// `command:COMMAND` that runs here
    #[arg(long = "check", value_name = "CHECK")]
    checks: Vec<RolloutCheck>,
    /// How long a check may take to pass
    #[arg(long, value_name = "SPAN", default_value = "1h")]
    check_timeout: HumanDuration,
    /// Run nodes in batches by the value of this fact, such as `rack`: one batch after the other
    #[arg(long, value_name = "FACT")]
    batch_by: Option<String>,
    /// Apply the soak time and the checks after each batch, too
    #[arg(long, requires = "batch_by")]
    each_batch: bool,
    /// Maximum number of nodes that are running or have failed at any time
    #[arg(long, value_name = "N|P%")]
    max_unavailable: Option<NodeLimit>,
    /// Start no more nodes after more nodes than this had drifted
    #[arg(long, value_name = "N|P%")]
    max_drift: Option<NodeLimit>,
    /// Start no more nodes after more failures than this
    #[arg(long, value_name = "N|P%")]
    max_failures: Option<NodeLimit>,
    /// After a failure, continue with nodes that do not depend on the failed one
    #[arg(long)]
    continue_independent: bool,
    /// Start each group when the previous one is finished
    #[arg(long)]
    by_group: bool,
    /// Time limit for the run of one node
    #[arg(long, value_name = "SPAN")]
    timeout: Option<HumanDuration>,
    /// Time limit for the whole run
    #[arg(long, value_name = "SPAN")]
    total_timeout: Option<HumanDuration>,
    /// How long a node may take to start
    #[arg(long, value_name = "SPAN", default_value = "10m")]
    start_within: HumanDuration,
    /// A node that is disconnected for longer is lost
    #[arg(long, value_name = "SPAN", default_value = "60s")]
    lost_after: HumanDuration,
    /// Apply the catalogs of this release
    #[arg(long, value_name = "NUMBER")]
    release: Option<ReleaseNumber>,
    /// Apply released catalogs, even on nodes whose run method does something else
    #[arg(long, conflicts_with = "release")]
    released: bool,
    /// Use each node's own run method, which is the default
    #[arg(long, hide = true, conflicts_with_all = ["release", "released"])]
    configured: bool,
    /// Puppet environment for these runs, instead of each node's setting
    #[arg(long, value_name = "ENVIRONMENT", conflicts_with_all = ["release", "released"])]
    in_environment: Option<EnvironmentName>,
}

impl RunOptionArguments {
    pub(crate) fn options(&self) -> RunOptions {
        RunOptions {
            noop: self.noop,
            batch: self.batch,
            canary: self.canary,
            max_failures: self.max_failures,
            on_failure: if self.continue_independent {
                OnFailure::ContinueIndependent
            } else {
                OnFailure::Stop
            },
            by_group: self.by_group,
            soak_seconds: self.soak.map_or(0, |soak| soak.0.as_secs()),
            checks: self.checks.clone(),
            check_timeout_seconds: self.check_timeout.0.as_secs().max(1),
            batch_by: self.batch_by.clone(),
            gate_each_batch: self.each_batch,
            max_unavailable: self.max_unavailable,
            max_drift: self.max_drift,
            node_timeout_seconds: self.timeout.map(|span| span.0.as_secs().max(1)),
            total_timeout_seconds: self.total_timeout.map(|span| span.0.as_secs().max(1)),
            start_timeout_seconds: self.start_within.0.as_secs().max(1),
            lost_after_seconds: self.lost_after.0.as_secs(),
            ..RunOptions::default()
        }
    }

    /// Returns the commands of checks, which this process executes.
    pub(crate) fn commands(&self) -> Vec<String> {
        let commands = self.checks.iter().filter_map(|check| match check {
            RolloutCheck::Command { command } => Some(command.clone()),
            _ => None,
        });
        commands.collect()
    }

    /// Refuses options that contradict each other, and commands that nobody would execute.
    pub(crate) fn refuse_impossible(&self, detach: bool) -> Result<(), Failure> {
        if let Some(problem) = self.options().problem() {
            return Err(Failure::usage(problem)
                .hint("pass `--canary N`, or `--batch-by FACT --each-batch`"));
        }
        if detach && !self.commands().is_empty() {
            return Err(Failure::usage(
                "a command check runs on this machine, and a detached or scheduled run does not wait for it",
            )
            .hint("use a URL, `query:…` or `manual`, or do not detach"));
        }
        Ok(())
    }

    pub(crate) fn subject(&self) -> OrderedRunSubject {
        match (self.released, self.release) {
            (true, _) => OrderedRunSubject::Released,
            (_, Some(release)) => OrderedRunSubject::Release { release },
            _ => OrderedRunSubject::Configured {
                environment: self.in_environment.clone(),
            },
        }
    }
}
