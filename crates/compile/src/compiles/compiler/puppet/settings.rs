//! Puppet settings of a repository and of the server.
//!
//! A repository chooses limits and settings of its own compile in
//! `bunraku.yaml`. Everything that reaches outside the commit (programs, paths,
//! hosts) belongs to the server's configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bunraku_states::Node;
use bunraku_wire::api::CompileProblem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::settings::{Members, at};

/// The settings of `puppet.conf` that affect only catalogs.
const PUPPET_SETTINGS: [&str; 8] = [
    "strict",
    "strict_variables",
    "rich_data",
    "disable_warnings",
    "trusted_server_facts",
    "digest_algorithm",
    "data_binding_terminus",
    "merge_dependency_warnings",
];

/// The Puppet settings in an environment's `bunraku.yaml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PuppetSettings {
    pub(crate) workers: usize,
    pub(crate) time_limit: Duration,
    pub(crate) recycle_after: u64,
    /// Memory limit of one worker in bytes.
    pub(crate) memory_limit: u64,
    pub(crate) http_sources: HttpSources,
    /// Use the server's classifier.
    pub(crate) enc: bool,
    pub(crate) settings: BTreeMap<String, Value>,
}

/// The handling of `source => 'https://…'`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum HttpSources {
    /// The compile fails.
    Refuse,
    /// The server fetches the file and stores it with the catalog.
    Pin,
}

impl Default for PuppetSettings {
    fn default() -> Self {
        Self {
            workers: 2,
            time_limit: Duration::from_secs(60),
            recycle_after: 500,
            memory_limit: 1 << 30,
            http_sources: HttpSources::Refuse,
            enc: true,
            settings: BTreeMap::new(),
        }
    }
}

/// The server's settings for Puppet code.
#[derive(Clone, Debug)]
pub struct PuppetOptions {
    /// The Ruby that has Puppet; detected if not given.
    pub ruby: Option<PathBuf>,
    /// `$basemodulepath`.
    pub base_modules: Vec<PathBuf>,
    /// Files and directories that code may read, such as eyaml keys.
    pub read_paths: Vec<PathBuf>,
    /// Custom mounts: `puppet:///NAME/path` is `path` below the directory.
    pub mounts: BTreeMap<String, PathBuf>,
    /// The global Hiera configuration.
    pub hiera_config: Option<PathBuf>,
    /// The external node classifier: a program that receives a node's name.
    pub enc: Vec<String>,
    /// `$servername`. One name for all servers of a cluster keeps catalogs
    /// independent of the server that compiles them.
    pub server_name: String,
    /// Hosts from which files are fetched for `http_sources: pin`.
    pub http_hosts: Vec<String>,
}

impl Default for PuppetOptions {
    fn default() -> Self {
        Self {
            ruby: None,
            base_modules: vec![
                "/opt/puppetlabs/puppet/modules".into(),
                "/usr/share/puppet/modules".into(),
            ],
            read_paths: Vec::new(),
            mounts: BTreeMap::new(),
            hiera_config: None,
            enc: Vec::new(),
            server_name: "puppet".to_owned(),
            http_hosts: Vec::new(),
        }
    }
}

impl PuppetSettings {
    pub(in super::super) fn read(members: &Members<'_>) -> Result<Self, CompileProblem> {
        members.check_keys(&[
            "compiler",
            "workers",
            "time_limit",
            "recycle_after",
            "memory_limit",
            "http_sources",
            "enc",
            "settings",
            "repositories",
        ])?;
        let usual = Self::default();
        let workers = members.number("workers", 1..=64)?;
        let seconds = members.number("time_limit", 1..=3_600)?;
        let megabytes = members.number("memory_limit", 128..=1 << 20)?;
        Ok(Self {
            workers: workers.map_or(usual.workers, |count| usize::try_from(count).unwrap_or(1)),
            time_limit: seconds.map_or(usual.time_limit, Duration::from_secs),
            recycle_after: members
                .number("recycle_after", 1..=1_000_000)?
                .unwrap_or(usual.recycle_after),
            memory_limit: megabytes.map_or(usual.memory_limit, |count| count << 20),
            http_sources: http_sources(members)?,
            enc: members.boolean("enc")?.unwrap_or(usual.enc),
            settings: puppet_settings(members)?,
        })
    }
}

fn http_sources(members: &Members<'_>) -> Result<HttpSources, CompileProblem> {
    match members.text("http_sources")?.as_deref() {
        None | Some("refuse") => Ok(HttpSources::Refuse),
        Some("pin") => Ok(HttpSources::Pin),
        Some(other) => {
            let message = format!("`http_sources` must be refuse or pin, not `{other}`");
            Err(at(members.node("http_sources"), message))
        }
    }
}

fn puppet_settings(members: &Members<'_>) -> Result<BTreeMap<String, Value>, CompileProblem> {
    let Some(node) = members.get("settings") else {
        return Ok(BTreeMap::new());
    };
    let given = Members::of(node, "`settings`")?;
    given.check_keys(&PUPPET_SETTINGS)?;
    let value = |(key, node): &(Node, Node)| {
        let value = node.to_json();
        match value {
            Value::Bool(_) | Value::String(_) => Ok((key.key_text(), value)),
            _ => Err(at(
                node,
                "a setting must be a string or a boolean".to_owned(),
            )),
        }
    };
    given.pairs().iter().map(value).collect()
}
