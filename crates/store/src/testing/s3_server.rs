//! A real S3 server process, on loopback: moto, which keeps its objects in memory.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{TestAuthority, free_port};
use crate::blobs::{S3Credentials, S3Options};
use crate::etcd::EtcdIdentity;

const BUCKET: &str = "content";
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with one empty bucket. It ends when it is dropped, and its objects with it.
pub struct S3Server {
    child: Child,
    port: u16,
    is_tls: bool,
    directory: tempfile::TempDir,
}

impl S3Server {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Self {
        let server = Self::spawn(None);
        server.make_bucket().await;
        server
    }

    /// Starts a server with a certificate of this authority.
    pub async fn start_tls(authority: &TestAuthority) -> Self {
        let server = Self::spawn(Some(authority.identity("s3")));
        server.make_bucket_over_tls(&authority.ca_pem()).await;
        server
    }

    fn spawn(identity: Option<EtcdIdentity>) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peer-s3");
        let found = Command::new(script).output().expect("scripts/peer-s3 runs");
        let problem = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "scripts/peer-s3 failed: {problem}");
        let program = String::from_utf8(found.stdout).expect("a path");
        let (port, directory) = (free_port(), tempfile::tempdir().expect("a directory"));
        let log = File::create(directory.path().join("log")).expect("a log");
        let mut command = Command::new(program.trim());
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let is_tls = identity.is_some();
        if let Some(identity) = identity {
            let (certificate, key) = (directory.path().join("cert"), directory.path().join("key"));
            std::fs::write(&certificate, identity.cert_pem).expect("a certificate");
            std::fs::write(&key, identity.key_pem).expect("a key");
            command.arg("--ssl").arg("--ssl-cert").arg(certificate);
            command.arg("--ssl-key").arg(key);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("moto starts");
        Self {
            child,
            port,
            is_tls,
            directory,
        }
    }

    async fn make_bucket_over_tls(&self, ca_pem: &str) {
        let config = crate::tls::client_config(ca_pem, None, b"http/1.1").expect("a CA");
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let put = async {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
                let stream = connector.connect(name.clone(), stream).await?;
                self.put_bucket(stream).await
            };
            let Err(error) = put.await else {
                return;
            };
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "moto does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn make_bucket(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let put = async || {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            self.put_bucket(stream).await
        };
        while let Err(error) = put().await {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            let log = log.unwrap_or_default();
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "moto does not answer: {error}\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn put_bucket(
        &self,
        mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin,
    ) -> std::io::Result<()> {
        let request = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // Over TLS, moto closes the connection without saying so first.
        let read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if answer.is_empty() {
            read?;
        }
        if answer.contains(" 200 ") {
            Ok(())
        } else {
            Err(std::io::Error::other(answer))
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the settings for this server, without long waits.
    pub fn options(&self) -> S3Options {
        self.options_through(self.port)
    }

    /// Returns the settings for this server behind a proxy on another port.
    pub fn options_through(&self, port: u16) -> S3Options {
        let keys = S3Credentials::Keys {
            access_key: "test-key".to_owned(),
            secret_key: "test-secret".to_owned(),
            session_token: None,
        };
        let scheme = if self.is_tls { "https" } else { "http" };
        S3Options {
            endpoint: Some(format!("{scheme}://127.0.0.1:{port}")),
            path_style: true,
            ..S3Options::new(BUCKET, keys)
        }
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &'static str {
        BUCKET
    }

    fn client(&self) -> impl ObjectStore {
        let http = crate::blobs::object_http_for_tests();
        AmazonS3Builder::new()
            .with_http_connector(http)
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_access_key_id("test-key")
            .with_secret_access_key("test-secret")
            .with_disable_bulk_delete(true)
            .build()
            .expect("a client")
    }

    /// Returns the names of all objects, in order.
    pub async fn objects(&self) -> Vec<String> {
        let listed = self.client().list_with_delimiter(None).await;
        let (mut names, mut prefixes) = (Vec::new(), vec![listed.expect("lists")]);
        while let Some(page) = prefixes.pop() {
            names.extend(page.objects.iter().map(|found| found.location.to_string()));
            for prefix in page.common_prefixes {
                let listed = self.client().list_with_delimiter(Some(&prefix)).await;
                prefixes.push(listed.expect("lists"));
            }
        }
        names.sort();
        names
    }

    pub async fn read(&self, name: &str) -> Vec<u8> {
        let read = self.client().get(&ObjectPath::from(name)).await;
        let bytes = read.expect("an object").bytes().await;
        bytes.expect("its bytes").to_vec()
    }

    /// Replaces or creates an object.
    pub async fn write(&self, name: &str, bytes: Vec<u8>) {
        let (client, path) = (self.client(), ObjectPath::from(name));
        client.put(&path, bytes.into()).await.expect("writes");
    }

    pub async fn remove(&self, name: &str) {
        let removed = self.client().delete(&ObjectPath::from(name)).await;
        removed.expect("removes");
    }

    /// Returns the number of multipart uploads that are neither finished nor aborted.
    pub async fn unfinished(&self) -> usize {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .expect("connects");
        let request = format!(
            "GET /{BUCKET}?uploads HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
            self.port
        );
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("sends");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        read.expect("an answer");
        assert!(answer.contains("ListMultipartUploadsResult"), "{answer}");
        answer.matches("<UploadId>").count()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
