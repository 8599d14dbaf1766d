//! `bunraku completions`.

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

#[derive(Args)]
#[command(after_help = "Example:\n  bunraku completions bash > /etc/bash_completion.d/bunraku")]
pub(crate) struct CompletionsArguments {
    /// Shell to print completions for
    shell: Shell,
}

pub(crate) fn run(
    arguments: &CompletionsArguments,
    mut program: clap::Command,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "bunraku", &mut script);
    output::write(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
