//! Real downloads by curl from a listener on loopback, and real repositories.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// Answers every request with the given answer, and returns the listener's address.
fn listening(answer: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            // A client that has enough disconnects, which is the point of some of these
            // tests.
            let _ = answer(&mut stream);
        }
    });
    format!("http://{address}/x.bunraku-module")
}

async fn fetched(url: &str, sha256: ContentId) -> Result<Vec<u8>, String> {
    let scratch = tempfile::tempdir().expect("a directory");
    let url = url.to_owned();
    let source = ModuleSource::Url { url, sha256 };
    let fetched = fetch(&source, scratch.path(), ModuleReach::Local).await;
    fetched.map_err(|error| bunraku_control::error::chain(&error))
}

#[tokio::test]
async fn what_has_the_hash_is_fetched_and_anything_else_is_refused() {
    let url =
        listening(|out| out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\npackage"));
    let good = ContentId::of(b"package");
    assert_eq!(fetched(&url, good).await, Ok(b"package".to_vec()));
    let other = ContentId::of(b"another");
    let refused = fetched(&url, other).await.expect_err("another hash");
    assert_eq!(refused, format!("its hash is {good}, expected {other}"));
}

#[tokio::test]
async fn redirects_are_not_followed_and_error_replies_are_not_packages() {
    let url = listening(|out| {
        out.write_all(
            b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 7\r\n\r\npackage",
        )
    });
    let refused = fetched(&url, ContentId::of(b"package")).await;
    let said = "the server redirects (status 302); redirects are not followed";
    assert_eq!(refused, Err(said.to_owned()));
    let url = listening(|out| {
        out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\npackage")
    });
    let refused = fetched(&url, ContentId::of(b"package")).await;
    assert_eq!(
        refused,
        Err("the server answered with status 404".to_owned())
    );
}

#[tokio::test]
async fn a_body_without_end_is_cut_off_at_the_largest_package() {
    let url = listening(|out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let zeros = vec![0; 1 << 20];
        loop {
            out.write_all(b"100000\r\n")?;
            out.write_all(&zeros)?;
            out.write_all(b"\r\n")?;
        }
    });
    let refused = fetched(&url, ContentId::of(b""))
        .await
        .expect_err("too large");
    assert!(
        refused.contains("maximum size of 67108864 bytes"),
        "{refused}"
    );
    let url = listening(|out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\npackage")
    });
    let refused = fetched(&url, ContentId::of(b""))
        .await
        .expect_err("too large");
    assert!(refused.contains("exceeds"), "{refused}");
}

#[tokio::test]
async fn a_file_by_its_address_is_read_and_a_device_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x");
    std::fs::write(&path, "package").expect("written");
    let url = format!("file://{}", path.display());
    let good = ContentId::of(b"package");
    assert_eq!(fetched(&url, good).await, Ok(b"package".to_vec()));
    let refused = fetched("file:///dev/zero", good).await;
    assert_eq!(refused, Err("/dev/zero is not a regular file".to_owned()));
    let refused = fetched("file://etc/passwd", good)
        .await
        .expect_err("relative");
    assert!(refused.contains("is not a valid address"), "{refused}");
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
        .args(arguments)
        .output()
        .expect("git runs; scripts/setup installs it");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

#[tokio::test]
async fn a_file_is_taken_from_git_at_the_commit_and_not_from_a_newer_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let repository = directory.path().join("repository");
    std::fs::create_dir_all(repository.join("dist")).expect("made");
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(repository.join("dist/x"), "first").expect("written");
    git(&repository, &["add", "--all"]);
    git(&repository, &["commit", "--quiet", "--message=one"]);
    let first = git(&repository, &["rev-parse", "HEAD"]);
    std::fs::write(repository.join("dist/x"), "second").expect("written");
    git(
        &repository,
        &["commit", "--quiet", "--all", "--message=two"],
    );
    let scratch = directory.path().join("scratch");
    let ask = |commit: &str, path: &str| {
        let source = ModuleSource::Git {
            url: format!("file://{}", repository.display()),
            commit: commit.to_owned(),
            path: path.to_owned(),
        };
        let scratch = scratch.clone();
        async move {
            let fetched = fetch(&source, &scratch, ModuleReach::Local).await;
            fetched.map_err(|error| bunraku_control::error::chain(&error))
        }
    };
    assert_eq!(ask(&first, "dist/x").await, Ok(b"first".to_vec()));
    for path in ["dist", "nothing"] {
        let refused = ask(&first, path).await.expect_err("no file");
        assert!(refused.contains("has no file"), "{refused}");
    }
    for path in ["../x", "/etc/passwd"] {
        let refused = ask(&first, path).await.expect_err("outside");
        assert!(
            refused.contains("is not a path in a repository"),
            "{refused}"
        );
    }
    for commit in ["main", &first[..12], "--all"] {
        let refused = ask(commit, "dist/x").await.expect_err("no commit");
        assert!(refused.contains("is not a full commit id"), "{refused}");
    }
    let refused = ask(&"0".repeat(40), "dist/x").await.expect_err("unknown");
    assert!(refused.contains("is not in file://"), "{refused}");
}
