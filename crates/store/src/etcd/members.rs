//! The members, one of which is asked; the next one when it fails.
//!
//! A client per member instead of one balanced client: after a failure it is
//! known which member failed, and every task moves on together.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, KvClient, LeaseClient, TlsOptions, WatchClient,
};
use tokio::time::Instant;

use super::failure::{Failure, NoAnswer};
use super::options::EtcdOptions;
use crate::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Servers end connections that ping more often than every five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A page of values, or a watch's fragment, is never larger.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// One member of the cluster.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) endpoint: String,
    pub(super) keys: KvClient,
    pub(super) leases: LeaseClient,
    /// On a connection of its own: watches that are read slowly must not
    /// hold up requests.
    pub(super) watches: WatchClient,
}

/// All members, and which one is asked.
pub(super) struct Members {
    /// Exchanged as a whole when the cluster's members or our certificate change.
    members: RwLock<Arc<Vec<Member>>>,
    /// Counts on for ever; the member is the remainder.
    current: AtomicUsize,
    request_timeout: Duration,
    retry_for: Duration,
}

/// What may be done again when the outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Doing it twice is the same as doing it once.
    Always,
    /// Only when it certainly was not done.
    OnlyIfNotDone,
}

impl Members {
    pub(super) async fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        Ok(Self {
            members: RwLock::new(Arc::new(connect_all(options).await?)),
            current: AtomicUsize::new(0),
            request_timeout: options.request_timeout,
            retry_for: options.retry_for,
        })
    }

    /// From now on these. What is under way ends with the old ones.
    pub(super) async fn replace(&self, options: &EtcdOptions) -> Result<(), StoreError> {
        let fresh = Arc::new(connect_all(options).await?);
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(super) fn current(&self) -> (usize, Member) {
        let members = Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner));
        let index = self.current.load(Ordering::Relaxed);
        (index, members[index % members.len()].clone())
    }

    /// Moves on, unless another task already did.
    pub(super) fn failed(&self, index: usize) {
        let next = index.wrapping_add(1);
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks one member after the other until one answers or time is up.
    pub(super) async fn call<T, F>(
        &self,
        repeat: Repeat,
        attempt: impl Fn(usize, Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + self.retry_for;
        let mut pause = Pause::default();
        loop {
            let failure = match self.once(&attempt).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let again = match failure {
                Failure::Refused(_) => false,
                Failure::NotDone(_) => true,
                Failure::Unknown(_) => repeat == Repeat::Always,
            };
            if !again || Instant::now() >= deadline {
                return Err(failure);
            }
            tracing::debug!(?failure, "asking the next etcd member");
            pause.wait().await;
        }
    }

    async fn once<T, F>(&self, attempt: &impl Fn(usize, Member) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let (index, member) = self.current();
        let endpoint = member.endpoint.clone();
        let outcome = tokio::time::timeout(self.request_timeout, attempt(index, member)).await;
        let failure = match outcome {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::from(error),
            Err(_) => Failure::Unknown(Box::new(NoAnswer(self.request_timeout))),
        };
        if failure.is_mendable() {
            self.failed(index);
        }
        Err(failure.at(&endpoint))
    }
}

/// Longer and longer, up to a limit.
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pause {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// Never empty.
async fn connect_all(options: &EtcdOptions) -> Result<Vec<Member>, StoreError> {
    if options.endpoints.is_empty() {
        return Err(StoreError::Invalid("no etcd endpoint is given".to_owned()));
    }
    let mut members = Vec::new();
    for endpoint in &options.endpoints {
        members.push(member(endpoint, options).await?);
    }
    Ok(members)
}

async fn member(endpoint: &str, options: &EtcdOptions) -> Result<Member, StoreError> {
    let requests = client(endpoint, options).await?;
    let watches = client(endpoint, options).await?;
    Ok(Member {
        endpoint: endpoint.to_owned(),
        keys: requests
            .kv_client()
            .max_decoding_message_size(LARGEST_ANSWER),
        leases: requests.lease_client(),
        watches: watches
            .watch_client()
            .max_decoding_message_size(LARGEST_ANSWER),
    })
}

/// Does not connect yet: the first request does.
async fn client(endpoint: &str, options: &EtcdOptions) -> Result<Client, StoreError> {
    let invalid = |why: &str| StoreError::Invalid(format!("etcd endpoint `{endpoint}`: {why}"));
    let mut connect = ConnectOptions::new()
        .with_require_leader(true)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        .with_keep_alive_while_idle(true);
    match (&options.tls, endpoint.split_once("://")) {
        (Some(tls), Some(("https", _))) => {
            let mut settings = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.ca_pem));
            if let Some(identity) = &tls.identity {
                settings =
                    settings.identity(Identity::from_pem(&identity.cert_pem, &identity.key_pem));
            }
            connect = connect.with_tls(settings);
        }
        (None, Some(("http", _))) => {}
        (None, Some(("https", _))) => return Err(invalid("https needs a CA certificate")),
        (Some(_), Some(("http", _))) => {
            return Err(invalid("certificates are given, but it is not https"));
        }
        _ => return Err(invalid("must start with http:// or https://")),
    }
    Client::connect([endpoint], Some(connect))
        .await
        .map_err(|error| invalid(&error.to_string()))
}
