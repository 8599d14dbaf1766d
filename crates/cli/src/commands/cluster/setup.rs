//! `bunraku cluster init` and `join`: on the server itself, before it starts.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_cluster::directory::{Directory, place_authority};
use bunraku_cluster::setup::{self, NewMember};
use bunraku_model::NodeName;
use bunraku_wire::api::cluster::{
    ClusterJoinRequest, ClusterSshJoinRequest, ClusterSshWelcome, ClusterWelcome, SSH_PLACE,
};
use bunraku_wire::endpoints::{JoinCluster, JoinClusterOverSsh};
use bunraku_wire::tls::client_config_pinned;
use bunraku_wire::{
    Client, ClientOptions, Fingerprint, ReloadableClientTls, Request, ServerAddress,
};
use clap::Args;
use jiff::Timestamp;
use uuid::Uuid;

use super::data_dir;
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Long enough for two connections over SSH.
const ANSWER: Duration = Duration::from_secs(75);

/// The identity of this server for other members.
#[derive(Args)]
struct MemberArguments {
    /// Data directory of the server
    #[arg(long, env = "BUNRAKU_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Name or address by which the other servers reach this one
    #[arg(long, value_name = "HOST")]
    address: String,

    /// Name in the server's certificate [default: the host name]
    #[arg(long, env = "BUNRAKU_SERVER_NAME")]
    name: Option<String>,

    /// Port for nodes and operators
    #[arg(long, default_value_t = 8150)]
    port: u16,

    /// Port for other servers
    #[arg(long, default_value_t = 8151)]
    member_port: u16,

    /// Port of the datastore for servers
    #[arg(long, default_value_t = 8152)]
    datastore_port: u16,

    /// Port of the datastore for other datastores
    #[arg(long, default_value_t = 8153)]
    datastore_peer_port: u16,

    /// Never run a datastore on this server
    #[arg(long)]
    not_eligible: bool,
}

#[derive(Args)]
#[command(after_help = "Example:
  bunraku cluster init --address 192.0.2.1 && bunraku server

One server stores all data until there are three. Then all three store it, and
the cluster tolerates the loss of one.")]
pub(crate) struct InitArguments {
    #[command(flatten)]
    place: MemberArguments,

    /// Number of datastores, if there are enough servers: 1, 3 or 5
    #[arg(long, default_value_t = 3)]
    datastores: usize,
}

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku cluster join 192.0.2.1:8150 --ca-fingerprint SHA256:… --token-file token --address 192.0.2.2 && bunraku server
  bunraku cluster join 192.0.2.1:8150 --ca-fingerprint SHA256:… --address 192.0.2.2   # verified over SSH

Without a token, SERVER connects to this machine over SSH, as configured there in
[server.cluster.ssh], and writes the keys of a member to a directory that only root
can read.")]
pub(crate) struct JoinArguments {
    /// Member of the cluster, HOST:PORT
    #[arg(value_name = "SERVER")]
    to: ServerAddress,

    /// Fingerprint of the CA to trust, as printed by `bunraku cluster invite`
    #[arg(long)]
    ca_fingerprint: Fingerprint,

    /// File with the one-time token from `bunraku cluster invite`; without it,
    /// SERVER verifies this machine over SSH
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    place: MemberArguments,
}

impl MemberArguments {
    fn new_member(&self, context: &Context) -> Result<NewMember, Failure> {
        let configured = context.loaded.file.server.name.clone();
        let name = match self.name.clone().or(configured) {
            Some(name) => name,
            None => super::super::agent::host_name()?,
        };
        if self
            .address
            .parse::<IpAddr>()
            .is_ok_and(|it| it.is_unspecified())
        {
            return Err(Failure::usage(format!(
                "other servers cannot reach this server at {}",
                self.address
            )));
        }
        let bracketed = if self.address.contains(':') {
            format!("[{}]", self.address)
        } else {
            self.address.clone()
        };
        Ok(NewMember {
            name: NodeName::new(name.to_ascii_lowercase())?,
            host: self.address.clone(),
            api_address: format!("{bracketed}:{}", self.port),
            member_port: self.member_port,
            client_port: self.datastore_port,
            peer_port: self.datastore_peer_port,
            eligible: !self.not_eligible,
        })
    }
}

/// Refuses if an embedded store exists: its data would silently be left behind.
fn refuse_embedded_data(data_dir: &Path) -> Result<(), Failure> {
    if data_dir.join("store").exists() {
        return Err(Failure::new(format!(
            "{} contains an embedded store, whose data would not move to the cluster",
            data_dir.display()
        ))
        .exit(Exit::Refused)
        .hint("use another `--data-dir`; nodes must join again"));
    }
    Ok(())
}

pub(crate) fn init(arguments: InitArguments, context: &Context) -> Result<Exit, Failure> {
    let data_dir = data_dir(arguments.place.data_dir.as_ref(), context);
    refuse_embedded_data(&data_dir)?;
    let new = arguments.place.new_member(context)?;
    let directory = Directory::of(&data_dir);
    let me = setup::init(&directory, &new, arguments.datastores, Timestamp::now())
        .map_err(|error| Failure::from(error).exit(Exit::Refused))?;
    note!(
        "Created cluster {cluster} with {name} as its first server.",
        cluster = me.cluster,
        name = new.name
    );
    if arguments.datastores > 1 {
        note!(
            "It stores all data until there are {} servers.",
            arguments.datastores
        );
    }
    note!("\nhint: start it with `bunraku server`, then add others with `bunraku cluster invite`");
    Ok(Exit::Done)
}

pub(crate) fn join(arguments: JoinArguments, context: &Context) -> Result<Exit, Failure> {
    let data_dir = data_dir(arguments.place.data_dir.as_ref(), context);
    refuse_embedded_data(&data_dir)?;
    let directory = Directory::of(&data_dir);
    if directory.local_member()?.is_some() {
        return Err(Failure::new(format!(
            "this server is already a member of a cluster ({})",
            directory.path().display()
        ))
        .exit(Exit::Refused));
    }
    let new = arguments.place.new_member(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let welcome = match &arguments.token_file {
        Some(file) => {
            let token = std::fs::read_to_string(file).map_err(|error| {
                Failure::new(format!("cannot read {}", file.display())).caused_by(&error)
            })?;
            runtime.block_on(ask(&arguments, &new, token.trim().to_owned()))?
        }
        None => runtime.block_on(ask_over_ssh(&arguments, &new, &directory))?,
    };
    match &welcome.authority {
        Some(files) => place_authority(&data_dir.join("ca"), files)?,
        None => note!(
            "warning: the cluster uses a Puppet CA; copy its directory to this server and set `directory` under [server.authority]"
        ),
    }
    setup::join(&directory, &new, &welcome, Timestamp::now())?;
    note!(
        "{} joined cluster {}, which now has {}.",
        new.name,
        welcome.cluster,
        output::count(welcome.members.len(), "server")
    );
    if welcome.members.len() == 2 {
        note!(
            "warning: with two servers, only one stores the data; add a third to tolerate a failure"
        );
    }
    note!("\nhint: start it with `bunraku server`");
    Ok(Exit::Done)
}

async fn ask(
    arguments: &JoinArguments,
    new: &NewMember,
    token: String,
) -> Result<ClusterWelcome, Failure> {
    let server = new.joining(Timestamp::now());
    let request = ClusterJoinRequest { token, server };
    client(arguments)?
        .call_with(JoinCluster, &request)
        .await
        .map_err(|error| failed(&error))
}

fn client(arguments: &JoinArguments) -> Result<Client, Failure> {
    let (pinned, _) = client_config_pinned(arguments.ca_fingerprint)?;
    let tls = ReloadableClientTls::from_config(pinned);
    let mut options = ClientOptions::new(vec![arguments.to.clone()], tls);
    options.request_timeout = ANSWER;
    Ok(Client::new(options))
}

/// Waits until the other server has connected over SSH, compared the key in a directory
/// that only root can read, and written what a member needs.
async fn ask_over_ssh(
    arguments: &JoinArguments,
    new: &NewMember,
    directory: &Directory,
) -> Result<ClusterWelcome, Failure> {
    let key = directory.credentials().load_or_create_key()?;
    let key = Request::from_pem(&Request::create(&new.name, &key)?)?;
    let key = Fingerprint::of(key.public_key_info()).to_string();
    let place = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let waiting = WaitingPlace::create(&place, &key)?;
    let request = ClusterSshJoinRequest {
        place,
        key,
        server: new.joining(Timestamp::now()),
    };
    note!(
        "waiting for {} to verify this machine over SSH",
        arguments.to
    );
    let reply: ClusterSshWelcome = client(arguments)?
        .call_with(JoinClusterOverSsh, &request)
        .await
        .map_err(|error| failed(&error))?;
    note!("verified by {}", reply.verified_by);
    waiting.welcome()
}

/// The directory in which this server waits. Removed on drop.
struct WaitingPlace(PathBuf);

impl WaitingPlace {
    fn create(place: &str, key: &str) -> Result<Self, Failure> {
        let made = Self(Path::new(SSH_PLACE).join(place));
        let failed = |error: std::io::Error| {
            Failure::new(format!("cannot create {}", made.0.display()))
                .caused_by(&error)
                .hint("run as root to join without a token")
        };
        bunraku_files::create_private_directory(Path::new(SSH_PLACE)).map_err(failed)?;
        bunraku_files::create_private_directory(&made.0).map_err(failed)?;
        bunraku_files::create(&made.0.join("key"), key.as_bytes(), 0o600).map_err(failed)?;
        Ok(made)
    }

    fn welcome(&self) -> Result<ClusterWelcome, Failure> {
        let path = self.0.join("welcome");
        let text = std::fs::read(&path).map_err(|error| {
            Failure::new("the other server verified a different machine")
                .caused_by(&error)
                .hint("check that `--address` is the address of this machine")
        })?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
