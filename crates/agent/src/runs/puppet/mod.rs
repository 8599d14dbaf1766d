//! A run by the Puppet that is already on the node.
//!
//! Puppet is started once per run, with a directory of its own for the report,
//! the log and, if there is one, the delivered catalog. That binds the result
//! to this run: the report's file did not exist before, only this Puppet was
//! told of it, and it carries the run's id back (`job_id`; of a delivered
//! catalog `catalog_uuid`). Nothing of Puppet's own state is changed, except
//! that its last report is left where it usually is.
//!
//! Absent: a way to be looser than Puppet's own settings. A node that is
//! disabled or kept at noop by them stays so.

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
use failure::PuppetFailure;
use places::KnownPlaces;

/// How Puppet is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PuppetForm {
    /// `puppet agent`, which asks its server.
    Agent,
    /// `puppet apply`, without a server.
    Apply { manifest: Option<PathBuf> },
}

/// How this node's Puppet is used.
#[derive(Clone, Debug)]
pub struct PuppetOptions {
    pub form: PuppetForm,
    /// Tried in order; the first that is there is Puppet.
    pub programs: Vec<PathBuf>,
    /// Every run carries out the node's released catalog, and nothing else.
    pub released: bool,
    pub environment: Option<EnvironmentName>,
    /// The name in its certificate, by which it finds a catalog.
    pub certname: Option<String>,
    pub confdir: Option<PathBuf>,
    pub vardir: Option<PathBuf>,
    pub ssldir: Option<PathBuf>,
    pub publicdir: Option<PathBuf>,
    /// Further arguments. None that says where something is, or who this is.
    pub arguments: Vec<String>,
    /// For the files of the run at work.
    pub data_dir: PathBuf,
}

impl PuppetOptions {
    /// As Puppet's own defaults are.
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

/// Leaves runs to Puppet.
pub struct PuppetMethod {
    options: PuppetOptions,
    places: KnownPlaces,
    /// For those that carry out the released catalog.
    catalogs: Option<Catalogs>,
}

impl PuppetMethod {
    pub(crate) fn new(options: PuppetOptions, catalogs: Catalogs) -> Self {
        Self {
            catalogs: options.released.then_some(catalogs),
            ..Self::without_catalogs(options)
        }
    }

    /// For what Puppet's own server or manifest says.
    pub fn without_catalogs(options: PuppetOptions) -> Self {
        Self {
            options,
            places: KnownPlaces::default(),
            catalogs: None,
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

    /// A fresh directory for one run; what earlier ones left is removed.
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
