//! The demo with several servers: one that stores data is killed.

use std::time::Instant;

use bunraku_process::Program;
use bunraku_wire::api::cluster::{ClusterInvitation, ClusterInviteRequest, ClusterStatus};
use bunraku_wire::endpoints::{InviteServer, ShowCluster};

use super::fleet::{DemoFleet, LOOK, ServerReady};
use super::panel::Mark;
use super::process::{Process, ran};
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;

/// In production a lost machine is replaced after minutes; here, soon.
const SETTINGS: &str = r#"[server.cluster]
listen = "127.0.0.1"
probe_period = "500ms"
probe_timeout = "200ms"
suspicion = "2s"
grace = "1s"
pause_between_changes = "1s"
"#;

/// One server of the demo's cluster.
pub(super) struct Member {
    number: usize,
    name: String,
    address: String,
    process: Option<Process>,
}

impl DemoFleet {
    /// Starts this many servers that store the data, and one spare.
    pub(crate) async fn start_cluster(
        &mut self,
        size: usize,
        stage: &mut Stage,
    ) -> Result<(), Failure> {
        std::fs::write(self.directory.join("cluster.toml"), SETTINGS)?;
        let mut init = vec!["init".to_owned(), format!("--datastores={size}")];
        init.extend(self.place(1)?);
        self.cluster_command(&init).await?;
        self.ready = Some(self.start_member(1).await?);
        stage.add("server-1", "");
        stage.set("server-1", Mark::Well, "up", "datastore, CA");
        stage.note("server-1 starts the cluster, with its own CA and datastore")?;
        for number in 2..=size + 1 {
            self.join_member(number, stage).await?;
        }
        self.wait_for_cluster(stage, |status| {
            let whole = status
                .datastores
                .iter()
                .filter(|it| it.healthy && !it.learner);
            whole.count() == size
        })
        .await?;
        stage.note(&format!(
            "{size} servers store the data; one more is ready to replace any of them"
        ))
    }

    fn place(&mut self, number: usize) -> Result<Vec<String>, Failure> {
        let mut place = vec![
            format!("--config={}", self.path("cluster.toml")),
            format!("--data-dir={}", self.member_dir(number)),
            format!("--name=server-{number}"),
            "--address=127.0.0.1".to_owned(),
        ];
        for flag in [
            "port",
            "member-port",
            "datastore-port",
            "datastore-peer-port",
        ] {
            place.push(format!("--{flag}={}", self.hold_port()?));
        }
        Ok(place)
    }

    /// Returns a member's directory. The first member uses the directory that the single server has
    /// in the other demo.
    fn member_dir(&self, number: usize) -> String {
        match number {
            1 => self.path("server"),
            _ => self.path(&format!("server-{number}")),
        }
    }

    async fn cluster_command(&self, arguments: &[String]) -> Result<(), Failure> {
        let program = Program::new(std::env::current_exe()?)
            .arg("cluster")
            .args(arguments)
            .env_remove("BUNRAKU_CONFIG");
        ran(program, "bunraku cluster").await.map(|_| ())
    }

    async fn start_member(&mut self, number: usize) -> Result<ServerReady, Failure> {
        let name = format!("server-{number}");
        let mut process = Process::start(
            &name,
            &self.directory.join(format!("{name}.log")),
            &[
                "server".to_owned(),
                format!("--config={}", self.path("cluster.toml")),
                format!("--data-dir={}", self.member_dir(number)),
                "--listen=127.0.0.1:0".to_owned(),
                format!("--end-with-parent={}", std::process::id()),
            ],
        )?;
        let line = process.first_line().await?;
        let ready: ServerReady = serde_json::from_str(&line)?;
        self.members.retain(|member| member.number != number);
        self.members.push(Member {
            number,
            name,
            address: ready.listening.to_string(),
            process: Some(process),
        });
        Ok(ready)
    }

    /// Returns the addresses of the running servers.
    pub(super) fn member_addresses(&self) -> Vec<String> {
        let up = self.members.iter().filter(|it| it.process.is_some());
        up.map(|member| member.address.clone()).collect()
    }

    /// Returns the names and addresses of the running servers.
    pub(super) fn running_members(&self) -> Vec<(String, String)> {
        let up = self.members.iter().filter(|it| it.process.is_some());
        up.map(|member| (member.name.clone(), member.address.clone()))
            .collect()
    }

    /// Kills a member with `kill -9`, including its datastore.
    pub(super) async fn kill_member(&mut self, name: &str) -> Result<(), Failure> {
        let member = self.members.iter_mut().find(|member| member.name == name);
        if let Some(mut process) = member.and_then(|member| member.process.take()) {
            process.kill().await?;
        }
        Ok(())
    }

    pub(super) async fn restart_member(&mut self, name: &str) -> Result<(), Failure> {
        let member = self.members.iter().find(|member| member.name == name);
        if let Some(number) = member.map(|member| member.number) {
            self.start_member(number).await?;
        }
        Ok(())
    }

    async fn join_member(&mut self, number: usize, stage: &mut Stage) -> Result<(), Failure> {
        let client = self.client()?;
        stage.add(&format!("server-{number}"), "");
        let request = ClusterInviteRequest { ttl_seconds: 600 };
        let invitation: ClusterInvitation = client
            .call_with(InviteServer, &request)
            .await
            .map_err(|error| failed(&error))?;
        let token = self.directory.join("invitation");
        std::fs::write(&token, &invitation.token)?;
        let first = self.ready.as_ref().map(|ready| ready.listening.to_string());
        let mut join = vec![
            "join".to_owned(),
            first.unwrap_or_default(),
            format!("--ca-fingerprint={}", invitation.ca_fingerprint),
            format!("--token-file={}", token.display()),
        ];
        join.extend(self.place(number)?);
        self.cluster_command(&join).await?;
        self.start_member(number).await?;
        stage.set(&format!("server-{number}"), Mark::Well, "up", "joined");
        stage.note(&format!("server-{number} joined with a one-time token"))
    }

    /// Reports changes of the datastores until the condition holds.
    async fn wait_for_cluster(
        &mut self,
        stage: &mut Stage,
        is_so: impl Fn(&ClusterStatus) -> bool,
    ) -> Result<(), Failure> {
        let client = self.client()?;
        loop {
            // After a kill, the first request may fail.
            if let Ok(status) = client.call(ShowCluster).await {
                let new = status.events.iter().filter(|event| {
                    self.shown_until
                        .is_none_or(|shown_until| event.at > shown_until)
                });
                let mut before = "";
                for event in
                    new.filter(|event| event.what != std::mem::replace(&mut before, &event.what))
                {
                    stage.note(&event.what)?;
                }
                self.shown_until = status
                    .events
                    .last()
                    .map(|event| event.at)
                    .or(self.shown_until);
                self.show_members(&status, stage);
                if is_so(&status) {
                    return Ok(());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Shows which of the running servers store data.
    fn show_members(&self, status: &ClusterStatus, stage: &mut Stage) {
        for (name, _) in self.running_members() {
            let stores = status.datastores.iter().any(|it| {
                let named = it.name.as_ref().is_some_and(|it| *it.as_str() == name);
                named && it.healthy && !it.learner
            });
            let what = if stores { "datastore" } else { "spare" };
            stage.set(&name, Mark::Well, "up", what);
        }
    }

    /// Waits until all datastores are healthy again.
    pub(super) async fn wait_until_whole(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let size = self.members.len() - 1;
        self.wait_for_cluster(stage, |status| {
            let healthy = status.datastores.iter().filter(|it| it.healthy);
            healthy.filter(|it| !it.learner).count() == size
        })
        .await
    }

    /// Kills a server that stores data with kill -9, while commands are in flight.
    pub(crate) async fn lose_a_datastore(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let size = self.members.len() - 1;
        self.wait_until_whole(stage).await?;
        let client = self.client()?;
        let status: ClusterStatus = client
            .call(ShowCluster)
            .await
            .map_err(|error| failed(&error))?;
        // Do not kill the server that the demo itself talks to.
        let keeps_data = |member: &&mut Member| {
            member.name != "server-1"
                && status.datastores.iter().any(|it| {
                    it.name
                        .as_ref()
                        .is_some_and(|name| *name.as_str() == member.name)
                })
        };
        let victim = self.members.iter_mut().find(keeps_data);
        let victim = victim.ok_or_else(|| Failure::new("no other server stores data"))?;
        let name = victim.name.clone();
        if let Some(mut process) = victim.process.take() {
            process.kill().await?;
        }
        let killed = Instant::now();
        stage.set(&name, Mark::Gone, "killed", "kill -9, with its datastore");
        stage.note(&format!("{name} is killed, including its datastore"))?;
        self.all_answer().await?;
        let answered = killed.elapsed().as_secs_f64();
        stage.note(&format!(
            "all nodes answered a command {answered:.1} s after the kill"
        ))?;
        self.wait_for_cluster(stage, |status| {
            let whole = status.datastores.iter().filter(|it| {
                let gone = it.name.as_ref().is_some_and(|it| *it.as_str() == name);
                it.healthy && !it.learner && !gone
            });
            whole.count() == size
        })
        .await?;
        let repaired = killed.elapsed().as_secs_f64();
        stage.note(&format!(
            "{size} servers store the data again, {repaired:.1} s after the kill"
        ))?;
        self.all_answer().await?;
        self.losses.killed.push(format!("{name}, with a datastore"));
        let recovered = [
            format!("nodes answered in {answered:.1} s"),
            format!("{size} copies of the data in {repaired:.1} s"),
        ];
        self.losses.recovered.extend(recovered);
        stage.note("all nodes answer; nothing was lost")
    }

    /// Ends all servers at once.
    pub(super) async fn end_members(&mut self) {
        let members = std::mem::take(&mut self.members);
        let ending = members.into_iter().filter_map(|member| member.process);
        let ending = ending.map(|mut process| async move { process.end().await });
        futures::future::join_all(ending).await;
    }
}
