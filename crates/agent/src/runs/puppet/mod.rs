//! A run by the Puppet that is already installed on the node.
//!
//! Puppet is started once per run. Each run has its own directory for the report, the log and, if
//! there is one, the delivered catalog. That binds the result to this run: the report's file did
//! not exist before, only this Puppet process knows its path, and the report contains the run's id
//! (`job_id`; for a delivered catalog `catalog_uuid`). Puppet's own state is not changed, except
//! that its last report is left in the usual location.
//!
//! Not included: a way to be less strict than Puppet's own settings. A node that they disable or
//! keep at noop stays so.

mod delivered;
mod events;
mod failure;
mod invocation;
mod live_log;
mod places;
mod prepare;
mod report;
mod state;
mod work;

use std::path::PathBuf;

use bunraku_model::EnvironmentName;

use crate::catalogs::Catalogs;
use crate::plugins::Plugins;
use failure::PuppetFailure;
use places::KnownPlaces;

/// The Puppet command to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PuppetForm {
    /// `puppet agent`, which asks its server.
    Agent,
    /// `puppet apply`, without a server.
    Apply { manifest: Option<PathBuf> },
}

/// The options for this node's Puppet.
#[derive(Clone, Debug)]
pub struct PuppetOptions {
    pub form: PuppetForm,
    /// The paths of Puppet, tried in order. The first one that exists is used.
    pub programs: Vec<PathBuf>,
    /// Every run applies the node's released catalog, and nothing else.
    pub released: bool,
    pub environment: Option<EnvironmentName>,
    /// The name in Puppet's certificate, by which Puppet finds a catalog.
    pub certname: Option<String>,
    pub confdir: Option<PathBuf>,
    pub vardir: Option<PathBuf>,
    pub ssldir: Option<PathBuf>,
    pub publicdir: Option<PathBuf>,
    /// Further arguments. They must not set locations or the node's identity.
    pub arguments: Vec<String>,
    /// The directory for the files of the active run.
    pub data_dir: PathBuf,
}

impl PuppetOptions {
    /// Creates options with Puppet's own defaults.
    pub fn new(data_dir: PathBuf) -> Self {
        Self {
            form: PuppetForm::Agent,
            programs: Vec::new(),
            released: false,
            environment: None,
            certname: None,
            confdir: None,
            vardir: None,
            ssldir: None,
            publicdir: None,
            arguments: Vec::new(),
            data_dir,
        }
    }
}

/// Runs Puppet.
pub struct PuppetMethod {
    options: PuppetOptions,
    places: KnownPlaces,
    /// The catalogs and their plugins, for runs that apply the released catalog.
    released: Option<(Catalogs, Plugins)>,
}

impl PuppetMethod {
    pub(crate) fn new(options: PuppetOptions, catalogs: Catalogs, plugins: Plugins) -> Self {
        Self {
            released: options.released.then_some((catalogs, plugins)),
            ..Self::without_catalogs(options)
        }
    }

    /// Creates a method that applies what Puppet's own server or manifest says.
    pub fn without_catalogs(options: PuppetOptions) -> Self {
        Self {
            options,
            places: KnownPlaces::default(),
            released: None,
        }
    }

    fn program(&self) -> Result<PathBuf, PuppetFailure> {
        let programs = &self.options.programs;
        let found = programs.iter().find(|program| program.is_file());
        found.cloned().ok_or_else(|| {
            let looked: Vec<_> = programs
                .iter()
                .map(|one| one.display().to_string())
                .collect();
            PuppetFailure::NoPuppet {
                looked: format!("looked for {}", looked.join(", ")),
            }
        })
    }

    /// Creates a fresh directory for one run, and removes those of earlier runs.
    fn fresh_directory(&self) -> std::io::Result<PathBuf> {
        let directory = self.options.data_dir.join("puppet-run");
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        bunraku_files::create_private_directory(&directory)?;
        Ok(directory)
    }
}

#[cfg(test)]
mod tests;
