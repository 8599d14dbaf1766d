//! A server of its own with the embedded store, beside the cluster: for what happens when its disk
//! is full.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bunraku_wire::endpoints::ListNodes;
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{Client, ClientOptions, Credentials, ReloadableClientTls};

use crate::own_node::OwnNode;
use crate::plant::RemovedGuard;
use crate::setup::{PATIENCE, SiteError};
use crate::tool::run;

/// Its node. The reason why it is disabled is a register, as in the cluster.
pub(crate) const REGISTER: &str = "alone-1";

/// Enough for an empty server, and for a filler that fills it quickly.
const DISK: &str = "size=64m";
const LISTEN: &str = "127.0.0.1:8150";
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct AloneServer {
    place: PathBuf,
    plant: RemovedGuard,
    process: Option<Child>,
    client: Option<Client>,
}

impl AloneServer {
    /// Starts it on its own disk, in the namespace of this process.
    pub(crate) async fn start(place: &Path, plant: RemovedGuard) -> Result<Self, SiteError> {
        let mut server = Self {
            place: place.to_owned(),
            plant,
            process: None,
            client: None,
        };
        let disk = server.data_dir().display().to_string();
        run(&["mkdir", "-p", &disk]).await?;
        run(&["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", &disk]).await?;
        server.restart_if_dead()?;
        let client = server.first_client().await?;
        OwnNode::join(&client, REGISTER).await?;
        server.client = Some(client);
        Ok(server)
    }

    fn data_dir(&self) -> PathBuf {
        self.place.join("alone")
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone().expect("made when it was started")
    }

    /// Starts the process, unless it runs.
    pub(crate) fn restart_if_dead(&mut self) -> Result<(), SiteError> {
        let runs = self
            .process
            .as_mut()
            .is_some_and(|process| matches!(process.try_wait(), Ok(None)));
        if runs {
            return Ok(());
        }
        let setup = |error: std::io::Error| SiteError::Setup(error.to_string());
        let mut log = File::options();
        let log = log.create(true).append(true);
        let log = log.open(self.place.join("alone.log")).map_err(setup)?;
        let child = Command::new(std::env::current_exe().map_err(setup)?)
            .arg(self.plant.name())
            .args(["server", "--name=alone", &format!("--listen={LISTEN}")])
            .arg(format!("--data-dir={}", self.data_dir().display()))
            .arg(format!("--end-with-parent={}", std::process::id()))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.process = Some(child.map_err(setup)?);
        Ok(())
    }

    async fn first_client(&mut self) -> Result<Client, SiteError> {
        let setup = |error: &dyn std::fmt::Display| SiteError::Setup(error.to_string());
        let operator = Credentials::new(self.data_dir().join("operator"));
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
                let tls = ReloadableClientTls::new(&tls).map_err(|error| setup(&error))?;
                let address = LISTEN.parse().expect("an address");
                let mut options = ClientOptions::new(vec![address], tls);
                options.connect_timeout = Duration::from_secs(1);
                options.request_timeout = Duration::from_secs(6);
                let client = Client::new(options);
                if client.call(ListNodes).await.is_ok() {
                    return Ok(client);
                }
            }
            if Instant::now() > deadline {
                let late = "the server with the embedded store does not answer";
                return Err(SiteError::Late(late.to_owned()));
            }
            self.restart_if_dead()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Fills its disk completely.
    pub(crate) fn fill_disk(&self) {
        crate::machine::fill(&self.filler());
    }

    pub(crate) fn empty_disk(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    /// Kills the process, as a crash would, while the disk is as it is.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn filler(&self) -> PathBuf {
        self.data_dir().join("filler")
    }
}

impl Drop for AloneServer {
    fn drop(&mut self) {
        self.kill();
    }
}
