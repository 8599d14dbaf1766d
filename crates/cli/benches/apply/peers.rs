//! Puppet, Salt and Ansible with the same work.

use std::path::{Path, PathBuf};
use std::process::Command;

use bunraku_testkit::puppet_options;

use crate::catalogs;
use crate::measure::{Measured, run};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Peer {
    Puppet,
    Salt,
    Ansible,
}

/// Returns the peers that finish this many files in acceptable time. Ansible needs ten minutes for
/// a thousand files. Puppet and Salt need minutes for ten thousand, so they do that only on
/// request.
pub(crate) fn all(count: usize, most: usize) -> Vec<Peer> {
    let limit = |peer: &Peer| match peer {
        Peer::Ansible => 100,
        Peer::Puppet | Peer::Salt => most,
    };
    let peers = [Peer::Puppet, Peer::Salt, Peer::Ansible];
    peers
        .into_iter()
        .filter(|peer| count <= limit(peer))
        .collect()
}

/// Returns the directory where pip installed Salt and Ansible. Installs them on first use.
fn installed() -> PathBuf {
    let peers = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target directory")
        .join("peers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/bench-peers");
    let done = Command::new(script)
        .arg(&peers)
        .status()
        .expect("scripts/bench-peers runs");
    assert!(done.success(), "Salt and Ansible could not be installed");
    peers
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Puppet => "puppet",
            Self::Salt => "salt-call",
            Self::Ansible => "ansible",
        }
    }

    /// Measures the first run and the idempotent run.
    pub(crate) fn files(self, root: &Path, count: usize) -> (Measured, Measured) {
        let place = root.join(self.name());
        std::fs::create_dir(&place).expect("a directory");
        let mut command = match self {
            Self::Puppet => puppet(root, &place, count),
            Self::Salt => salt(root, &place, count),
            Self::Ansible => ansible(root, &place, count),
        };
        let first = run(&mut command);
        assert!(first.succeeded, "{} failed", self.name());
        assert!(
            catalogs::path(&place, count - 1).exists(),
            "{} made no files",
            self.name()
        );
        (first, run(&mut command))
    }
}

fn puppet(root: &Path, place: &Path, count: usize) -> Command {
    let manifest = root.join("site.pp");
    std::fs::write(&manifest, catalogs::manifest(place, count)).expect("a file");
    let mut command = Command::new("puppet");
    command.arg("apply").arg(manifest);
    command.args(puppet_options(&root.join("puppet-home")));
    command
}

fn salt(root: &Path, place: &Path, count: usize) -> Command {
    let (etc, states) = (root.join("salt-etc"), root.join("salt-states"));
    std::fs::create_dir_all(&etc)
        .and_then(|()| std::fs::create_dir_all(&states))
        .expect("directories");
    std::fs::write(states.join("files.sls"), catalogs::states(place, count)).expect("a file");
    let minion = format!(
        "file_client: local\nid: bench\nroot_dir: {}\nfile_roots:\n  base:\n    - {}\n",
        root.join("salt-root").display(),
        states.display()
    );
    std::fs::write(etc.join("minion"), minion).expect("a file");
    let mut command = Command::new(installed().join("bin/salt-call"));
    command
        .args(["--local", "--retcode-passthrough", "-c"])
        .arg(etc)
        .args(["state.apply", "files"]);
    command
}

fn ansible(root: &Path, place: &Path, count: usize) -> Command {
    let playbook = root.join("playbook.yml");
    std::fs::write(&playbook, catalogs::playbook(place, count)).expect("a file");
    let peers = installed();
    let mut command = Command::new(peers.join("bin/ansible-playbook"));
    command.args(["-i", "localhost,"]).arg(playbook);
    command
        .env("ANSIBLE_PYTHON_INTERPRETER", peers.join("bin/python3"))
        .env("ANSIBLE_HOME", root.join("ansible-home"));
    command
}
