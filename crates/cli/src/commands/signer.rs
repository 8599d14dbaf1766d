//! `bunraku signer`: the process that holds the CA key.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use bunraku_signer::{
    Caller, SignatureLog, Signer, SignerKind, SignerOptions, SigningPolicy, serve_connection,
    serve_tls, serve_unix,
};
use bunraku_wire::Credentials;
use bunraku_wire::tls::server_config_exact;
use clap::Args;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::{AuthorityKind, SignerSection};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::termination_signal;
use crate::{json_mode, output};

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku signer                 run with the settings under [signer]
  bunraku signer --verify-log    check that the log of signatures is complete

`bunraku server` starts its own signer. Run this command for a signer that several servers
share, or that runs on another machine.")]
pub(crate) struct SignerArguments {
    /// Check the log of signatures, and exit
    #[arg(long)]
    verify_log: bool,

    /// The rules, for a signer that a server starts
    #[arg(long, hide = true, value_name = "JSON")]
    child_policy: Option<String>,

    #[arg(long, hide = true)]
    puppet: bool,

    #[arg(long, hide = true, value_name = "DIR")]
    directory: Option<PathBuf>,

    #[arg(long, hide = true, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SignerArguments, context: &Context) -> Result<Exit, Failure> {
    let section = &context.loaded.file.signer;
    if arguments.verify_log {
        return verify_log(arguments, section);
    }
    // A process of the same user must not read the key from this one's memory.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build()?;
    match &arguments.child_policy {
        Some(policy) => runtime.block_on(serve_parent(arguments, policy)),
        None => runtime.block_on(serve(section)),
    }
}

fn state_directory(arguments: &SignerArguments, section: &SignerSection) -> PathBuf {
    let named = arguments.state.clone().or_else(|| section.state.clone());
    named.unwrap_or_else(|| section.directory.clone())
}

fn verify_log(arguments: &SignerArguments, section: &SignerSection) -> Result<Exit, Failure> {
    let path = state_directory(arguments, section).join("signatures.log");
    let count = SignatureLog::new(&path).verify().map_err(|error| {
        Failure::new(format!("{} cannot be trusted", path.display())).caused_by(&error)
    })?;
    if json_mode::is_on() {
        let log = serde_json::json!({"log": path, "entries": count, "complete": true});
        output::json(&log)?;
    } else {
        let entries = match count {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        };
        output::write(&format!("{}: {entries}, complete\n", path.display()))?;
    }
    Ok(Exit::Done)
}

/// Serves the server that started this process, on standard input, until it closes it.
async fn serve_parent(arguments: &SignerArguments, policy: &str) -> Result<Exit, Failure> {
    let policy: SigningPolicy = serde_json::from_str(policy)?;
    let missing = || Failure::usage("a child needs `--directory` and `--state`");
    let options = SignerOptions {
        kind: if arguments.puppet {
            SignerKind::Puppet
        } else {
            SignerKind::Own
        },
        directory: arguments.directory.clone().ok_or_else(missing)?,
        state: arguments.state.clone().ok_or_else(missing)?,
        policy,
    };
    // Signals of a terminal reach the whole group; only the server decides when this ends.
    let _ignored = tokio::spawn(termination_signal());
    let signer = Arc::new(Signer::open(options, Timestamp::now())?);
    let socket =
        std::os::unix::net::UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixStream::from_std(socket)?;
    serve_connection(signer, Caller::local(), socket).await?;
    Ok(Exit::Done)
}

/// Serves the configured servers until a signal.
async fn serve(section: &SignerSection) -> Result<Exit, Failure> {
    let options = SignerOptions {
        kind: match section.kind {
            AuthorityKind::Own => SignerKind::Own,
            AuthorityKind::Puppet => SignerKind::Puppet,
        },
        directory: section.directory.clone(),
        state: section
            .state
            .clone()
            .unwrap_or_else(|| section.directory.clone()),
        policy: section.policy(),
    };
    let signer = Arc::new(Signer::open(options, Timestamp::now())?);
    let stop = CancellationToken::new();
    let ending = {
        let stop = stop.clone();
        tokio::spawn(async move {
            let signal = termination_signal().await;
            stop.cancel();
            signal
        })
    };
    let ca_fingerprint = signer.fingerprint();
    if let Some(path) = section.listen.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        if let Some(directory) = path.parent() {
            bunraku_files::create_private_directory(directory)?;
        }
        announce(&serde_json::json!({
            "listening": section.listen,
            "ca_fingerprint": ca_fingerprint,
        }))?;
        serve_unix(signer, &path, stop).await?;
    } else {
        let address: SocketAddr = section.listen.parse().map_err(|_| {
            Failure::new("[signer] `listen` is neither `unix:/PATH` nor `ADDRESS:PORT`")
        })?;
        let callers = callers(section)?;
        let identity = Credentials::new(section.directory.join("tls"))
            .load_or_create_self_signed("bunraku-signer")?;
        let accepted = callers.iter().filter_map(|caller| caller.fingerprint);
        let config = server_config_exact(&identity, accepted.collect())?;
        let listener = tokio::net::TcpListener::bind(address).await?;
        announce(&serde_json::json!({
            "listening": listener.local_addr()?,
            "fingerprint": identity.certificate().fingerprint.to_string(),
            "ca_fingerprint": ca_fingerprint,
        }))?;
        serve_tls(signer, listener, config, callers, stop).await?;
    }
    let signal = ending.await??;
    tracing::info!(signal, "the signer is down");
    Ok(Exit::Done)
}

fn announce(ready: &serde_json::Value) -> Result<(), Failure> {
    output::json_line(ready)
}

fn callers(section: &SignerSection) -> Result<Vec<Caller>, Failure> {
    let callers = section.servers.iter().map(|server| {
        let fingerprint = server.fingerprint.parse().map_err(|error| {
            Failure::new(format!("[[signer.servers]] {}: {error}", server.name))
        })?;
        Ok(Caller {
            name: server.name.clone(),
            fingerprint: Some(fingerprint),
            server_names: Some(server.server_names.clone()),
        })
    });
    let callers = callers.collect::<Result<Vec<_>, Failure>>()?;
    if callers.is_empty() {
        return Err(Failure::new("no server may use this signer")
            .hint("name each one under [[signer.servers]] with the fingerprint that it logs"));
    }
    Ok(callers)
}
