//! The demo's server and agents, and the actions on them.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bunraku_model::{NodeName, StatusWord};
use bunraku_store::HeldPort;
use bunraku_wire::api::{
    Command, CommandState, CommandStatus, DisableRequest, FactsReply, NewToken, NodeSummary,
    SendCommand, SentCommand, TokenRequest,
};
use bunraku_wire::endpoints::{
    CreateToken, DisableNode, Endpoint, ListNodes, SendCommands, ShowCommand, ShowFacts, WaitQuery,
};
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{
    Client, ClientError, ClientOptions, Credentials, ReloadableClientTls, ServerAddress,
};
use serde::Deserialize;

use super::process::Process;
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;

/// The nodes of the example site, with their roles.
const NODES: [(&str, &str); 4] = [
    ("dev1.devco.net", "database"),
    ("dev2.devco.net", "web"),
    ("dev3.devco.net", "web"),
    ("dev4.devco.net", "web"),
];

/// The interval at which the demo polls the list of nodes.
pub(super) const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct DemoFleet {
    pub(super) directory: PathBuf,
    server: Option<Process>,
    /// The servers of a cluster, if there is one.
    pub(super) members: Vec<super::cluster::Member>,
    agents: BTreeMap<&'static str, Process>,
    pub(super) ready: Option<ServerReady>,
    /// The ports of the servers, held even while a server is dead.
    ports: Vec<HeldPort>,
    /// The time up to which cluster events were reported.
    pub(super) shown_until: Option<jiff::Timestamp>,
}

/// The data that the server prints when it is ready.
#[derive(Deserialize, Clone)]
pub(super) struct ServerReady {
    pub(super) listening: SocketAddr,
    ca_fingerprint: String,
}

impl DemoFleet {
    /// Uses the given empty directory, or creates one.
    pub(crate) fn new(named: Option<&Path>) -> Result<Self, Failure> {
        let directory = match named {
            Some(path) => path.to_owned(),
            None => {
                std::env::temp_dir().join(format!("bunraku-demo-{}", uuid::Uuid::new_v4().simple()))
            }
        };
        std::fs::create_dir_all(&directory)?;
        if std::fs::read_dir(&directory)?.next().is_some() {
            let failure = Failure::usage(format!("{} is not empty", directory.display()));
            return Err(failure.hint("pass an empty directory: the demo deletes it at the end"));
        }
        Ok(Self {
            directory,
            server: None,
            members: Vec::new(),
            agents: BTreeMap::new(),
            ready: None,
            ports: Vec::new(),
            shown_until: None,
        })
    }

    /// Reserves a port for a server until the end of the demo.
    pub(super) fn hold_port(&mut self) -> Result<u16, Failure> {
        let port = HeldPort::any()?;
        let number = port.number();
        self.ports.push(port);
        Ok(number)
    }

    pub(crate) async fn start_server(&mut self, stage: &Stage) -> Result<(), Failure> {
        let started = Instant::now();
        let listen = match &self.ready {
            Some(ready) => ready.listening.to_string(),
            None => format!("127.0.0.1:{}", self.hold_port()?),
        };
        let mut server = Process::start(
            "the server",
            &self.directory.join("server.log"),
            &[
                "server".to_owned(),
                "--data-dir".to_owned(),
                self.path("server"),
                "--listen".to_owned(),
                listen,
                "--name".to_owned(),
                "puppeteer.devco.net".to_owned(),
                "--end-with-parent".to_owned(),
                std::process::id().to_string(),
            ],
        )?;
        let line = server.first_line().await?;
        let ready: ServerReady = serde_json::from_str(&line)?;
        stage.note(&format!(
            "listening on {}, ready after {:.2} s",
            ready.listening,
            started.elapsed().as_secs_f64()
        ));
        if self.ready.is_none() {
            stage.note(&format!("CA fingerprint {}", ready.ca_fingerprint));
        }
        self.ready = Some(ready);
        self.server = Some(server);
        Ok(())
    }

    pub(crate) async fn start_agents(&mut self, stage: &Stage) -> Result<(), Failure> {
        let client = self.client()?;
        for (name, role) in NODES {
            let request = TokenRequest {
                ttl_seconds: 600,
                node: Some(node_name(name)),
            };
            let token: NewToken = client
                .call_with(CreateToken, &request)
                .await
                .map_err(|error| failed(&error))?;
            let home = self.directory.join(name);
            std::fs::create_dir_all(home.join("facts.d"))?;
            let facts = format!(
                "role: {role}\nbalancer: {}\ndemo_root: {}\n",
                name == NODES[3].0,
                home.join("machine").display()
            );
            std::fs::write(home.join("facts.d/role.yaml"), facts)?;
            std::fs::write(home.join("token"), &token.token)?;
            self.start_agent(name)?;
        }
        self.watch_joining(&client, stage).await
    }

    fn start_agent(&mut self, name: &'static str) -> Result<(), Failure> {
        let ready = self
            .ready
            .as_ref()
            .ok_or_else(|| Failure::new("the server is not running"))?;
        let home = self.directory.join(name);
        let agent = Process::start(
            name,
            &home.join("agent.log"),
            &[
                "agent".to_owned(),
                "--name".to_owned(),
                name.to_owned(),
                "--server".to_owned(),
                ready.listening.to_string(),
                "--ca-fingerprint".to_owned(),
                ready.ca_fingerprint.clone(),
                "--token-file".to_owned(),
                home.join("token").display().to_string(),
                "--data-dir".to_owned(),
                home.join("agent").display().to_string(),
                "--external-facts".to_owned(),
                home.join("facts.d").display().to_string(),
                "--state-dir".to_owned(),
                home.join("state").display().to_string(),
                "--run-interval".to_owned(),
                "0s".to_owned(),
                "--run-on-release".to_owned(),
                "--release-splay=0s".to_owned(),
                "--end-with-parent".to_owned(),
                std::process::id().to_string(),
            ],
        )?;
        self.agents.insert(name, agent);
        Ok(())
    }

    /// Reports each node as it joins, connects, and submits its facts.
    async fn watch_joining(&self, client: &Client, stage: &Stage) -> Result<(), Failure> {
        let mut shown_until = HashSet::new();
        loop {
            for node in nodes(client).await? {
                let name = node.name.to_string();
                if shown_until.insert((name.clone(), "joined")) {
                    stage.note(&format!("{name}  joined"));
                }
                if node.word != StatusWord::New && shown_until.insert((name.clone(), "connected")) {
                    stage.note(&format!("{name}  connected"));
                }
                if node.fact_set.is_some() && shown_until.insert((name.clone(), "facts")) {
                    stage.note(&format!(
                        "{name}  {}",
                        self.describe_facts(client, &node.name).await?
                    ));
                }
            }
            if shown_until.len() == 3 * NODES.len() {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn describe_facts(&self, client: &Client, node: &NodeName) -> Result<String, Failure> {
        let reply = client.call(ShowFacts.at(node)).await;
        let reply: FactsReply = reply.map_err(|error| failed(&error))?;
        let fact = |path: &str| {
            reply
                .facts
                .get(path)
                .and_then(|value| value.as_str())
                .unwrap_or("?")
                .to_owned()
        };
        Ok(format!(
            "facts: {} {}, kernel {}, role {}",
            fact("os.name"),
            fact("os.release.full"),
            fact("kernelrelease"),
            fact("role")
        ))
    }

    /// Returns the server and the credentials for it, as flags take them.
    pub(super) fn operator(&self) -> Result<(String, String), Failure> {
        let ready = self
            .ready
            .as_ref()
            .ok_or_else(|| Failure::new("the server is not running"))?;
        let servers: Vec<String> = if self.members.is_empty() {
            vec![ready.listening.to_string()]
        } else {
            self.member_addresses()
        };
        Ok((servers.join(","), self.path("server/operator")))
    }

    pub(crate) async fn wait_until_all_answer(&self, stage: &Stage) -> Result<(), Failure> {
        let started = Instant::now();
        self.all_answer().await?;
        stage.note(&format!(
            "all four answered a command within {:.2} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Sends a command to every node and waits for every answer. A request may fail while a cluster
    /// elects a leader; it is then repeated, as a user would do.
    pub(super) async fn all_answer(&self) -> Result<(), Failure> {
        let client = self.client()?;
        let all = || NODES.map(|(name, _)| node_name(name)).to_vec();
        let sent = loop {
            match send(&client, all()).await {
                Ok(sent) => break sent,
                Err(failure) if self.members.is_empty() => return Err(failure),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        };
        for sent in &sent {
            while let Err(failure) = wait_for_answer(&client, sent).await {
                if self.members.is_empty() {
                    return Err(failure);
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn disable_one(&self, stage: &Stage) -> Result<(), Failure> {
        let client = self.client()?;
        let request = DisableRequest {
            reason: "disk replacement".to_owned(),
        };
        client
            .call_with(DisableNode.at(&node_name("dev4.devco.net")), &request)
            .await
            .map_err(|error| failed(&error))?;
        stage.note("dev4.devco.net  disabled: disk replacement");
        Ok(())
    }

    /// Queues a command for a disconnected node, kills the server without warning, and restarts it.
    /// The node still gets its command.
    pub(crate) async fn lose_the_server(&mut self, stage: &Stage) -> Result<(), Failure> {
        let away = "dev2.devco.net";
        if let Some(mut agent) = self.agents.remove(away) {
            agent.kill().await?;
        }
        stage.note(&format!("{away}  agent killed"));
        let client = self.client()?;
        let sent = send(&client, vec![node_name(away)]).await?;
        stage.note(&format!("{away}  command queued"));
        if let Some(mut server) = self.server.take() {
            server.kill().await?;
        }
        stage.note("server killed");
        self.start_server(stage).await?;
        self.start_agent(away)?;
        let client = self.client()?;
        for sent in &sent {
            wait_for_answer(&client, sent).await?;
        }
        stage.note(&format!(
            "{away}  reconnected and answered the queued command"
        ));
        loop {
            let back = nodes(&client).await?;
            if back
                .iter()
                .all(|node| matches!(node.word, StatusWord::Idle | StatusWord::Disabled))
            {
                stage.note("all four are connected again; nothing was lost");
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn show_nodes(&self, stage: &mut Stage) -> Result<(), Failure> {
        stage.act("The status of every node (`bunraku node list`)");
        let table = crate::node_view::table(nodes(&self.client()?).await?);
        stage.text(&table.render());
        Ok(())
    }

    pub(crate) fn show_what_to_try(&self, stage: &mut Stage) {
        let Some(ready) = &self.ready else { return };
        stage.act("The demo keeps running; try this in another terminal");
        stage.text(&format!(
            "export BUNRAKU_SERVERS={} BUNRAKU_CREDENTIALS={}\nbunraku console\nbunraku node \
             list\nbunraku facts show dev1.devco.net role\nbunraku node ping dev1.devco.net \
             dev2.devco.net\nbunraku cert list\nbunraku cert revoke dev3.devco.net --reason 'just \
             trying'\n\nPress Ctrl-C here to stop everything and clean up.",
            ready.listening,
            self.directory.join("server/operator").display()
        ));
    }

    /// Ends all processes.
    pub(crate) async fn end(&mut self) {
        let agents = std::mem::take(&mut self.agents);
        futures::future::join_all(
            agents
                .into_values()
                .map(|mut agent| async move { agent.end().await }),
        )
        .await;
        if let Some(mut server) = self.server.take() {
            server.end().await;
        }
        self.end_members().await;
    }

    /// Removes the directory.
    pub(crate) fn clean_up(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            note!(
                "warning: cannot remove {}: {error}",
                self.directory.display()
            );
        }
    }

    pub(crate) fn where_the_logs_are(&self) -> String {
        format!(
            "all processes stopped; read their logs in {}, then delete it",
            self.directory.display()
        )
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    pub(super) fn client(&self) -> Result<Client, Failure> {
        let ready = self
            .ready
            .as_ref()
            .ok_or_else(|| Failure::new("the server is not running"))?;
        let mut servers = if self.members.is_empty() {
            vec![ready.listening.to_string()]
        } else {
            self.member_addresses()
        };
        servers.dedup();
        self.client_of(&servers)
    }

    /// Returns a client of these servers.
    pub(super) fn client_of(&self, servers: &[String]) -> Result<Client, Failure> {
        let credentials = Credentials::new(self.directory.join("server/operator"));
        let tls = ClientTls {
            authority_pem: credentials.authority_pem()?.unwrap_or_default(),
            revocation_lists_pem: String::new(),
            identity: credentials.identity()?,
        };
        let servers = servers
            .iter()
            .map(|server| server.parse())
            .collect::<Result<Vec<ServerAddress>, _>>()?;
        Ok(Client::new(ClientOptions::new(
            servers,
            ReloadableClientTls::new(&tls)?,
        )))
    }
}

fn node_name(name: &str) -> NodeName {
    NodeName::new(name).expect("the demo's names are valid")
}

async fn nodes(client: &Client) -> Result<Vec<NodeSummary>, Failure> {
    client
        .call(ListNodes)
        .await
        .map_err(|error: ClientError| failed(&error))
}

async fn send(client: &Client, nodes: Vec<NodeName>) -> Result<Vec<SentCommand>, Failure> {
    let request = SendCommand {
        nodes,
        command: Command::Ping,
        ttl_seconds: 600,
    };
    client
        .call_with(SendCommands, &request)
        .await
        .map_err(|error| failed(&error))
}

async fn wait_for_answer(client: &Client, sent: &SentCommand) -> Result<(), Failure> {
    loop {
        let wait = WaitQuery { wait_seconds: 20 };
        let at = ShowCommand.with_query((&sent.node, &sent.id), &wait);
        let status: CommandStatus = client.call(at).await.map_err(|error| failed(&error))?;
        match status.state {
            CommandState::Answered { .. } => return Ok(()),
            CommandState::Pending { .. } => {}
            CommandState::Expired { .. } => {
                return Err(Failure::new(format!(
                    "{} did not answer in time",
                    sent.node
                )));
            }
        }
    }
}
