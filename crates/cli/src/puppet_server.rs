//! The environment graph of a Puppet server, as a source of plans.

use std::path::{Path, PathBuf};

use bunraku_model::EnvironmentName;
use bunraku_wire::puppet_server::{PuppetServer, PuppetServerError};
use bunraku_wire::tls::{ClientTls, Identity};

use crate::duration::HumanDuration;
use crate::failure::Failure;

/// The maximum size of a graph. A larger answer is not a graph.
const LARGEST: usize = 64 << 20;
/// The default time limit. Puppet compiles the graph on request.
const PATIENCE: HumanDuration = HumanDuration::from_secs(120);

#[derive(clap::Args, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct PuppetServerArguments {
    /// Fetch the graph of `--environment` from this Puppet server (4 to 6)
    #[arg(long, value_name = "URL", requires_all = ["puppet_ca", "puppet_cert", "puppet_key"])]
    pub(crate) puppet_server: Option<String>,
    /// CA certificate of the Puppet server, such as /etc/puppetlabs/puppet/ssl/certs/ca.pem
    #[arg(long, value_name = "FILE", requires = "puppet_server")]
    puppet_ca: Option<PathBuf>,
    /// Client certificate for the Puppet server
    #[arg(long, value_name = "FILE", requires = "puppet_server")]
    puppet_cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "puppet_server")]
    puppet_key: Option<PathBuf>,
    /// Time limit for the Puppet server [default: 2m]
    #[arg(long, value_name = "SPAN", requires = "puppet_server")]
    #[serde(skip)]
    puppet_timeout: Option<HumanDuration>,
}

impl PuppetServerArguments {
    /// Makes the paths absolute, so that the request can be repeated from any directory.
    pub(crate) fn absolute(&self) -> std::io::Result<Self> {
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        Ok(Self {
            puppet_ca: absolute(&self.puppet_ca)?,
            puppet_cert: absolute(&self.puppet_cert)?,
            puppet_key: absolute(&self.puppet_key)?,
            ..self.clone()
        })
    }

    /// Returns the graph as JSON. Blocking.
    pub(crate) fn graph(&self, url: &str, environment: &str) -> Result<String, Failure> {
        let environment = EnvironmentName::new(environment)?;
        let server = self.server(url)?;
        // The caller may be on an async runtime, which must not be blocked.
        let asked = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok::<_, std::io::Error>(runtime.block_on(server.environment_graph(&environment)))
        });
        let answer = asked.join().expect("asking does not panic")?;
        answer.map_err(|error| explained(&error))
    }

    fn server(&self, url: &str) -> Result<PuppetServer, Failure> {
        let path = |path: &Option<PathBuf>, flag: &str| {
            path.clone()
                .ok_or_else(|| Failure::usage(format!("`{flag}` is missing")))
        };
        let ca = path(&self.puppet_ca, "--puppet-ca")?;
        let certificate = path(&self.puppet_cert, "--puppet-cert")?;
        let key = path(&self.puppet_key, "--puppet-key")?;
        Ok(PuppetServer {
            address: PuppetServer::parse_address(url)?,
            tls: ClientTls {
                authority_pem: text(&ca)?,
                revocation_lists_pem: String::new(),
                identity: Some(Identity::load(&certificate, &key)?),
            },
            timeout: self.puppet_timeout.unwrap_or(PATIENCE).0,
            largest: LARGEST,
        })
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))
}

fn explained(error: &PuppetServerError) -> Failure {
    let failure = Failure::new(error.to_string());
    let failure = match std::error::Error::source(error) {
        Some(source) => failure.caused_by(source),
        None => failure,
    };
    match error {
        PuppetServerError::NotThere(_) => failure.hint(
            "Puppet 7 removed environment graphs: plan from the manifest itself with `--site site.pp`",
        ),
        PuppetServerError::Forbidden(..) => failure.hint(
            "allow the certificate to read `/puppet/v3/environment` in the Puppet server's auth.conf",
        ),
        PuppetServerError::Untrusted(..) => {
            failure.hint("check `--puppet-ca`, and that the server's certificate contains the host name in the URL")
        }
        _ => failure,
    }
}
