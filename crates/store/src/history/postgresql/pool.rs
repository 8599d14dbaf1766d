//! A few connections, with a time limit for everything.
//!
//! A slow PostgreSQL delays only requests that need history: they wait briefly for a connection,
//! then fail, and their callers try again later. After a failed attempt to connect, further
//! attempts within a second fail immediately.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::options::PostgresqlOptions;
use super::tls::PostgresqlConnector;
use crate::history::HistoryError;
use crate::history::outage::OutageNote;

/// The time after a failed attempt to connect in which no other is made.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that our limits allow PostgreSQL's own ones to report first.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Pool {
    place: String,
    config: Config,
    tls: Option<PostgresqlConnector>,
    limits: PostgresqlOptions,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Client>>,
    failed: Mutex<Option<(Instant, String)>>,
    pub(super) outage: OutageNote,
}

/// A connection in use. It is used again only if it is given back.
pub(super) struct Pooled {
    pub(super) client: Client,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(options: PostgresqlOptions) -> Result<Self, HistoryError> {
        let place = options.place();
        let tls = match &options.tls {
            None => None,
            Some(tls) => {
                Some(
                    PostgresqlConnector::new(tls).map_err(|source| HistoryError::Failed {
                        backend: place.clone(),
                        source,
                    })?,
                )
            }
        };
        let mut config = Config::new();
        let milliseconds = options.statement_timeout.as_millis();
        config
            .host(&options.host)
            .port(options.port)
            .dbname(&options.database)
            .user(&options.user)
            .application_name("bunraku")
            .connect_timeout(options.connect_timeout)
            .keepalives_idle(Duration::from_secs(30))
            .ssl_mode(match tls {
                Some(_) => SslMode::Require,
                None => SslMode::Disable,
            })
            .options(format!(
                "-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} \
                 -c idle_in_transaction_session_timeout=60000 -c client_min_messages=warning"
            ));
        if let Some(password) = &options.password {
            config.password(password);
        }
        Ok(Self {
            place,
            config,
            tls,
            permits: Arc::new(Semaphore::new(options.connections.max(1))),
            limits: options,
            idle: Mutex::default(),
            failed: Mutex::default(),
            outage: OutageNote::default(),
        })
    }

    /// Runs `work` with a connection.
    pub(super) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, HistoryError> {
        self.outage.note(self.attempt(work).await)
    }

    async fn attempt<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, HistoryError> {
        let mut pooled = self.acquire().await?;
        // Several statements may each take the whole time, but not all of them do.
        let limit = self.limits.statement_timeout * 2 + GRACE;
        let done = match timeout(limit, work(&mut pooled.client)).await {
            Ok(done) => done,
            Err(_) => return Err(self.unavailable(format!("no answer within {limit:?}"))),
        };
        match done {
            Ok(value) => {
                if !pooled.client.is_closed() {
                    lock(&self.idle).push(pooled.client);
                }
                Ok(value)
            }
            // Its transaction may be open: the connection is closed.
            Err(error) => Err(self.translate(error)),
        }
    }

    async fn acquire(&self) -> Result<Pooled, HistoryError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match timeout(self.limits.wait_timeout, permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => {
                return Err(HistoryError::Busy {
                    backend: self.place.clone(),
                });
            }
        };
        let idle = std::iter::from_fn(|| lock(&self.idle).pop()).find(|idle| !idle.is_closed());
        let client = match idle {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Pooled {
            client,
            _permit: permit,
        })
    }

    async fn connect(&self) -> Result<Client, HistoryError> {
        if let Some((at, message)) = lock(&self.failed).clone()
            && at.elapsed() < PAUSE
        {
            return Err(self.unavailable(message));
        }
        // The library's limit is per address, and does not include the answer.
        let limit = self.limits.connect_timeout + GRACE;
        let connected = match timeout(limit, self.open()).await {
            Ok(connected) => connected.map_err(|error| self.translate(error)),
            Err(_) => Err(self.unavailable(format!("no connection within {limit:?}"))),
        };
        if let Err(error) = &connected {
            let message = bunraku_model::error_chain(error);
            *lock(&self.failed) = Some((Instant::now(), message));
        }
        connected
    }

    async fn open(&self) -> Result<Client, tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(log_end(connection));
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(log_end(connection));
                Ok(client)
            }
        }
    }

    fn unavailable(&self, message: String) -> HistoryError {
        HistoryError::Unavailable {
            backend: self.place.clone(),
            source: message.into(),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn translate(&self, error: tokio_postgres::Error) -> HistoryError {
        let backend = self.place.clone();
        let code = error.code().cloned();
        let source = Box::new(error);
        let Some(code) = code else {
            return HistoryError::Unavailable { backend, source };
        };
        // Classes of SQLSTATE: connection, resources, operator intervention, system, and
        // read-only after a failover.
        let class = &code.code()[..2];
        let is_full = code == SqlState::DISK_FULL
            || code == SqlState::INSUFFICIENT_RESOURCES
            || code == SqlState::OUT_OF_MEMORY;
        let is_temporary = matches!(
            class,
            "08" | "25" | "40" | "53" | "55" | "57" | "58" | "28" | "3D"
        );
        if is_full {
            HistoryError::Full { backend, source }
        } else if is_temporary {
            HistoryError::Unavailable { backend, source }
        } else {
            HistoryError::Failed { backend, source }
        }
    }
}

/// Drives a connection until it ends.
async fn log_end(connection: impl Future<Output = Result<(), tokio_postgres::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %error, "a connection to PostgreSQL ended");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Everything in them is replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
