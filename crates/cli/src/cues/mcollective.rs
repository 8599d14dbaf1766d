//! Triggers through MCollective: `mco puppet runonce` on each host.

use bunraku_model::{NodeName, TriggerName};
use tokio::process::Command;

use crate::failure::Failure;

/// Starts a Puppet run on each host. The output of `mco` goes to the terminal.
pub(crate) async fn fire(trigger: &TriggerName, hosts: &[NodeName]) -> Result<(), Failure> {
    let status = command(hosts).status().await.map_err(not_run)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{trigger}: `mco puppet runonce` failed ({status})"
        )))
    }
}

/// Starts a Puppet run on each host, inside a run: the output of `mco` becomes part of the error.
pub(super) async fn fire_quietly(trigger: &TriggerName, hosts: &[NodeName]) -> Result<(), Failure> {
    let output = command(hosts).output().await.map_err(not_run)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!(
        "{trigger}: `mco puppet runonce` failed ({}): {}",
        output.status,
        text.trim()
    )))
}

fn command(hosts: &[NodeName]) -> Command {
    let mut command = Command::new("mco");
    command.args(["puppet", "runonce"]).kill_on_drop(true);
    for host in hosts {
        command.args(["-I", host.as_str()]);
    }
    command
}

fn not_run(error: std::io::Error) -> Failure {
    Failure::new("cannot run `mco`")
        .caused_by(&error)
        .hint("install the MCollective client, or use another provider")
}
