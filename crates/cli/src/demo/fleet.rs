//! The demo's server and agents, and the actions on them.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bunraku_model::{NodeName, StatusWord};
use bunraku_store::HeldPort;
use bunraku_wire::api::{
    Command, CommandState, CommandStatus, FactsReply, NewToken, NodeSummary, ReportPage,
    ReportSummary, RunEnding, SendCommand, SentCommand, TokenRequest,
};
use bunraku_wire::endpoints::{
    CreateToken, Endpoint, ListNodes, ListReports, ReportsQuery, SendCommands, ShowCommand,
    ShowFacts, WaitQuery,
};
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{
    Client, ClientError, ClientOptions, Credentials, ReloadableClientTls, ServerAddress,
};
use serde::Deserialize;

use super::panel::Mark;
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
    console: Option<Process>,
    /// What was killed, and how long it took until everything worked again.
    pub(super) losses: Losses,
}

/// What the demo killed, and what came of it.
#[derive(Default)]
pub(super) struct Losses {
    pub(super) killed: Vec<String>,
    pub(super) recovered: Vec<String>,
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
            console: None,
            losses: Losses::default(),
        })
    }

    /// Reserves a port for a server until the end of the demo.
    pub(super) fn hold_port(&mut self) -> Result<u16, Failure> {
        let port = HeldPort::any()?;
        let number = port.number();
        self.ports.push(port);
        Ok(number)
    }

    /// Tells the stage how to shorten names and paths, and which nodes there will be.
    pub(crate) fn introduce(&self, stage: &mut Stage) {
        for (name, _) in NODES {
            stage.shorten(&self.path(&format!("{name}/machine")), "");
        }
        stage.shorten(&format!("{}/", self.directory.display()), "");
        stage.shorten(".devco.net", "");
    }

    pub(crate) async fn start_server(&mut self, stage: &mut Stage) -> Result<(), Failure> {
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
        stage.add("server", "");
        stage.set("server", Mark::Well, "up", &ready.listening.to_string());
        let after = started.elapsed().as_secs_f64();
        stage.note(&format!("the server is ready after {after:.2} s"))?;
        self.ready = Some(ready);
        self.server = Some(server);
        Ok(())
    }

    /// Starts the console and shows its address.
    pub(crate) async fn start_console(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let (servers, credentials) = self.operator()?;
        let mut console = Process::start(
            "the console",
            &self.directory.join("console.log"),
            &[
                "console".to_owned(),
                "--server".to_owned(),
                servers,
                "--credentials".to_owned(),
                credentials,
                format!("--end-with-parent={}", std::process::id()),
            ],
        )?;
        let address = console.first_line().await?;
        stage.note("watch it in a browser, at this address:")?;
        stage.text(address.trim())?;
        self.console = Some(console);
        Ok(())
    }

    pub(crate) async fn start_agents(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let client = self.client()?;
        for (name, role) in NODES {
            stage.add(name, role);
        }
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

    /// Shows each node as it joins, connects, and submits its facts.
    async fn watch_joining(&self, client: &Client, stage: &mut Stage) -> Result<(), Failure> {
        let mut described = HashSet::new();
        loop {
            for node in nodes(client).await? {
                let name = node.name.to_string();
                if described.contains(&name) {
                } else if node.fact_set.is_some() && node.word != StatusWord::New {
                    let facts = self.describe_facts(client, &node.name).await?;
                    stage.set(&name, Mark::Well, "idle", &facts);
                    stage.note(&format!("{name} joined: {facts}"))?;
                    described.insert(name);
                } else {
                    stage.set(&name, Mark::Busy, "joined", "");
                }
            }
            if described.len() == NODES.len() {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn describe_facts(&self, client: &Client, node: &NodeName) -> Result<String, Failure> {
        let reply = client.call(ShowFacts.at(node)).await;
        let reply: FactsReply = reply.map_err(|error| failed(&error))?;
        let fact = |path: &str| {
            let value = reply.facts.get(path).and_then(|value| value.as_str());
            value.unwrap_or("?").to_owned()
        };
        Ok(format!(
            "{} {}, role {}",
            fact("os.name"),
            fact("os.release.full"),
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

    pub(crate) async fn wait_until_all_answer(&self, stage: &mut Stage) -> Result<(), Failure> {
        let started = Instant::now();
        self.all_answer().await?;
        stage.note(&format!(
            "all four answered a command within {:.2} s",
            started.elapsed().as_secs_f64()
        ))
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

    pub(crate) async fn disable_one(&self, stage: &mut Stage) -> Result<(), Failure> {
        let node = "dev4.devco.net";
        let disable = ["node", "disable", node, "--reason", "disk replacement"];
        self.show(stage, &disable).await?;
        stage.set(node, Mark::Attention, "disabled", "disk replacement");
        Ok(())
    }

    /// Queues a command for a disconnected node, kills the server without warning, and restarts it.
    /// The node still gets its command.
    pub(crate) async fn lose_the_server(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let away = "dev2.devco.net";
        if let Some(mut agent) = self.agents.remove(away) {
            agent.kill().await?;
        }
        stage.set(away, Mark::Gone, "lost", "agent killed");
        stage.note(&format!("the agent of {away} is killed"))?;
        let client = self.client()?;
        let sent = send(&client, vec![node_name(away)]).await?;
        stage.note(&format!("a command is queued for {away}"))?;
        if let Some(mut server) = self.server.take() {
            server.kill().await?;
        }
        let killed = Instant::now();
        stage.set("server", Mark::Gone, "killed", "kill -9");
        stage.note("the server is killed (kill -9)")?;
        self.start_server(stage).await?;
        let served = killed.elapsed().as_secs_f64();
        self.start_agent(away)?;
        let client = self.client()?;
        for sent in &sent {
            wait_for_answer(&client, sent).await?;
        }
        stage.set(away, Mark::Well, "idle", "answered the queued command");
        stage.note(&format!(
            "{away} reconnected and answered the queued command"
        ))?;
        let returned =
            |node: &NodeSummary| matches!(node.word, StatusWord::Idle | StatusWord::Disabled);
        while !nodes(&client).await?.iter().all(returned) {
            tokio::time::sleep(LOOK).await;
        }
        stage.note("all four are connected again; dev4 is still disabled, and nothing was lost")?;
        let all = killed.elapsed().as_secs_f64();
        self.losses = Losses {
            killed: vec![
                "the server (kill -9), with a command waiting".to_owned(),
                format!("the agent of {away}"),
            ],
            recovered: vec![
                format!("server ready again after {served:.1} s"),
                format!("all nodes connected after {all:.1} s"),
            ],
        };
        Ok(())
    }

    /// Ends with what was killed, what was lost, and how long recovery took.
    pub(crate) async fn summarise(&self, stage: &mut Stage, next: &str) -> Result<(), Failure> {
        let client = self.client()?;
        let query = ReportsQuery {
            limit: Some(500),
            ..ReportsQuery::default()
        };
        let page: ReportPage = client
            .call(ListReports.with_query((), &query))
            .await
            .map_err(|error| failed(&error))?;
        let succeeded = |report: &&ReportSummary| {
            let finished = report.finished.as_ref();
            finished.is_some_and(|finished| finished.ending == RunEnding::Succeeded)
        };
        let (all, good) = (
            page.reports.len(),
            page.reports.iter().filter(succeeded).count(),
        );
        if good != all {
            return Err(Failure::new(format!("only {good} of {all} runs succeeded")));
        }
        let lines = [
            ("killed", self.losses.killed.join("; ")),
            (
                "lost",
                "nothing: every command was answered, and no run was lost or repeated".to_owned(),
            ),
            ("recovery", self.losses.recovered.join("; ")),
            ("runs", format!("{all} on four nodes, all succeeded")),
            ("next", next.to_owned()),
        ];
        stage.finish(&lines).await
    }

    pub(crate) fn show_what_to_try(&self, stage: &mut Stage) -> Result<(), Failure> {
        let (servers, credentials) = self.operator()?;
        note!(
            "\nThe demo keeps running. Try this in another terminal:\n\n  \
             export BUNRAKU_SERVERS={servers} \\\n         BUNRAKU_CREDENTIALS={credentials}\n  \
             bunraku status\n  bunraku node list\n  bunraku facts show dev1.devco.net role\n  \
             bunraku report list\n  bunraku release list production\n\n\
             Press Ctrl-C here to stop everything and clean up."
        );
        stage.close();
        Ok(())
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
        for mut process in self.console.take().into_iter().chain(self.server.take()) {
            process.end().await;
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
