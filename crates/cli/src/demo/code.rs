//! The acts about code: catalogs compiled ahead and held, released to half of
//! the fleet and then to all, taken back, and a run in the site's order.
//!
//! Commands are run as people type them, and what they print is shown.

use std::path::{Path, PathBuf};

use bunraku_wire::api::{ReportEvent, ReportStreamMessage};
use bunraku_wire::client::Lines;
use tokio::process::Command;

use super::fleet::Fleet;
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;
use crate::report_view;

/// The environment, as `examples/fleet` has it.
const CODE: &[(&str, &str)] = &[
    (
        "top.sls",
        include_str!("../../../../examples/fleet/top.sls"),
    ),
    (
        "base.sls",
        include_str!("../../../../examples/fleet/base.sls"),
    ),
    (
        "database/init.sls",
        include_str!("../../../../examples/fleet/database/init.sls"),
    ),
    (
        "database/server.conf",
        include_str!("../../../../examples/fleet/database/server.conf"),
    ),
    (
        "web/init.sls",
        include_str!("../../../../examples/fleet/web/init.sls"),
    ),
    (
        "web/index.html",
        include_str!("../../../../examples/fleet/web/index.html"),
    ),
    (
        "balancer/init.sls",
        include_str!("../../../../examples/fleet/balancer/init.sls"),
    ),
];

const SITE: &str = include_str!("../../../../examples/site/site.yaml");

impl Fleet {
    /// Code goes into git and is deployed: compiled for all, visible to none.
    pub(crate) async fn deploy(&self, stage: &Stage) -> Result<(), Failure> {
        self.deploy_with(stage, "").await
    }

    /// The same, with more to do for the database.
    async fn deploy_with(&self, stage: &Stage, more: &str) -> Result<(), Failure> {
        let repository = self.within("code.git");
        for (name, text) in CODE {
            let path = repository.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&repository))?;
            let more = if *name == "database/init.sls" {
                more
            } else {
                ""
            };
            std::fs::write(path, format!("{text}{more}"))?;
        }
        git(
            &repository,
            &["init", "--quiet", "--initial-branch", "main"],
        )
        .await?;
        commit(&repository, "version 1 of the shop").await?;
        let place = repository.display().to_string();
        self.quietly(&["environment", "add", "production", &place])
            .await?;
        stage.note("environment production is made from a git repository, policy manual");
        self.show(stage, &["environment", "deploy", "production", "--wait"])
            .await?;
        self.show(stage, &["catalog", "list"]).await
    }

    /// What a cluster's nodes run: the database takes its time, so that there
    /// is a middle to kill a server in.
    pub(crate) async fn deploy_and_release_slowly(&self, stage: &Stage) -> Result<(), Failure> {
        let slow = "\nthe database warms up:\n  cmd.run:\n    - name: sleep 3\n";
        self.deploy_with(stage, slow).await?;
        self.release_and_follow(stage, &["release", "create", "production"])
            .await
    }

    /// Half of the nodes first, then all: agents hear of it, run, and every
    /// event streams back as it happens.
    pub(crate) async fn release(&self, stage: &mut Stage) -> Result<(), Failure> {
        self.release_and_follow(
            stage,
            &[
                "release",
                "create",
                "production",
                "--percent",
                "50",
                "--reason",
                "half first",
            ],
        )
        .await?;
        stage.act("the others follow");
        self.release_and_follow(stage, &["release", "create", "production"])
            .await
    }

    /// A new page that is wrong, and the way back.
    pub(crate) async fn roll_back(&self, stage: &Stage) -> Result<(), Failure> {
        let repository = self.within("code.git");
        std::fs::write(
            repository.join("web/index.html"),
            "<p>Version 2 of teh shop.</p>\n",
        )?;
        commit(&repository, "version 2 of the shop").await?;
        self.show(stage, &["environment", "deploy", "production", "--wait"])
            .await?;
        self.show(stage, &["release", "diff", "production", "--held"])
            .await?;
        self.release_and_follow(stage, &["release", "create", "production"])
            .await?;
        let back = [
            "release",
            "rollback",
            "production",
            "--to",
            "2",
            "--reason",
            "a typing mistake",
        ];
        self.release_and_follow(stage, &back).await
    }

    /// The seed's two applications over four nodes, each node as soon as what
    /// it needs is done.
    pub(crate) async fn run_site(&self, stage: &Stage) -> Result<(), Failure> {
        let site = self.write_site()?;
        self.show(stage, &["run", "--site", &site, "--yes"]).await
    }

    pub(super) fn write_site(&self) -> Result<String, Failure> {
        let site = self.within("site.yaml");
        std::fs::write(&site, SITE)?;
        Ok(site.display().to_string())
    }

    /// Releases, and tells of the runs that this starts until all have ended.
    async fn release_and_follow(&self, stage: &Stage, command: &[&str]) -> Result<(), Failure> {
        let client = self.client()?;
        // Opened before the release: nothing that follows is missed.
        let stream = client.stream("/v1/reports/stream?").await;
        let mut events: Lines<ReportStreamMessage> = stream.map_err(|error| failed(&error))?;
        let told = self.show_told(stage, command).await?;
        let mut running = changed(&told)?;
        while running > 0 {
            let message = events.next().await;
            let message = message
                .ok_or_else(|| Failure::new("the stream of events ended"))?
                .map_err(|error| failed(&error))?;
            let ReportStreamMessage::Events { node, events, .. } = message else {
                continue;
            };
            for event in events {
                for line in report_view::live(&node, &event.event, false).lines() {
                    stage.note(line);
                }
                running -= usize::from(matches!(event.event, ReportEvent::Finished(_)));
            }
        }
        Ok(())
    }

    async fn show(&self, stage: &Stage, command: &[&str]) -> Result<(), Failure> {
        self.show_told(stage, command).await.map(|_| ())
    }

    /// Runs a command as people type it, and shows what it prints.
    async fn show_told(&self, stage: &Stage, command: &[&str]) -> Result<String, Failure> {
        let typed = command.join(" ");
        stage.text(&format!("$ bunraku {typed}"));
        let told = self.quietly(command).await?;
        stage.text(&told);
        Ok(told)
    }

    async fn quietly(&self, command: &[&str]) -> Result<String, Failure> {
        let mut program = Command::new(std::env::current_exe()?);
        program.args(command);
        let (server, credentials) = self.operator()?;
        program.args(["--server", &server, "--credentials", &credentials]);
        ran(program, &command.join(" ")).await
    }
}

/// How many nodes a release changed, by its own first line.
fn changed(told: &str) -> Result<usize, Failure> {
    let words: Vec<&str> = told.split_whitespace().collect();
    let number = words.windows(2).find_map(|pair| {
        let [number, of] = pair else { return None };
        (*of == "of").then(|| number.parse().ok()).flatten()
    });
    number.ok_or_else(|| Failure::new(format!("the release does not say what it changed: {told}")))
}

async fn commit(repository: &Path, message: &str) -> Result<(), Failure> {
    git(repository, &["add", "--all"]).await?;
    git(repository, &["commit", "--quiet", "--message", message]).await
}

async fn git(repository: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository);
    git.args([
        "-c",
        "user.name=Bunraku",
        "-c",
        "user.email=bunraku@devco.net",
    ]);
    git.args(["-c", "commit.gpgsign=false"]).args(arguments);
    ran(git, &format!("git {}", arguments.join(" ")))
        .await
        .map(|_| ())
}

async fn ran(mut program: Command, what: &str) -> Result<String, Failure> {
    let output = program.kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::new(format!("`{what}` failed: {}", said.trim()))),
    }
}

/// Where something of the demo lies.
impl Fleet {
    fn within(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}
