//! Refusals arrive, over both versions of HTTP, as real curl sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::TestServer;

/// Attempts for each case: without the guard, most of them fail.
const ATTEMPTS: usize = 20;

/// A body that does not fit into one frame.
fn body(directory: &Path) -> PathBuf {
    let path = directory.join("body.json");
    std::fs::write(&path, format!("\"{}\"", "x".repeat(200_000))).expect("a file");
    path
}

fn status(arguments: &[&str], url: &str, body: &Path) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", "--max-time", "60"])
        .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(["-X", "POST", "--header", "Content-Type: application/json"])
        .args(arguments)
        .arg("--data-binary")
        .arg(format!("@{}", body.display()))
        .arg(url)
        .output()
        .expect("curl runs");
    let (status, said) = (output.stdout, output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(&status),
        String::from_utf8_lossy(&said).trim()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_a_client_that_still_sends_its_body() {
    let server = TestServer::start().await;
    let (certificate, key) = server.joined("web-1").await;
    let directory = tempfile::tempdir().expect("a directory");
    let (body, pem) = (body(directory.path()), directory.path().join("node.pem"));
    std::fs::write(&pem, format!("{certificate}\n{}", &*key.to_pem())).expect("a file");
    let pem = pem.to_string_lossy().into_owned();
    let url = format!("https://{}/v1/environments", server.address());
    let strangers: &[&str] = &[];
    let node: &[&str] = &["--cert", &pem];
    for version in ["--http2", "--http1.1"] {
        for (who, expected) in [(strangers, "401"), (node, "403")] {
            let arguments: Vec<&str> = [version].iter().chain(who).copied().collect();
            let answers: Vec<String> = (0..ATTEMPTS)
                .map(|_| status(&arguments, &url, &body))
                .collect();
            assert_eq!(answers, vec![expected; ATTEMPTS], "{arguments:?}");
        }
    }
}
