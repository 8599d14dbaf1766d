//! What carries a cue to its hosts.

use bunraku_model::{NodeName, TriggerName};
use clap::{Args, ValueEnum};

use crate::cues::EtcdArguments;
use crate::failure::Failure;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Provider {
    /// A Bunraku server and its agents
    Bunraku,
    /// Keys in etcd, for `bunraku trigger watch` on the hosts
    Etcd,
    /// The `mco` client: `mco puppet runonce`
    Mcollective,
    /// Does nothing
    Dummy,
}

#[derive(Args)]
pub(super) struct ProviderArguments {
    /// How to deliver the trigger
    #[arg(long, value_enum, default_value_t = Provider::Bunraku)]
    pub(super) provider: Provider,

    /// Name of this host in the trigger [default: the host name]
    #[arg(long)]
    pub(super) name_of_this_host: Option<NodeName>,

    /// Tags for the trigger, for watchers of etcd
    #[arg(long, value_delimiter = ',', value_name = "TAG,…")]
    pub(super) tags: Vec<String>,

    #[command(flatten)]
    pub(super) etcd: EtcdArguments,
}

/// Asks MCollective's Puppet agent on each host for one run.
pub(super) async fn mcollective(trigger: &TriggerName, hosts: &[NodeName]) -> Result<(), Failure> {
    let mut command = tokio::process::Command::new("mco");
    command.args(["puppet", "runonce"]);
    for host in hosts {
        command.args(["-I", host.as_str()]);
    }
    let status = command.status().await.map_err(|error| {
        Failure::new("cannot run `mco`")
            .caused_by(&error)
            .hint("install the MCollective client, or use another provider")
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{trigger}: `mco puppet runonce` ended with {status}"
        ))),
    }
}
