//! `bunraku config`: checks the configuration file.

use clap::Subcommand;

use crate::config::{AuthorityKind, StoreKind, load};
use crate::connection::servers;
use crate::content_settings;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::global_options::Global;
use crate::output;

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file
    #[command(after_help = "Example:\n  bunraku config check --config ./bunraku.toml")]
    Check,
}

pub(crate) fn run(command: &ConfigCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check => check(global),
    }
}

/// Checks what the parser cannot: values that contradict each other.
fn check(global: &Global) -> Result<Exit, Failure> {
    let loaded = load(global.config.as_deref())?;
    let file = &loaded.file;
    let mut wrong = Vec::new();
    for (section, addresses) in [
        ("client", &file.client.servers),
        ("agent", &file.agent.servers),
    ] {
        if let Err(failure) = servers(&[], addresses) {
            wrong.push(format!("{section}.servers: {}", failure.message()));
        }
    }
    if file.server.store.kind == StoreKind::Etcd && file.server.store.endpoints.is_empty() {
        wrong.push("server.store: etcd needs `endpoints`".to_owned());
    }
    wrong.extend(content_settings::problems(&file.server.content));
    if file.server.authority.kind == AuthorityKind::Puppet
        && file.server.authority.directory.is_none()
    {
        wrong.push("server.authority: a Puppet CA needs `directory`".to_owned());
    }
    if file
        .server
        .health_listen
        .is_some_and(|address| !address.ip().is_loopback())
    {
        wrong.push(
            "server.health_listen: must be a loopback address, because it does not require a certificate"
                .to_owned(),
        );
    }
    let compile = &file.server.compile;
    for (name, value) in [
        ("max_catalog_bytes", compile.max_catalog_bytes),
        ("max_code_bytes", compile.max_code_bytes),
        ("git_time_limit", compile.git_time_limit.0.as_secs()),
    ] {
        if value == 0 {
            wrong.push(format!("server.compile.{name}: must be at least 1"));
        }
    }
    if let Some(Err(error)) = file.agent.name.as_ref().map(bunraku_model::NodeName::new) {
        wrong.push(format!("agent.name: {error}"));
    }
    let place = loaded
        .path
        .as_ref()
        .map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
    if wrong.is_empty() {
        if global.json {
            output::json(&serde_json::json!({"configuration": place, "valid": true}))?;
        } else {
            output::write(&format!("{place}: ok\n"))?;
        }
        return Ok(Exit::Done);
    }
    Err(Failure::new(format!(
        "{place}: {}",
        wrong.join(&format!("\nerror: {place}: "))
    )))
}
