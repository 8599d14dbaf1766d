//! Where PostgreSQL is, and the limits of its use.

use std::time::Duration;

/// The connection settings, and the time limits of every use.
#[derive(Clone)]
pub struct PostgresqlOptions {
    pub host: String,
    pub port: u16,
    pub database: String,
    pub user: String,
    pub password: Option<String>,
    /// TLS, unless the network to the server is trusted.
    pub tls: Option<PostgresqlTls>,
    /// The most connections of this server. Further requests wait briefly, then fail.
    pub connections: usize,
    /// The time limit for opening a connection.
    pub connect_timeout: Duration,
    /// The time limit for one statement.
    pub statement_timeout: Duration,
    /// The time to wait for a free connection.
    pub wait_timeout: Duration,
}

/// The trusted authorities, and our own identity.
#[derive(Clone)]
pub struct PostgresqlTls {
    /// The authorities that sign the server's certificate.
    pub ca_pem: String,
    /// A client certificate and its key.
    pub identity: Option<(String, String)>,
}

impl PostgresqlOptions {
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            database: "bunraku".to_owned(),
            user: "bunraku".to_owned(),
            password: None,
            tls: None,
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            wait_timeout: Duration::from_secs(3),
        }
    }

    /// Returns the place, for messages.
    pub(super) fn place(&self) -> String {
        format!(
            "PostgreSQL at {}:{}, database {}",
            self.host, self.port, self.database
        )
    }
}

impl std::fmt::Debug for PostgresqlOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresqlOptions")
            .field(&self.place())
            .finish()
    }
}
