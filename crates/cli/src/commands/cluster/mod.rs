//! `bunraku cluster`: the members of a cluster.

mod recover;
mod setup;
pub(crate) mod status;

use std::path::PathBuf;

use bunraku_model::NodeName;
use bunraku_wire::api::cluster::{
    ClusterInvitation, ClusterInviteRequest, ClusterStatus, DrainRequest, ExpectServerRequest,
};
use bunraku_wire::endpoints::{
    DrainServer, Endpoint, ExpectServer, ForgetExpectedServer, InviteServer, RemoveServer,
    ShowCluster,
};
use clap::Subcommand;

use crate::connection::{failed, reachable_server};
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Create a cluster with this server as the first member
    Init(setup::InitArguments),
    /// Create a one-time token for a new server
    #[command(after_help = "Example:\n  bunraku cluster invite --ttl 10m")]
    Invite {
        /// How long the token is valid
        #[arg(long, default_value = "1h")]
        ttl: HumanDuration,
    },
    /// Allow a server to join over SSH, once
    #[command(
        after_help = "Example:\n  bunraku cluster expect s2 --address 192.0.2.2   # then `cluster join` on s2"
    )]
    Expect {
        /// Name of the new server
        server: NodeName,
        /// Address or host name at which SSH reaches it
        #[arg(long, value_name = "HOST", required_unless_present = "cancel")]
        address: Option<String>,
        /// How long it may join
        #[arg(long, default_value = "1h")]
        ttl: HumanDuration,
        /// No longer allow it
        #[arg(long, conflicts_with = "address")]
        cancel: bool,
    },
    /// Join this server to a cluster
    Join(setup::JoinArguments),
    /// Show the state of servers and datastores
    #[command(after_help = "Example:\n  bunraku cluster status")]
    Status,
    /// Move a server's datastore to another server before maintenance
    #[command(
        after_help = "Examples:\n  bunraku cluster drain server-2\n  bunraku cluster drain server-2 --undo"
    )]
    Drain {
        /// Name of the server, as shown by `cluster status`
        server: NodeName,
        /// Make the server eligible for a datastore again
        #[arg(long)]
        undo: bool,
        /// Do not wait until the datastore has moved
        #[arg(long)]
        no_wait: bool,
        /// How long to wait; after that, the drain is undone
        #[arg(
            long,
            default_value = "10m",
            value_name = "SPAN",
            conflicts_with = "no_wait"
        )]
        timeout: HumanDuration,
    },
    /// Remove a stopped server without a datastore from the cluster
    #[command(after_help = "Example:\n  bunraku cluster remove server-2")]
    Remove {
        /// Name of the server, as shown by `cluster status`
        server: NodeName,
    },
    /// Recover after the permanent loss of a majority of the datastores
    Recover(recover::RecoverArguments),
}

pub(crate) fn run(command: ClusterCommand, context: &Context) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Init(arguments) => setup::init(arguments, context),
        ClusterCommand::Join(arguments) => setup::join(arguments, context),
        ClusterCommand::Recover(arguments) => recover::run(&arguments, context),
        ClusterCommand::Remove { server } => remove(&server, context),
        ClusterCommand::Invite { ttl } => invite(ttl, context),
        ClusterCommand::Expect {
            server,
            address,
            ttl,
            cancel: _,
        } => expect(&server, address, ttl, context),
        ClusterCommand::Status => status::run(context),
        ClusterCommand::Drain {
            server,
            undo,
            no_wait,
            timeout,
        } => {
            let most = (!no_wait).then_some(timeout.0);
            drain(&server, !undo, most, context)
        }
    }
}

/// Without an address, the server is no longer expected.
fn expect(
    server: &NodeName,
    address: Option<String>,
    ttl: HumanDuration,
    context: &Context,
) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        let Some(host) = address else {
            client
                .call(ForgetExpectedServer.at(server))
                .await
                .map_err(|error| failed(&error))?;
            note!("{server} is no longer expected.");
            return Ok(Exit::Done);
        };
        let request = ExpectServerRequest {
            host,
            ttl_seconds: ttl.0.as_secs(),
        };
        client
            .call_with(ExpectServer.at(server), &request)
            .await
            .map_err(|error| failed(&error))?;
        note!("{server} may join over SSH from {}, once.", request.host);
        Ok(Exit::Done)
    })
}

/// The server's data directory: from the flag, the file or the default.
fn data_dir(named: Option<&PathBuf>, context: &Context) -> PathBuf {
    let configured = &context.loaded.file.server.data_dir;
    named.unwrap_or(configured).clone()
}

fn invite(ttl: HumanDuration, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        let request = ClusterInviteRequest {
            ttl_seconds: ttl.0.as_secs(),
        };
        let invitation: ClusterInvitation = client
            .call_with(InviteServer, &request)
            .await
            .map_err(|error| failed(&error))?;
        if json {
            output::json(&invitation)?;
            return Ok(Exit::Done);
        }
        output::write(&format!("{}\n", invitation.token))?;
        let server = reachable_server(&client).await;
        note!("\nhint: on the new server, as root, put the token into the file /root/invitation and run");
        note!(
            "  bunraku cluster join {server} --ca-fingerprint {} --token-file /root/invitation --address \"$(hostname -f)\"",
            invitation.ca_fingerprint
        );
        Ok(Exit::Done)
    })
}

fn remove(server: &NodeName, context: &Context) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        client
            .call(RemoveServer.at(server))
            .await
            .map_err(|error| failed(&error))?;
        note!("{server} is no longer a member.");
        note!(
            "\nhint: it still has the CA keys; delete {} there",
            context.loaded.file.server.data_dir.display()
        );
        Ok(Exit::Done)
    })
}

/// The interval at which a drain checks whether the role has moved.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);

/// Drains a server, or undoes it. Waits for `most` until the datastore has moved.
fn drain(
    server: &NodeName,
    draining: bool,
    most: Option<std::time::Duration>,
    context: &Context,
) -> Result<Exit, Failure> {
    context.with_client(|client| async move {
        client
            .call_with(DrainServer.at(server), &DrainRequest { draining })
            .await
            .map_err(|error| failed(&error))?;
        if !draining {
            note!("{server} may store data again.");
            return Ok(Exit::Done);
        }
        let mut said = None;
        let started = std::time::Instant::now();
        loop {
            let status: ClusterStatus = client
                .call(ShowCluster)
                .await
                .map_err(|error| failed(&error))?;
            let keeps = status
                .datastores
                .iter()
                .any(|datastore| datastore.name.as_ref() == Some(server));
            if !keeps {
                note!("{server} stores no data; you can take it out of service.");
                return Ok(Exit::Done);
            }
            let Some(most) = most else {
                note!(
                    "The datastore of {server} is being moved; watch it with `bunraku cluster status`."
                );
                return Ok(Exit::Done);
            };
            if started.elapsed() >= most {
                let undo = DrainRequest { draining: false };
                let undone = client.call_with(DrainServer.at(server), &undo).await;
                undone.map_err(|error| failed(&error))?;
                let waiting = status.sight.waiting.unwrap_or_else(|| "it still stores data".to_owned());
                return Err(Failure::new(format!(
                    "the datastore of {server} did not move within {} s, so the drain was undone: {waiting}",
                    most.as_secs()
                ))
                .hint("see the servers and what they wait for with `bunraku cluster status`"));
            }
            let newest = status.events.last().map(|event| event.what.clone());
            if newest != said {
                if let Some(what) = &newest {
                    note!("{what}");
                }
                said = newest;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}
