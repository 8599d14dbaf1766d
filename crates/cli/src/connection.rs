//! A client for the commands that talk to a server.

use std::path::PathBuf;
use std::time::Duration;

use bunraku_model::{NodeName, Role};
use bunraku_wire::endpoints::ShowServer;
use bunraku_wire::trust;
use bunraku_wire::{
    Client, ClientError, ClientOptions, Credentials, OperatorProof, PrivateKey,
    ReloadableClientTls, RequestedCertificate, ServerAddress,
};

use jiff::Timestamp;

use crate::config::LoadedConfig;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::global_options::Global;
use crate::user_contexts::user_directory;

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

/// A client, and what its TLS is made of.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) tls: ReloadableClientTls,
    pub(crate) credentials: Credentials,
}

/// Reads the credentials and creates the client. Sends nothing yet.
pub(crate) fn connect(global: &Global, loaded: &LoadedConfig) -> Result<Client, Failure> {
    open(global, loaded).map(|connection| connection.client)
}

/// Like [`connect`], for callers that keep the credentials current.
pub(crate) fn open(global: &Global, loaded: &LoadedConfig) -> Result<Connection, Failure> {
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
            .hint("create credentials; `bunraku cert issue -h` has an example")
    };
    let identity = credentials.identity()?.ok_or_else(|| missing("cert.pem"))?;
    if credentials.authority_pem()?.is_none() {
        return Err(missing("ca.pem"));
    }
    let tls = trust::client_tls(&credentials, Some(identity))?;
    let tls = ReloadableClientTls::new(&tls)?;
    let mut options = ClientOptions::new(servers, tls.clone());
    options.request_timeout = REQUEST_TIMEOUT;
    options.keep_alive = None;
    options.reason.clone_from(&global.audit_reason);
    options.user_agent = concat!("bunraku-cli/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(Connection {
        client: Client::new(options),
        tls,
        credentials,
    })
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

/// Signs a request for a certificate with the operator's own key. Returns `None` if the
/// credentials are not an operator's.
pub(crate) fn operator_proof(
    global: &Global,
    loaded: &LoadedConfig,
    requested: &RequestedCertificate<'_>,
) -> Result<Option<OperatorProof>, Failure> {
    let credentials = credentials(global, loaded)?;
    let Some(identity) = credentials.identity()? else {
        return Ok(None);
    };
    if identity.certificate().role != Role::Operator {
        return Ok(None);
    }
    let key = PrivateKey::load(&credentials.key_path())?;
    let proof = OperatorProof::create(identity.certificate(), &key, requested, Timestamp::now())?;
    Ok(Some(proof))
}

fn credentials(global: &Global, loaded: &LoadedConfig) -> Result<Credentials, Failure> {
    let named = global
        .credentials
        .clone()
        .or_else(|| loaded.file.client.credentials.clone());
    let usual = user_directory()
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

/// Returns the address of the server that answered, as other machines reach it: on the server
/// itself, the host name instead of a loopback address.
pub(crate) async fn reachable_server(client: &Client) -> String {
    let text = client.server().await.map(|server| server.to_string());
    let port = match text.as_deref().map(|text| text.rsplit_once(':')) {
        Some(Some(("localhost" | "127.0.0.1" | "[::1]", port))) => port.to_owned(),
        Some(_) => return text.unwrap_or_default(),
        None => crate::config::DEFAULT_PORT.to_string(),
    };
    // A name that is in the server's certificate, so that nodes accept it.
    let status = client.call(ShowServer).await.ok();
    let name = status.and_then(|status| status.name);
    format!("{}:{port}", name.unwrap_or_else(host_name))
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
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
