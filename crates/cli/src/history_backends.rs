//! Opens the backends of history that a server is configured for.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bunraku_control::HistoryBackends;
use bunraku_store::history::postgresql::{PostgresqlHistory, PostgresqlOptions, PostgresqlTls};
use bunraku_store::history::{SharedHistory, SqliteHistory};

use crate::config::{HistoryKind, HistorySection};
use crate::failure::Failure;

/// Opens the history in the data directory of a server that has its store to itself, and prepares
/// connections to PostgreSQL. A server starts even if PostgreSQL does not answer.
pub(crate) async fn open(
    section: &HistorySection,
    data_dir: &Path,
    is_alone: bool,
) -> Result<HistoryBackends, Failure> {
    let embedded: Option<SharedHistory> = if is_alone {
        let opened = SqliteHistory::open(data_dir.join("history")).await;
        Some(Arc::new(opened.map_err(|error| {
            Failure::new("cannot open the history in the data directory").caused_by(&error)
        })?))
    } else {
        None
    };
    let postgresql = match postgresql_options(section)? {
        Some(options) => {
            let history = PostgresqlHistory::new(options).map_err(|error| {
                Failure::new("the settings under [server.history] cannot be used").caused_by(&error)
            })?;
            let history: SharedHistory = Arc::new(history);
            Some(history)
        }
        None => None,
    };
    Ok(HistoryBackends {
        embedded,
        begin_with_postgresql: section.kind == HistoryKind::Postgresql,
        postgresql,
    })
}

/// Returns the settings of PostgreSQL, if it is configured.
pub(crate) fn postgresql_options(
    section: &HistorySection,
) -> Result<Option<PostgresqlOptions>, Failure> {
    let Some(host) = &section.host else {
        return match section.kind {
            HistoryKind::Default => Ok(None),
            HistoryKind::Postgresql => Err(Failure::new(
                "history in PostgreSQL needs `host` under [server.history]",
            )),
        };
    };
    let tls = tls(section)?;
    if tls.is_none() && !section.plaintext && !is_loopback(host) {
        return Err(Failure::new(format!(
            "TLS to PostgreSQL on {host} needs `ca` under [server.history]"
        ))
        .hint("or set `plaintext = true` if the network between them is trusted"));
    }
    let password = match &section.password_file {
        Some(path) => Some(read(path)?.trim_end_matches(['\r', '\n']).to_owned()),
        None => None,
    };
    Ok(Some(PostgresqlOptions {
        database: section.database.clone(),
        user: section.user.clone(),
        password,
        tls,
        connections: section.connections,
        statement_timeout: section.statement_timeout.0,
        ..PostgresqlOptions::new(host, section.port)
    }))
}

fn tls(section: &HistorySection) -> Result<Option<PostgresqlTls>, Failure> {
    let identity = match (&section.certificate, &section.key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        (None, None) => None,
        _ => {
            return Err(Failure::new(
                "set both `certificate` and `key` under [server.history], or neither",
            ));
        }
    };
    match (&section.ca, identity) {
        (Some(ca), identity) => Ok(Some(PostgresqlTls {
            ca_pem: read(ca)?,
            identity,
        })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Failure::new(
            "TLS to PostgreSQL needs `ca` under [server.history]",
        )),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let section: HistorySection = toml::from_str(text).expect("a section");
        let shown = match postgresql_options(&section) {
            Ok(options) => format!("{options:?}"),
            Err(failure) => failure.message().to_owned(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn postgresql_is_used_only_if_it_is_configured() {
        check("", "None");
        check(
            "kind = \"postgresql\"",
            "history in PostgreSQL needs `host` under [server.history]",
        );
    }

    #[test]
    fn passwords_cross_no_network_in_plain_text_unless_asked() {
        check(
            "host = \"db.example.com\"",
            "TLS to PostgreSQL on db.example.com needs `ca` under [server.history]",
        );
        check(
            "host = \"db.example.com\"\nplaintext = true",
            "Some(PostgresqlOptions(\"PostgreSQL at db.example.com:5432, database bunraku\"))",
        );
        check(
            "host = \"127.0.0.1\"",
            "Some(PostgresqlOptions(\"PostgreSQL at 127.0.0.1:5432, database bunraku\"))",
        );
    }
}
