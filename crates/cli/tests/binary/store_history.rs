//! `bunraku store move history` with a real PostgreSQL, as an operator does it.

use bunraku_store::testing::PostgresqlServer;

use crate::support::{ServerProcess, Site, all_output, bunraku, ended, eventually, shows};

fn server(site: &Site, port: u16, configuration: &str) -> ServerProcess {
    let file = site.path("bunraku.toml");
    std::fs::write(&file, configuration).expect("written");
    let mut command = bunraku();
    command.args(["server", "--listen", &format!("127.0.0.1:{port}")]);
    command
        .args(["--name", "server.test", "--config"])
        .arg(&file);
    command.arg("--data-dir").arg(site.path("server"));
    site.started(command, "server")
}

fn run_once(server: &ServerProcess) {
    let run = server.operator(&["node", "run", "web-1", "--wait"]);
    assert_eq!(run.status.code(), Some(0), "{}", all_output(&run));
}

fn count(server: &ServerProcess) -> usize {
    let all = server.json(&["report", "list"]);
    let all = all.as_array().expect("a list");
    for report in all {
        let id = report["run"].as_str().expect("an id");
        let shown = server.json(&["report", "show", id]);
        let events = shown["events"].as_array().expect("events");
        let last = events.last().expect("some");
        assert_eq!(
            last["number"].as_u64().map(|it| it + 1),
            report["next"].as_u64()
        );
    }
    all.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_moved_to_postgresql_and_back_and_an_outage_is_reported() {
    let mut postgresql = PostgresqlServer::start().await;
    postgresql.database("bunraku").await;
    let site = Site::new();
    let port = bunraku_store::testing::free_port();
    let first = server(&site, port, "");
    let flags = ["--run-method", "command", "--run-command", "echo hello"];
    let flags = [&flags[..], &["--run-interval", "0s"]].concat();
    let _agent = site.agent_with("web-1", &[&first], true, &flags);
    first.wait_for("web-1", "idle");
    run_once(&first);
    run_once(&first);
    shows(&first.operator(&["store", "status"]), "history  embedded");
    let refused = first.operator(&["store", "move", "history", "--to", "postgresql"]);
    ended(&refused, 4);
    shows(&refused, "[server.history]");
    first.running.kill();

    let place = format!(
        "[server.history]\nhost = \"127.0.0.1\"\nport = {}\nstatement_timeout = \"2s\"\n",
        postgresql.port()
    );
    let second = server(&site, port, &place);
    second.wait_for("web-1", "idle");
    let moved = second.operator(&["store", "move", "history", "--to", "postgresql"]);
    ended(&moved, 0);
    shows(&moved, "All history is in postgresql: 2 reports moved.");
    run_once(&second);
    assert_eq!(count(&second), 3);

    postgresql.kill();
    let run = second.operator(&["node", "run", "web-1"]);
    assert_eq!(run.status.code(), Some(0), "{}", all_output(&run));
    eventually("the outage shows", || {
        let status = second.operator(&["status"]);
        status.status.code() == Some(3) && all_output(&status).contains("history is unavailable")
    });
    ended(&second.operator(&["store", "status"]), 3);
    postgresql.launch();
    postgresql.wait_until_ready().await;
    eventually("the report arrives", || {
        let listed = second.operator(&["report", "list", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let is_over = |report: &serde_json::Value| report["state"] == "finished";
        let listed = listed.as_array().cloned().unwrap_or_default();
        listed.len() == 4 && listed.iter().all(is_over)
    });
    assert_eq!(count(&second), 4);

    let back = second.operator(&["store", "move", "history", "--to", "default"]);
    ended(&back, 0);
    shows(&back, "All history is in embedded: 4 reports moved.");
    assert_eq!(count(&second), 4);
}
