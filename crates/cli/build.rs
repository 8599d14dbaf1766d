//! Tells the program the commit, the profile and the compiler that it was built with.

use std::process::Command;

fn main() {
    let commit = std::env::var("BUNRAKU_COMMIT").ok();
    let commit = commit.or_else(|| output("git", &["rev-parse", "--short=12", "HEAD"]));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    for (name, value) in [
        ("BUNRAKU_COMMIT", commit),
        ("BUNRAKU_PROFILE", std::env::var("PROFILE").ok()),
        ("BUNRAKU_TARGET", std::env::var("TARGET").ok()),
        ("BUNRAKU_RUSTC", output(&rustc, &["--version"])),
    ] {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
    println!("cargo::rerun-if-env-changed=BUNRAKU_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // Changes with every commit, also in a linked work tree.
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Returns the first line that a program prints, if it succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
