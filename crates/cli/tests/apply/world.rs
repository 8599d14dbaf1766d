//! A directory for files, a state directory, and the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

pub(crate) struct World {
    directory: tempfile::TempDir,
}

/// The result of a command.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("files")).expect("a directory");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let files = self.directory.path().join("files");
        if name.is_empty() {
            files
        } else {
            files.join(name)
        }
    }

    /// Writes a catalog; `@ROOT@` in it is the directory for files.
    pub(crate) fn catalog(&self, resources: &Value) -> PathBuf {
        let root = self.directory.path().join("files");
        let catalog = json!({"name": "web1", "resources": resources}).to_string();
        let path = self.directory.path().join("catalog.json");
        std::fs::write(&path, catalog.replace("@ROOT@", &root.to_string_lossy())).expect("a file");
        path
    }

    /// Returns the command `bunraku apply` for a file, not yet run.
    pub(crate) fn command(&self, path: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bunraku"));
        command.arg("apply").arg(path).args(arguments);
        command.env("BUNRAKU_STATE_DIR", self.directory.path().join("state"));
        command
    }

    pub(crate) fn apply(&self, resources: &Value, arguments: &[&str]) -> Ended {
        let path = self.catalog(resources);
        self.ended(
            self.command(&path, arguments)
                .output()
                .expect("the binary runs"),
        )
    }

    /// Returns the texts with the directory replaced by `@ROOT@` and durations by `TIME`.
    pub(crate) fn ended(&self, output: Output) -> Ended {
        let clean = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            let text = text.replace(
                &*self.directory.path().join("files").to_string_lossy(),
                "@ROOT@",
            );
            text.replace(&*self.directory.path().to_string_lossy(), "@WORLD@")
        };
        Ended {
            code: output.status.code(),
            stdout: without_times(&clean(output.stdout)),
            stderr: clean(output.stderr),
        }
    }
}

/// Removes durations: `0.1 s` at the end of a line depends on the machine.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once("  ") {
        Some((before, last))
            if last.ends_with(" s") && last[..last.len() - 2].parse::<f64>().is_ok() =>
        {
            format!("{before}  TIME\n")
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}
