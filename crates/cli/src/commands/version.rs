//! `bunraku version`: the version, and how this program was built.

use clap::Args;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

#[derive(Args)]
#[command(after_help = "Example:\n  bunraku version --json")]
pub(crate) struct VersionArguments {}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
    build: &'static str,
    target: &'static str,
    rustc: &'static str,
}

const VERSION: Version = Version {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("BUNRAKU_COMMIT"),
    build: env!("BUNRAKU_PROFILE"),
    target: env!("BUNRAKU_TARGET"),
    rustc: env!("BUNRAKU_RUSTC"),
};

/// Returns the version and the commit in one line, for other commands.
pub(crate) fn line() -> String {
    format!("{} (commit {})", VERSION.version, VERSION.commit)
}

pub(crate) fn run(_: &VersionArguments, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(&VERSION)?;
    } else {
        let Version {
            version,
            commit,
            build,
            target,
            rustc,
        } = VERSION;
        output::write(&format!(
            "bunraku {version}\ncommit  {commit}\nbuild   {build}, {target}, {rustc}\n"
        ))?;
    }
    Ok(Exit::Done)
}
