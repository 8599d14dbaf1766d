//! `bunraku node add`: installs an agent on a machine over SSH.
//!
//! Every step can be repeated, so a call that failed halfway can be repeated as it
//! was. The token is passed through standard input, never on a command line.

use std::path::PathBuf;

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{Command, NewToken, TokenRequest};
use bunraku_wire::endpoints::{CreateToken, Endpoint, RevokeToken};

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_commands::{report_answers, send_and_wait};
use crate::ssh::{Binary, SshArgs, SshConnection, Upload, quoted};

/// The lifetime of the token: longer than the whole call.
const TOKEN_SECONDS: u64 = 900;

#[derive(clap::Args)]
#[command(after_help = "Example:
  bunraku node add root@web-1.example.com --agent-server bunraku.example.com")]
pub(crate) struct AddArguments {
    /// Machine, in the form that `ssh` accepts
    #[arg(value_name = "[USER@]HOST")]
    destination: String,
    /// Name of the node [default: the machine's host name]
    #[arg(long)]
    name: Option<NodeName>,
    /// Server, under the name by which the node reaches it; repeatable [default: the servers of this call]
    #[arg(long, value_name = "HOST[:PORT]")]
    agent_server: Vec<String>,
    /// Bunraku binary to copy, instead of this one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Directory for the binary on that machine
    #[arg(long, value_name = "DIR", default_value = "/usr/local/bin")]
    install_dir: String,
    /// Configuration file of the agent; an existing file is not changed
    #[arg(long, value_name = "FILE", default_value = "/etc/bunraku/bunraku.toml")]
    agent_config: String,
    /// Directory for the agent's certificate, key and journal
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bunraku/agent")]
    agent_dir: String,
    /// How long to wait until the agent answers
    #[arg(long, default_value = "60s")]
    timeout: HumanDuration,
    #[command(flatten)]
    connection: SshArgs,
}

/// A machine that is joining.
struct JoiningNode<'a> {
    arguments: &'a AddArguments,
    remote: SshConnection,
    program: String,
    name: NodeName,
}

pub(super) async fn run(
    client: &Client,
    arguments: &AddArguments,
    servers: &[String],
    json: bool,
) -> Result<Exit, Failure> {
    let servers = match arguments.agent_server.as_slice() {
        [] => servers,
        named => named,
    };
    if servers.is_empty() {
        return Err(Failure::usage("the node needs the address of a server")
            .hint("pass the address that the node can reach with `--agent-server HOST`"));
    }
    let remote = SshConnection::new(&arguments.destination, &arguments.connection)?;
    let binary = Binary::new(arguments.binary.clone())?;
    let installed = binary.install(&remote, &quoted(&arguments.install_dir))?;
    let place = if installed.copied {
        "copied to"
    } else {
        "is already at"
    };
    note!(
        "{}: Bunraku {place} {}",
        arguments.destination,
        arguments.install_dir
    );
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => own_name(&remote, &installed.word)?,
    };
    let joining = JoiningNode {
        arguments,
        remote,
        program: installed.word,
        name,
    };
    joining.join(client, servers).await?;
    joining.start()?;
    let name = joining.name.clone();
    let answers = send_and_wait(client, vec![name], Command::Ping, arguments.timeout).await?;
    report_answers(&answers, json)
}

/// Returns the machine's own name.
fn own_name(remote: &SshConnection, program: &str) -> Result<NodeName, Failure> {
    let script =
        format!("{program} facts local networking.fqdn 2>/dev/null || hostname -f || hostname");
    let shown = remote.run("determine the host name", &script, &Upload::Nothing)?;
    let name = shown.trim().trim_matches('"').to_ascii_lowercase();
    NodeName::new(name).map_err(|error| {
        Failure::new("the machine's host name is not a valid node name")
            .caused_by(&error)
            .hint("set one with `--name`")
    })
}

impl JoiningNode<'_> {
    /// Joins with a token that is good for this node only.
    async fn join(&self, client: &Client, servers: &[String]) -> Result<(), Failure> {
        let request = TokenRequest {
            ttl_seconds: TOKEN_SECONDS,
            node: Some(self.name.clone()),
        };
        let token: NewToken =
            (client.call_with(CreateToken, &request).await).map_err(|error| failed(&error))?;
        self.write_configuration(servers, &token.ca_fingerprint.to_string())?;
        let script = format!(
            "set -e; umask 077; mkdir -p {directory}; BUNRAKU_TOKEN=$(cat); export BUNRAKU_TOKEN; \
             {program} --config {config} --log warn agent --join-only",
            directory = quoted(&self.arguments.agent_dir),
            program = self.program,
            config = quoted(&self.arguments.agent_config),
        );
        let secret = Upload::Bytes(token.token.as_bytes());
        let joined = self.remote.run("join", &script, &secret);
        // A node that had joined before did not use the token. Otherwise the token is
        // used up, and revoking it changes nothing.
        let _ = client.call(RevokeToken.at(&token.entry.id)).await;
        joined?;
        note!("{}: joined as {}", self.arguments.destination, self.name);
        Ok(())
    }

    fn write_configuration(&self, servers: &[String], fingerprint: &str) -> Result<(), Failure> {
        let servers = toml::Value::from(servers.to_vec());
        let text = format!(
            "[client]\nservers = {servers}\n\n[agent]\nname = {}\nservers = {servers}\n\
             data_dir = {}\nca_fingerprint = {}\n",
            toml::Value::from(self.name.as_str()),
            toml::Value::from(self.arguments.agent_dir.as_str()),
            toml::Value::from(fingerprint),
        );
        let script = format!(
            "set -e; umask 022; file={}; \
             if [ -e \"$file\" ]; then cat > /dev/null; echo kept; exit 0; fi; \
             mkdir -p \"$(dirname \"$file\")\"; cat > \"$file.new\"; mv \"$file.new\" \"$file\"",
            quoted(&self.arguments.agent_config)
        );
        let shown = self.remote.run(
            "write the configuration",
            &script,
            &Upload::Bytes(text.as_bytes()),
        )?;
        if shown.trim() == "kept" {
            note!(
                "{}: {} exists; not changed",
                self.arguments.destination,
                self.arguments.agent_config
            );
        }
        Ok(())
    }

    /// As a service where systemd runs, else as a process of its own.
    fn start(&self) -> Result<(), Failure> {
        let unit = format!(
            "[Unit]\nDescription=Bunraku agent\nAfter=network-online.target\n\
             Wants=network-online.target\n\n[Service]\n\
             ExecStart={}/bunraku --config {} agent\nRestart=always\nRestartSec=5\n\
             KillMode=mixed\n\n[Install]\nWantedBy=multi-user.target\n",
            self.arguments.install_dir, self.arguments.agent_config
        );
        let script = format!(
            "set -e; if [ -d /run/systemd/system ]; then \
             cat > /etc/systemd/system/bunraku-agent.service; systemctl daemon-reload; \
             systemctl enable --quiet bunraku-agent; systemctl restart bunraku-agent; echo service; \
             else cat > /dev/null; cd /; umask 077; \
             setsid {program} --config {config} agent > /dev/null 2>> {directory}/agent.log < /dev/null & \
             echo $! > {directory}/agent.pid; echo process; fi",
            program = self.program,
            config = quoted(&self.arguments.agent_config),
            directory = quoted(&self.arguments.agent_dir),
        );
        let how = self
            .remote
            .run("start the agent", &script, &Upload::Bytes(unit.as_bytes()))?;
        match how.trim() {
            "service" => note!(
                "{}: agent started as bunraku-agent.service",
                self.arguments.destination
            ),
            _ => note!(
                "{}: agent started; without systemd, it does not start automatically after a reboot",
                self.arguments.destination
            ),
        }
        Ok(())
    }
}
