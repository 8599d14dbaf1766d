//! Repositories of the test, with tiny packages created on the spot, so that the
//! machine's own state is not touched and no network is used.

use std::path::PathBuf;
use std::process::Command;

use crate::types::testing_root::Machine;
use crate::types::tool;

/// Fails the test if a tool is missing.
#[track_caller]
pub(crate) fn needs(programs: &[&str]) {
    for program in programs {
        assert!(
            tool::exists(program),
            "`{program}` is missing: run scripts/setup"
        );
    }
}

#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A Debian machine without packages, and a repository beside it.
pub(crate) struct Debian {
    pub(crate) machine: Machine,
}

impl Debian {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        needs(&["dpkg-deb", "dpkg-query", "apt-get"]);
        let machine = Machine::new();
        // apt reads repositories as a separate user.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(machine.beside(), open).unwrap();
        machine.write("/var/lib/dpkg/status", "");
        for directory in [
            "/var/lib/apt/lists/partial",
            "/var/cache/apt/archives/partial",
            "/etc/apt/sources.list.d",
            "/etc/apt/preferences.d",
            "/var/log/apt",
        ] {
            std::fs::create_dir_all(machine.path(directory)).unwrap();
        }
        let debian = Self { machine };
        std::fs::create_dir(debian.repository()).unwrap();
        debian
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.machine.beside().join("repository")
    }

    /// Adds the repository as a source without a `pkgrepo`.
    pub(crate) fn with_source(self) -> Self {
        let line = format!(
            "deb [trusted=yes] file:{} ./\n",
            self.repository().display()
        );
        self.machine.write("/etc/apt/sources.list", &line);
        self
    }

    /// Creates a package and adds it to the repository.
    pub(crate) fn package(&self, name: &str, version: &str, more: &str) -> PathBuf {
        let tree = tempfile::tempdir().unwrap();
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\n\
             Maintainer: Test <test@example.com>\n{more}Description: test\n"
        );
        std::fs::create_dir_all(tree.path().join("DEBIAN")).unwrap();
        std::fs::write(tree.path().join("DEBIAN/control"), control).unwrap();
        std::fs::write(
            tree.path().join("DEBIAN/conffiles"),
            format!("/etc/{name}.conf\n"),
        )
        .unwrap();
        std::fs::create_dir_all(tree.path().join("etc")).unwrap();
        std::fs::write(tree.path().join(format!("etc/{name}.conf")), version).unwrap();
        let file = self.repository().join(format!("{name}_{version}_all.deb"));
        run(Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(tree.path())
            .arg(&file));
        self.index();
        file
    }

    fn index(&self) {
        use sha2::Digest;
        let mut index = String::new();
        for entry in std::fs::read_dir(self.repository()).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let bytes = std::fs::read(&path).unwrap();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                index.push_str(run(Command::new("dpkg-deb").arg("--field").arg(&path)).trim_end());
                let hash = hex::encode(sha2::Sha256::digest(&bytes));
                index.push_str(&format!(
                    "\nFilename: ./{name}\nSize: {}\nSHA256: {hash}\n\n",
                    bytes.len()
                ));
            }
        }
        std::fs::write(self.repository().join("Packages"), index).unwrap();
    }

    /// Returns name, wanted state and version of every package that dpkg knows.
    pub(crate) fn installed(&self) -> String {
        let admin = self.machine.path("/var/lib/dpkg");
        let done = Command::new("dpkg-query")
            .arg(format!("--admindir={}", admin.display()))
            .args(["-W", "-f", "${Package} ${db:Status-Abbrev}${Version}\\n"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Returns how many times `apt-get` changed packages.
    pub(crate) fn transactions(&self) -> usize {
        let log = std::fs::read_to_string(self.machine.path("/var/log/apt/history.log"));
        log.unwrap_or_default().matches("Start-Date").count()
    }
}
