//! The limits under which a program starts.
//!
//! Each limit is set by a small program that sets it and then becomes the program itself (`setpriv`
//! of util-linux, a one-line shell). That needs no code between fork and exec, and so no `unsafe`.
//! Further limits, such as resource limits (`prlimit`) and namespaces (`unshare`), belong here.

use std::ffi::OsString;
use std::path::Path;

const SETPRIV: &str = "/usr/bin/setpriv";

/// The identity of a program that runs as another user or group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunAs {
    /// The user. The user's supplementary groups apply too.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Limits that are set before the program starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confinement {
    pub(crate) run_as: RunAs,
    pub(crate) umask: Option<u32>,
    /// The kernel kills the program when our process ends, even by `kill -9`.
    pub(crate) ends_with_us: bool,
}

impl Confinement {
    /// Returns the words to run instead of the program's own.
    pub(crate) fn wrap(&self, words: Vec<OsString>) -> Vec<OsString> {
        let mut wrapped = self.setpriv();
        if let Some(umask) = self.umask {
            let script = format!("umask {umask:04o}; exec \"$@\"");
            wrapped.extend(["/bin/sh".into(), "-c".into(), script.into(), "sh".into()]);
        }
        wrapped.extend(words);
        wrapped
    }

    fn setpriv(&self) -> Vec<OsString> {
        let RunAs { uid, gid } = self.run_as;
        let mut options: Vec<OsString> = Vec::new();
        if let Some(uid) = uid {
            options.push(format!("--reuid={uid}").into());
        }
        if let Some(gid) = gid {
            options.push(format!("--regid={gid}").into());
        }
        if uid.is_some() || gid.is_some() {
            // If only a group is given, we must not pass on our own groups.
            let groups = if uid.is_some() {
                "--init-groups"
            } else {
                "--clear-groups"
            };
            options.push(groups.into());
        }
        // This is only a safeguard: a system without `setpriv` has to do without it.
        let is_here = Path::new(SETPRIV).exists();
        if self.ends_with_us && (is_here || !options.is_empty()) {
            options.extend(["--pdeathsig".into(), "KILL".into()]);
        }
        if options.is_empty() {
            return options;
        }
        // Use the path if it is known: the environment may have no search path.
        options.insert(0, if is_here { SETPRIV } else { "setpriv" }.into());
        options.push("--".into());
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(confinement: &Confinement) -> String {
        let words = confinement.wrap(vec!["id".into(), "-u".into()]);
        let words: Vec<String> = words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        words.join(" ").replace(SETPRIV, "setpriv")
    }

    #[test]
    fn without_limits_the_program_is_started_as_it_is() {
        assert_eq!(wrapped(&Confinement::default()), "id -u");
    }

    #[test]
    fn a_user_brings_its_groups_and_a_group_alone_clears_ours() {
        let user = RunAs {
            uid: Some(7),
            gid: Some(8),
        };
        let confinement = Confinement {
            run_as: user,
            ..Confinement::default()
        };
        assert_eq!(
            wrapped(&confinement),
            "setpriv --reuid=7 --regid=8 --init-groups -- id -u"
        );
        let confinement = Confinement {
            run_as: RunAs { uid: None, ..user },
            umask: Some(0o27),
            ..Confinement::default()
        };
        assert_eq!(
            wrapped(&confinement),
            "setpriv --regid=8 --clear-groups -- /bin/sh -c umask 0027; exec \"$@\" sh id -u"
        );
    }
}
