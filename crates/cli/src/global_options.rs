//! Options that every command accepts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options that every command accepts.
#[derive(Args, Clone)]
pub(crate) struct Global {
    /// Configuration file [default: /etc/bunraku/bunraku.toml if it exists]
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_CONFIG",
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,

    /// Print data as JSON
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true
    )]
    pub(crate) json: bool,

    /// Server to connect to, HOST:PORT; repeatable
    #[arg(
        long = "server",
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_SERVERS",
        value_delimiter = ',',
        value_name = "HOST:PORT"
    )]
    pub(crate) servers: Vec<String>,

    /// Directory with ca.pem, cert.pem and key.pem
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_CREDENTIALS",
        value_name = "DIR"
    )]
    pub(crate) credentials: Option<PathBuf>,

    /// Context with servers and credentials [default: the one in use, see `bunraku context`]
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_CONTEXT",
        value_name = "NAME"
    )]
    pub(crate) context: Option<String>,

    /// Reason for a change, for the audit log
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_AUDIT_REASON",
        value_name = "TEXT"
    )]
    pub(crate) audit_reason: Option<String>,

    /// Log filter, such as `debug` or `bunraku_control=trace`
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        hide_short_help = true,
        env = "BUNRAKU_LOG",
        value_name = "FILTER"
    )]
    pub(crate) log: Option<String>,

    /// Log format
    #[arg(long, global = true, help_heading = "Global options", hide_short_help = true, env = "BUNRAKU_LOG_FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text if standard error is a terminal, otherwise JSON
    Auto,
    Json,
    Text,
}
