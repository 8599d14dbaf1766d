//! A real Alertmanager, and what it really posts: labels, groups, resolved alerts, repetitions and
//! retries.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bunraku_store::testing::free_port;

use crate::reactors::{deploy_rules, said};
use crate::support::{ONE_GROUP, ServerProcess, Site, eventually, write_and_commit};

const RULES: &str = "\
clean:
  when: {event: alert, hook: prometheus, alert.labels.alertname: DiskFull}
  then:
    hosts: '${alert.labels.instance}'
    labels: {status: '${alert.status}'}
    reason: '${alert.labels.alertname} is ${alert.status} on ${alert.labels.instance}'
order:
  when: {event: alert, hook: prometheus, alert.status: firing, alert.labels.alertname: Overload}
  then:
    run: {site: order.yaml, batch: 1, max_failures: 0}
    reason: overload
";

const ORDER: &str = "\
applications:
  shop:
    components:
      db: {node: db-1, produces: [sql]}
      web: {node: web-1, consumes: [sql]}
";

/// A running Alertmanager. Ends with the value.
struct Alertmanager {
    process: Child,
    port: u16,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Alertmanager {
    /// Starts one that posts to the environment's hook. Groups are sent at once, and again after
    /// every change.
    fn start(site: &Site, server: &str, secret: &str) -> Self {
        let (port, directory) = (free_port(), site.path("alertmanager"));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (config, token) = (directory.join("config.yml"), directory.join("secret"));
        std::fs::write(&token, secret).expect("written");
        let text = format!(
            "\
route:
  receiver: bunraku
  group_by: [alertname]
  group_wait: 100ms
  group_interval: 1s
  repeat_interval: 1s
receivers:
  - name: bunraku
    webhook_configs:
      - url: https://{server}/v1/hooks/production/events/prometheus
        http_config:
          authorization: {{credentials_file: {}}}
          tls_config: {{insecure_skip_verify: true}}
",
            token.display()
        );
        std::fs::write(&config, text).expect("written");
        let log = std::fs::File::create(directory.join("log")).expect("a log");
        let process = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts; scripts/setup test installs prometheus-alertmanager");
        let started = Self { process, port };
        eventually("Alertmanager is ready", || {
            started.curl(&["/-/ready"]).contains("OK")
        });
        started
    }

    fn curl(&self, words: &[&str]) -> String {
        let (path, options) = words.split_last().expect("a path");
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60"])
            .args(options)
            .arg(format!("http://127.0.0.1:{}{path}", self.port))
            .output()
            .expect("curl runs; scripts/setup installs it");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends an alert as Prometheus does. A past end resolves it.
    fn alert(&self, name: &str, instance: &str, ended: bool) {
        let now = jiff::Timestamp::now();
        let start = now - jiff::SignedDuration::from_mins(10);
        let end = if ended {
            now - jiff::SignedDuration::from_secs(1)
        } else {
            now + jiff::SignedDuration::from_mins(60)
        };
        let alert = serde_json::json!([{
            "labels": {"alertname": name, "instance": instance, "severity": "page; $(touch /tmp/x)"},
            "annotations": {"summary": "something"},
            "startsAt": start, "endsAt": end,
        }]);
        let data = alert.to_string();
        let json = "Content-Type: application/json";
        let answer = self.curl(&["--header", json, "--data-binary", &data, "/api/v2/alerts"]);
        assert_eq!(answer, "", "{answer}");
    }

    /// Returns the value of one of its counters for webhooks.
    fn counter(&self, name: &str) -> f64 {
        let text = self.curl(&["/metrics"]);
        let line = (text.lines())
            .find(|line| line.starts_with(name) && line.contains("integration=\"webhook\""));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

fn repository(site: &Site) -> PathBuf {
    let code = site.path("code");
    write_and_commit(
        &code,
        &[
            ONE_GROUP,
            (
                "all.yaml",
                "resources:\n  File[/etc/motd]: {content: hello}\n",
            ),
            ("order.yaml", ORDER),
            ("reactors/alerts.yaml", RULES),
        ],
    );
    code
}

/// Returns the lines that the runs of a node have written: alert, status, instance, severity.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn history(server: &ServerProcess, name: &str) -> String {
    let (_, text) = said(server, &["reactor", "history", name]);
    text
}

#[test]
fn alerts_of_a_real_alertmanager_start_runs_with_their_labels() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let mut agents = Vec::new();
    for node in ["db-1", "web-1"] {
        let script = format!(
            "echo \"${{BUNRAKU_LABEL_ALERTNAME:-none}} ${{BUNRAKU_LABEL_STATUS:-none}} \
             $BUNRAKU_LABEL_INSTANCE $BUNRAKU_LABEL_SEVERITY\" >> {}",
            site.path(node).with_extension("runs").display()
        );
        agents.push(site.script_agent(node, &server, &script));
    }
    let (db, web) = (
        site.path("db-1").with_extension("runs"),
        site.path("web-1").with_extension("runs"),
    );
    let secret = deploy_rules(&server, &repository(&site));
    eventually("the rules are there", || {
        said(&server, &["reactor", "list"])
            .1
            .contains("(ordered run)")
    });
    let manager = Alertmanager::start(&site, &server.address.to_string(), &secret);
    alone_and_in_a_group(&manager, &db, &web);
    resolved(&manager, &db);
    unknown(&server, &manager);
    ordered(&server, &manager, &db, &web);
    // Nothing of this was a failure for Alertmanager.
    assert_eq!(
        manager.counter("alertmanager_notifications_failed_total"),
        0.0
    );
    drop(manager);
    drop(agents);
}

/// One alert starts one run. When another one joins the group, Alertmanager sends both again, and
/// at its repeat interval, too: only the new one starts a run.
fn alone_and_in_a_group(manager: &Alertmanager, db: &Path, web: &Path) {
    let of = |instance: &str| format!("DiskFull firing {instance} page; $(touch /tmp/x)");
    manager.alert("DiskFull", "db-1:9100", false);
    eventually("the run of the first alert", || {
        lines(db) == [of("db-1:9100")]
    });
    let before = manager.counter("alertmanager_notifications_total");
    manager.alert("DiskFull", "web-1:9100", false);
    eventually("the run of the second alert", || {
        lines(web) == [of("web-1:9100")]
    });
    eventually("Alertmanager repeats the group", || {
        manager.counter("alertmanager_notifications_total") >= before + 2.0
    });
    assert_eq!(
        lines(db),
        [of("db-1:9100")],
        "each with its own labels, once"
    );
    assert_eq!(lines(web), [of("web-1:9100")]);
}

fn resolved(manager: &Alertmanager, db: &Path) {
    manager.alert("DiskFull", "db-1:9100", true);
    let expected = "DiskFull resolved db-1:9100 page; $(touch /tmp/x)";
    eventually("the run of the resolved alert", || {
        lines(db).get(1).map(String::as_str) == Some(expected)
    });
    assert_eq!(lines(db).len(), 2);
}

fn unknown(server: &ServerProcess, manager: &Alertmanager) {
    manager.alert("DiskFull", "nobody:9100", false);
    eventually("the history names the host", || {
        history(server, "clean").contains(
            "no host for reactor clean of production: DiskFull is firing on nobody:9100; \
             `nobody:9100` is not a node of environment production",
        )
    });
}

fn ordered(server: &ServerProcess, manager: &Alertmanager, db: &Path, web: &Path) {
    manager.alert("Overload", "db-1:9100", false);
    eventually("the ordered run has ended", || {
        history(server, "order").contains("of reactor order of production succeeded")
    });
    let text = history(server, "order");
    assert!(
        text.contains("reactor order of production started run")
            && text.contains("over 2 nodes: overload"),
        "{text}"
    );
    let last = "Overload none db-1:9100 page; $(touch /tmp/x)";
    assert_eq!(lines(db).last().map(String::as_str), Some(last));
    assert_eq!(lines(web).last().map(String::as_str), Some(last));
    let (_, runs) = said(server, &["run", "list"]);
    assert!(runs.contains("reactor order of production"), "{runs}");
}

#[test]
fn a_server_that_is_away_for_a_while_gets_the_alert_later_and_reacts_once() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let address = server.address;
    let runs = site.path("runs");
    let script = format!("echo run >> {}", runs.display());
    let _agent = site.script_agent("db-1", &server, &script);
    let secret = deploy_rules(&server, &repository(&site));
    let manager = Alertmanager::start(&site, &address.to_string(), &secret);
    server.running.kill();
    manager.alert("DiskFull", "db-1:9100", false);
    eventually("Alertmanager cannot deliver it", || {
        manager.counter("alertmanager_notification_requests_failed_total") >= 1.0
    });
    let server = site.server("server", address.port(), &[]);
    server.wait_for("db-1", "idle");
    eventually("the run of the alert", || lines(&runs) == ["run"]);
    let before = manager.counter("alertmanager_notifications_total");
    eventually("Alertmanager repeats it", || {
        manager.counter("alertmanager_notifications_total") > before + 1.0
    });
    assert_eq!(lines(&runs), ["run"]);
}
