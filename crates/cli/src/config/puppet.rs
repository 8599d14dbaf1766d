//! `[agent.puppet]`: use of the Puppet that is already installed.

use std::path::{Path, PathBuf};

use bunraku_agent::{PuppetForm, PuppetOptions};
use bunraku_model::EnvironmentName;
use serde::Deserialize;

use crate::failure::Failure;

/// The directories of Puppet's own packages. The PATH of a service has neither.
const USUAL: [&str; 2] = ["/opt/puppetlabs/bin", "/opt/puppetlabs/puppet/bin"];

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PuppetSection {
    /// The program. By default, it is looked up in PATH and in the directories of Puppet's own
    /// packages.
    pub(crate) program: Option<PathBuf>,
    pub(crate) form: PuppetFormKind,
    /// The manifest for `apply`.
    pub(crate) manifest: Option<PathBuf>,
    /// Runs apply the node's released catalog and nothing else.
    pub(crate) released: bool,
    /// The environment; by default, Puppet's own setting decides.
    pub(crate) environment: Option<EnvironmentName>,
    /// The name in Puppet's certificate.
    pub(crate) certname: Option<String>,
    pub(crate) confdir: Option<PathBuf>,
    pub(crate) vardir: Option<PathBuf>,
    pub(crate) ssldir: Option<PathBuf>,
    pub(crate) publicdir: Option<PathBuf>,
    /// Additional arguments for every run.
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
    /// Returns the options. `data_dir` is the agent's.
    pub(crate) fn options(&self, data_dir: &Path) -> Result<PuppetOptions, Failure> {
        let wants_manifest = self.form == PuppetFormKind::Apply && !self.released;
        if wants_manifest && self.manifest.is_none() {
            return Err(
                Failure::usage("the run method is `puppet`, but no manifest is set")
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

    /// Returns Puppet's settings for facts that ask for them.
    pub(crate) fn identity_arguments(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let settings = [
            ("--certname", self.certname.clone()),
            ("--confdir", path(&self.confdir)),
            ("--vardir", path(&self.vardir)),
            ("--ssldir", path(&self.ssldir)),
            ("--publicdir", path(&self.publicdir)),
        ];
        let given = settings
            .into_iter()
            .filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
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
