//! A cluster on its machines, agents beside it, and clients for all of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bunraku_cluster::identity::MemberTls;
use bunraku_model::{NodeName, StatusWord};
use bunraku_store::SharedStore;
use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_wire::api::cluster::{
    ClusterInvitation, ClusterInviteRequest, ClusterStatus, MemberState,
};
use bunraku_wire::api::{NewToken, NodeSummary, TokenRequest};
use bunraku_wire::client::ConditionalReply;
use bunraku_wire::endpoints::{
    CreateToken, Endpoint, InviteServer, ListNodes, ShowCluster, ShowNode,
};
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{Client, ClientOptions, Credentials, ReloadableClientTls};
use rustix::process::{Pid, Signal, kill_process};

use crate::alone::AloneServer;
use crate::history::Server;
use crate::machine::Machine;
use crate::network::{Names, Network, address};
use crate::own_node::OwnNode;
use crate::plant::RemovedGuard;
use crate::setup::{AGENTS, PATIENCE, REGISTERS, SiteError};
use crate::tool::run;

/// A dead server is replaced within seconds here; in production, within minutes.
const SETTINGS: &str = r#"[server.cluster]
listen = "0.0.0.0"
probe_period = "500ms"
probe_timeout = "200ms"
suspicion = "2s"
grace = "1s"
pause_between_changes = "500ms"
most_changes_per_hour = 1000

[agent]
run_noop_command = ["true"]

[server]
agent_silence = "10s"

# A certificate that was issued with a clock behind by `STOLEN_AGE` can be renewed at once.
[server.certificates]
node_lifetime = "1h"

[server.limits]
node_requests_per_second = 10
node_request_burst = 20
"#;

/// The age of certificates that are stolen, in seconds: more than half of their lifetime.
const STOLEN_AGE: i64 = 35 * 60;
/// The number of certificates that can be stolen in one run.
const STOLEN: usize = 3;

pub(crate) struct Site {
    pub(crate) place: PathBuf,
    pub(crate) machines: Vec<Machine>,
    pub(crate) network: Network,
    pub(crate) datastores: usize,
    agents: Vec<Child>,
    tls: Option<ReloadableClientTls>,
    /// The server with the embedded store.
    pub(crate) alone: AloneServer,
    /// The node that floods servers.
    pub(crate) flooder: Option<OwnNode>,
    /// Certificates that nobody has stolen yet.
    pub(crate) to_steal: Vec<OwnNode>,
}

/// The size of a run.
#[derive(Clone, Debug)]
pub struct RunSize {
    pub servers: usize,
    pub datastores: usize,
    pub plant: RemovedGuard,
}

impl Site {
    /// Starts everything, and waits until the cluster is complete.
    pub(crate) async fn start(
        place: &Path,
        names: Names,
        size: &RunSize,
    ) -> Result<Self, SiteError> {
        let network = Network::build(names.clone(), size.servers).await?;
        write(&place.join("cluster.toml"), &size.plant.settings(SETTINGS))?;
        let mut machines = Vec::new();
        for number in 0..size.servers {
            machines.push(Machine::new(number, place, &names, size.plant.in_cluster()).await?);
        }
        let mut site = Self {
            place: place.to_owned(),
            machines,
            network,
            datastores: size.datastores,
            agents: Vec::new(),
            tls: None,
            alone: AloneServer::start(place, size.plant).await?,
            flooder: None,
            to_steal: Vec::new(),
        };
        site.form().await?;
        site.wait_until_healthy().await?;
        site.join_own_nodes().await?;
        site.join_nodes().await?;
        Ok(site)
    }

    /// Forms the cluster: the first server, then one after the other with a token, as operators do.
    async fn form(&mut self) -> Result<(), SiteError> {
        let mut init = vec![
            "cluster".to_owned(),
            "init".to_owned(),
            format!("--datastores={}", self.datastores),
        ];
        init.extend(self.server_arguments(0));
        self.command(0, &init)?;
        self.machines[0].start();
        let first = self.first_client().await?;
        for number in 1..self.machines.len() {
            let request = ClusterInviteRequest { ttl_seconds: 600 };
            let invitation: ClusterInvitation = first.call_with(InviteServer, &request).await?;
            let token = self.place.join("token");
            write(&token, &invitation.token)?;
            let mut join = vec![
                "cluster".to_owned(),
                "join".to_owned(),
                self.machines[0].api(),
                format!("--ca-fingerprint={}", invitation.ca_fingerprint),
                format!("--token-file={}", token.display()),
            ];
            join.extend(self.server_arguments(number));
            self.command(number, &join)?;
            self.machines[number].start();
        }
        Ok(())
    }

    fn server_arguments(&self, number: Server) -> Vec<String> {
        vec![
            format!("--config={}", self.place.join("cluster.toml").display()),
            format!("--data-dir={}", self.machines[number].data_dir().display()),
            format!("--name={}", self.machines[number].name),
            format!("--address={}", address(number)),
        ]
    }

    fn command(&self, number: Server, words: &[String]) -> Result<(), SiteError> {
        ended_well(self.machines[number].bunraku(words), words)
    }

    /// Waits until the first server is up, and returns a client that acts as its operator.
    async fn first_client(&mut self) -> Result<Client, SiteError> {
        let operator = Credentials::new(self.machines[0].data_dir().join("operator"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let (Ok(Some(identity)), Ok(Some(authority_pem))) =
                (operator.identity(), operator.authority_pem())
            {
                let tls = ClientTls {
                    authority_pem,
                    revocation_lists_pem: String::new(),
                    identity: Some(identity),
                };
                let tls = ReloadableClientTls::new(&tls)
                    .map_err(|error| SiteError::Setup(error.to_string()))?;
                self.tls = Some(tls);
                let client = self.client(0);
                if client.call(ListNodes).await.is_ok() {
                    return Ok(client);
                }
            }
            if Instant::now() > deadline {
                return Err(SiteError::Late(
                    "the first server does not answer".to_owned(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns an operator's client that talks only to this server.
    pub(crate) fn client(&self, server: Server) -> Client {
        let tls = self.tls.clone().expect("made when the first server was up");
        let address = self.machines[server].api().parse().expect("an address");
        let mut options = ClientOptions::new(vec![address], tls);
        options.connect_timeout = Duration::from_secs(1);
        options.request_timeout = Duration::from_secs(6);
        options.keep_alive = Some(Duration::from_secs(2));
        Client::new(options).with_request_id(crate::history::SETUP_REQUEST)
    }

    pub(crate) async fn status(&self) -> Option<ClusterStatus> {
        for machine in &self.machines {
            let client = self.client(machine.number);
            let asked = client.call(ShowCluster);
            if let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(3), asked).await {
                return Some(status);
            }
        }
        None
    }

    /// Waits until all servers are alive and all datastores have their vote.
    pub(crate) async fn wait_until_healthy(&mut self) -> Result<(), SiteError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if status.as_ref().is_some_and(|it| self.is_healthy(it)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = status.map(|status| serde_json::json!({
                    "datastores": status.datastores, "sight": status.sight, "change": status.change,
                    "events": status.events.iter().rev().take(12).collect::<Vec<_>>(),
                }));
                return Err(SiteError::Late(format!(
                    "the cluster does not become whole again: {}",
                    message.map_or("no server answers".to_owned(), |message| format!(
                        "{message:#}"
                    ))
                )));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.restart_dead_processes();
        }
    }

    fn is_healthy(&self, status: &ClusterStatus) -> bool {
        let votes = status.datastores.iter();
        let votes = votes.filter(|it| it.healthy && !it.learner).count();
        let alive = status.sight.members.iter();
        let alive = alive.filter(|it| it.state == MemberState::Alive).count();
        votes == self.datastores
            && status.datastores.len() == self.datastores
            && alive == self.machines.len()
    }

    pub(crate) fn restart_dead_processes(&mut self) {
        for machine in &mut self.machines {
            machine.restart_dead_processes();
        }
        // Tried again soon, if it fails.
        let _ = self.alone.restart_if_dead();
    }

    /// Joins the nodes that this process plays. The clock of the first server is behind for some
    /// of them, so that their certificates are old.
    async fn join_own_nodes(&mut self) -> Result<(), SiteError> {
        let operator = self.client(0);
        self.flooder = Some(OwnNode::join(&operator, "flooder").await?);
        self.machines[0].set_clock(-STOLEN_AGE);
        while self.to_steal.len() < STOLEN {
            let name = format!("stolen-{}", self.to_steal.len() + 1);
            let node = join_at_age(&operator, &name, true).await?;
            self.to_steal.push(node);
        }
        self.machines[0].set_clock(0);
        // The tokens and certificates of the nodes to come must not be old.
        join_at_age(&operator, "fresh", false).await?;
        Ok(())
    }

    pub(crate) fn signal_agent(&self, agent: usize, signal: Signal) {
        let pid = self.agents[agent].id().cast_signed();
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns the status of a node in one word, if a server answers.
    pub(crate) async fn word(&self, node: &str) -> Option<StatusWord> {
        let name: NodeName = node.parse().expect("a name");
        for machine in &self.machines {
            let (client, at) = (self.client(machine.number), ShowNode.at(&name));
            let reply = client.get_if_changed::<NodeSummary>(at.as_str(), None);
            let reply = tokio::time::timeout(Duration::from_secs(3), reply).await;
            if let Ok(Ok(ConditionalReply::Changed {
                value, old: false, ..
            })) = reply
            {
                return Some(value.word);
            }
        }
        None
    }

    /// Connects to the datastores directly, as servers do.
    pub(crate) async fn store(&self) -> Result<SharedStore, SiteError> {
        let mut options = EtcdOptions::new(self.client_urls(), bunraku_cluster::member::ROOT);
        options.tls = Some(self.member_tls()?.etcd().clone());
        options.request_timeout = Duration::from_secs(2);
        options.retry_for = Duration::from_secs(4);
        let store = EtcdStore::connect(options).await;
        let store = store.map_err(|error| SiteError::Setup(error.to_string()))?;
        Ok(std::sync::Arc::new(store))
    }

    pub(crate) fn client_urls(&self) -> Vec<String> {
        self.machines.iter().map(Machine::client_url).collect()
    }

    fn member_tls(&self) -> Result<MemberTls, SiteError> {
        let first = &self.machines[0];
        let name = NodeName::new(first.name.clone()).expect("a name");
        MemberTls::ensure(
            &first.directory(),
            &name,
            &address(0),
            jiff::Timestamp::now(),
        )
        .map_err(|error| SiteError::Setup(error.to_string()))
    }

    /// The file in which agents record what they ran.
    pub(crate) fn ran(&self, node: &str) -> PathBuf {
        self.place.join(format!("{node}.ran"))
    }

    async fn join_nodes(&mut self) -> Result<(), SiteError> {
        for node in REGISTERS {
            let (token, mut command) = self.agent(node).await?;
            command.arg("--join-only").env("BUNRAKU_TOKEN", token);
            let command = command;
            ended_well(command, &["agent".to_owned(), "--join-only".to_owned()])?;
        }
        for node in AGENTS {
            write(&self.ran(node), "")?;
            let script = format!(
                "begun=$(date +%s%N); sleep 0.1; echo \"$BUNRAKU_RUN $begun $(date +%s%N) $BUNRAKU_MORE_CAUSES $BUNRAKU_CAUSES\" >> {}",
                self.ran(node).display()
            );
            let (token, mut command) = self.agent(node).await?;
            command
                .env("BUNRAKU_TOKEN", token)
                .args(["--run-method", "command", "--run-interval", "0s"])
                .arg(format!("--run-command={script}"))
                .arg(format!("--end-with-parent={}", std::process::id()))
                .stderr(file(&self.place.join(format!("{node}.log")))?);
            let child = command.spawn();
            self.agents
                .push(child.map_err(|error| SiteError::Setup(error.to_string()))?);
        }
        self.agents_are_there().await
    }

    async fn agent(&self, node: &str) -> Result<(String, Command), SiteError> {
        let request = TokenRequest {
            // Longer than the clock of the first server was behind, which may still be so.
            ttl_seconds: 86_400,
            node: Some(NodeName::new(node).expect("a name")),
        };
        let token: NewToken = self.client(0).call_with(CreateToken, &request).await?;
        let servers: Vec<String> = self.machines.iter().map(Machine::api).collect();
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command
            .arg(RemovedGuard::Nothing.name())
            .args(["agent", "--name", node, "--server", &servers.join(",")])
            .arg(format!("--ca-fingerprint={}", token.ca_fingerprint))
            .arg(format!(
                "--config={}",
                self.place.join("cluster.toml").display()
            ))
            .arg(format!("--data-dir={}", self.place.join(node).display()))
            .arg(format!(
                "--state-dir={}",
                self.place.join(format!("{node}.state")).display()
            ))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok((token.token, command))
    }

    async fn agents_are_there(&self) -> Result<(), SiteError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let nodes: Vec<NodeSummary> = self.client(0).call(ListNodes).await.unwrap_or_default();
            let there = nodes.iter().filter(|node| {
                AGENTS.contains(&node.name.as_str()) && node.word == StatusWord::Idle
            });
            if there.count() == AGENTS.len() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(SiteError::Late(format!(
                    "the agents do not connect: {nodes:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the hash of each datastore's data, at a revision that all have.
    pub(crate) async fn hashes(&self) -> Result<Vec<(String, u64)>, SiteError> {
        let status = self.status().await;
        let status = status.ok_or_else(|| SiteError::Late("no server answers".to_owned()))?;
        let mut urls: Vec<String> = status
            .datastores
            .iter()
            .map(|it| it.client_url.clone())
            .collect();
        urls.sort();
        self.member_tls()?;
        let store = self.store().await?;
        let page = store
            .range(bunraku_store::Range::prefix("cluster/settings"))
            .await;
        let page = page.map_err(|error| SiteError::Setup(error.to_string()))?;
        let mut hashes = Vec::new();
        for url in urls {
            hashes.push((url.clone(), self.hash(&url, page.revision.0).await?));
        }
        Ok(hashes)
    }

    async fn hash(&self, url: &str, revision: u64) -> Result<u64, SiteError> {
        let credentials = self.machines[0].directory().credentials();
        let flags = [
            format!("--endpoints={url}"),
            format!("--cacert={}", credentials.authority_path().display()),
            format!("--cert={}", credentials.certificate_path().display()),
            format!("--key={}", credentials.key_path().display()),
            format!("--rev={revision}"),
        ];
        let mut words = vec!["etcdctl", "endpoint", "hashkv", "-w", "json"];
        words.extend(flags.iter().map(String::as_str));
        let message = run(&words).await?;
        let message: serde_json::Value = serde_json::from_str(&message).unwrap_or_default();
        message[0]["HashKV"]["hash"]
            .as_u64()
            .ok_or_else(|| SiteError::Setup(format!("no hash of {url}: {message}")))
    }

    pub(crate) fn save_logs(&self) {
        for machine in &self.machines {
            machine.save_logs();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// Joins a node whose certificate is so old that it can be renewed, or not. Servers read their
/// clocks again every second, so this may take some attempts.
async fn join_at_age(operator: &Client, name: &str, is_old: bool) -> Result<OwnNode, SiteError> {
    let deadline = Instant::now() + PATIENCE;
    for attempt in 1.. {
        let node = OwnNode::join(operator, &format!("{name}-{attempt}")).await?;
        if node.can_be_renewed()? == is_old {
            return Ok(node);
        }
        if Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(SiteError::Late(
        "the clock of the first server does not change".to_owned(),
    ))
}

fn ended_well(mut command: Command, words: &[String]) -> Result<(), SiteError> {
    let output = command.output();
    let output = output.map_err(|error| SiteError::Setup(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(SiteError::Command {
            command: words.join(" "),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

fn file(path: &Path) -> Result<File, SiteError> {
    File::create(path).map_err(|error| SiteError::Setup(format!("{}: {error}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), SiteError> {
    std::fs::write(path, text)
        .map_err(|error| SiteError::Setup(format!("{}: {error}", path.display())))
}
