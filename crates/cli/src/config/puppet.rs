//! `[agent.puppet]`: how an agent uses the Puppet that is already there.

use std::path::{Path, PathBuf};

use bunraku_agent::{PuppetForm, PuppetOptions};
use bunraku_model::EnvironmentName;
use serde::Deserialize;

use crate::failure::Failure;

/// Where Puppet's own packages put it; in no PATH of services.
const USUAL: [&str; 2] = ["/opt/puppetlabs/bin", "/opt/puppetlabs/puppet/bin"];

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PuppetSection {
    /// The program; looked for in PATH and where Puppet's own packages put it.
    pub(crate) program: Option<PathBuf>,
    pub(crate) form: PuppetFormKind,
    /// What `apply` applies.
    pub(crate) manifest: Option<PathBuf>,
    /// Runs carry out the node's released catalog, and nothing else.
    pub(crate) released: bool,
    /// Puppet's own setting decides when not given.
    pub(crate) environment: Option<EnvironmentName>,
    /// The name in Puppet's certificate.
    pub(crate) certname: Option<String>,
    pub(crate) confdir: Option<PathBuf>,
    pub(crate) vardir: Option<PathBuf>,
    pub(crate) ssldir: Option<PathBuf>,
    pub(crate) publicdir: Option<PathBuf>,
    /// Further arguments for every run.
    pub(crate) arguments: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PuppetFormKind {
    /// `puppet agent`, which asks its server.
    #[default]
    Agent,
    /// `puppet apply`, without a server.
    Apply,
}

impl PuppetSection {
    /// `data_dir`: the agent's.
    pub(crate) fn options(&self, data_dir: &Path) -> Result<PuppetOptions, Failure> {
        let wants_manifest = self.form == PuppetFormKind::Apply && !self.released;
        if wants_manifest && self.manifest.is_none() {
            return Err(
                Failure::usage("Puppet is to apply, and there is no manifest")
                    .hint("set `manifest` under [agent.puppet], or `released = true`"),
            );
        }
        Ok(PuppetOptions {
            form: match self.form {
                PuppetFormKind::Agent => PuppetForm::Agent,
                PuppetFormKind::Apply => PuppetForm::Apply {
                    manifest: self.manifest.clone(),
                },
            },
            programs: self.programs(),
            released: self.released,
            environment: self.environment.clone(),
            certname: self.certname.clone(),
            confdir: self.confdir.clone(),
            vardir: self.vardir.clone(),
            ssldir: self.ssldir.clone(),
            publicdir: self.publicdir.clone(),
            arguments: self.arguments.clone(),
            // Puppet refuses relative paths.
            ..PuppetOptions::new(std::path::absolute(data_dir)?)
        })
    }

    fn programs(&self) -> Vec<PathBuf> {
        let program = self.program.clone().unwrap_or_else(|| "puppet".into());
        if program.components().count() > 1 {
            return vec![program];
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = USUAL.iter().map(PathBuf::from);
        std::env::split_paths(&path)
            .chain(usual)
            .map(|directory| directory.join(&program))
            .collect()
    }
}
