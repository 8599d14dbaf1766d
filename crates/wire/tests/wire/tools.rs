//! Real programs that the wire must interoperate with.

use std::path::Path;
use std::process::Command;

/// Runs a program and returns its output. A missing program or a failure ends the test.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let (good, text) = try_run(program, arguments);
    assert!(good, "{program} {arguments:?} failed: {text}");
    text
}

/// Like [`run`], but returns failures too: (success, standard output or both).
pub(crate) fn try_run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run `{program}` ({error}): install it with scripts/setup")
        });
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        text.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    (output.status.success(), text)
}

/// A directory to create files in, with OpenSSL.
pub(crate) struct Workshop {
    directory: tempfile::TempDir,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates a request with OpenSSL that has these extensions.
    pub(crate) fn request(&self, name: &str, extensions: &str) -> String {
        self.request_for(&format!("/CN={name}"), extensions)
    }

    pub(crate) fn request_for(&self, subject: &str, extensions: &str) -> String {
        let config = self.write(
            "request.cnf",
            &format!("[req]\ndistinguished_name=dn\n[dn]\n[wanted]\n{extensions}\n"),
        );
        let key = self.path("request.key");
        let curve = ["-pkeyopt", "ec_paramgen_curve:P-256"];
        let make = ["genpkey", "-algorithm", "EC", "-out", &key];
        run("openssl", &[make.as_slice(), &curve].concat());
        let mut arguments = vec![
            "req", "-new", "-key", &key, "-subj", subject, "-config", &config,
        ];
        if !extensions.is_empty() {
            arguments.extend(["-reqexts", "wanted"]);
        }
        run("openssl", &arguments)
    }

    /// Returns OpenSSL's description of a certificate.
    pub(crate) fn describe(&self, certificate: &str) -> String {
        let path = self.write("described.pem", certificate);
        run("openssl", &["x509", "-in", &path, "-noout", "-text"])
    }
}
