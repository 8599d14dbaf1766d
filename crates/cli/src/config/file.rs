//! What the configuration file may say, with every default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use bunraku_model::{EnvironmentName, VolatileFacts};
use serde::Deserialize;

use super::{ClusterSection, DEFAULT_PORT, PuppetSection};
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
    pub(crate) agent: AgentSection,
}

/// For the commands that talk to a server.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClientSection {
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    /// Directory with ca.pem, cert.pem and key.pem.
    pub(crate) credentials: Option<PathBuf>,
}

/// For `bunraku server`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    /// In its certificate; the host name when not given.
    pub(crate) name: Option<String>,
    /// Further names and addresses that nodes reach it by.
    pub(crate) names: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// Health and metrics without a certificate; loopback only.
    pub(crate) health_listen: Option<SocketAddr>,
    pub(crate) store: StoreSection,
    pub(crate) authority: AuthoritySection,
    pub(crate) certificates: CertificatesSection,
    pub(crate) limits: LimitsSection,
    pub(crate) cluster: ClusterSection,
    pub(crate) facts: FactsSection,
    pub(crate) reports: ReportsSection,
    pub(crate) compile: CompileSection,
    pub(crate) releases: ReleasesSection,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
            name: None,
            names: Vec::new(),
            data_dir: PathBuf::from("/var/lib/bunraku/server"),
            health_listen: None,
            store: StoreSection::default(),
            authority: AuthoritySection::default(),
            certificates: CertificatesSection::default(),
            limits: LimitsSection::default(),
            cluster: ClusterSection::default(),
            facts: FactsSection::default(),
            reports: ReportsSection::default(),
            compile: CompileSection::default(),
            releases: ReleasesSection::default(),
        }
    }
}

/// Which compiled catalogs nodes get.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReleasesSection {
    /// Releases that are kept per environment; never fewer than two.
    pub(crate) keep: usize,
    /// Nothing was compiled for so long: what was is released, together.
    pub(crate) quiet: HumanDuration,
    /// Released after so long, even if compiling goes on.
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

/// Catalogs ahead of time.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompileSection {
    /// Compiles at the same time on this server; as many as it has cores when
    /// not given, and none with 0.
    pub(crate) concurrency: Option<usize>,
    /// A catalog with more bytes is refused.
    pub(crate) max_catalog_bytes: u64,
    /// Files that a catalog may refer to.
    pub(crate) max_catalog_files: usize,
    /// How long a catalog that nothing needs is kept.
    pub(crate) catalog_grace: HumanDuration,
    /// How long git may take to fetch.
    pub(crate) git_time_limit: HumanDuration,
    /// Bytes in all files of one commit.
    pub(crate) max_code_bytes: u64,
    /// Files in one commit.
    pub(crate) max_code_files: usize,
    /// Commits that are kept per environment.
    pub(crate) keep_commits: usize,
    /// What Puppet code gets from this server.
    pub(crate) puppet: PuppetCompileSection,
}

/// What Puppet code gets from this server when it is compiled.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PuppetCompileSection {
    /// The Ruby that has Puppet; found when not given.
    pub(crate) ruby: Option<PathBuf>,
    /// `$basemodulepath`.
    pub(crate) base_modules: Option<Vec<PathBuf>>,
    /// Files and directories that code may read, such as eyaml keys.
    pub(crate) read_paths: Vec<PathBuf>,
    /// `puppet:///NAME/path` is `path` below the directory.
    pub(crate) mounts: BTreeMap<String, PathBuf>,
    /// The global Hiera configuration.
    pub(crate) hiera_config: Option<PathBuf>,
    /// The external node classifier, with its arguments.
    pub(crate) enc: Vec<String>,
    /// `$servername`; the server's own name when not given.
    pub(crate) server_name: Option<String>,
    /// Hosts from which `http_sources: pin` fetches.
    pub(crate) http_hosts: Vec<String>,
}

impl Default for CompileSection {
    fn default() -> Self {
        Self {
            concurrency: None,
            max_catalog_bytes: 32 << 20,
            max_catalog_files: 10_000,
            catalog_grace: HumanDuration::from_secs(3_600),
            git_time_limit: HumanDuration::from_secs(120),
            max_code_bytes: 512 << 20,
            max_code_files: 100_000,
            keep_commits: 10,
            puppet: PuppetCompileSection::default(),
        }
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// In the data directory; nothing to install.
    #[default]
    Embedded,
    Etcd,
}

/// Where the server keeps everything.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) kind: StoreKind,
    /// etcd's client addresses, `http://…` or `https://…`.
    pub(crate) endpoints: Vec<String>,
    /// Every key begins with this in etcd.
    pub(crate) root: String,
    /// How far back etcd keeps history; what is older is compacted away.
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
    /// Made on first start.
    #[default]
    Own,
    /// An existing Puppet CA directory.
    Puppet,
}

/// Who signs certificates.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthoritySection {
    pub(crate) kind: AuthorityKind,
    /// `<data_dir>/ca` when not given; must be given for Puppet's.
    pub(crate) directory: Option<PathBuf>,
}

/// How long certificates live.
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
            operator_lifetime: days(365),
            server_lifetime: days(90),
        }
    }
}

/// How many reports are kept.
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

/// What the server takes at most.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    pub(crate) connections: usize,
    pub(crate) facts_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) waiting_requests: usize,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            connections: 100_000,
            facts_bytes: 8 << 20,
            body_bytes: 1 << 20,
            waiting_requests: 10_000,
        }
    }
}

/// Which facts count, and how many fact sets are kept.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FactsSection {
    /// Dotted paths of facts that change all the time and decide nothing.
    pub(crate) volatile: VolatileFacts,
    /// Lists of environments that have their own.
    pub(crate) volatile_in: BTreeMap<EnvironmentName, VolatileFacts>,
    /// Fact sets before the newest that can still be compared, per node.
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

/// For `bunraku agent`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSection {
    /// The fully qualified host name when not given.
    pub(crate) name: Option<String>,
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// Pinned at the first contact: `SHA256:…`, as `bunraku token create` prints it.
    pub(crate) ca_fingerprint: Option<String>,
    /// A file with the one-time token, so that it stands in no process list.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) facts_interval: HumanDuration,
    /// Directories with facts of your own.
    pub(crate) external_facts: Vec<PathBuf>,
    pub(crate) external_facts_timeout: HumanDuration,
    /// What a run is: this agent's engine with the released catalog, a command, or Puppet.
    pub(crate) run_method: RunMethodKind,
    /// For `run_method = "puppet"`.
    pub(crate) puppet: PuppetSection,
    /// The program and its arguments, for `run_method = "command"`.
    pub(crate) run_command: Vec<String>,
    /// The same for noop runs; without it there are none.
    pub(crate) run_noop_command: Option<Vec<String>>,
    /// Exit codes of the command that mean success.
    pub(crate) run_success_codes: Vec<i32>,
    /// Between two runs that the node starts by itself; `0s` for never.
    pub(crate) run_interval: HumanDuration,
    /// The first of them is within this after the agent's start.
    pub(crate) run_splay: HumanDuration,
    /// Run when a new release reaches the node.
    pub(crate) run_on_release: bool,
    /// Within this, each node at its own time; `0s` for all at once.
    pub(crate) release_splay: HumanDuration,
    /// Runs only say what they would change, unless a request says otherwise.
    pub(crate) noop: bool,
    /// When runs enforce; outside of these they are noop. Empty: always.
    pub(crate) windows: Vec<String>,
    /// A run that works for longer is ended; `0s` for no limit.
    pub(crate) run_timeout: HumanDuration,
    /// How long a run waits for somebody's `bunraku apply`.
    pub(crate) lock_wait: HumanDuration,
    /// Backups, the lock, and what was applied last.
    pub(crate) state_dir: PathBuf,
    /// Keys whose modules may run here (`*.pub`), and the list of revoked ones (`revoked`).
    pub(crate) module_keys: PathBuf,
    /// The directory under which the managed machine lies, when it is not `/`.
    pub(crate) root: Option<PathBuf>,
    /// Events that wait for a server take at most this much of the disk.
    pub(crate) spool_bytes: u64,
    /// A larger catalog is refused.
    pub(crate) catalog_bytes: u64,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunMethodKind {
    /// The released catalog, carried out by the agent
    #[default]
    Engine,
    /// A command of yours
    Command,
    /// The Puppet that is already there
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
            lock_wait: HumanDuration::from_secs(600),
            state_dir: PathBuf::from("/var/lib/bunraku/engine"),
            module_keys: PathBuf::from("/etc/bunraku/module-keys"),
            root: None,
            spool_bytes: 64 << 20,
            catalog_bytes: 32 << 20,
        }
    }
}
