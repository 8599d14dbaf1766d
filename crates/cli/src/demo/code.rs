//! The acts about code: catalogs are compiled ahead and held, released to half of the fleet and
//! then to all, and rolled back. Then a run follows the site's order.
//!
//! Commands run as users type them, and their output is shown.

use std::path::{Path, PathBuf};

use bunraku_process::{Child, Program};
use bunraku_wire::api::{ReportEvent, ReportStreamMessage, RunEnding};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::FollowReports;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::fleet::DemoFleet;
use super::panel::Mark;
use super::process::ran;
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;
use crate::report_view;

/// The environment from `examples/fleet`.
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

/// The code that the last act adds to the web nodes.
const CUE: &str = include_str!("../../../../examples/fleet/balancer/cue.sls");

const SITE: &str = include_str!("../../../../examples/site/site.yaml");

impl DemoFleet {
    /// Commits code to git and deploys it: compiled for all nodes, visible to none.
    pub(crate) async fn deploy(&self, stage: &mut Stage) -> Result<(), Failure> {
        self.deploy_with(stage, "").await
    }

    /// Does the same with additional work for the database.
    async fn deploy_with(&self, stage: &mut Stage, more: &str) -> Result<(), Failure> {
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
        self.run_quietly(&["environment", "add", "production", &place])
            .await?;
        self.show(stage, &["environment", "deploy", "production", "--wait"])
            .await?;
        self.show_catalogs(stage).await
    }

    /// Shows the state of every node's catalog in the panel.
    async fn show_catalogs(&self, stage: &mut Stage) -> Result<(), Failure> {
        let list = self.run_quietly(&["catalog", "list", "--json"]).await?;
        let list: Vec<Value> = serde_json::from_str(&list)?;
        let text = |entry: &Value, key: &str| {
            let value = entry[key].as_str().unwrap_or_default();
            value.to_owned()
        };
        for entry in &list {
            let note = format!(
                "catalog {:.8} compiled, not released",
                text(entry, "catalog")
            );
            stage.set(&text(entry, "node"), Mark::Well, "idle", &note);
        }
        Ok(())
    }

    /// Deploys the code for a cluster's nodes. The database takes its time, so that there is a
    /// middle of the run in which to kill a server.
    pub(crate) async fn deploy_and_release_slowly(&self, stage: &mut Stage) -> Result<(), Failure> {
        let slow = "\nthe database warms up:\n  cmd.run:\n    - name: sleep 3\n";
        self.deploy_with(stage, slow).await?;
        self.release_and_follow(stage, &["release", "create", "production"])
            .await
    }

    /// Releases to half of the nodes. Agents receive the release and run, and every event streams
    /// back live.
    pub(crate) async fn release_to_half(&self, stage: &mut Stage) -> Result<(), Failure> {
        let half = ["release", "create", "production", "--percent", "50"];
        self.release_and_follow(stage, &half).await
    }

    /// Releases to the other nodes.
    pub(crate) async fn release_to_all(&self, stage: &mut Stage) -> Result<(), Failure> {
        self.release_and_follow(stage, &["release", "create", "production"])
            .await
    }

    /// Releases a wrong page, and rolls it back.
    pub(crate) async fn roll_back(&self, stage: &mut Stage) -> Result<(), Failure> {
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
            "typo",
        ];
        self.release_and_follow(stage, &back).await
    }

    /// Runs the example's two applications over four nodes. Each node starts as soon as its
    /// dependencies are done.
    pub(crate) async fn run_site(&self, stage: &mut Stage) -> Result<(), Failure> {
        let (mut run, mut lines) = self.start_run(stage)?;
        while let Some(line) = lines.next_line().await? {
            show_progress(stage, &line);
        }
        end_run(stage, &mut run).await
    }

    /// Starts the example's ordered run. Returns its process and the lines of its progress.
    pub(super) fn start_run(&self, stage: &mut Stage) -> Result<(Child, ProgressLines), Failure> {
        let site = self.write_site()?;
        stage.command(&format!("bunraku run --site {site} --yes"))?;
        let (servers, credentials) = self.operator()?;
        let mut run = Program::new(std::env::current_exe()?)
            .args(["run", "--site", &site, "--yes"])
            .args(["--server", &servers, "--credentials", &credentials])
            .start()?;
        let printed = run.stderr.take().ok_or_else(output_in_use)?;
        Ok((run, BufReader::new(printed).lines()))
    }

    pub(super) fn write_site(&self) -> Result<String, Failure> {
        let site = self.within("site.yaml");
        std::fs::write(&site, SITE)?;
        Ok(site.display().to_string())
    }

    /// Changes the page of the web nodes, which then cue the load balancers: three cues, one run.
    pub(crate) async fn cue(&self, stage: &mut Stage) -> Result<(), Failure> {
        self.show(stage, &["node", "enable", "dev4.devco.net"])
            .await?;
        stage.set("dev4.devco.net", Mark::Well, "idle", "enabled again");
        let define = [
            "trigger",
            "define",
            "refresh load balancers",
            "--query",
            "nodes { facts.balancer = true }",
            "--quiet",
            "1s",
            "--fired-by",
            "dev*.devco.net",
        ];
        self.show(stage, &define).await?;
        let repository = self.within("code.git");
        let web = repository.join("web/init.sls");
        let code = std::fs::read_to_string(&web)? + CUE;
        std::fs::write(web, code)?;
        let page = "<p>Version 3 of the shop.</p>\n";
        std::fs::write(repository.join("web/index.html"), page)?;
        commit(
            &repository,
            "version 3 of the shop; web nodes trigger the balancers",
        )
        .await?;
        self.show(stage, &["environment", "deploy", "production", "--wait"])
            .await?;
        let release = ["release", "create", "production"];
        self.release_and_follow_more(stage, &release, 1).await?;
        self.show(stage, &["trigger", "history", "--most", "1"])
            .await
    }

    async fn release_and_follow(&self, stage: &mut Stage, command: &[&str]) -> Result<(), Failure> {
        self.release_and_follow_more(stage, command, 0).await
    }

    /// Releases, and reports the runs that this starts, plus this many more, until all have ended.
    async fn release_and_follow_more(
        &self,
        stage: &mut Stage,
        command: &[&str],
        more: usize,
    ) -> Result<(), Failure> {
        let client = self.client()?;
        // Opened before the release, so that no later event is missed.
        let stream = client.follow(FollowReports).await;
        let mut events: Lines<ReportStreamMessage> = stream.map_err(|error| failed(&error))?;
        let printed_text = self.show_told(stage, command).await?;
        let mut running = changed(&printed_text)? + more;
        while running > 0 {
            let message = events.next().await;
            let message = message
                .ok_or_else(|| Failure::new("the event stream ended"))?
                .map_err(|error| failed(&error))?;
            let ReportStreamMessage::Events { node, events, .. } = message else {
                continue;
            };
            for event in events {
                show_event(stage, node.as_str(), &event.event)?;
                running -= usize::from(matches!(event.event, ReportEvent::Finished(_)));
            }
        }
        Ok(())
    }

    pub(super) async fn show(&self, stage: &mut Stage, command: &[&str]) -> Result<(), Failure> {
        self.show_told(stage, command).await.map(|_| ())
    }

    /// Runs a command as users type it, and shows its output.
    async fn show_told(&self, stage: &mut Stage, command: &[&str]) -> Result<String, Failure> {
        let words = command.iter().map(|word| {
            if word.contains(' ') {
                format!("'{word}'")
            } else {
                (*word).to_owned()
            }
        });
        let typed = words.collect::<Vec<_>>().join(" ");
        stage.command(&format!("bunraku {typed}"))?;
        let printed_text = self.run_quietly(command).await?;
        stage.text(&printed_text)?;
        Ok(printed_text)
    }

    async fn run_quietly(&self, command: &[&str]) -> Result<String, Failure> {
        let (server, credentials) = self.operator()?;
        let program = Program::new(std::env::current_exe()?)
            .args(command.iter().copied())
            .args(["--server", &server, "--credentials", &credentials]);
        ran(program, &command.join(" ")).await
    }
}

/// Shows an event of a node's run: in the panel, and as a line when the run has ended.
fn show_event(stage: &mut Stage, node: &str, event: &ReportEvent) -> Result<(), Failure> {
    match event {
        ReportEvent::Started(started) => {
            let causes = crate::node_view::causes(&started.causes, started.more_causes);
            stage.set(node, Mark::Busy, "running", &causes);
        }
        ReportEvent::Resource(resource) => {
            let what = format!("{}[{}]", resource.type_name, resource.title);
            stage.set(node, Mark::Busy, "running", &what);
        }
        ReportEvent::Finished(finished) => {
            let counts = report_view::counts(&finished.counts());
            let (mark, word) = match finished.ending {
                RunEnding::Succeeded => (Mark::Well, "idle"),
                _ => (Mark::Gone, "failed"),
            };
            stage.set(node, mark, word, &format!("last run: {counts}"));
            let ending = finished.ending.as_str().replace('_', " ");
            stage.note(&format!("{node} {ending}: {counts}"))?;
        }
        ReportEvent::Log(_) | ReportEvent::Omitted(_) => {}
    }
    Ok(())
}

/// The lines that `bunraku run` prints while it runs.
pub(super) type ProgressLines = tokio::io::Lines<BufReader<tokio::process::ChildStderr>>;

/// Shows a line of `bunraku run` in the panel: `TIME: NODE is running`.
pub(super) fn show_progress(stage: &mut Stage, line: &str) {
    let Some((node, news)) = line
        .rsplit_once(": ")
        .and_then(|(_, text)| text.split_once(' '))
    else {
        return;
    };
    let news = news.split(" (").next().unwrap_or(news);
    match news.split(' ').next() {
        Some("is") => stage.set(node, Mark::Busy, "running", "ordered run"),
        Some("succeeded") => stage.set(node, Mark::Well, "idle", &format!("ordered run {news}")),
        Some("failed" | "lost") => stage.set(node, Mark::Gone, "failed", news),
        _ => {}
    }
}

/// Shows the summary of an ordered run, which must have succeeded.
pub(super) async fn end_run(stage: &mut Stage, run: &mut Child) -> Result<(), Failure> {
    let mut text = String::new();
    let mut printed = run.stdout.take().ok_or_else(output_in_use)?;
    printed.read_to_string(&mut text).await?;
    let status = run.wait().await?;
    // The plan comes first, and the result last.
    stage.text(text.rsplit("\n\n").next().unwrap_or_default())?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new("the run did not succeed"))
    }
}

fn output_in_use() -> Failure {
    Failure::new("its output is already in use")
}

/// Returns the number of nodes that a release changed, from the first line of its output.
fn changed(printed_text: &str) -> Result<usize, Failure> {
    let words: Vec<&str> = printed_text.split_whitespace().collect();
    let number = words.windows(2).find_map(|pair| {
        let [number, of] = pair else { return None };
        (*of == "of").then(|| number.parse().ok()).flatten()
    });
    number.ok_or_else(|| {
        Failure::new(format!(
            "the release does not report its changes: {printed_text}"
        ))
    })
}

async fn commit(repository: &Path, message: &str) -> Result<(), Failure> {
    git(repository, &["add", "--all"]).await?;
    git(repository, &["commit", "--quiet", "--message", message]).await
}

async fn git(repository: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let git = Program::new("git")
        .arg("-C")
        .arg(repository)
        .args(["-c", "user.name=Bunraku"])
        .args(["-c", "user.email=bunraku@devco.net"])
        .args(["-c", "commit.gpgsign=false"])
        .args(arguments.iter().copied());
    ran(git, &format!("git {}", arguments.join(" ")))
        .await
        .map(|_| ())
}

/// Paths of the demo.
impl DemoFleet {
    fn within(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}
