//! Triggers without a server of ours: through keys in etcd.
//!
//! The keys are those of the Puppet module that this continues:
//! `<prefix>/<name>` and `<prefix>/hosts/<host>`, JSON with hostname, tags,
//! hosts, timestamp and uuid, with a time to live. What it got wrong is
//! mended on the reading side: a watch resumes at the revision where it
//! stopped, so that no write is missed, also of one key written twice; a key
//! that expires is no cue; and a cue seen twice is known by its uuid.

mod message;
mod state;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use bunraku_cues::chains::{Chained, continue_chains};
use bunraku_model::{NodeName, TriggerName};
use bunraku_store::etcd::{EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls};
use bunraku_store::{LeaseId, Store, Transaction};
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use clap::Args;
use jiff::Timestamp;

use crate::duration::HumanDuration;
use crate::failure::Failure;
use message::Message;

pub(crate) use watch::{WatchArguments, watch};

/// Keys per transaction.
const PER_TRANSACTION: usize = 100;

/// Where the keys are.
#[derive(Args)]
pub(crate) struct EtcdArguments {
    /// Client addresses of etcd
    #[arg(
        long,
        env = "BUNRAKU_ETCD",
        value_delimiter = ',',
        value_name = "URL,…",
        default_value = "http://127.0.0.1:2379"
    )]
    etcd: Vec<String>,

    /// Prefix of every key
    #[arg(long, value_name = "KEY", default_value = "/trigger")]
    prefix: String,

    /// CA certificate of the etcd members
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,

    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_certificate: Option<PathBuf>,

    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    etcd_key: Option<PathBuf>,

    /// Lifetime of a key
    #[arg(long, value_name = "SPAN", default_value = "180s")]
    key_ttl: HumanDuration,
}

impl EtcdArguments {
    async fn connect(&self) -> Result<EtcdStore, Failure> {
        let root = format!("{}/", self.prefix.trim_end_matches('/'));
        let mut options = EtcdOptions::new(self.etcd.clone(), root);
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| {
                Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
            })
        };
        if let Some(ca) = &self.etcd_ca {
            let identity = match (&self.etcd_certificate, &self.etcd_key) {
                (Some(certificate), Some(key)) => Some(EtcdIdentity {
                    cert_pem: read(certificate)?,
                    key_pem: read(key)?,
                }),
                _ => None,
            };
            options.tls = Some(EtcdTls {
                ca_pem: read(ca)?,
                identity,
            });
        }
        EtcdStore::connect(options).await.map_err(Failure::from)
    }
}

/// This machine, as cues name it.
pub(crate) fn own_name(named: Option<NodeName>) -> Result<NodeName, Failure> {
    if let Some(name) = named {
        return Ok(name);
    }
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_lowercase();
    NodeName::new(name).map_err(|error| Failure::from(error).hint("give a name with `--name`"))
}

/// Writes the keys of a firing: one for the trigger, one for each host.
pub(crate) async fn fire(
    arguments: &EtcdArguments,
    trigger: &TriggerName,
    from: &NodeName,
    tags: &[String],
    request: &FireTrigger,
) -> Result<FireReply, Failure> {
    let now = Timestamp::now();
    // Only a run has a chain to hand on; a person begins one.
    let by = (!request.causes.is_empty()).then_some(from);
    let causes = match continue_chains(trigger, by, request, now) {
        Chained::On(causes) => causes,
        Chained::Stopped { why, chain } => return Ok(FireReply::Stopped { why, chain }),
    };
    let message = Message {
        hostname: from.to_string(),
        tags: tags.to_vec(),
        hosts: Some(request.hosts.iter().map(ToString::to_string).collect()),
        timestamp: now.as_second(),
        uuid: request.id.to_string(),
        causes,
    };
    let store = arguments.connect().await?;
    let ttl = arguments.key_ttl.0.max(Duration::from_secs(1));
    let lease = store.lease_grant(ttl).await?;
    write(&store, trigger, &request.hosts, &message, lease).await?;
    Ok(FireReply::Fired {
        hosts: request.hosts.clone(),
        unknown: Vec::new(),
    })
}

async fn write(
    store: &EtcdStore,
    trigger: &TriggerName,
    hosts: &[NodeName],
    message: &Message,
    lease: LeaseId,
) -> Result<(), Failure> {
    let value = serde_json::to_vec(message)?;
    let keys: Vec<String> = std::iter::once(trigger.to_string())
        .chain(hosts.iter().map(|host| format!("hosts/{host}")))
        .collect();
    for keys in keys.chunks(PER_TRANSACTION) {
        let transaction = keys.iter().fold(Transaction::new(), |transaction, key| {
            transaction.put_with_lease(key, value.clone(), lease)
        });
        store.commit(transaction).await?;
    }
    Ok(())
}
