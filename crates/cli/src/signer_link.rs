//! The server's way to its signer: its own child process, or the one that is configured.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_process::{Program, RunAs};
use bunraku_signer::{
    ChildSigner, LimitPerRole, SignerHandle, SigningPolicy, TlsSigner, UnixSigner,
};
use bunraku_wire::Credentials;
use bunraku_wire::tls::client_config_exact;

use crate::config::{AuthorityKind, ConfigFile};
use crate::failure::Failure;

/// The user of a child signer, if there is such a user.
const USER: &str = "bunraku-signer";

/// What the signer of this server must know about it.
pub(crate) struct SignerFor<'a> {
    pub(crate) data_dir: &'a Path,
    /// The server's name.
    pub(crate) name: &'a str,
    pub(crate) server_names: &'a [String],
    /// The server is a member of a cluster, and passes the CA on to others.
    pub(crate) is_member: bool,
}

/// Returns the way to the signer. Nothing is started or sent yet, except for files.
pub(crate) fn open(file: &ConfigFile, server: &SignerFor<'_>) -> Result<SignerHandle, Failure> {
    let section = &file.server.authority;
    let remembered = Some(server.data_dir.join("authority.json"));
    bunraku_files::create_private_directory(server.data_dir)?;
    let Some(address) = &section.signer else {
        return child(file, server);
    };
    if let Some(path) = address.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        return Ok(SignerHandle::remote(UnixSigner { path }, remembered));
    }
    let Some(address) = address.strip_prefix("tls:") else {
        return Err(Failure::new(format!(
            "[server.authority] `signer` is neither `unix:/PATH` nor `tls:HOST:PORT`: {address}"
        )));
    };
    let identity = Credentials::new(server.data_dir.join("signer-tls"))
        .load_or_create_self_signed(server.name)?;
    let own = identity.certificate().fingerprint;
    tracing::info!(fingerprint = %own, "this server asks the signer with this certificate");
    let fingerprint = section.signer_fingerprint.as_ref().ok_or_else(|| {
        Failure::new(
            "a signer on another machine needs `signer_fingerprint` under [server.authority]",
        )
        .hint(format!(
            "the signer prints it when it starts; it must know this server as {own}"
        ))
    })?;
    let config = client_config_exact(&identity, fingerprint.parse()?)?;
    let signer = TlsSigner {
        address: address.to_owned(),
        config: Arc::new(config),
    };
    Ok(SignerHandle::remote(signer, remembered))
}

fn child(file: &ConfigFile, server: &SignerFor<'_>) -> Result<SignerHandle, Failure> {
    let section = &file.server.authority;
    let is_puppet = section.kind == AuthorityKind::Puppet;
    let directory = match (&section.directory, is_puppet) {
        (Some(directory), _) => directory.clone(),
        (None, false) => server.data_dir.join("ca"),
        (None, true) => {
            return Err(Failure::new(
                "a Puppet CA needs `directory` under [server.authority]",
            ));
        }
    };
    let state = if is_puppet {
        server.data_dir.join("signer")
    } else {
        directory.clone()
    };
    bunraku_files::create_private_directory(&state)?;
    let (directory, state) = (std::path::absolute(directory)?, std::path::absolute(state)?);
    // Puppet's files belong to Puppet, so only root can keep them as they are.
    let run_as = if is_puppet {
        RunAs::default()
    } else {
        dedicated_user(section.signer_user.as_deref(), &directory)?
    };
    let policy = serde_json::to_string(&child_policy(file, server))?;
    let program = std::env::current_exe()?;
    let log = std::env::var_os("BUNRAKU_LOG");
    let make = move || {
        // Another user cannot reach the directory by its path, but can work in it.
        let place = if is_puppet {
            directory.clone()
        } else {
            PathBuf::from(".")
        };
        let mut words = Program::new(program.clone())
            .arg("signer")
            .arg("--child-policy")
            .arg(policy.clone())
            .arg("--directory")
            .arg(place.clone())
            .arg("--state")
            .arg(if is_puppet { state.clone() } else { place })
            .env_clear()
            .current_dir(&directory)
            .run_as(run_as);
        if is_puppet {
            words = words.arg("--puppet");
        }
        if let Some(log) = &log {
            words = words.env("BUNRAKU_LOG", log);
        }
        words
    };
    Ok(SignerHandle::remote(
        ChildSigner::new(make),
        Some(server.data_dir.join("authority.json")),
    ))
}

/// The rules for the server's own signer: exactly what this server is configured to use.
fn child_policy(file: &ConfigFile, server: &SignerFor<'_>) -> SigningPolicy {
    let lifetimes = &file.server.certificates;
    SigningPolicy {
        longest_lifetime: LimitPerRole {
            node: lifetimes.node_lifetime.signed().as_secs(),
            operator: lifetimes.operator_lifetime.signed().as_secs(),
            server: lifetimes.server_lifetime.signed().as_secs(),
        },
        most_per_hour: file.signer.rates(),
        operators_without_proof: vec![format!("operator.{}", server.name)],
        server_names: server
            .server_names
            .iter()
            .cloned()
            .chain([server.name.to_owned()])
            .collect(),
        shares_key: server.is_member,
    }
}

/// Returns the user of the signer and gives it the directory, if this process is root's.
fn dedicated_user(named: Option<&str>, directory: &Path) -> Result<RunAs, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(RunAs::default());
    }
    let Some((uid, gid)) = find_user(named.unwrap_or(USER))? else {
        if let Some(named) = named {
            return Err(Failure::new(format!("there is no user `{named}`"))
                .hint("set `signer_user` under [server.authority] to an existing user"));
        }
        tracing::warn!(
            "the signer runs as root; create the user `{USER}` so that it runs as its own user: `useradd --system {USER}`"
        );
        return Ok(RunAs::default());
    };
    give_away(directory, uid, gid)?;
    Ok(RunAs {
        uid: Some(uid),
        gid: Some(gid),
    })
}

fn find_user(name: &str) -> Result<Option<(u32, u32)>, Failure> {
    let text = std::fs::read_to_string("/etc/passwd")?;
    Ok(text.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        Some((uid, fields.next()?.parse().ok()?))
    }))
}

/// Makes everything in the directory belong to the user. Links are not followed.
fn give_away(directory: &Path, uid: u32, gid: u32) -> Result<(), Failure> {
    let metadata = std::fs::symlink_metadata(directory)?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(directory)? {
            give_away(&entry?.path(), uid, gid)?;
        }
    }
    if (metadata.uid(), metadata.gid()) != (uid, gid) {
        std::os::unix::fs::lchown(directory, Some(uid), Some(gid))?;
    }
    Ok(())
}
