//! `bunraku server`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_cluster::member::Member;
use bunraku_compile::catalogs::CatalogOptions;
use bunraku_compile::code::{CodeOptions, GitCredential};
use bunraku_compile::compiles::{
    CompileOptions, ExternalPrograms, ProgramIsolation, PuppetOptions, WorkerOptions,
};
use bunraku_control::{
    AuditOptions, CertificateOptions, Clock, CommandOptions, FactOptions, ReportOptions,
    ServiceError, data_keys,
};
use bunraku_model::NodeName;
use bunraku_server::{
    AcceptOptions, RateOptions, RouterOptions, Server, ServerOptions, ServiceOptions, StartError,
    StoreUpkeepOptions, UpkeepOptions,
};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs, SharedBlobs, StoreBlobs};
use bunraku_store::etcd::{EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, ReserveStore, SharedStore};
use clap::Args;

use super::member;
use crate::config::{
    ConfigFile, GitSection, PuppetCompileSection, ServerSection, StoreKind, StoreSection,
};
use crate::content_settings;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::history_backends;
use crate::signals::{end_with_parent, termination_signal};
use crate::signer_link::{self, SignerFor};
use crate::store_identity::StoreIdentity;
use crate::wiring::Wiring;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku server --data-dir ./server --listen 127.0.0.1:8150
  bunraku server --etcd https://etcd-1:2379,https://etcd-2:2379 --name-alias bunraku.example.com

The first start creates a CA in DATA/ca and operator credentials in DATA/operator.")]
pub(crate) struct ServerArguments {
    /// Address to listen on
    #[arg(long, env = "BUNRAKU_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Data directory
    #[arg(long, env = "BUNRAKU_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Name in the server's certificate
    #[arg(long, env = "BUNRAKU_SERVER_NAME")]
    name: Option<String>,

    /// Additional name or address by which nodes reach the server; repeatable
    #[arg(long = "name-alias", value_name = "NAME")]
    names: Vec<String>,

    /// Store data in the etcd at these addresses
    #[arg(long, env = "BUNRAKU_ETCD", value_delimiter = ',', value_name = "URL")]
    etcd: Vec<String>,

    /// Serve health and metrics without a certificate on this loopback address
    #[arg(long, env = "BUNRAKU_HEALTH_LISTEN", value_name = "ADDRESS:PORT")]
    health_listen: Option<SocketAddr>,

    /// Exit when the parent process with this id exits
    #[arg(long, hide = true, value_name = "PID")]
    end_with_parent: Option<i32>,
}

/// A server that is silent for this long counts as dead.
const SERVER_TTL: Duration = Duration::from_secs(10);

/// The pause between two attempts to start while the datastores are unavailable.
const AGAIN: Duration = Duration::from_secs(1);

/// The heartbeat interval, well below the time that agents wait for one.
const HEARTBEAT: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: ServerArguments, context: &Context) -> Result<Exit, Failure> {
    end_with_parent(arguments.end_with_parent)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments, &context.loaded.file, context.wiring))
}

async fn serve(
    arguments: ServerArguments,
    file: &ConfigFile,
    wiring: Wiring,
) -> Result<Exit, Failure> {
    let section = &file.server;
    raise_file_limit(section.limits.connections);
    let ending = tokio::spawn(termination_signal());
    let data_dir = arguments.data_dir.as_ref().unwrap_or(&section.data_dir);
    // Processes that this one starts have other working directories.
    let data_dir = std::path::absolute(data_dir)?;
    let Some(member) = member::start(&section.cluster, &data_dir).await? else {
        let opened = open_store(&arguments, section, &data_dir, wiring).await?;
        let server = start(arguments, file, data_dir, &opened, None, wiring).await?;
        let signal = ending.await??;
        tracing::info!(signal, "shutting down");
        server.shutdown().await;
        if let Some(embedded) = opened.embedded {
            embedded.close().await?;
        }
        return Ok(Exit::Done);
    };
    let ended = serve_as_member(arguments, file, data_dir, &member, ending, wiring).await;
    member.shutdown().await;
    ended
}

/// Waits for the datastores without a time limit. While none answers, this server
/// answers members only; while there is no majority, it answers reads only.
async fn serve_as_member(
    arguments: ServerArguments,
    file: &ConfigFile,
    data_dir: PathBuf,
    member: &Member,
    mut ending: tokio::task::JoinHandle<Result<&'static str, std::io::Error>>,
    wiring: Wiring,
) -> Result<Exit, Failure> {
    let restart_needed = |why: String| {
        Err(Failure::new(format!("{why}: restart this server"))
            .hint("a service manager does this automatically with `Restart=always`"))
    };
    let etcd = tokio::select! {
        etcd = member.connect_store() => etcd,
        why = member.must_restart() => return restart_needed(why),
        signal = &mut ending => {
            tracing::info!(signal = signal??, "shutting down");
            return Ok(Exit::Done);
        }
    };
    member.attach(etcd.clone());
    let store = with_reserve((wiring.store)(Arc::new(etcd)));
    let blobs = StoreBlobs::in_store(store.clone(), BlobOptions::default());
    let opened = OpenedStore {
        copied: None,
        blobs: content_settings::with_s3(blobs, &file.server.content)?,
        store,
        embedded: None,
        exclusive: false,
    };
    let server = tokio::select! {
        server = start(arguments, file, data_dir, &opened, Some(member), wiring) => server?,
        why = member.must_restart() => return restart_needed(why),
        signal = &mut ending => {
            tracing::info!(signal = signal??, "shutting down");
            return Ok(Exit::Done);
        }
    };
    tokio::select! {
        why = member.must_restart() => restart_needed(why),
        signal = &mut ending => {
            tracing::info!(signal = signal??, "shutting down");
            server.shutdown().await;
            Ok(Exit::Done)
        }
    }
}

async fn start(
    arguments: ServerArguments,
    file: &ConfigFile,
    data_dir: PathBuf,
    opened: &OpenedStore,
    member: Option<&Member>,
    wiring: Wiring,
) -> Result<Server, Failure> {
    let section = &file.server;
    let mut options = server_options(arguments, section, data_dir, opened.exclusive, member)?;
    options.router.delay = wiring.delay;
    let data = &options.services.data_dir;
    let history = history_backends::open(&section.history, data, opened.exclusive).await?;
    options.services.history = history;
    options.services.was_copied = opened
        .copied
        .as_ref()
        .is_some_and(|(_, is_copied)| *is_copied);
    let signer = signer_link::open(
        file,
        &SignerFor {
            data_dir: &options.services.data_dir,
            name: options.name.as_str(),
            server_names: &options.server_names,
            is_member: member.is_some(),
        },
    )?;
    let start = || {
        let (store, blobs) = (opened.store.clone(), opened.blobs.clone());
        let (options, signer) = (options.clone(), signer.clone());
        Server::start(options, store, blobs, signer, Clock::system())
    };
    let server = loop {
        match start().await {
            // The very first start has to write, which requires a majority and room.
            Err(error) if error.is_full() || member.is_some() && error.is_passing() => {
                let error = bunraku_model::error_chain(&error);
                tracing::warn!(%error, "cannot start yet; retrying");
                tokio::time::sleep(AGAIN).await;
            }
            started => break started.map_err(start_failure)?,
        }
    };
    // Only now: the restore is noted in the store.
    if let Some((identity, _)) = &opened.copied {
        identity.note()?;
    }
    announce(&server)?;
    Ok(server)
}

/// Adds the hint of a service that did not start.
fn start_failure(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Service(ServiceError::Conflict { hint, .. }) => hint.clone(),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Prints the address as one line of JSON, for programs that started the server.
fn announce(server: &Server) -> Result<(), Failure> {
    let ready = serde_json::json!({
        "listening": server.address(),
        "health": server.health_address(),
        "ca_fingerprint": server.ca_fingerprint(),
    });
    crate::output::json_line(&ready)
}

/// Raises the limit on file descriptors to what the configured number of connections
/// needs, as far as the system allows.
fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + 1_000;
    let raised = |to: u64| Rlimit {
        current: Some(to),
        maximum: Some(limit.maximum.unwrap_or(to).max(to)),
    };
    if limit.current.is_none_or(|current| current >= wanted)
        || setrlimit(Resource::Nofile, raised(wanted)).is_ok()
    {
        return;
    }
    let allowed = limit.maximum.unwrap_or(wanted);
    match setrlimit(Resource::Nofile, raised(allowed)) {
        Ok(()) => tracing::warn!(
            allowed,
            wanted,
            "the limit of open files is below the limit of connections"
        ),
        Err(error) => tracing::warn!(error = %error, "cannot raise the limit of open files"),
    }
}

struct OpenedStore {
    /// The identity of the files of an embedded store, and whether they were copied.
    copied: Option<(StoreIdentity, bool)>,
    store: SharedStore,
    blobs: SharedBlobs,
    embedded: Option<EmbeddedStore>,
    exclusive: bool,
}

async fn open_store(
    arguments: &ServerArguments,
    server: &ServerSection,
    data_dir: &Path,
    wiring: Wiring,
) -> Result<OpenedStore, Failure> {
    let section = &server.store;
    if arguments.etcd.is_empty() && section.kind == StoreKind::Embedded {
        let directory = data_dir.join("store");
        let identity = StoreIdentity::of(&directory);
        let is_copied = identity.is_copied();
        let embedded = EmbeddedStore::open(&directory, EmbeddedOptions::default()).await?;
        let store = with_reserve((wiring.store)(Arc::new(embedded.clone())));
        let blobs = DirectoryBlobs::in_directory(
            data_dir.join("blobs"),
            store.clone(),
            BlobOptions::default(),
        )
        .await?;
        return Ok(OpenedStore {
            copied: Some((identity, is_copied)),
            store,
            blobs: content_settings::with_s3(blobs, &server.content)?,
            embedded: Some(embedded),
            exclusive: true,
        });
    }
    let endpoints = if arguments.etcd.is_empty() {
        section.endpoints.clone()
    } else {
        arguments.etcd.clone()
    };
    if endpoints.is_empty() {
        return Err(Failure::usage("no etcd endpoints given")
            .hint("pass `--etcd URL,…`, or set `endpoints` under [server.store]"));
    }
    let mut options = EtcdOptions::new(endpoints, &section.root);
    options.tls = etcd_tls(section)?;
    let store = with_reserve((wiring.store)(Arc::new(EtcdStore::connect(options).await?)));
    let blobs = StoreBlobs::in_store(store.clone(), BlobOptions::default());
    Ok(OpenedStore {
        copied: None,
        store,
        blobs: content_settings::with_s3(blobs, &server.content)?,
        embedded: None,
        exclusive: false,
    })
}

/// Refuses new data when the store is almost full, so that coordination and deletions continue.
fn with_reserve(store: SharedStore) -> SharedStore {
    Arc::new(ReserveStore::new(store, data_keys::adds_data))
}

fn etcd_tls(section: &StoreSection) -> Result<Option<EtcdTls>, Failure> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
        })
    };
    let identity = match (&section.certificate, &section.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(EtcdIdentity {
            cert_pem: read(certificate)?,
            key_pem: read(key)?,
        }),
        _ => {
            return Err(Failure::new(
                "set both `certificate` and `key` under [server.store], or neither",
            ));
        }
    };
    match (&section.ca, identity) {
        (Some(ca), identity) => Ok(Some(EtcdTls {
            ca_pem: read(ca)?,
            identity,
        })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Failure::new("TLS to etcd needs `ca` under [server.store]")),
    }
}

fn server_options(
    arguments: ServerArguments,
    section: &ServerSection,
    data_dir: PathBuf,
    exclusive_store: bool,
    member: Option<&Member>,
) -> Result<ServerOptions, Failure> {
    let known = member.map(|member| member.name().to_string());
    let name = match known.or(arguments.name).or_else(|| section.name.clone()) {
        Some(name) => name,
        None => super::agent::host_name()?,
    };
    let name = NodeName::new(name.to_ascii_lowercase())?;
    let mut listen = arguments.listen.unwrap_or(section.listen);
    let mut names = arguments.names;
    if let Some((host, port)) = member.and_then(|it| it.record().api_address.rsplit_once(':')) {
        // The other members learned this port when the server joined.
        listen.set_port(port.parse()?);
        names.push(host.trim_matches(['[', ']']).to_owned());
    }
    let compiles = CompileOptions {
        workers: Arc::new(worker_options(section, &data_dir)?),
        ..compile_options(section, &name)
    };
    let services = ServiceOptions {
        cluster: member.map(|member| member::link(member, &section.cluster)),
        data_dir,
        exclusive_store,
        was_copied: false,
        store_kind: if exclusive_store { "embedded" } else { "etcd" },
        content_place: content_settings::wanted_place(&section.content),
        server_ttl: SERVER_TTL,
        heartbeat: HEARTBEAT,
        agent_silence: section.agent_silence.0,
        rates: RateOptions {
            requests_per_second: section.limits.node_requests_per_second,
            request_burst: section.limits.node_request_burst,
            bytes_per_second: section.limits.node_bytes_per_second,
            byte_burst: section.limits.node_byte_burst,
        },
        certificates: CertificateOptions {
            node_lifetime: section.certificates.node_lifetime.signed(),
            operator_lifetime: section.certificates.operator_lifetime.signed(),
            server_lifetime: section.certificates.server_lifetime.signed(),
            most_waiting: section.limits.waiting_requests,
            server_name: name.to_string(),
        },
        audit: AuditOptions {
            keep: section.audit.kept_for.signed(),
            leader_ttl: SERVER_TTL,
            ..AuditOptions::default()
        },
        commands: CommandOptions::default(),
        facts: FactOptions {
            volatile: section.facts.volatile.clone(),
            volatile_in: section.facts.volatile_in.clone(),
            // More would not fit into one transaction.
            history: section.facts.history.min(50),
            ..FactOptions::default()
        },
        orchestration: bunraku_orchestrate::OrchestrationOptions::default(),
        visible_facts: bunraku_query::VisibleFacts::new(&section.queries.node_facts),
        releases: bunraku_compile::ReleaseOptions {
            keep: section.releases.keep,
            quiet: section.releases.quiet.0,
            longest_wait: section.releases.longest_wait.0,
            leader_ttl: SERVER_TTL,
            ..bunraku_compile::ReleaseOptions::default()
        },
        history: Default::default(),
        reports: ReportOptions {
            kept_per_node: section.reports.kept_per_node,
            kept_for: section.reports.kept_for.0,
            events_kept_for: section.history.events_kept_for.0,
            heads_kept_for: section.history.reports_kept_for.0,
            bytes_per_node: section.limits.node_report_bytes,
            open_bytes_per_node: section.limits.node_open_report_bytes,
            bytes_per_report: section.limits.report_bytes,
            ..ReportOptions::default()
        },
        catalogs: CatalogOptions {
            max_size: section.compile.max_catalog_bytes,
            max_files: section.compile.max_catalog_files,
            grace: section.compile.catalog_grace.0,
        },
        code: CodeOptions {
            git_time_limit: section.compile.git_time_limit.0,
            max_bytes: section.compile.max_code_bytes,
            max_files: section.compile.max_code_files,
            keep: section.compile.keep_commits,
            forge: section.compile.forge.clone(),
            forge_token_file: section.compile.forge_token_file.clone(),
            keep_copies: section.compile.keep_copies.0,
            credentials: section.compile.git.iter().map(git_credential).collect(),
        },
        compiles,
        upkeep: UpkeepOptions {
            store: StoreUpkeepOptions {
                // The embedded store compacts automatically.
                history: (!exclusive_store).then_some(section.store.history.0),
                ..StoreUpkeepOptions::default()
            },
            ..UpkeepOptions::default()
        },
    };
    Ok(ServerOptions {
        server_names: server_names(&name, listen, names, &section.names),
        listen,
        name,
        health_listen: arguments.health_listen.or(section.health_listen),
        services,
        router: RouterOptions {
            facts_limit: section.limits.facts_bytes,
            body_limit: section.limits.body_bytes,
            ..RouterOptions::default()
        },
        accept: AcceptOptions {
            most_connections: section.limits.connections,
            most_anonymous: section.limits.anonymous_connections,
            // One address cannot use them all, and many nodes can join behind one.
            most_anonymous_per_address: (section.limits.anonymous_connections / 8).max(1),
            ..AcceptOptions::default()
        },
    })
}

fn git_credential(section: &GitSection) -> GitCredential {
    GitCredential {
        url: section.url.clone(),
        user: section.user.clone(),
        token_file: section.token_file.clone(),
        ca_file: section.ca_file.clone(),
        ssh_key: section.ssh_key.clone(),
        known_hosts: section.known_hosts.clone(),
    }
}

fn compile_options(section: &ServerSection, name: &NodeName) -> CompileOptions {
    let usual = CompileOptions::default();
    CompileOptions {
        concurrency: section.compile.concurrency.unwrap_or(usual.concurrency),
        answer_quiet: section.compile.answer_quiet.0,
        functions: Arc::new(crate::state_functions::EngineFunctions::default()),
        puppet: Arc::new(puppet_options(&section.compile.puppet, name)),
        ..usual
    }
}

/// Code is compiled by this same program, in processes of its own.
fn worker_options(section: &ServerSection, data_dir: &Path) -> Result<WorkerOptions, Failure> {
    let program = std::env::current_exe()?;
    let words = |command: &str| vec![program.clone().into_os_string(), command.into()];
    let user = section.compile.external_user.as_deref().map(|name| {
        let user = uzers::get_user_by_name(name);
        let found = user.map(|user| (user.uid(), user.primary_group_id()));
        found.filter(|(uid, _)| *uid != 0).ok_or_else(|| {
            Failure::new(format!("there is no user `{name}` without root's rights"))
                .hint("set `external_user` under [server.compile] to a user of its own")
        })
    });
    let mut hidden = vec![std::path::absolute(data_dir)?];
    hidden.extend(section.authority.directory.clone());
    Ok(WorkerOptions {
        program: Some(words("code-worker")),
        external: ExternalPrograms::Isolated(ProgramIsolation {
            helper: words("isolated"),
            hidden,
            user: user.transpose()?,
        }),
        memory: section.compile.worker_memory.max(64) << 20,
        time_limit: section.compile.worker_time_limit.0,
        needs_landlock: section.compile.require_landlock,
    })
}

fn puppet_options(section: &PuppetCompileSection, name: &NodeName) -> PuppetOptions {
    let usual = PuppetOptions::default();
    let server_name = section.server_name.clone();
    PuppetOptions {
        ruby: section.ruby.clone(),
        base_modules: section.base_modules.clone().unwrap_or(usual.base_modules),
        read_paths: section.read_paths.clone(),
        mounts: section.mounts.clone(),
        hiera_config: section.hiera_config.clone(),
        enc: section.enc.clone(),
        server_name: server_name.unwrap_or_else(|| name.to_string()),
        http_hosts: section.http_hosts.clone(),
    }
}

/// The names in the certificate: the server's own, this machine's, the address it listens
/// on, and the configured ones.
fn server_names(
    name: &NodeName,
    listen: SocketAddr,
    named: Vec<String>,
    configured: &[String],
) -> Vec<String> {
    let mut names = vec![
        name.to_string(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    if !listen.ip().is_unspecified() {
        names.push(listen.ip().to_string());
    }
    names.extend(named);
    names.extend_from_slice(configured);
    names.sort();
    names.dedup();
    names
}
