//! Triggers without a Bunraku server: through keys in etcd.
//!
//! The keys are those of the original Puppet module: `<prefix>/<name>` and `<prefix>/hosts/<host>`,
//! JSON with hostname, tags, hosts, timestamp and uuid, with a time to live. The reading side fixes
//! that module's mistakes. A watch resumes at the revision where it stopped, so it misses no write,
//! not even when one key is written twice. A key that expires is not a cue. The uuid identifies a
//! cue that is seen twice.
//!
//! That module uses the first keyspace of etcd (its v2 API). Where etcd serves it, a firing is
//! written to both keyspaces and a watcher follows both: the uuid makes them one cue.

pub(crate) mod mcollective;
mod message;
mod state;
mod transport;
mod v2;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use bunraku_cues::chains::{ChainEffect, continue_chains};
use bunraku_model::{NodeName, TriggerName};
use bunraku_store::etcd::{EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls, EtcdV2, EtcdV2Error};
use bunraku_store::{Store, Transaction};
use bunraku_wire::api::Cause;
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use clap::Args;
use jiff::Timestamp;

use crate::duration::HumanDuration;
use crate::failure::Failure;
use message::Message;

pub(crate) use transport::OtherTransports;
pub(crate) use watch::{WatchArguments, watch};

/// The number of keys per transaction.
const PER_TRANSACTION: usize = 100;

/// The connection to etcd and the location of the keys.
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

    /// API of etcd to use
    #[arg(long, value_enum, default_value_t = EtcdApi::Auto)]
    etcd_api: EtcdApi,

    /// Prefix of every key
    #[arg(long, value_name = "KEY", default_value = "/puppet_trigger/events")]
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

/// The etcd API that stores the cues.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EtcdApi {
    /// v3, and also v2 if etcd serves it
    Auto,
    /// v2 only, as the original module uses: etcd 2, or etcd 3 with `--enable-v2`
    V2,
    /// v3 only
    V3,
}

impl EtcdArguments {
    /// Returns the client of the v3 API, unless only v2 is wanted.
    async fn connect(&self) -> Result<EtcdStore, Failure> {
        let options = self.options()?;
        EtcdStore::connect(options).await.map_err(Failure::from)
    }

    /// Returns the client of the v2 API with its newest index, if v2 is wanted and served.
    async fn connect_v2(&self) -> Result<Option<(EtcdV2, u64)>, Failure> {
        if self.etcd_api == EtcdApi::V3 {
            return Ok(None);
        }
        let client = EtcdV2::new(&self.options()?).map_err(v2::failure)?;
        match client.newest().await {
            Ok(newest) => Ok(Some((client, newest))),
            Err(EtcdV2Error::NotServed { .. } | EtcdV2Error::Unreachable { .. })
                if self.etcd_api == EtcdApi::Auto =>
            {
                Ok(None)
            }
            Err(error) => Err(v2::failure(error)),
        }
    }

    fn options(&self) -> Result<EtcdOptions, Failure> {
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
        Ok(options)
    }
}

/// Returns the causes of the run that this command belongs to.
pub(crate) fn causes_of_this_run() -> Result<Vec<Cause>, Failure> {
    let Some(text) = std::env::var_os("BUNRAKU_CAUSES") else {
        return Ok(Vec::new());
    };
    // Continuing without them would let a loop run forever.
    serde_json::from_str(&text.to_string_lossy()).map_err(|error| {
        Failure::new("BUNRAKU_CAUSES does not contain the causes of a run").caused_by(&error)
    })
}

/// Returns the name of this machine in cues.
pub(crate) fn own_name(named: Option<NodeName>) -> Result<NodeName, Failure> {
    if let Some(name) = named {
        return Ok(name);
    }
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_lowercase();
    NodeName::new(name).map_err(|error| Failure::from(error).hint("set a name with `--name`"))
}

/// Writes the keys of a firing: one for the trigger, one for each host.
pub(crate) async fn fire(
    arguments: &EtcdArguments,
    trigger: &TriggerName,
    from: &NodeName,
    tags: &[String],
    request: &FireTrigger,
) -> Result<FireReply, Failure> {
    let first_part = trigger.as_str().split('/').next();
    if first_part == Some("hosts") {
        let message = format!(
            "`{trigger}` is not a valid trigger name with etcd: keys below `hosts/` are reserved"
        );
        return Err(Failure::usage(message));
    }
    let now = Timestamp::now();
    // Only a run has a chain to pass on. A person starts a new one.
    let by = (!request.causes.is_empty()).then_some(from);
    let causes = match continue_chains(trigger, by, request, now) {
        ChainEffect::On(causes) => causes,
        ChainEffect::Stopped { why, chain } => return Ok(FireReply::Stopped { why, chain }),
    };
    let message = Message {
        hostname: from.to_string(),
        tags: tags.to_vec(),
        hosts: request.hosts.iter().map(ToString::to_string).collect(),
        timestamp: now.as_second(),
        uuid: request.id.to_string(),
        causes,
    };
    let keys: Vec<String> = std::iter::once(trigger.to_string())
        .chain(request.hosts.iter().map(|host| format!("hosts/{host}")))
        .collect();
    let ttl = arguments.key_ttl.0.max(Duration::from_secs(1));
    let first = arguments.connect_v2().await?;
    if let Some((client, _)) = &first {
        v2::write(client, &keys, &message, ttl).await?;
    }
    match write(arguments, &keys, &message, ttl).await {
        // An etcd 2 does not have the other keyspace.
        Err(failure) if first.is_some() && arguments.etcd_api == EtcdApi::Auto => {
            tracing::warn!(
                error = failure.message(),
                "wrote only to the v2 API of etcd"
            );
        }
        written => written?,
    }
    Ok(FireReply::Fired {
        hosts: request.hosts.clone(),
        unknown: Vec::new(),
    })
}

async fn write(
    arguments: &EtcdArguments,
    keys: &[String],
    message: &Message,
    ttl: Duration,
) -> Result<(), Failure> {
    if arguments.etcd_api == EtcdApi::V2 {
        return Ok(());
    }
    let store = arguments.connect().await?;
    let lease = store.lease_grant(ttl).await?;
    let value = serde_json::to_vec(message)?;
    for keys in keys.chunks(PER_TRANSACTION) {
        let transaction = keys.iter().fold(Transaction::new(), |transaction, key| {
            transaction.put_with_lease(key, value.clone(), lease)
        });
        store.commit(transaction).await?;
    }
    Ok(())
}
