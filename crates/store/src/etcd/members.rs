//! The members. One is used at a time; the next one when it fails.
//!
//! Each member has its own client instead of one balanced client: after a failure it is known which
//! member failed, and all tasks switch to the next one together.
//!
//! A request that a member passed on to a leader that died is never answered. Waiting for its
//! timeout would make every election as long as the timeout, so a slow request checks for a new
//! leader (`overtaken`).

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, KvClient, LeaseClient, MaintenanceClient,
    TlsOptions, WatchClient,
};
use tokio::time::Instant;

use super::failure::{Failure, LeaderChanged, NoAnswer};
use super::options::EtcdOptions;
use super::probe;
use super::quota::QuotaReader;
use crate::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Servers end connections that ping more often than every five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Members without a leader say so at once, so longer pauses only extend an election.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// A request that takes longer may have been passed on to a leader that died.
const SLOW: Duration = Duration::from_millis(200);
/// The interval for asking members about their leader during a slow request.
const ASK: Duration = Duration::from_millis(100);
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// The time in which a new leader commits everything that the old one had replicated.
const GRACE: Duration = Duration::from_millis(150);
/// The maximum size of a page of values, or of a watch's fragment.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// One member of the cluster.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) endpoint: String,
    pub(super) keys: KvClient,
    pub(super) leases: LeaseClient,
    /// Uses its own connection, so that slowly read watches do not delay requests.
    pub(super) watches: WatchClient,
    /// Works without a leader too: reads only the data of this member.
    pub(super) alone: KvClient,
    pub(super) status: MaintenanceClient,
    pub(super) quota: Arc<QuotaReader>,
}

/// All members, and the one in use.
pub(super) struct Members {
    /// Replaced as a whole when the cluster's members or our certificate change.
    members: RwLock<Arc<Vec<Member>>>,
    copy: RwLock<Option<Member>>,
    /// Only ever increases; the remainder is the member's index.
    current: AtomicUsize,
    request_timeout: Duration,
    retry_for: Duration,
    /// The newest term in which a leader was known.
    term: AtomicU64,
    /// Held while asking for the leader: one task asks, regardless of how many wait.
    asking: tokio::sync::Mutex<()>,
}

/// The rule for repeating a request with an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The request is idempotent.
    Always,
    /// Repeat only if it was certainly not done.
    OnlyIfNotDone,
}

impl Members {
    pub(super) async fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        Ok(Self {
            members: RwLock::new(Arc::new(connect_all(options).await?)),
            copy: RwLock::new(connect_copy(options).await?),
            current: AtomicUsize::new(0),
            request_timeout: options.request_timeout,
            retry_for: options.retry_for,
            term: AtomicU64::new(0),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// Replaces the members. Requests in progress end with the old ones.
    pub(super) async fn replace(&self, options: &EtcdOptions) -> Result<(), StoreError> {
        let fresh = Arc::new(connect_all(options).await?);
        let copy = connect_copy(options).await?;
        *self.copy.write().unwrap_or_else(PoisonError::into_inner) = copy;
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(super) fn all(&self) -> Arc<Vec<Member>> {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the members that can be read alone: a copy first, which exists because members do
    /// not answer, then all members, beginning with the one in use.
    pub(super) fn readable_alone(&self) -> Vec<Member> {
        let members = self.all();
        let first = self.current.load(Ordering::Relaxed) % members.len();
        let (before, after) = members.split_at(first);
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner);
        let all = copy.iter().chain(after).chain(before);
        all.cloned().collect()
    }

    /// Records that a leader of this term answered.
    pub(super) fn note_term(&self, term: u64) {
        self.term.fetch_max(term, Ordering::Relaxed);
    }

    pub(super) fn current(&self) -> (usize, Member) {
        let members = self.all();
        let index = self.current.load(Ordering::Relaxed);
        (index, members[index % members.len()].clone())
    }

    /// Switches to the next member, unless another task already did.
    pub(super) fn failed(&self, index: usize) {
        let next = index.wrapping_add(1);
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks one member after the other until one answers or the time is up.
    pub(super) async fn call<T, F>(
        &self,
        repeat: Repeat,
        attempt: impl Fn(usize, Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.call_for(self.retry_for, repeat, attempt).await
    }

    /// Like [`Members::call`], with a different time limit.
    pub(super) async fn call_for<T, F>(
        &self,
        patience: Duration,
        repeat: Repeat,
        attempt: impl Fn(usize, Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + patience;
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
        let term = self.term.load(Ordering::Relaxed);
        let failure = tokio::select! {
            biased;
            answered = attempt(index, member) => match answered {
                Ok(answer) => return Ok(answer),
                Err(error) => Failure::from(error),
            },
            () = tokio::time::sleep(self.request_timeout) => {
                Failure::Unknown(Box::new(NoAnswer(self.request_timeout)))
            }
            led = self.newer_leader(term) => {
                let _ = self.current.compare_exchange(index, led, Ordering::Relaxed, Ordering::Relaxed);
                return Err(Failure::Unknown(Box::new(LeaderChanged)).at(&endpoint));
            }
        };
        if failure.is_mendable() {
            self.failed(index);
        }
        Err(failure.at(&endpoint))
    }

    /// Resolves when a leader of a later term than `term` exists, with a member that knows it. A
    /// request that is still unanswered then most likely went to a leader that is gone.
    async fn newer_leader(&self, term: u64) -> usize {
        tokio::time::sleep(SLOW).await;
        let mut known = term;
        loop {
            let turn = self.asking.lock().await;
            let (newest, member) = self.ask_for_leader().await;
            // The very first request knows no term, so it starts with the first one reported.
            if known == 0 {
                known = newest;
            }
            if newest > known {
                drop(turn);
                tokio::time::sleep(GRACE).await;
                return member;
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Returns the newest term in which a member knows a leader, and that member.
    async fn ask_for_leader(&self) -> (u64, usize) {
        let members = self.all();
        let asked = members.iter().enumerate().map(|(index, member)| {
            let mut client = member.status.clone();
            async move {
                let status = tokio::time::timeout(ASK_TIMEOUT, client.status()).await;
                let status = status.ok()?.ok()?;
                (status.leader() != 0 && !status.is_learner()).then(|| (status.raft_term(), index))
            }
        });
        let answers = futures::future::join_all(asked).await;
        let newest = answers.into_iter().flatten().max().unwrap_or_default();
        self.note_term(newest.0);
        newest
    }
}

/// A pause that grows up to a limit.
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

/// Creates a client per member. The result is never empty.
async fn connect_all(options: &EtcdOptions) -> Result<Vec<Member>, StoreError> {
    if options.endpoints.is_empty() {
        return Err(StoreError::Invalid("no etcd endpoint given".to_owned()));
    }
    let mut members = Vec::new();
    for endpoint in &options.endpoints {
        members.push(member(endpoint, options).await?);
    }
    Ok(members)
}

async fn connect_copy(options: &EtcdOptions) -> Result<Option<Member>, StoreError> {
    match &options.copy {
        Some(copy) => member(copy, options).await.map(Some),
        None => Ok(None),
    }
}

async fn member(endpoint: &str, options: &EtcdOptions) -> Result<Member, StoreError> {
    let requests = client(endpoint, options, true).await?;
    let watches = client(endpoint, options, true).await?;
    let alone = client(endpoint, options, false).await?;
    let tls = options.tls.as_ref();
    let tls = tls.map(|tls| probe::config(tls, b"http/1.1")).transpose();
    let tls = tls.map_err(|error| {
        StoreError::Invalid(format!(
            "the certificates for etcd at `{endpoint}`: {error}"
        ))
    })?;
    Ok(Member {
        endpoint: endpoint.to_owned(),
        keys: requests
            .kv_client()
            .max_decoding_message_size(LARGEST_ANSWER),
        leases: requests.lease_client(),
        watches: watches
            .watch_client()
            .max_decoding_message_size(LARGEST_ANSWER),
        alone: alone.kv_client().max_decoding_message_size(LARGEST_ANSWER),
        status: alone.maintenance_client(),
        quota: Arc::new(QuotaReader::new(endpoint, tls.map(Arc::new))),
    })
}

/// Creates a client. The first request makes the connection.
async fn client(
    endpoint: &str,
    options: &EtcdOptions,
    require_leader: bool,
) -> Result<Client, StoreError> {
    let invalid = |why: &str| StoreError::Invalid(format!("etcd endpoint `{endpoint}`: {why}"));
    let mut connect = ConnectOptions::new()
        .with_require_leader(require_leader)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        .with_keep_alive_while_idle(require_leader);
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
            return Err(invalid("certificates are set, but the URL is not https"));
        }
        _ => return Err(invalid("must start with http:// or https://")),
    }
    Client::connect([endpoint], Some(connect))
        .await
        .map_err(|error| invalid(&error.to_string()))
}
