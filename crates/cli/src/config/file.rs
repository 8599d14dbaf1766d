//! The contents of the configuration file, with every default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use bunraku_compile::code::CodeOptions;
use bunraku_model::{EnvironmentName, OrderingMode, VolatileFacts};
use serde::Deserialize;

use super::{
    ClusterSection, ContentSection, DEFAULT_PORT, HistorySection, PuppetSection, SignerSection,
};
use crate::duration::HumanDuration;

const fn days(days: u64) -> HumanDuration {
    HumanDuration::from_secs(days * 24 * 3_600)
}

/// The whole file.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    pub(crate) client: ClientSection,
    pub(crate) server: ServerSection,
    pub(crate) signer: SignerSection,
    pub(crate) agent: AgentSection,
}

/// Settings of the commands that talk to a server.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClientSection {
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    /// Directory with ca.pem, cert.pem and key.pem.
    pub(crate) credentials: Option<PathBuf>,
}

/// Settings of `bunraku server`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    /// The name in its certificate; the host name by default.
    pub(crate) name: Option<String>,
    /// Additional names and addresses by which nodes reach it.
    pub(crate) names: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// The address for health and metrics without a certificate; loopback only.
    pub(crate) health_listen: Option<SocketAddr>,
    /// An agent that does not answer for this long counts as lost.
    pub(crate) agent_silence: HumanDuration,
    pub(crate) store: StoreSection,
    pub(crate) content: ContentSection,
    pub(crate) authority: AuthoritySection,
    pub(crate) certificates: CertificatesSection,
    pub(crate) limits: LimitsSection,
    pub(crate) cluster: ClusterSection,
    pub(crate) facts: FactsSection,
    pub(crate) reports: ReportsSection,
    pub(crate) history: HistorySection,
    pub(crate) compile: CompileSection,
    pub(crate) releases: ReleasesSection,
    pub(crate) queries: QueriesSection,
    pub(crate) audit: AuditSection,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
            name: None,
            names: Vec::new(),
            data_dir: PathBuf::from("/var/lib/bunraku/server"),
            health_listen: None,
            agent_silence: HumanDuration::from_secs(90),
            store: StoreSection::default(),
            content: ContentSection::default(),
            authority: AuthoritySection::default(),
            certificates: CertificatesSection::default(),
            limits: LimitsSection::default(),
            cluster: ClusterSection::default(),
            facts: FactsSection::default(),
            reports: ReportsSection::default(),
            history: HistorySection::default(),
            compile: CompileSection::default(),
            releases: ReleasesSection::default(),
            queries: QueriesSection::default(),
            audit: AuditSection::default(),
        }
    }
}

/// Queries by nodes.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueriesSection {
    /// The facts that nodes may see of each other, as dotted paths. Without any, nodes may not
    /// query.
    pub(crate) node_facts: Vec<String>,
}

/// The release of compiled catalogs to nodes.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReleasesSection {
    /// The number of releases kept per environment; at least two.
    pub(crate) keep: usize,
    /// The quiet time after the last compile. Then all new catalogs are released together.
    pub(crate) quiet: HumanDuration,
    /// The longest delay of a release, even while compiling continues.
    pub(crate) longest_wait: HumanDuration,
}

impl Default for ReleasesSection {
    fn default() -> Self {
        Self {
            keep: 50,
            quiet: HumanDuration::from_secs(1),
            longest_wait: HumanDuration::from_secs(10),
        }
    }
}

/// Compiling catalogs ahead of time.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompileSection {
    /// The number of concurrent compiles on this server; by default the number of cores. 0 disables
    /// compiling.
    pub(crate) concurrency: Option<usize>,
    /// The quiet time after a change of data that other nodes' code asked about. Then those nodes
    /// are compiled again.
    pub(crate) answer_quiet: HumanDuration,
    /// The maximum size of a catalog. Larger ones are refused.
    pub(crate) max_catalog_bytes: u64,
    /// The maximum number of files that a catalog may refer to.
    pub(crate) max_catalog_files: usize,
    /// The time for which an unneeded catalog is kept.
    pub(crate) catalog_grace: HumanDuration,
    /// The time limit for a git fetch.
    pub(crate) git_time_limit: HumanDuration,
    /// The maximum size of all files of one commit.
    pub(crate) max_code_bytes: u64,
    /// The maximum number of files in one commit.
    pub(crate) max_code_files: usize,
    /// The number of commits kept per environment.
    pub(crate) keep_commits: usize,
    /// The memory of one worker that compiles states or a static site, in MiB.
    pub(crate) worker_memory: u64,
    /// The time limit for one catalog of states or a static site.
    pub(crate) worker_time_limit: HumanDuration,
    /// Compile states and static sites only if the kernel can confine access to files.
    pub(crate) require_landlock: bool,
    /// The user of external compilers; by default, each environment has a user id of its own.
    pub(crate) external_user: Option<String>,
    /// The Puppet Forge, or a mirror of it.
    pub(crate) forge: String,
    /// A file with the token for a private Forge.
    pub(crate) forge_token_file: Option<PathBuf>,
    /// The time for which unused copies of repositories and archives are kept.
    pub(crate) keep_copies: HumanDuration,
    /// Access to private repositories.
    pub(crate) git: Vec<GitSection>,
    /// The resources of this server that Puppet code may use.
    pub(crate) puppet: PuppetCompileSection,
}

/// Access to the private repositories below one address.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitSection {
    /// The beginning of the addresses: `https://git.example.com/infra/`, `git@git.example.com:`.
    pub(crate) url: String,
    /// The user name for the token.
    pub(crate) user: Option<String>,
    /// A file with a token or password.
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the certificates of trusted authorities.
    pub(crate) ca_file: Option<PathBuf>,
    /// A private SSH key.
    pub(crate) ssh_key: Option<PathBuf>,
    /// The trusted SSH host keys.
    pub(crate) known_hosts: Option<PathBuf>,
}

/// The resources of this server that Puppet code may use when it is compiled.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PuppetCompileSection {
    /// The Ruby with Puppet; detected by default.
    pub(crate) ruby: Option<PathBuf>,
    /// `$basemodulepath`.
    pub(crate) base_modules: Option<Vec<PathBuf>>,
    /// Files and directories that code may read, such as eyaml keys.
    pub(crate) read_paths: Vec<PathBuf>,
    /// Mount points: `puppet:///NAME/path` is `path` below the directory.
    pub(crate) mounts: BTreeMap<String, PathBuf>,
    /// The global Hiera configuration.
    pub(crate) hiera_config: Option<PathBuf>,
    /// The external node classifier, with its arguments.
    pub(crate) enc: Vec<String>,
    /// `$servername`; the server's own name by default.
    pub(crate) server_name: Option<String>,
    /// The hosts from which `http_sources: pin` fetches.
    pub(crate) http_hosts: Vec<String>,
}

impl Default for CompileSection {
    fn default() -> Self {
        Self {
            concurrency: None,
            answer_quiet: HumanDuration::from_secs(10),
            max_catalog_bytes: 32 << 20,
            max_catalog_files: 10_000,
            catalog_grace: HumanDuration::from_secs(3_600),
            git_time_limit: HumanDuration::from_secs(120),
            max_code_bytes: 512 << 20,
            max_code_files: 100_000,
            keep_commits: 10,
            worker_memory: 1_024,
            worker_time_limit: HumanDuration::from_secs(60),
            require_landlock: true,
            external_user: None,
            forge: CodeOptions::default().forge,
            forge_token_file: None,
            keep_copies: HumanDuration::from_secs(CodeOptions::default().keep_copies.as_secs()),
            git: Vec::new(),
            puppet: PuppetCompileSection::default(),
        }
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// In the data directory. Requires no installation.
    #[default]
    Embedded,
    Etcd,
}

/// The storage of the server.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) kind: StoreKind,
    /// etcd's client addresses, `http://…` or `https://…`.
    pub(crate) endpoints: Vec<String>,
    /// The prefix of every key in etcd.
    pub(crate) root: String,
    /// The length of the history that etcd keeps. Older revisions are compacted.
    pub(crate) history: HumanDuration,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            kind: StoreKind::Embedded,
            endpoints: Vec::new(),
            root: "/bunraku/".to_owned(),
            history: HumanDuration::from_secs(3_600),
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthorityKind {
    /// Created on first start.
    #[default]
    Own,
    /// An existing Puppet CA directory.
    Puppet,
}

/// The authority that signs certificates.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthoritySection {
    pub(crate) kind: AuthorityKind,
    /// The directory; `<data_dir>/ca` by default. Required for a Puppet CA.
    pub(crate) directory: Option<PathBuf>,
    /// The signer to ask: `unix:/PATH` or `tls:HOST:PORT`. By default, the server starts its own.
    pub(crate) signer: Option<String>,
    /// The fingerprint of the certificate of a signer on another machine.
    pub(crate) signer_fingerprint: Option<String>,
    /// The user of the signer that a server started by root starts.
    pub(crate) signer_user: Option<String>,
}

/// The lifetimes of certificates.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CertificatesSection {
    pub(crate) node_lifetime: HumanDuration,
    pub(crate) operator_lifetime: HumanDuration,
    pub(crate) server_lifetime: HumanDuration,
}

impl Default for CertificatesSection {
    fn default() -> Self {
        Self {
            node_lifetime: days(365),
            operator_lifetime: days(90),
            server_lifetime: days(14),
        }
    }
}

/// The retention of the audit log.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditSection {
    /// The age at which records are deleted.
    pub(crate) kept_for: HumanDuration,
}

impl Default for AuditSection {
    fn default() -> Self {
        Self {
            kept_for: days(400),
        }
    }
}

/// The retention of reports in the state store.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReportsSection {
    pub(crate) kept_per_node: usize,
    pub(crate) kept_for: HumanDuration,
}

impl Default for ReportsSection {
    fn default() -> Self {
        Self {
            kept_per_node: 100,
            kept_for: days(30),
        }
    }
}

/// The limits of what the server accepts.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    pub(crate) connections: usize,
    pub(crate) anonymous_connections: usize,
    pub(crate) facts_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) waiting_requests: usize,
    /// The writes that one node may send per second, and at once.
    pub(crate) node_requests_per_second: u64,
    pub(crate) node_request_burst: u64,
    /// The bytes that one node may send per second, and at once.
    pub(crate) node_bytes_per_second: u64,
    pub(crate) node_byte_burst: u64,
    /// The bytes of all reports of one node that are stored, and of the unfinished ones.
    pub(crate) node_report_bytes: u64,
    pub(crate) node_open_report_bytes: u64,
    /// The bytes of one report.
    pub(crate) report_bytes: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            connections: 100_000,
            anonymous_connections: 2_000,
            facts_bytes: 8 << 20,
            body_bytes: 1 << 20,
            waiting_requests: 10_000,
            node_requests_per_second: 20,
            node_request_burst: 1_000,
            node_bytes_per_second: 1 << 20,
            node_byte_burst: 64 << 20,
            node_report_bytes: 256 << 20,
            node_open_report_bytes: 64 << 20,
            report_bytes: 32 << 20,
        }
    }
}

/// The facts that matter, and the number of fact sets kept.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FactsSection {
    /// Dotted paths of facts that change all the time and affect no decision.
    pub(crate) volatile: VolatileFacts,
    /// The lists of environments that have their own.
    pub(crate) volatile_in: BTreeMap<EnvironmentName, VolatileFacts>,
    /// The number of older fact sets per node that can still be compared.
    pub(crate) history: usize,
}

impl Default for FactsSection {
    fn default() -> Self {
        Self {
            volatile: VolatileFacts::default(),
            volatile_in: BTreeMap::new(),
            history: 5,
        }
    }
}

/// Settings of `bunraku agent`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSection {
    /// The node's name; the fully qualified host name by default.
    pub(crate) name: Option<String>,
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// The fingerprint of the CA, pinned at first contact: `SHA256:…`, as `bunraku token create`
    /// prints it.
    pub(crate) ca_fingerprint: Option<String>,
    /// A file with the one-time token, so that no process list shows it.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) facts_interval: HumanDuration,
    /// Directories with custom facts.
    pub(crate) external_facts: Vec<PathBuf>,
    pub(crate) external_facts_timeout: HumanDuration,
    /// Fetch the plugins of the environment's Puppet modules, and collect their facts.
    pub(crate) plugin_sync: bool,
    /// The run method: this agent's engine with the released catalog, a command, or Puppet.
    pub(crate) run_method: RunMethodKind,
    /// Settings for `run_method = "puppet"`.
    pub(crate) puppet: PuppetSection,
    /// The program and its arguments, for `run_method = "command"`.
    pub(crate) run_command: Vec<String>,
    /// The same for noop runs. Without it, noop runs are not available.
    pub(crate) run_noop_command: Option<Vec<String>>,
    /// Exit codes of the command that mean success.
    pub(crate) run_success_codes: Vec<i32>,
    /// The interval between scheduled runs of the node; `0s` disables them.
    pub(crate) run_interval: HumanDuration,
    /// The first scheduled run starts within this time after the agent.
    pub(crate) run_splay: HumanDuration,
    /// Start a run when a new release reaches the node.
    pub(crate) run_on_release: bool,
    /// The time over which nodes spread these runs; `0s` starts all at once.
    pub(crate) release_splay: HumanDuration,
    /// Runs only report what they would change, unless a request overrides it.
    pub(crate) noop: bool,
    /// The windows in which runs enforce. Outside of them, runs are noop. Empty means always.
    pub(crate) windows: Vec<String>,
    /// The time limit of a run; `0s` for no limit. A longer run is ended.
    pub(crate) run_timeout: HumanDuration,
    /// The ordering mode of every run: `genius`, `ansible` or `justdoit`. It overrides the one of
    /// the environment.
    pub(crate) order: Option<OrderingMode>,
    /// The time for which a run waits for another `bunraku apply` to finish.
    pub(crate) lock_wait: HumanDuration,
    /// The directory for backups, the lock, and the record of the last apply.
    pub(crate) state_dir: PathBuf,
    /// The directory with the keys of modules that may run here (`*.pub`), and the list of revoked
    /// keys (`revoked`).
    pub(crate) module_keys: PathBuf,
    /// The root directory of the managed machine, if it is not `/`.
    pub(crate) root: Option<PathBuf>,
    /// Report every resource of every run. By default, resources without changes are only counted.
    pub(crate) report_unchanged: bool,
    /// The maximum disk space for events that wait for a server.
    pub(crate) spool_bytes: u64,
    /// The maximum size of a catalog. A larger one is refused.
    pub(crate) catalog_bytes: u64,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunMethodKind {
    /// Apply the released catalog with the built-in engine
    #[default]
    Engine,
    /// Run a configured command
    Command,
    /// Run the installed Puppet agent
    Puppet,
}

impl Default for AgentSection {
    fn default() -> Self {
        Self {
            name: None,
            servers: Vec::new(),
            data_dir: PathBuf::from("/var/lib/bunraku/agent"),
            ca_fingerprint: None,
            token_file: None,
            facts_interval: HumanDuration::from_secs(1_800),
            external_facts: vec![
                PathBuf::from("/etc/bunraku/facts.d"),
                PathBuf::from("/etc/facter/facts.d"),
                PathBuf::from("/etc/puppetlabs/facter/facts.d"),
            ],
            external_facts_timeout: HumanDuration::from_secs(30),
            plugin_sync: true,
            run_method: RunMethodKind::Engine,
            puppet: PuppetSection::default(),
            run_command: Vec::new(),
            run_noop_command: None,
            run_success_codes: vec![0],
            run_interval: HumanDuration::from_secs(1_800),
            run_splay: HumanDuration::from_secs(300),
            run_on_release: false,
            release_splay: HumanDuration::from_secs(10),
            noop: false,
            windows: Vec::new(),
            run_timeout: HumanDuration::from_secs(3_600),
            order: None,
            lock_wait: HumanDuration::from_secs(600),
            state_dir: PathBuf::from("/var/lib/bunraku/engine"),
            module_keys: PathBuf::from("/etc/bunraku/module-keys"),
            root: None,
            report_unchanged: false,
            spool_bytes: 64 << 20,
            catalog_bytes: 32 << 20,
        }
    }
}
