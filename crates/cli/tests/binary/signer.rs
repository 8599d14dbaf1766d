//! The signer as a real process: a server's child, and on its own.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, eventually};

/// Returns the processes that this process started as signers.
fn signers_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|process| {
            let status = status_of(*process);
            let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            status.contains(&format!("PPid:\t{parent}\n")) && words.contains("\0signer\0")
        })
        .collect()
}

fn status_of(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

fn kill(process: u32) {
    let process = Pid::from_raw(process.cast_signed()).expect("a process id");
    kill_process(process, Signal::KILL).expect("it can be killed");
}

/// Returns the bytes of the private number in a key file, which every form of the key contains.
fn secret_in(key: &Path) -> Vec<u8> {
    let command = std::process::Command::new("openssl")
        .args(["pkey", "-noout", "-text", "-in"])
        .arg(key)
        .output()
        .expect("openssl runs");
    let text = String::from_utf8(command.stdout).expect("text");
    let digits = text.split_once("priv:").expect("a private key").1;
    let digits = digits.split_once("pub:").expect("a public key").0;
    let digits: String = digits.chars().filter(char::is_ascii_hexdigit).collect();
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    });
    let mut bytes: Vec<u8> = bytes.collect();
    while bytes.first() == Some(&0) {
        bytes.remove(0);
    }
    bytes
}

/// Returns `true` if the process has these bytes in its memory.
fn has_in_memory(process: u32, secret: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("readable");
    let mut memory = std::fs::File::open(format!("/proc/{process}/mem")).expect("readable");
    maps.lines()
        .filter(|line| line.contains(" rw"))
        .any(|line| {
            let range = line.split_whitespace().next().expect("a range");
            let (from, to) = range.split_once('-').expect("a range");
            let from = u64::from_str_radix(from, 16).expect("an address");
            let to = u64::from_str_radix(to, 16).expect("an address");
            let mut bytes = Vec::new();
            if memory.seek(SeekFrom::Start(from)).is_err() {
                return false;
            }
            let _ = (&mut memory).take(to - from).read_to_end(&mut bytes);
            bytes.windows(secret.len()).any(|window| window == secret)
        })
}

#[test]
fn the_ca_key_is_never_in_the_servers_memory() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let own = secret_in(&site.path("s1/tls/key.pem"));
    assert!(
        has_in_memory(server.running.id(), &own),
        "the search finds what is there"
    );
    let secret = secret_in(&site.path("s1/ca/ca.key"));
    assert!(!has_in_memory(server.running.id(), &secret));
    drop(agent);
}

#[test]
fn a_killed_signer_is_started_again_and_ends_with_its_server() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let signers = signers_of(server.running.id());
    assert_eq!(signers.len(), 1, "{}", server.running.log());
    kill(signers[0]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let again = signers_of(server.running.id());
    assert_eq!(again.len(), 1);
    assert_ne!(again, signers);
    let alice = site.path("alice");
    let issued = server.issue_operator("alice", &alice);
    assert!(issued.status.success(), "{}", all_output(&issued));
    let log = std::fs::read_to_string(site.path("s1/ca/signatures.log")).expect("a log");
    assert!(log.contains(r#""operator":"operator.s1.test""#), "{log}");
    server.running.kill();
    eventually("the signer ends with its server", || {
        status_of(again[0]).is_empty() || status_of(again[0]).contains("State:\tZ")
    });
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_servers_signer_runs_as_its_own_user() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let site = Site::new();
    let config = site.path("bunraku.toml");
    std::fs::write(&config, "[server.authority]\nsigner_user = \"daemon\"\n").expect("written");
    let flags = ["--config", config.to_str().expect("text")];
    // An existing directory that belongs to root.
    let server = site.server("s1", 0, &[]);
    let fingerprint = server.fingerprint.clone();
    server.running.kill();
    let server = site.server("s1", 0, &flags);
    assert_eq!(server.fingerprint, fingerprint);
    let signers = signers_of(server.running.id());
    assert_eq!(signers.len(), 1, "{}", server.running.log());
    let status = status_of(signers[0]);
    assert!(status.contains("Uid:\t1\t1\t1\t1"), "{status}");
    let key = std::fs::metadata(site.path("s1/ca/ca.key")).expect("a key");
    assert_eq!((key.uid(), key.mode() & 0o777), (1, 0o600));
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
}

/// A signer on its own, with its announcement.
struct SignerProcess {
    running: Running,
    ready: Value,
}

fn start_signer(site: &Site, config: &Path) -> SignerProcess {
    let mut command = bunraku();
    command.arg("signer").arg("--config").arg(config);
    let mut running = Running::start(command, &site.path("signer.log"));
    let mut line = String::new();
    BufReader::new(running.stdout())
        .read_line(&mut line)
        .expect("readable");
    let ready = serde_json::from_str(&line)
        .unwrap_or_else(|_| panic!("the signer is not ready: {}", running.log()));
    SignerProcess { running, ready }
}

fn write(path: &PathBuf, text: &str) {
    std::fs::write(path, text).expect("written");
}

/// Starts a server that asks a signer elsewhere.
fn server_with_signer(site: &Site, config: &Path, port: u16) -> ServerProcess {
    let flags = ["--config", config.to_str().expect("text")];
    site.server("s1", port, &flags)
}

#[test]
fn a_signer_on_another_machine_may_be_away_and_come_back() {
    let site = Site::new();
    let (signer_config, server_config) = (site.path("signer.toml"), site.path("server.toml"));
    let port = bunraku_store::testing::free_port();
    let own = bunraku_wire::Credentials::new(site.path("s1/signer-tls"))
        .load_or_create_self_signed("s1.test")
        .expect("a certificate");
    let directory = site.path("signer");
    let text = format!(
        "[signer]\ndirectory = {directory:?}\nlisten = \"127.0.0.1:{port}\"\n\
         operators_without_proof = [\"operator.s1.test\"]\n\
         [[signer.servers]]\nname = \"s1\"\nfingerprint = \"{}\"\n\
         server_names = [\"s1.test\", \"localhost\", \"127.0.0.1\", \"::1\"]\n",
        own.certificate().fingerprint
    );
    write(&signer_config, &text);
    let signer = start_signer(&site, &signer_config);
    let pin = signer.ready["fingerprint"].as_str().expect("a fingerprint");
    let text = format!(
        "[server.authority]\nsigner = \"tls:127.0.0.1:{port}\"\nsigner_fingerprint = \"{pin}\"\n"
    );
    write(&server_config, &text);
    let server = server_with_signer(&site, &server_config, 0);
    assert_eq!(server.fingerprint, signer.ready["ca_fingerprint"]);
    assert!(!site.path("s1/ca").exists(), "the server has no CA");
    let _first = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");

    // Without the signer, everything works but signing, even after a restart.
    signer.running.kill();
    let listen = server.address.port();
    server.running.kill();
    let server = server_with_signer(&site, &server_config, listen);
    server.wait_for("web-1", "idle");
    let out = site.path("alice");
    let refused = all_output(&server.issue_operator("alice", &out));
    assert!(refused.contains("does not answer"), "{refused}");
    assert!(refused.contains("nothing was signed"), "{refused}");
    let second = site.agent("web-2", &[&server], true);
    eventually("the agent waits for the signer", || {
        second.log().contains("does not answer")
    });
    let signer = start_signer(&site, &signer_config);
    server.wait_for("web-2", "idle");
    drop(signer);
    let verified = bunraku()
        .args(["signer", "--verify-log", "--config"])
        .arg(&signer_config)
        .output()
        .expect("it runs");
    assert!(verified.status.success(), "{}", all_output(&verified));
}
