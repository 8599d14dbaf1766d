//! The transports that `bunraku trigger fire` can use.

use bunraku_model::NodeName;
use clap::{Args, ValueEnum};

use crate::cues::EtcdArguments;

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
