//! This program on another machine.
//!
//! It is copied once. Its hash is checked every time before it runs.

use std::path::PathBuf;

use bunraku_model::ContentId;

use super::{SshConnection, Upload, quoted};
use crate::failure::Failure;

/// The program to run on the machine.
pub(crate) struct Binary {
    path: PathBuf,
    hash: String,
}

/// The path of the program on the machine, as a shell word.
pub(crate) struct InstalledBinary {
    pub(crate) word: String,
    pub(crate) copied: bool,
}

impl Binary {
    /// Uses this program, or another build of it for another kind of machine.
    pub(crate) fn new(named: Option<PathBuf>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path,
            None => std::env::current_exe()?,
        };
        let bytes = std::fs::read(&path).map_err(|error| {
            Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
        })?;
        let hash = ContentId::of(&bytes).to_string();
        Ok(Self { path, hash })
    }

    /// Copies the program into a directory on the machine, unless it is already present.
    ///
    /// `directory` is a shell word, so that `"$HOME"/…` is possible.
    pub(crate) fn install(
        &self,
        remote: &SshConnection,
        directory: &str,
    ) -> Result<InstalledBinary, Failure> {
        self.check_machine(remote)?;
        let word = format!("{directory}/bunraku");
        let hash = quoted(&self.hash);
        let check = format!(
            "[ \"$(sha256sum < {word} 2>/dev/null | cut -d' ' -f1)\" = {hash} ] && echo same || true"
        );
        let same = remote.run("look for Bunraku", &check, &Upload::Nothing)?;
        let copied = same.trim() != "same";
        if copied {
            let script = format!(
                "set -e; umask 022; mkdir -p {directory}; new=$(mktemp \
                 {directory}/.bunraku.XXXXXX); trap 'rm -f \"$new\"' EXIT; cat > \"$new\"; if [ \
                 \"$(sha256sum < \"$new\" | cut -d' ' -f1)\" != {hash} ]; then echo 'the copy is \
                 corrupt' >&2; exit 1; fi; chmod 0755 \"$new\"; mv -f \"$new\" {word}"
            );
            remote.run("copy Bunraku", &script, &Upload::File(&self.path))?;
        }
        let version = format!("{word} --version");
        remote
            .run("start Bunraku", &version, &Upload::Nothing)
            .map_err(|failure| {
                failure.hint("pass a build for that machine with `--binary FILE`")
            })?;
        Ok(InstalledBinary { word, copied })
    }

    fn check_machine(&self, remote: &SshConnection) -> Result<(), Failure> {
        let text = remote.run("determine the platform", "uname -s -m", &Upload::Nothing)?;
        let ours = format!("Linux {}", std::env::consts::ARCH);
        let own_build = std::env::current_exe().is_ok_and(|own| own == self.path);
        if own_build && text.trim() != ours {
            let failure = Failure::new(format!(
                "{} is a {} machine, and this build is for {ours}",
                remote.destination(),
                text.trim()
            ));
            return Err(failure.hint("pass a build for that machine with `--binary FILE`"));
        }
        Ok(())
    }
}
