//! A cluster of one or more etcd members that ends when its value is dropped.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::authority::TestAuthority;
use super::etcd_member::EtcdMember;
use crate::etcd::{EtcdOptions, EtcdTls};

const START_WITHIN: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 5;

/// Members on free ports of loopback with a temporary directory. Dropping the cluster kills them by
/// their process ids.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    initial: String,
    token: String,
    flags: Vec<String>,
    authority: Option<TestAuthority>,
    directory: TempDir,
}

impl EtcdCluster {
    /// Starts `size` members without TLS.
    pub async fn start(size: usize) -> Self {
        Self::start_in(size, false, &[]).await
    }

    /// Starts members that speak TLS only, and only with clients whose
    /// certificate comes from [`EtcdCluster::authority`].
    pub async fn start_with_tls(size: usize) -> Self {
        Self::start_in(size, true, &[]).await
    }

    /// Starts members with additional flags: `--max-txn-ops=16`.
    /// Starts a cluster with TLS, and with these flags for every member.
    pub async fn start_with_tls_and_flags(size: usize, flags: &[&str]) -> Self {
        Self::start_in(size, true, flags).await
    }

    pub async fn start_with_flags(size: usize, flags: &[&str]) -> Self {
        Self::start_in(size, false, flags).await
    }

    async fn start_in(size: usize, tls: bool, flags: &[&str]) -> Self {
        // Someone else may take a port after it is chosen and before the member listens on it.
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            let mut cluster = Self::new(size, tls);
            cluster.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            for index in 0..size {
                cluster.launch(index);
            }
            match cluster.wait_until_ready().await {
                Ok(()) => return cluster,
                Err(why) => said = why,
            }
        }
        panic!("etcd does not start: {said}");
    }

    fn new(size: usize, tls: bool) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scheme = if tls { "https" } else { "http" };
        let members: Vec<_> = (1..=size)
            .map(|number| EtcdMember::new(format!("m{number}"), directory.path(), scheme))
            .collect();
        let initial: Vec<_> = members
            .iter()
            .map(|member| format!("{}={}", member.name, member.peer_url))
            .collect();
        Self {
            members,
            initial: initial.join(","),
            token: uuid::Uuid::new_v4().to_string(),
            flags: Vec::new(),
            authority: tls.then(TestAuthority::new),
            directory,
        }
    }

    fn launch(&mut self, index: usize) {
        let mut flags = self.tls_flags(index);
        flags.extend_from_slice(&self.flags);
        self.members[index].start(&self.initial, &self.token, &flags);
    }

    fn tls_flags(&self, index: usize) -> Vec<String> {
        let Some(authority) = &self.authority else {
            return Vec::new();
        };
        let directory = &self.members[index].directory;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("a file can be written");
            path.display().to_string()
        };
        let identity = authority.identity(&self.members[index].name);
        let ca = write("ca.pem", &authority.ca_pem());
        let cert = write("cert.pem", &identity.cert_pem);
        let key = write("key.pem", &identity.key_pem);
        vec![
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={ca}"),
            format!("--cert-file={cert}"),
            format!("--key-file={key}"),
            "--peer-client-cert-auth".to_owned(),
            format!("--peer-trusted-ca-file={ca}"),
            format!("--peer-cert-file={cert}"),
            format!("--peer-key-file={key}"),
        ]
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_WITHIN;
        for index in 0..self.members.len() {
            while !self.answers(index).await {
                if let Some(why) = self.members[index].stopped() {
                    return Err(why);
                }
                if Instant::now() > deadline {
                    return Err(format!(
                        "no answer in time\n{}",
                        self.members[index].log_end()
                    ));
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Returns whether a linearizable read works at this member.
    async fn answers(&self, index: usize) -> bool {
        let ask = async { self.client(index).await.get("ready", None).await.is_ok() };
        timeout(Duration::from_secs(2), ask).await.unwrap_or(false)
    }

    /// Returns a plain client of one member, separate from our store.
    pub async fn client(&self, index: usize) -> Client {
        let mut options = ConnectOptions::new();
        if let Some(tls) = self.tls() {
            let identity = tls.identity.expect("a test identity");
            options = options.with_tls(
                TlsOptions::new()
                    .ca_certificate(Certificate::from_pem(tls.ca_pem))
                    .identity(Identity::from_pem(identity.cert_pem, identity.key_pem)),
            );
        }
        Client::connect([&self.members[index].client_url], Some(options))
            .await
            .expect("the address of a member is valid")
    }

    /// Returns the members' client addresses.
    pub fn endpoints(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.client_url.clone())
            .collect()
    }

    /// Returns options to reach all members, with a valid certificate where one is needed.
    pub fn options(&self, root: &str) -> EtcdOptions {
        EtcdOptions {
            tls: self.tls(),
            ..EtcdOptions::new(self.endpoints(), root)
        }
    }

    fn tls(&self) -> Option<EtcdTls> {
        self.authority.as_ref().map(|authority| EtcdTls {
            ca_pem: authority.ca_pem(),
            identity: Some(authority.identity("client")),
        })
    }

    /// Returns the authority that signed the members' certificates. Only with TLS.
    pub fn authority(&self) -> &TestAuthority {
        self.authority.as_ref().expect("started with TLS")
    }

    /// Returns the directory of the members' data and logs.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Returns the leader, once there is one that answers.
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline {
            for index in 0..self.members.len() {
                if self.leads(index).await {
                    return index;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("no member leads");
    }

    async fn leads(&self, index: usize) -> bool {
        let ask = async {
            let status = self.client(index).await.status().await.ok()?;
            let own = status.header()?.member_id();
            Some(own == status.leader())
        };
        let answer = timeout(Duration::from_secs(2), ask).await;
        answer.ok().flatten().unwrap_or(false)
    }

    /// Kills one member with `kill -9`.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Restarts a killed member, with its data and its ports.
    pub async fn restart(&mut self, index: usize) {
        let deadline = Instant::now() + START_WITHIN;
        self.launch(index);
        while !self.answers(index).await {
            // Connections from before may still hold its port.
            if let Some(why) = self.members[index].stopped() {
                assert!(Instant::now() < deadline, "{why}");
                self.launch(index);
            }
            assert!(
                Instant::now() < deadline,
                "member {index} does not come back\n{}",
                self.members[index].log_end()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Replaces the data of a killed member by a restored snapshot, with `etcdctl`.
    pub fn restore(&mut self, index: usize, snapshot: &std::path::Path) {
        let member = &self.members[index];
        let data = member.directory.join("data");
        std::fs::remove_dir_all(&data).expect("its data can be removed");
        let output = std::process::Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(["--name", &member.name, "--initial-cluster", &self.initial])
            .args(["--initial-cluster-token", &self.token])
            .args(["--initial-advertise-peer-urls", &member.peer_url])
            .arg("--data-dir")
            .arg(&data)
            .output()
            .expect("etcdctl runs; scripts/setup installs it");
        assert!(output.status.success(), "{output:?}");
    }

    /// Pauses a member: it keeps its connections open and answers nothing.
    pub fn pause(&self, index: usize) {
        self.members[index].signal(Signal::STOP);
    }

    /// Resumes a paused member.
    pub fn resume(&self, index: usize) {
        self.members[index].signal(Signal::CONT);
    }
}
