//! Sources of code: the addresses and branches that git may receive.
//!
//! User input becomes an argument of the `git` program on every server. So only
//! addresses of known kinds pass. Nothing passes that git could take for a
//! flag, nor any git transport that starts programs (`ext::`).

/// The reason for refusing an address or a branch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidRepository {
    #[error("`{0}` is not the address of a repository")]
    Url(String),
    #[error("`{0}` is not the name of a branch")]
    Branch(String),
    #[error("`{0}` cannot be a commit, a tag or a branch")]
    Reference(String),
}

/// Accepts `https://…`, `ssh://…`, `file:///…`, `user@host:path` and absolute paths.
pub fn check_url(url: &str) -> Result<(), InvalidRepository> {
    let refuse = || Err(InvalidRepository::Url(masked(url)));
    if url.len() > 2_000 || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse();
    }
    let good = if let Some((scheme, rest)) = url.split_once("://") {
        match scheme {
            "https" | "ssh" => is_host(authority_of(rest)),
            "file" => rest.starts_with('/') && rest.len() > 1,
            _ => false,
        }
    } else if url.starts_with('/') {
        url.len() > 1
    } else {
        // `user@host:path`, and not `transport::address`.
        url.split_once(':').is_some_and(|(host, path)| {
            !path.is_empty()
                && !path.starts_with([':', '-'])
                && !host.contains('/')
                && is_host(host)
        })
    };
    if good { Ok(()) } else { refuse() }
}

fn authority_of(rest: &str) -> &str {
    rest.split('/').next().unwrap_or("")
}

/// Accepts a host, with an optional user or port, but nothing that ssh takes for a flag.
fn is_host(authority: &str) -> bool {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = host.trim_start_matches('[');
    !host.is_empty()
        && !host.starts_with('-')
        && user.is_none_or(|user| !user.is_empty() && !user.starts_with('-'))
        && authority
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"'`$;&|<>(){}".contains(&byte))
}

/// Accepts names that git itself accepts, but no flags.
pub fn check_branch(branch: &str) -> Result<(), InvalidRepository> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-+#".contains(&byte);
    let good = !branch.is_empty()
        && branch.len() <= 200
        && branch.bytes().all(plain)
        && !branch.starts_with(['-', '/', '.'])
        && !branch.ends_with(['/', '.'])
        && !branch.ends_with(".lock")
        && !["..", "//", "/.", "@{"]
            .iter()
            .any(|bad| branch.contains(bad));
    if good {
        Ok(())
    } else {
        Err(InvalidRepository::Branch(branch.to_owned()))
    }
}

/// Accepts the names of tags and branches, and commit ids or the beginning of one.
pub fn check_reference(reference: &str) -> Result<(), InvalidRepository> {
    check_branch(reference).map_err(|_| InvalidRepository::Reference(reference.to_owned()))
}

/// Returns whether the repository is in the file system of this machine.
pub(crate) fn is_local(url: &str) -> bool {
    url.starts_with('/') || url.starts_with("file://")
}

/// Returns the address without its password, for all user-visible output.
pub fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = authority_of(rest);
    match authority.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            let name = user.split(':').next().unwrap_or("");
            format!("{scheme}://{name}:***@{host}{}", &rest[authority.len()..])
        }
        // A token can stand in the place of the user.
        Some((_, host)) if scheme != "ssh" => {
            format!("{scheme}://***@{host}{}", &rest[authority.len()..])
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_addresses_are_taken() {
        for url in [
            "https://git.example.com/infra/code.git",
            "https://user:token@git.example.com:8443/code",
            "ssh://git@git.example.com:2222/code.git",
            "git@git.example.com:infra/code.git",
            "file:///srv/git/code.git",
            "/srv/git/code.git",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn flags_programs_and_unknown_transports_are_refused() {
        for url in [
            "",
            "/",
            "--upload-pack=touch /tmp/x",
            "-oProxyCommand=x",
            "ext::sh -c touch% /tmp/x",
            "ext::x",
            "fd::17",
            "http://git.example.com/code",
            "git://git.example.com/code",
            "ssh://-oProxyCommand=x/y",
            "ssh://user@-oProxyCommand=x/y",
            "-oProxyCommand=x:y",
            "host:-x",
            "https://",
            "file://",
            "file://host/x",
            "relative/path",
            "https://h/a b",
            "https://h/a\nb",
            "https://$(x)/y",
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn branches_that_git_would_not_take_are_refused() {
        for branch in ["main", "feature/x-1", "v1.2", "a+b#3"] {
            assert_eq!(check_branch(branch), Ok(()), "{branch}");
        }
        for branch in [
            "", "-x", "a..b", "a b", "/a", "a/", "a.lock", "a~1", "a:b", "a@{1}", ".a",
        ] {
            assert!(check_branch(branch).is_err(), "{branch}");
        }
        for reference in ["abcdef1", "v1.0", "release/2026-01", "main"] {
            assert_eq!(check_reference(reference), Ok(()), "{reference}");
        }
        for reference in ["--all", "abcdef1..abcdef2", "HEAD~1", "a:b", "a^{tree}", ""] {
            assert!(check_reference(reference).is_err(), "{reference}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(masked("https://u:secret@h/x"), "https://u:***@h/x");
        assert_eq!(masked("https://token@h/x"), "https://***@h/x");
        assert_eq!(masked("ssh://git@h/x"), "ssh://git@h/x");
        assert_eq!(masked("git@h:x"), "git@h:x");
    }
}
