//! Members as real processes, with real etcd, on loopback.

#![allow(dead_code, reason = "each test uses its part")]

use bunraku_testkit::appears;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bunraku_cluster::datastore::Admin;
use bunraku_cluster::directory::{Directory, place_authority};
use bunraku_cluster::identity::MemberTls;
use bunraku_cluster::setup::{self, NewMember};
use bunraku_model::NodeName;
use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_store::testing::free_port;
use bunraku_store::{SharedStore, Store, Transaction};
use bunraku_wire::api::cluster::{
    AuthorityFiles, ClusterEvent, ClusterWelcome, DatastoreRecord, MemberRecord, keys,
};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};

/// Long enough for two busy cores.
pub(crate) const PATIENCE: Duration = Duration::from_secs(110);

pub(crate) struct Server {
    pub(crate) name: NodeName,
    pub(crate) data_dir: PathBuf,
    pub(crate) record: MemberRecord,
    /// Settings for the member's program.
    pub(crate) settings: Vec<String>,
    process: Option<Child>,
}

impl Server {
    pub(crate) fn directory(&self) -> Directory {
        Directory::of(&self.data_dir)
    }

    pub(crate) fn start(&mut self) {
        for needed in ["/usr/bin/etcd", "/usr/bin/etcdctl"] {
            assert!(
                Path::new(needed).exists(),
                "{needed} is missing: run scripts/setup, which installs etcd-server and etcd-client"
            );
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.data_dir.join("log"))
            .expect("a log");
        let process = Command::new(member_program())
            .arg(&self.data_dir)
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the member starts");
        self.process = Some(process);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let Some(process) = &self.process else { return };
        let pid = Pid::from_raw(process.id().cast_signed()).expect("a process");
        let _ = kill_process(pid, signal);
    }

    /// Returns the process id of its datastore.
    pub(crate) fn datastore_pid(&self) -> Pid {
        let text = std::fs::read_to_string(self.directory().datastore_pid()).expect("a pid");
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        pid.expect("a process")
    }

    /// Pauses the server with its datastore: nothing is closed, refused or
    /// answered, as when a machine loses power.
    pub(crate) fn fall_silent(&self) {
        kill_process(self.datastore_pid(), Signal::STOP).expect("it can be stopped");
        self.signal(Signal::STOP);
    }

    /// Kills the server with `kill -9`; its datastore ends with it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        match &mut self.process {
            Some(process) => matches!(process.try_wait(), Ok(Some(_))),
            None => true,
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data_dir.join("log")).unwrap_or_default()
    }
}

pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    settings: Vec<String>,
    place: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            server.signal(Signal::CONT);
            server.kill();
        }
        if std::thread::panicking() {
            for server in &self.servers {
                let log = server.log();
                let lines: Vec<&str> = log.lines().collect();
                let from = lines.len().saturating_sub(25);
                eprintln!("--- {}\n{}", server.name, lines[from..].join("\n"));
                let log = std::fs::read_to_string(server.directory().datastore_log());
                let log = log.unwrap_or_default();
                for line in log.lines().rev().take(4) {
                    eprintln!("etcd: {line}");
                }
            }
        }
    }
}

/// Returns the program beside this test in the target directory. A long-running
/// program that is not a test looks beside itself.
fn member_program() -> PathBuf {
    match option_env!("CARGO_BIN_EXE_bunraku-cluster-member") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()
            .expect("a running program has a path")
            .with_file_name("bunraku-cluster-member"),
    }
}

fn new_member(number: usize) -> NewMember {
    NewMember {
        name: NodeName::new(format!("server-{number}")).expect("a name"),
        host: "127.0.0.1".to_owned(),
        api_address: format!("127.0.0.1:{}", free_port()),
        member_port: free_port(),
        client_port: free_port(),
        peer_port: free_port(),
        eligible: true,
    }
}

impl Cluster {
    /// Starts `size` servers, of which `datastores` keep the data, and waits until all are ready.
    pub(crate) async fn start(size: usize, datastores: usize) -> Self {
        Self::start_with(size, datastores, &[]).await
    }

    /// Like `start`, with settings for every member's program.
    pub(crate) async fn start_with(size: usize, datastores: usize, settings: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let mut cluster = Self {
            servers: Vec::new(),
            settings: settings.iter().map(ToString::to_string).collect(),
            place,
        };
        cluster.init(datastores);
        for _ in 1..size {
            cluster.join().await;
        }
        cluster
            .wait("all datastores", |records| {
                records.len() == datastores && records.iter().all(|it| it.healthy && !it.learner)
            })
            .await;
        cluster
    }

    fn place_for(&self, new: &NewMember) -> PathBuf {
        let data_dir = self.place.path().join(new.name.as_str());
        std::fs::create_dir_all(&data_dir).expect("a directory");
        data_dir
    }

    fn init(&mut self, datastores: usize) {
        let new = new_member(0);
        let data_dir = self.place_for(&new);
        let directory = Directory::of(&data_dir);
        setup::init(&directory, &new, datastores, Timestamp::now()).expect("a new cluster");
        self.add(new, data_dir);
    }

    fn add(&mut self, new: NewMember, data_dir: PathBuf) {
        let mut server = Server {
            record: new.record(Timestamp::now()),
            name: new.name,
            data_dir,
            settings: self.settings.clone(),
            process: None,
        };
        server.start();
        self.servers.push(server);
    }

    /// Joins another server like `cluster join`, with the answer that a server would give.
    pub(crate) async fn join(&mut self) {
        let new = new_member(self.servers.len());
        let data_dir = self.place_for(&new);
        let store = self.store().await;
        let record = new.record(Timestamp::now());
        let put = Transaction::new().put(
            keys::member(&record.name),
            serde_json::to_vec(&record).expect("plain data"),
        );
        store.commit(put).await.expect("the member is written down");
        let first = self.servers[0].directory();
        let authority = first.authority().expect("the members' authority");
        let known = first.known_peers().expect("what the first server knows");
        let welcome = ClusterWelcome {
            cluster: first
                .local_member()
                .expect("readable")
                .expect("a member")
                .cluster,
            epoch: first.counters().expect("readable").epoch,
            authority: None,
            member_authority: AuthorityFiles {
                certificates: authority.certificates_pem(),
                key: authority.key_pem().to_owned(),
            },
            members: self.servers.iter().map(|it| it.record.clone()).collect(),
            endpoints: known.endpoints,
        };
        let directory = Directory::of(&data_dir);
        setup::join(&directory, &new, &welcome, Timestamp::now()).expect("it can join");
        self.add(new, data_dir);
    }

    /// Returns the certificate of a member that does not run: running members renew
    /// their own certificates.
    fn client_tls(&self) -> MemberTls {
        let directory = Directory::of(&self.place.path().join("client"));
        let authority = self.servers[0].directory().authority();
        let authority = authority.expect("the members' authority");
        let files = AuthorityFiles {
            certificates: authority.certificates_pem(),
            key: authority.key_pem().to_owned(),
        };
        place_authority(&directory.path().join("ca"), &files).expect("it is placed");
        let name = NodeName::new("client").expect("a name");
        MemberTls::ensure(&directory, &name, "127.0.0.1", Timestamp::now()).expect("a certificate")
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let tls = self.client_tls();
        let endpoints = self.servers.iter().map(|it| it.record.client_url.clone());
        let mut options = EtcdOptions::new(endpoints.collect(), "/bunraku/");
        options.tls = Some(tls.etcd().clone());
        options.request_timeout = Duration::from_secs(1);
        options.retry_for = Duration::from_secs(10);
        options
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.options().tls.expect("with TLS"))
    }

    /// Connects to the store on the current datastores.
    pub(crate) async fn store(&self) -> SharedStore {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match EtcdStore::connect(self.options()).await {
                Ok(store) => return Arc::new(store),
                Err(error) => assert!(Instant::now() < deadline, "no store: {error:?}"),
            }
        }
    }

    pub(crate) async fn datastores(&self) -> Vec<DatastoreRecord> {
        let Ok(store) = EtcdStore::connect(self.options()).await else {
            return Vec::new();
        };
        let entry = store.get(keys::DATASTORES).await.ok().flatten();
        entry
            .and_then(|entry| serde_json::from_slice(&entry.value).ok())
            .unwrap_or_default()
    }

    pub(crate) async fn wait(
        &self,
        what: &str,
        is_so: impl Fn(&[DatastoreRecord]) -> bool,
    ) -> Vec<DatastoreRecord> {
        let deadline = Instant::now() + PATIENCE;
        appears(async || {
            let records = self.datastores().await;
            if is_so(&records) {
                return Some(records);
            }
            assert!(
                Instant::now() < deadline,
                "{what}: {records:#?}\n{:#?}",
                self.events().await
            );
            None
        })
        .await
    }

    pub(crate) async fn events(&self) -> Vec<String> {
        let Ok(store) = EtcdStore::connect(self.options()).await else {
            return vec!["no store".to_owned()];
        };
        let entry = store.get(keys::EVENTS).await.ok().flatten();
        let events: Vec<ClusterEvent> = entry
            .and_then(|entry| serde_json::from_slice(&entry.value).ok())
            .unwrap_or_default();
        events
            .iter()
            .map(|event| format!("{} {}: {}", event.at, event.by, event.what))
            .collect()
    }

    pub(crate) fn number(&self, name: &NodeName) -> usize {
        let position = self.servers.iter().position(|server| server.name == *name);
        position.expect("a server of this cluster")
    }

    /// Returns the server whose datastore leads, and one whose datastore follows.
    pub(crate) async fn leader_and_follower(&self) -> (usize, usize) {
        let admin = self.admin();
        let mut found = (None, None);
        for record in self.datastores().await {
            let Some(name) = &record.name else { continue };
            let number = self.number(name);
            match admin.status(&record.client_url).await {
                Ok(standing) if standing.leads => found.0 = Some(number),
                Ok(_) => found.1 = Some(number),
                Err(_) => {}
            }
        }
        (found.0.expect("a leader"), found.1.expect("a follower"))
    }
}
