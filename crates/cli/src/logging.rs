//! Logs: structured, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::global_options::LogFormat;

/// Starts logging. `BUNRAKU_LOG` (or `--log`) takes levels in the syntax of `tracing`.
pub(crate) fn start(filter: &str, format: LogFormat) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    if json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).init();
    }
}
