//! Options that every command accepts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options that every command accepts.
#[derive(Args, Clone)]
pub(crate) struct Global {
    /// Configuration file [default: /etc/bunraku/bunraku.toml where it exists]
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BUNRAKU_CONFIG",
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,

    /// Print data as JSON
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    /// Server to talk to, HOST:PORT; may be given several times
    #[arg(
        long = "server",
        global = true,
        help_heading = "Global options",
        env = "BUNRAKU_SERVERS",
        value_delimiter = ',',
        value_name = "HOST:PORT"
    )]
    pub(crate) servers: Vec<String>,

    /// Directory with ca.pem, cert.pem and key.pem to talk to it with
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BUNRAKU_CREDENTIALS",
        value_name = "DIR"
    )]
    pub(crate) credentials: Option<PathBuf>,

    /// What to log, for example `debug` or `bunraku_control=trace`
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BUNRAKU_LOG",
        value_name = "FILTER"
    )]
    pub(crate) log: Option<String>,

    /// How to log
    #[arg(long, global = true, help_heading = "Global options", env = "BUNRAKU_LOG_FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// JSON unless standard error is a terminal
    Auto,
    Json,
    Text,
}
