//! Content in S3: a fleet on etcd and a real S3 server, moves while nodes converge, and an S3 server
//! that is away.

use std::path::PathBuf;

use bunraku_store::testing::{EtcdCluster, FaultProxy, ProxyFault, S3Server};

use crate::code::{commit, repository};
use crate::fleet::copy;
use crate::support::{ServerProcess, Site, all_output, ended, eventually, shows};

/// A real etcd, and a real S3 server behind a proxy.
struct Engines {
    runtime: tokio::runtime::Runtime,
    etcd: EtcdCluster,
    s3: S3Server,
    proxy: FaultProxy,
}

impl Engines {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (etcd, s3) = runtime.block_on(async {
            let started = tokio::join!(EtcdCluster::start(1), S3Server::start());
            started
        });
        let proxy = runtime.block_on(FaultProxy::start(s3.port()));
        Self {
            runtime,
            etcd,
            s3,
            proxy,
        }
    }

    fn objects(&self) -> usize {
        self.runtime.block_on(self.s3.objects()).len()
    }

    /// Writes a configuration with S3 and its credentials.
    fn configuration(&self, site: &Site) -> PathBuf {
        let keys = "[default]\naws_access_key_id = test\naws_secret_access_key = secret\n";
        let credentials = site.path("s3-credentials");
        std::fs::write(&credentials, keys).expect("written");
        let text = format!(
            "[server.content]\nkind = \"s3\"\nendpoint = \"http://127.0.0.1:{}\"\nbucket = \"{}\"\n\
             credentials_file = \"{}\"\nretry_for = \"1s\"\nrequest_timeout = \"5s\"\n",
            self.proxy.port(),
            self.s3.bucket(),
            credentials.display()
        );
        let path = site.path("s3.toml");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn server(&self, site: &Site, name: &str, port: u16, with_s3: bool) -> ServerProcess {
        let endpoint = self.etcd.endpoints()[0].clone();
        let configuration = self.configuration(site);
        let mut flags = vec!["--etcd", &endpoint];
        if with_s3 {
            flags.extend(["--config", configuration.to_str().expect("text")]);
        }
        site.server(name, port, &flags)
    }
}

fn site_files(site: &Site, text: &str) -> [(&'static str, String); 2] {
    let file = site.path("managed");
    [
        (
            "site.yaml",
            "groups: {all: {nodes: '*', resources: all.yaml}}\n".to_owned(),
        ),
        (
            "all.yaml",
            format!(
                "resources:\n  File[{}]: {{content: {text}}}\n",
                file.display()
            ),
        ),
    ]
}

/// Commits, deploys and runs the node, and checks the file.
fn converge(site: &Site, server: &ServerProcess, code: &std::path::Path, text: &str) {
    let files = site_files(site, text);
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, &**text)).collect();
    commit(code, &files);
    ended(
        &server.operator(&["environment", "deploy", "production", "--wait"]),
        0,
    );
    let created = server.operator(&["release", "create", "production"]);
    assert!(created.status.success(), "{}", all_output(&created));
    eventually("the node applies it", || {
        server.operator(&["node", "run", "web-1", "--wait"]);
        std::fs::read_to_string(site.path("managed")).is_ok_and(|found| found == text)
    });
}

fn contents_in(server: &ServerProcess, place: &str) -> u64 {
    let status = server.json(&["store", "status"]);
    let places = status["content"]["places"]
        .as_array()
        .expect("places")
        .clone();
    let found = places.iter().find(|found| found["place"] == place);
    found.expect("the place")["contents"]
        .as_u64()
        .expect("a number")
}

#[test]
fn content_lives_in_s3_and_moves_back_and_forth_while_a_node_converges() {
    let (site, engines) = (Site::new(), Engines::start());
    let server = engines.server(&site, "first", 0, true);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    let files = site_files(&site, "zero");
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, &**text)).collect();
    let code = repository(&site, &files);
    let url = format!("file://{}", code.display());
    ended(
        &server.operator(&["environment", "add", "production", &url]),
        0,
    );
    converge(&site, &server, &code, "one");
    assert!(engines.objects() > 0);
    assert_eq!(contents_in(&server, "default"), 0);
    shows(&server.operator(&["store", "status"]), "active");
    shows(&server.operator(&["doctor"]), "S3 answers the server");

    // A second server without the settings says what is missing.
    copy(&site.path("first/ca"), &site.path("second/ca"));
    let mut command = crate::support::bunraku();
    command.args(["server", "--listen", "127.0.0.1:0", "--name", "second.test"]);
    command.arg("--data-dir").arg(site.path("second"));
    command.args(["--etcd", &engines.etcd.endpoints()[0]]);
    let refused = command.output().expect("it runs");
    assert!(!refused.status.success(), "{}", all_output(&refused));
    shows(
        &refused,
        "this fleet has content in S3, and this server has no settings for S3",
    );
    shows(&refused, "[server.content]");

    // There and back, while the node converges.
    for (place, other, text) in [("default", "s3", "two"), ("s3", "default", "three")] {
        let started = server.operator(&["store", "move", "content", "--to", place, "--no-wait"]);
        ended(&started, 0);
        converge(&site, &server, &code, text);
        let moved = server.operator(&["store", "move", "content", "--to", place]);
        ended(&moved, 0);
        shows(&moved, &format!("All content is in {place}"));
        assert_eq!(contents_in(&server, other), 0);
        assert!(contents_in(&server, place) > 0);
    }
    let audit = server.json(&["audit", "list"]);
    assert!(audit.to_string().contains("move-content"), "{audit}");
}

#[test]
fn a_move_continues_after_its_server_is_killed() {
    let (site, engines) = (Site::new(), Engines::start());
    let server = engines.server(&site, "first", 0, true);
    let port = server.address.port();
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    ended(
        &server.operator(&["store", "move", "content", "--to", "default"]),
        0,
    );
    let contents = contents_in(&server, "default");
    assert!(contents > 0);
    let started = server.operator(&["store", "move", "content", "--to", "s3", "--no-wait"]);
    ended(&started, 0);
    server.running.kill();
    let server = engines.server(&site, "first", port, true);
    let moved = server.operator(&["store", "move", "content", "--to", "s3"]);
    ended(&moved, 0);
    assert_eq!(contents_in(&server, "default"), 0);
    assert!(engines.objects() as u64 >= contents);
}

#[test]
fn an_s3_server_that_is_away_is_reported_and_everything_recovers() {
    let (site, engines) = (Site::new(), Engines::start());
    let server = engines.server(&site, "first", 0, true);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    let files = site_files(&site, "zero");
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, &**text)).collect();
    let code = repository(&site, &files);
    let url = format!("file://{}", code.display());
    ended(
        &server.operator(&["environment", "add", "production", &url]),
        0,
    );
    converge(&site, &server, &code, "one");

    engines.proxy.set(ProxyFault::Answer(503, "SlowDown"));
    let status = server.operator(&["store", "status"]);
    ended(&status, 3);
    shows(
        &status,
        "S3 cannot be used: cannot write s3://content/bunraku/check/",
    );
    shows(&status, "S3 answered 503 SlowDown");
    shows(&server.operator(&["doctor"]), "the server cannot use S3");
    let unhealthy = server.operator(&["status"]);
    ended(&unhealthy, 3);
    shows(&unhealthy, "content in S3 cannot be used");
    // The node applies the catalog that it has, and its report is not lost.
    std::fs::write(site.path("managed"), "drift").expect("written");
    eventually("the node repairs it", || {
        server.operator(&["node", "run", "web-1", "--wait"]);
        std::fs::read_to_string(site.path("managed")).is_ok_and(|found| found == "one")
    });

    engines.proxy.set(ProxyFault::None);
    ended(&server.operator(&["store", "status"]), 0);
    converge(&site, &server, &code, "two");
}
