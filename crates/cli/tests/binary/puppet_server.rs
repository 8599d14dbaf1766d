//! Plans from a Puppet server's environment graph. Current Puppet servers no longer have one, so a
//! small server answers as the old ones did.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex};

use bunraku_model::{NodeName, Role};
use bunraku_wire::Authority;
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::request::{Grant, Request};
use bunraku_wire::tls::{Identity, ServerTls};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use tokio_rustls::rustls::{ServerConnection, StreamOwned};

use crate::support::{all_output, bunraku};

const GRAPH: &str = r#"{"environment":"production","applications":{
  "Lamp[app2]":{"Lamp::Mysql[app2]":{"produces":["Sql[app2]"],"consumes":[],"node":"dev1.devco.net"},
    "Lamp::Webapp[app2-1]":{"produces":[],"consumes":["Sql[app2]"],"node":"dev2.devco.net"}},
  "Lamp[app1]":{"Lamp::Mysql[app1]":{"produces":["Sql[app1]"],"consumes":[],"node":"dev1.devco.net"},
    "Lamp::Webapp[app1-1]":{"produces":[],"consumes":["Sql[app1]"],"node":"dev3.devco.net"}}},"code_id":null}"#;

struct PuppetWorld {
    directory: TempDir,
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

fn identity(authority: &Authority, who: &str, role: Role) -> (String, PrivateKey) {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
    let grant = Grant {
        name: NodeName::new(who).expect("a name"),
        role,
        groups: std::collections::BTreeSet::new(),
        lifetime: SignedDuration::from_hours(24),
        dns_names: Vec::new(),
        ip_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        serial: None,
    };
    let request = Request::create(&grant.name, &key).expect("a request");
    let request = Request::from_pem(&request).expect("a request");
    let signed = authority.sign(&request, &grant, Timestamp::now());
    (signed.expect("signed").pem, key)
}

impl PuppetWorld {
    /// Creates a server that answers every request with this body, and never ends the body unless
    /// `ends` is set.
    fn new(status: &'static str, body: Arc<Vec<u8>>, ends: bool) -> Self {
        let directory = TempDir::new().expect("a directory");
        let now = Timestamp::now();
        let authority = Authority::create("Puppet CA", now).expect("an authority");
        let stranger = Authority::create("Another CA", now).expect("an authority");
        let (certificate, key) = identity(&authority, "node", Role::Node);
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("written");
        };
        write("ca.pem", &authority.certificates_pem());
        write("stranger.pem", &stranger.certificates_pem());
        write("cert.pem", &certificate);
        write("key.pem", &key.to_pem());
        let (certificate, key) = identity(&authority, "puppet", Role::Server);
        let tls = ServerTls {
            identity: Identity::from_pem(&certificate, &key).expect("an identity"),
            authority_pem: authority.certificates_pem(),
            revocation_lists_pem: String::new(),
        };
        let mut config = tls.config().expect("a configuration");
        config.alpn_protocols.clear();
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&asked);
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("usable");
                let mut stream = StreamOwned::new(connection, tcp);
                let Some(line) = request_line(&mut stream) else {
                    continue;
                };
                lines.lock().expect("not poisoned").push(line);
                let _ = answer(&mut stream, status, &body, ends);
            }
        });
        Self {
            directory,
            port,
            asked,
        }
    }

    fn of(status: &'static str, body: &str) -> Self {
        Self::new(status, Arc::new(body.as_bytes().to_vec()), true)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn plan(&self, ca: &str, more: &[&str]) -> Output {
        let mut command = bunraku();
        command.args(["plan", "--offline", "--environment", "production"]);
        command.arg("--puppet-server");
        command.arg(format!("https://127.0.0.1:{}", self.port));
        command.arg("--puppet-ca").arg(self.path(ca));
        command.arg("--puppet-cert").arg(self.path("cert.pem"));
        command.arg("--puppet-key").arg(self.path("key.pem"));
        command.args(more).output().expect("it runs")
    }
}

fn request_line(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    String::from_utf8(request)
        .ok()?
        .lines()
        .next()
        .map(str::to_owned)
}

fn answer(stream: &mut impl Write, status: &str, body: &[u8], ends: bool) -> std::io::Result<()> {
    let length = if ends {
        format!("Content-Length: {}\r\n", body.len())
    } else {
        String::new()
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n"
    )?;
    stream.write_all(body)?;
    stream.flush()?;
    match (ends, body.is_empty()) {
        (true, _) => Ok(()),
        // Sends nothing more for the rest of the test.
        (false, true) => loop {
            std::thread::park();
        },
        (false, false) => loop {
            stream.write_all(body)?;
        },
    }
}

fn check(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{}", all_output(output));
    for part in parts {
        assert!(
            all_output(output).contains(part),
            "{part}: {}",
            all_output(output)
        );
    }
}

#[test]
fn the_graph_of_a_puppet_server_is_planned() {
    let world = PuppetWorld::of("200 OK", GRAPH);
    let output = world.plan("ca.pem", &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        plan["groups"],
        serde_json::json!([["dev1.devco.net"], ["dev2.devco.net", "dev3.devco.net"]])
    );
    let asked = world.asked.lock().expect("not poisoned").clone();
    assert_eq!(asked, ["GET /puppet/v3/environment/production HTTP/1.1"]);
}

#[test]
fn a_server_that_has_no_graphs_any_more_is_explained() {
    let world = PuppetWorld::of("404 Not Found", "Not Found");
    check(
        &world.plan("ca.pem", &[]),
        &[
            "the Puppet server has no graph of the environment `production`",
            "hint: Puppet 7 removed environment graphs: plan from the manifest itself with `--site site.pp`",
        ],
    );
    let world = PuppetWorld::of("403 Forbidden", "Forbidden request: /puppet/v3/environment");
    check(
        &world.plan("ca.pem", &[]),
        &["denies access to", "auth.conf"],
    );
    let world = PuppetWorld::of("500 Server Error", "boom");
    check(
        &world.plan("ca.pem", &[]),
        &["answered 500 Internal Server Error: boom"],
    );
    let world = PuppetWorld::of("200 OK", "<html>");
    assert_eq!(world.plan("ca.pem", &[]).status.code(), Some(1));
}

#[test]
fn a_server_of_another_authority_is_not_asked() {
    let world = PuppetWorld::of("200 OK", GRAPH);
    let output = world.plan("stranger.pem", &[]);
    check(
        &output,
        &["does not trust the other", "hint: check `--puppet-ca`"],
    );
    assert!(world.asked.lock().expect("not poisoned").is_empty());
    // A listener that is not an HTTP server.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let world = PuppetWorld { port, ..world };
    check(
        &world.plan("ca.pem", &[]),
        &["cannot reach the Puppet server"],
    );
}

#[test]
fn a_server_that_never_answers_or_never_ends_is_left() {
    let silent = PuppetWorld::new("200 OK", Arc::default(), false);
    let output = silent.plan("ca.pem", &["--puppet-timeout", "2s"]);
    check(&output, &["did not answer within 2s"]);
    let endless = PuppetWorld::new("200 OK", Arc::new(vec![b' '; 1 << 20]), false);
    let output = endless.plan("ca.pem", &["--puppet-timeout", "60s"]);
    check(&output, &["the answer is larger than 67108864 bytes"]);
}

#[test]
fn certificates_are_needed_and_files_do_not_go_with_a_server() {
    let mut command = bunraku();
    command.args(["plan", "--offline", "--puppet-server", "https://puppet"]);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(64), "{}", all_output(&output));
    let world = PuppetWorld::of("200 OK", GRAPH);
    let output = world.plan("ca.pem", &["--site", "x.yaml"]);
    assert_eq!(output.status.code(), Some(64), "{}", all_output(&output));
}

#[test]
fn the_command_of_the_page_fetches_the_graph() {
    let page = include_str!("../../../../docs/puppet.md");
    let printed = page.split("```sh\n").find_map(|block| {
        let block = block.split("```").next()?;
        block.contains("--puppet-server").then_some(block)
    });
    let world = PuppetWorld::of("200 OK", GRAPH);
    let server = format!("https://127.0.0.1:{}", world.port);
    let directory = world.directory.path().display().to_string();
    // The page names a server and files of a Puppet node. The rest is as printed.
    let command = printed
        .expect("the page has it")
        .replace("https://puppet.example.com:8140", &server)
        .replace(
            "/etc/puppetlabs/puppet/ssl/certs/$(hostname -f)",
            &format!("{directory}/cert"),
        )
        .replace(
            "/etc/puppetlabs/puppet/ssl/private_keys/$(hostname -f)",
            &format!("{directory}/key"),
        )
        .replace("/etc/puppetlabs/puppet/ssl/certs", &directory)
        .replacen("bunraku plan", "\"$0\" plan --offline", 1);
    let program = bunraku().get_program().to_owned();
    let mut shell = std::process::Command::new("bash");
    let output = shell.args(["-euc", &command]).arg(program).output();
    let output = output.expect("bash runs");
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    assert!(
        all_output(&output).contains("Lamp[app1]"),
        "{}",
        all_output(&output)
    );
}
