//! Private repositories: over HTTPS with a token and over SSH with a key. The
//! secrets are seen by the repository's server and by nobody else.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bunraku_compile::code::GitCredential;
use bunraku_wire::api::{DeployState, DeployStatus};
use serde_json::Value;
use tempfile::TempDir;

use crate::repository::{Repository, add, deploy, site_repository};
use crate::support::{TestServer, appears, eventually};

const SECRET: &str = "s3cret/token+1";

/// A process that ends with its test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(directory: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .current_dir(directory)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup installs it"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {words}");
}

/// `git http-backend` behind TLS and a password. Each request looks for the
/// secret among the arguments of all processes.
const BACKEND: &str = r#"
import base64, glob, http.server, os, ssl, subprocess, sys, urllib.parse
root, secret = sys.argv[1], os.environ['SECRET']
wanted = 'Basic ' + base64.b64encode(('deploy:' + secret).encode()).decode()
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_POST(self): self.do_GET()
    def do_GET(self):
        for path in glob.glob('/proc/[0-9]*/cmdline'):
            try: line = open(path, 'rb').read().decode(errors='replace')
            except OSError: continue
            if secret in line or urllib.parse.quote(secret, safe='') in line:
                open(root + '/seen', 'a').write(line + '\n')
        if self.headers.get('Authorization') != wanted:
            self.send_response(401)
            self.send_header('WWW-Authenticate', 'Basic realm="git"')
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        path, _, query = self.path.partition('?')
        length = int(self.headers.get('Content-Length') or 0)
        environment = dict(os.environ, GIT_PROJECT_ROOT=root, GIT_HTTP_EXPORT_ALL='1',
            PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=self.command, REMOTE_USER='deploy',
            CONTENT_TYPE=self.headers.get('Content-Type') or '', CONTENT_LENGTH=str(length),
            HTTP_CONTENT_ENCODING=self.headers.get('Content-Encoding') or '',
            GIT_CONFIG_COUNT='1', GIT_CONFIG_KEY_0='safe.directory', GIT_CONFIG_VALUE_0='*')
        answer = subprocess.run(['git', 'http-backend'], input=self.rfile.read(length),
            env=environment, stdout=subprocess.PIPE).stdout
        head, _, body = answer.partition(b'\r\n\r\n')
        status = 200
        headers = [line.split(': ', 1) for line in head.decode().split('\r\n')]
        for name, value in headers:
            if name == 'Status': status = int(value.split()[0])
        self.send_response(status)
        for name, value in headers:
            if name != 'Status': self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(root + '/web.pem', root + '/web.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
open(root + '/port.new', 'w').write(str(server.server_port))
os.rename(root + '/port.new', root + '/port')
server.serve_forever()
"#;

struct PrivateHost {
    directory: TempDir,
    port: u16,
    _process: Guard,
}

impl PrivateHost {
    async fn start(repository: &Repository) -> Self {
        let directory = TempDir::new().expect("a directory");
        let place = directory.path();
        let from = repository.path().display().to_string();
        run(
            place,
            "git",
            &["clone", "--quiet", "--bare", &from, "code.git"],
        );
        let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout web.key -out web.pem";
        run(place, "openssl", &request.split(' ').collect::<Vec<_>>());
        let process = Command::new("python3")
            .args(["-c", BACKEND])
            .arg(place)
            .env("SECRET", SECRET)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 runs; scripts/setup installs it");
        let process = Guard(process);
        let port = appears(async || {
            let text = std::fs::read_to_string(place.join("port")).ok()?;
            text.parse().ok()
        })
        .await;
        Self {
            port,
            _process: process,
            directory,
        }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/code.git", self.port)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn credential(&self, token: &str) -> GitCredential {
        GitCredential {
            url: format!("https://127.0.0.1:{}/", self.port),
            user: Some("deploy".to_owned()),
            token_file: Some(self.file("token", &format!("{token}\n"))),
            ca_file: Some(self.directory.path().join("web.pem")),
            ..GitCredential::default()
        }
    }
}

fn failure(status: &DeployStatus) -> String {
    match &status.deploy.state {
        DeployState::Failed { problem, .. } => problem.message.clone(),
        other => panic!("a failed deploy was expected, not {other:?}"),
    }
}

/// Returns everything that the API tells about environments.
async fn printed(server: &TestServer) -> String {
    let list: Value = server
        .operator
        .get("/v1/environments")
        .await
        .expect("a list");
    let detail: Value = server
        .operator
        .get("/v1/environments/production")
        .await
        .expect("an environment");
    format!("{list}\n{detail}")
}

#[tokio::test]
async fn a_token_opens_a_repository_over_https_and_is_seen_nowhere_else() {
    let repository = site_repository("one");
    let host = PrivateHost::start(&repository).await;
    let credential = host.credential(SECRET);
    let mut server =
        TestServer::start_with(|options| options.services.code.credentials = vec![credential])
            .await;
    add(&server, "production", &host.url()).await;
    let status = deploy(&server, "production").await;
    assert!(
        matches!(status.deploy.state, DeployState::Deployed { .. }),
        "{:?}",
        status.deploy.state
    );
    // A token that is replaced is used at once; one that is wrong is not shown.
    host.file("token", "wr0ng-token");
    let said = failure(&deploy(&server, "production").await);
    assert!(said.contains("Authentication failed"), "{said}");
    std::fs::remove_file(host.directory.path().join("token")).expect("removed");
    let said = failure(&deploy(&server, "production").await);
    assert!(said.contains("cannot read"), "{said}");
    let all = printed(&server).await;
    for secret in [SECRET, "wr0ng-token", "s3cret%2Ftoken%2B1"] {
        assert!(!all.contains(secret), "{all}");
    }
    assert!(
        !host.directory.path().join("seen").exists(),
        "an argument had it"
    );
    let scratch = server.options().services.data_dir.join("code/incoming");
    let left = std::fs::read_dir(scratch).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no file with a login is left");
    server.shutdown().await;
}

#[tokio::test]
async fn a_password_in_an_address_reaches_the_host_and_no_argument() {
    let repository = site_repository("one");
    let host = PrivateHost::start(&repository).await;
    let credential = GitCredential {
        token_file: None,
        ..host.credential("unused")
    };
    let mut server =
        TestServer::start_with(|options| options.services.code.credentials = vec![credential])
            .await;
    let with = |login: &str| host.url().replace("https://", &format!("https://{login}@"));
    add(&server, "production", &with("deploy:s3cret%2Ftoken%2B1")).await;
    let status = deploy(&server, "production").await;
    assert!(
        matches!(status.deploy.state, DeployState::Deployed { .. }),
        "{:?}",
        status.deploy.state
    );
    let change = serde_json::json!({"url": with("t0ken-alone")});
    let changed: Value = server
        .operator
        .put("/v1/environments/production", &change)
        .await
        .expect("changed");
    let said = failure(&deploy(&server, "production").await);
    assert!(said.contains("Authentication failed"), "{said}");
    let all = format!("{changed}\n{}\n{said}", printed(&server).await);
    for secret in ["s3cret", "t0ken-alone"] {
        assert!(!all.contains(secret), "{all}");
    }
    assert!(
        !host.directory.path().join("seen").exists(),
        "an argument had it"
    );

    // Without any login, git does not ask and the error says what is missing.
    let change = serde_json::json!({"url": host.url()});
    let changed: Result<Value, _> = server
        .operator
        .put("/v1/environments/production", &change)
        .await;
    changed.expect("changed");
    let said = failure(&deploy(&server, "production").await);
    assert!(said.contains("could not read Username"), "{said}");
    server.shutdown().await;
}

/// Starts `sshd` with a host key and one user key. Returns its port.
async fn sshd(place: &Path) -> (Guard, u16) {
    for key in ["host_key", "user_key", "stranger"] {
        run(
            place,
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-f", key],
        );
    }
    std::fs::copy(place.join("user_key.pub"), place.join("authorized")).expect("copied");
    let port = bunraku_store::testing::free_port();
    let shown = place.display();
    let settings = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {shown}/host_key\nAuthorizedKeysFile {shown}/authorized\n\
         StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    );
    std::fs::write(place.join("sshd_config"), settings).expect("a file");
    std::fs::create_dir_all("/run/sshd").expect("a directory");
    let process = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(place.join("sshd_config"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sshd starts; scripts/setup installs it");
    let process = Guard(process);
    eventually(async || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    let host_key = std::fs::read_to_string(place.join("host_key.pub")).expect("a key");
    let known = format!("[127.0.0.1]:{port} {host_key}");
    std::fs::write(place.join("known_hosts"), known).expect("a file");
    (process, port)
}

#[tokio::test]
async fn a_key_opens_a_repository_over_ssh_from_a_known_host_only() {
    let directory = TempDir::new().expect("a directory");
    let place = directory.path();
    let (_sshd, port) = sshd(place).await;
    let repository = site_repository("one");
    let url = format!("ssh://root@127.0.0.1:{port}{}", repository.path().display());
    std::fs::write(place.join("strangers"), "").expect("a file");
    for (key, known_hosts, expected) in [
        ("user_key", "known_hosts", None),
        ("stranger", "known_hosts", Some("Permission denied")),
        (
            "user_key",
            "strangers",
            Some("Host key verification failed"),
        ),
        ("missing", "known_hosts", Some("cannot read")),
    ] {
        let credential = GitCredential {
            url: format!("ssh://root@127.0.0.1:{port}/"),
            ssh_key: Some(place.join(key)),
            known_hosts: Some(place.join(known_hosts)),
            ..GitCredential::default()
        };
        let mut server =
            TestServer::start_with(|options| options.services.code.credentials = vec![credential])
                .await;
        add(&server, "production", &url).await;
        let status = deploy(&server, "production").await;
        match expected {
            None => assert!(
                matches!(status.deploy.state, DeployState::Deployed { .. }),
                "{:?}",
                status.deploy.state
            ),
            Some(expected) => {
                let said = failure(&status);
                assert!(said.contains(expected), "{key} {known_hosts}: {said}");
            }
        }
        server.shutdown().await;
    }
}
