//! A client for the commands that talk to a server.

use std::path::PathBuf;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{
    Client, ClientError, ClientOptions, Credentials, ReloadableClientTls, ServerAddress,
};

use crate::config::LoadedConfig;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::global_options::Global;

/// The request timeout, longer than the longest long poll of a server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(75);

/// The default directories for credentials. On a server's own machine, root finds those that the
/// first start created.
const DEFAULT_CREDENTIALS: [&str; 2] =
    ["/etc/bunraku/operator", "/var/lib/bunraku/server/operator"];

/// Returns the servers from flags, environment or file; this machine by default.
pub(crate) fn servers(
    named: &[String],
    configured: &[String],
) -> Result<Vec<ServerAddress>, Failure> {
    let texts = if named.is_empty() { configured } else { named };
    if texts.is_empty() {
        let own = ServerAddress::new("localhost", crate::config::DEFAULT_PORT);
        return Ok(vec![own.expect("localhost is a host")]);
    }
    texts
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error| Failure::usage(format!("{error}")))
        })
        .collect()
}

/// Reads the credentials and creates the client. Sends nothing yet.
pub(crate) fn connect(global: &Global, loaded: &LoadedConfig) -> Result<Client, Failure> {
    let credentials = credentials(global, loaded)?;
    let configured = if loaded.file.client.servers.is_empty() {
        &loaded.file.agent.servers
    } else {
        &loaded.file.client.servers
    };
    let servers = servers(&global.servers, configured)?;
    let missing = |what: &str| {
        let place = credentials.directory().display();
        Failure::new(format!("there is no {what} in {place}"))
            .hint("create credentials with `bunraku cert issue NAME --role operator --out DIR`")
    };
    let identity = credentials.identity()?.ok_or_else(|| missing("cert.pem"))?;
    let authority_pem = credentials
        .authority_pem()?
        .ok_or_else(|| missing("ca.pem"))?;
    let tls = ClientTls {
        authority_pem,
        revocation_lists_pem: String::new(),
        identity: Some(identity),
    };
    let mut options = ClientOptions::new(servers, ReloadableClientTls::new(&tls)?);
    options.request_timeout = REQUEST_TIMEOUT;
    options.keep_alive = None;
    Ok(Client::new(options))
}

/// Returns the name in the credentials.
pub(crate) fn own_name(global: &Global, loaded: &LoadedConfig) -> Result<NodeName, Failure> {
    let credentials = credentials(global, loaded)?;
    let identity = credentials.identity()?.ok_or_else(|| {
        let place = credentials.directory().display();
        Failure::new(format!("there is no cert.pem in {place}"))
    })?;
    Ok(identity.certificate().name()?)
}

fn credentials(global: &Global, loaded: &LoadedConfig) -> Result<Credentials, Failure> {
    let named = global
        .credentials
        .clone()
        .or_else(|| loaded.file.client.credentials.clone());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config/bunraku"));
    let usual = home
        .into_iter()
        .chain(DEFAULT_CREDENTIALS.map(PathBuf::from))
        // Root on a node acts as that node.
        .chain([loaded.file.agent.data_dir.join("tls")]);
    named.or_else(|| usual.into_iter().find(|directory| directory.join("cert.pem").exists())).map(Credentials::new).ok_or_else(
        || {
            Failure::new("no credentials found")
                .hint("pass `--credentials DIR` or set BUNRAKU_CREDENTIALS; root on a server needs neither")
        },
    )
}

/// Explains a failed request to the user.
pub(crate) fn failed(error: &ClientError) -> Failure {
    let exit = match error.status() {
        Some(401 | 403 | 409) => Exit::Refused,
        _ => Exit::Error,
    };
    let mut failure = Failure::new(error.to_string())
        .exit(exit)
        .hint_if(error.hint());
    if let Some(source) = std::error::Error::source(error) {
        failure = failure.caused_by(source);
    }
    failure
}
