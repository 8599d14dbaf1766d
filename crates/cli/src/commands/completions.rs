//! `bunraku completions`.

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::json_mode;
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
    let script = match dynamic_script(arguments.shell) {
        Some(script) => script.to_owned(),
        None => {
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut program, "bunraku", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    };
    if json_mode::is_on() {
        let shell = arguments.shell.to_string();
        output::json(&serde_json::json!({"shell": shell, "script": script}))?;
    } else {
        output::write(&script)?;
    }
    Ok(Exit::Done)
}

/// Returns a script that asks `bunraku complete`, which knows nodes, environments, releases and
/// runs. If that finds nothing, the shell completes files.
fn dynamic_script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(BASH),
        Shell::Zsh => Some(ZSH),
        Shell::Fish => Some(FISH),
        _ => None,
    }
}

const BASH: &str = r#"_bunraku() {
    local IFS=$'\n'
    COMPREPLY=($(bunraku complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _bunraku bunraku
"#;

const ZSH: &str = r#"#compdef bunraku
_bunraku() {
    local -a found
    found=(${(f)"$(bunraku complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _bunraku bunraku
"#;

const FISH: &str = r#"function __bunraku_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    bunraku complete -- $words[2..] (commandline --current-token) 2>/dev/null
end
complete --command bunraku --arguments '(__bunraku_complete)'
"#;
