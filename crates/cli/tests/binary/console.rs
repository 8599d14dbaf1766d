//! The console, as a browser requests it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::cluster_support::Cluster;
use crate::support::{Running, ServerProcess, Site, all_output, bunraku, eventually};

pub(crate) struct Console {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    cookie: String,
}

struct Reply {
    status: u16,
    headers: String,
    body: String,
}

impl Console {
    pub(crate) fn start(site: &Site, server: &ServerProcess) -> Self {
        Self::start_as(site, server, &server.credentials())
    }

    /// Starts a console with the credentials of somebody.
    fn start_as(site: &Site, server: &ServerProcess, credentials: &Path) -> Self {
        let mut command = bunraku();
        command.args(["console", "--server", &server.address.to_string()]);
        command.arg("--credentials").arg(credentials);
        let mut running = Running::start(command, &site.path("console.log"));
        let mut line = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut line)
            .expect("readable");
        let (address, key) = line
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once("/?key="))
            .unwrap_or_else(|| panic!("{line}: {}", running.log()));
        let mut console = Self {
            address: address.parse().expect("an address"),
            key: key.to_owned(),
            cookie: String::new(),
            running,
        };
        let entered = console.ask("GET", &format!("/?key={}", console.key), address);
        assert_eq!(entered.status, 303, "{}", entered.body);
        let cookie = entered.headers.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name == "set-cookie").then(|| value.to_owned())
        });
        let cookie = cookie.expect("a cookie");
        assert!(cookie.contains("httponly; samesite=strict"), "{cookie}");
        console.cookie = cookie.split(';').next().expect("a pair").to_owned();
        console
    }

    fn ask(&self, method: &str, path: &str, host: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let cookie = if self.cookie.is_empty() {
            String::new()
        } else {
            format!("cookie: other=1; {}\r\n", self.cookie)
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{cookie}content-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        let (headers, body) = text.split_once("\r\n\r\n").expect("a reply");
        let status = headers.split(' ').nth(1).expect("a status");
        Reply {
            status: status.parse().expect("a number"),
            headers: headers.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &self.address.to_string())
    }

    /// Returns a page that must exist.
    pub(crate) fn page(&self, path: &str) -> String {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        assert!(
            reply
                .headers
                .contains("content-security-policy: default-src 'none'"),
            "{}",
            reply.headers
        );
        reply.body
    }
}

#[test]
fn pages_show_the_fleet_only_with_the_key() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let disabled = server.operator(&["node", "disable", "web-1", "--reason", "<b>disk</b>"]);
    assert!(disabled.status.success(), "{}", all_output(&disabled));
    let mut console = Console::start(&site, &server);

    let overview = console.page("/");
    for part in ["one server", "disabled", "No environments yet"] {
        assert!(overview.contains(part), "{part}: {overview}");
    }
    let nodes = console.page("/nodes?status=disabled&name=web");
    assert!(nodes.contains(r#"href="/nodes/web-1""#), "{nodes}");
    assert!(
        !nodes.contains("<b>disk"),
        "what people write is text: {nodes}"
    );
    assert!(
        console
            .page("/nodes?status=lost")
            .contains("No nodes match")
    );
    eventually("its facts are shown", || {
        console.page("/nodes/web-1").contains("kernel")
    });
    assert!(console.page("/cluster").contains("This is a single server"));
    assert!(console.page("/runs").contains("No runs yet"));
    assert!(console.page("/console.js").contains("refresh"));
    for (path, status) in [
        ("/nodes/nobody", 404),
        ("/nodes/..%2f..%2fv1", 404),
        ("/runs/17", 404),
        ("/runs/017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 404),
        ("/nothing", 404),
    ] {
        let reply = console.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }

    let own = console.address.to_string();
    assert_eq!(console.ask("POST", "/", &own).status, 403, "read-only");
    assert_eq!(console.ask("GET", "/", "evil.example:80").status, 403);
    let cookie = std::mem::take(&mut console.cookie);
    for path in ["/", "/nodes", "/?key=", "/?key=0", "/nodes/web-1"] {
        let reply = console.get(path);
        assert_eq!(reply.status, 403, "{path}: {}", reply.body);
        assert!(!reply.body.contains("web-1"), "{path}: {}", reply.body);
    }
    console.cookie = cookie;

    // The key opens any page, and never redirects to another host.
    for (path, to) in [("/nodes", "/nodes"), ("//evil.example/", "/")] {
        let reply = console.get(&format!("{path}?key={}", console.key));
        assert_eq!(reply.status, 303, "{}", reply.body);
        let location = format!("\nlocation: {to}\r");
        assert!(reply.headers.contains(&location), "{}", reply.headers);
    }

    // An unreachable server is reported, and found again later.
    let port = server.address.port();
    server.running.kill();
    let away = console.get("/");
    assert_eq!(away.status, 502, "{}", away.body);
    assert!(away.body.contains("No server answers"), "{}", away.body);
    let _server = site.server("server", port, &[]);
    eventually("the page is back", || console.get("/").status == 200);
    assert_eq!(console.running.end(), Some(0));
}

#[test]
fn it_listens_on_this_machine_only() {
    let mut command = bunraku();
    let output = command
        .args(["console", "--listen", "0.0.0.0:0"])
        .output()
        .expect("it runs");
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(text.contains("ssh -L"), "{text}");
}

#[test]
fn a_cluster_is_shown_with_its_servers_and_what_happened() {
    let cluster = Cluster::new();
    let made = cluster.set_up(1, &["init"]);
    assert!(made.status.success(), "{}", all_output(&made));
    let first = cluster.server(1);
    let console = Console::start(&cluster.site, &first);
    eventually("the server and its datastore are shown", || {
        let page = console.get("/cluster").body;
        ["s1", "alive", "healthy", "Elected server: s1"]
            .iter()
            .all(|part| page.contains(part))
    });
    assert!(console.page("/").contains("1 server, healthy"));
}

#[test]
fn the_audit_log_is_shown_page_by_page_to_those_who_may_view_everything() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    for number in 0..110 {
        let reason = format!("token <{number}>");
        let made = server.operator(&["token", "create", "--audit-reason", &reason]);
        assert!(made.status.success(), "{}", all_output(&made));
    }
    let refused = server.operator(&["node", "disable", "nobody", "--reason", "x"]);
    assert!(!refused.status.success());
    let console = Console::start(&site, &server);
    let newest = console.get("/audit").body;
    for shown in [
        "Audit log",
        "token &#60;109&#62;",
        "disable-node",
        "refused (404)",
        "127.0.0.1",
    ] {
        assert!(newest.contains(shown), "{shown}: {newest}");
    }
    assert!(
        !newest.contains("token &#60;0&#62;"),
        "it is on the next page"
    );
    let older = newest.split("href=\"").find(|it| it.contains("before="));
    let older = older.and_then(|it| it.split('"').next()).expect("a link");
    let older = console.get(&older.replace("&amp;", "&")).body;
    assert!(
        older.contains("token &#60;0&#62;") && older.contains("Newest"),
        "{older}"
    );
    let filtered = console.get("/audit?action=disable-*&outcome=refused").body;
    assert!(filtered.contains("disable-node"), "{filtered}");
    assert!(!filtered.contains("create-token"), "{filtered}");
    let nothing = console.get("/audit?who=nobody").body;
    assert!(nothing.contains("No records match"), "{nothing}");

    // Rules about one environment do not include the log.
    let bob = site.path("bob");
    let out = bob.to_str().expect("text");
    let issue = [
        "cert", "issue", "bob", "--role", "operator", "--group", "web",
    ];
    let issued = server.operator(&[&issue[..], &["--out", out]].concat());
    assert!(issued.status.success(), "{}", all_output(&issued));
    let grant = [
        "access",
        "grant",
        "bob",
        "viewer",
        "--environment",
        "production",
    ];
    let granted = server.operator(&grant);
    assert!(granted.status.success(), "{}", all_output(&granted));
    let console = Console::start_as(&site, &server, &bob);
    assert_eq!(console.get("/nodes").status, 200);
    let denied = console.get("/audit");
    assert_eq!(denied.status, 403, "{}", denied.body);
    assert!(denied.body.contains("Access denied"), "{}", denied.body);
    assert!(!denied.body.contains("create-token"), "{}", denied.body);
}
