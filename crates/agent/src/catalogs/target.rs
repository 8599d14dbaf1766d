//! The node's target: which released catalog it applies.
//!
//! While the stream is open, the target that arrived on it is the newest one. Servers send it
//! first, and again before every run that follows a release. Without a stream, the node asks with a
//! conditional request.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_model::{CatalogId, NodeName};
use bunraku_wire::api::Target;
use bunraku_wire::client::ConditionalReply;
use bunraku_wire::endpoints::{Endpoint, Location, ShowTarget};
use bunraku_wire::{Client, ClientError};
use serde::{Deserialize, Serialize};

use super::CatalogError;

/// The state on disk.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct TargetFile {
    target: Option<Target>,
    /// The ETag of the last conditional request.
    etag: Option<String>,
    /// The previous catalog, kept so that a rollback needs no download.
    previous: Option<CatalogId>,
    /// The node has not acted on this target yet.
    #[serde(default)]
    unheeded: bool,
}

/// A target, and whether a server has just confirmed it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CachedTarget {
    pub(crate) target: Target,
    /// No server could be reached.
    pub(crate) from_cache: bool,
}

/// A handle to the target.
#[derive(Clone)]
pub(crate) struct Targets {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    request: Location<ShowTarget>,
    stored: Mutex<TargetFile>,
    /// The open stream has delivered the target.
    on_stream: AtomicBool,
}

impl Targets {
    /// Opens the stored target. `name` is this node's name.
    pub(crate) fn open(data_dir: &Path, name: &NodeName) -> Result<Self, CatalogError> {
        let path = data_dir.join("target.json");
        let stored = match std::fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|error| CatalogError::Unreadable {
                    what: path.display().to_string(),
                    source: error.into(),
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => TargetFile::default(),
            Err(source) => return Err(CatalogError::File { path, source }),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                path,
                request: ShowTarget.at(name),
                stored: Mutex::new(stored),
                on_stream: AtomicBool::new(false),
            }),
        })
    }

    /// Records the target that the stream delivered. Returns whether it is a new one.
    pub(crate) fn receive_from_stream(&self, target: Option<Target>) -> bool {
        let changed = self.replace(target, None);
        self.inner.on_stream.store(true, Ordering::SeqCst);
        changed
    }

    /// Records that the stream ended. From now on, the node has to ask for the target.
    pub(crate) fn stream_ended(&self) {
        self.inner.on_stream.store(false, Ordering::SeqCst);
    }

    /// Returns the newest target: from the open stream, or at the cost of one conditional request.
    /// Without a server, it returns the known one.
    pub(crate) async fn newest(&self, client: &Client) -> Result<CachedTarget, CatalogError> {
        let asked = self.ask(client).await;
        let target = self.stored().target.clone();
        match (asked, target) {
            (Ok(_), Some(target)) => Ok(CachedTarget {
                target,
                from_cache: false,
            }),
            (Ok(_), None) => Err(CatalogError::NoTarget),
            (Err(error), Some(target)) if error.is_passing() => {
                tracing::warn!(error = %error, "cannot ask a server; using the last known target");
                Ok(CachedTarget {
                    target,
                    from_cache: true,
                })
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Asks for a newer target, unless the stream delivers it. Returns whether there is one.
    pub(crate) async fn ask(&self, client: &Client) -> Result<bool, ClientError> {
        if self.inner.on_stream.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let etag = self.stored().etag.clone();
        match client
            .call_if_changed(&self.inner.request, etag.as_deref())
            .await
        {
            Ok(ConditionalReply::Unchanged) => Ok(false),
            Ok(ConditionalReply::Changed { value, etag, old }) => {
                Ok(self.store_reply(value, etag, old))
            }
            Err(error) if error.status() == Some(404) => Ok(self.replace(None, None)),
            Err(error) => Err(error),
        }
    }

    /// Returns the catalogs that are worth keeping.
    pub(crate) fn catalogs_to_keep(&self) -> Vec<CatalogId> {
        let stored = self.stored();
        let current = stored.target.as_ref().map(|target| target.catalog);
        current.into_iter().chain(stored.previous).collect()
    }

    /// Stores a received target. A server without a majority of the datastores may lag behind, so
    /// its answer does not move a node back to an earlier release.
    fn store_reply(&self, target: Target, etag: Option<String>, old: bool) -> bool {
        let known = self.current().filter(|_| old);
        let goes_back = known.is_some_and(|known| {
            known.environment == target.environment && known.release > target.release
        });
        if goes_back {
            tracing::warn!(release = %target.release, "a server without a majority has an older target; keeping the known one");
            return false;
        }
        self.replace(Some(target), etag)
    }

    fn replace(&self, target: Option<Target>, etag: Option<String>) -> bool {
        let mut stored = self.stored();
        let before = stored.target.as_ref().map(|target| target.catalog);
        let now = target.as_ref().map(|target| target.catalog);
        let changed = stored.target != target;
        let previous = match before {
            Some(_) if before != now => before,
            _ => stored.previous,
        };
        let next = TargetFile {
            unheeded: target.is_some() && (changed || stored.unheeded),
            target,
            etag,
            previous,
        };
        if next != *stored {
            *stored = next;
            self.save(&stored);
        }
        changed
    }

    /// Returns the target if the node has not acted on it yet.
    pub(crate) fn pending(&self) -> Option<Target> {
        let stored = self.stored();
        stored.target.clone().filter(|_| stored.unheeded)
    }

    /// Returns the target if the node has not acted on it yet, and marks it as acted on.
    pub(crate) fn take_pending(&self) -> Option<Target> {
        let mut stored = self.stored();
        if !std::mem::replace(&mut stored.unheeded, false) {
            return None;
        }
        self.save(&stored);
        stored.target.clone()
    }

    /// Returns the known target, without asking a server.
    pub(crate) fn current(&self) -> Option<Target> {
        self.stored().target.clone()
    }

    /// Saves the target. If the write fails, this process still remembers the target. After a
    /// restart, the old target must not apply if it allowed more.
    fn save(&self, stored: &TargetFile) {
        let text = serde_json::to_vec(stored).expect("a target is plain data");
        if let Err(error) = bunraku_files::replace(&self.inner.path, &text, 0o600) {
            tracing::error!(error = %error, "cannot store the target");
            let _ = std::fs::remove_file(&self.inner.path);
        }
    }

    fn stored(&self) -> MutexGuard<'_, TargetFile> {
        (self.inner.stored.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bunraku_model::{ContentId, EnvironmentName, ReleaseNumber};
    use bunraku_wire::ReloadableClientTls;
    use bunraku_wire::api::RunMode;
    use bunraku_wire::authority::Authority;
    use bunraku_wire::tls::ClientTls;

    use super::*;

    fn target(release: u64) -> Target {
        Target {
            environment: EnvironmentName::new("production").expect("a name"),
            release: ReleaseNumber(release),
            catalog: CatalogId(ContentId::of(release.to_string().as_bytes())),
            code_id: None,
            mode: RunMode::Enforce,
        }
    }

    #[test]
    fn a_server_that_lags_behind_takes_no_node_back_to_an_earlier_release() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = NodeName::new("web-1").expect("a name");
        let targets = Targets::open(directory.path(), &name).expect("it opens");
        assert!(targets.store_reply(target(2), None, false));
        assert!(!targets.store_reply(target(1), None, true), "it may be old");
        assert_eq!(targets.current(), Some(target(2)));
        assert!(targets.store_reply(target(3), None, true), "newer is newer");
        assert!(
            targets.store_reply(target(1), None, false),
            "somebody wants it so"
        );
        assert_eq!(targets.current(), Some(target(1)));
    }

    /// Creates a client whose only server refuses connections.
    fn client_without_servers() -> Client {
        let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = held.local_addr().expect("an address").port();
        drop(held);
        let address = bunraku_wire::ServerAddress::new("127.0.0.1", port).expect("an address");
        let authority = Authority::create("Test CA", jiff::Timestamp::now()).expect("an authority");
        let tls = ReloadableClientTls::new(&ClientTls {
            authority_pem: authority.certificates_pem(),
            revocation_lists_pem: String::new(),
            identity: None,
        });
        let tls = tls.expect("usable");
        Client::new(bunraku_wire::ClientOptions::new(vec![address], tls))
    }

    #[tokio::test]
    async fn the_target_on_the_stream_counts_without_asking_until_the_stream_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let targets = Targets::open(directory.path(), &NodeName::new("web-1").expect("a name"))
            .expect("it opens");
        let client = client_without_servers();
        targets.receive_from_stream(Some(target(1)));
        let known = targets.newest(&client).await.expect("a target");
        assert_eq!((known.target, known.from_cache), (target(1), false));
        targets.receive_from_stream(None);
        let none = targets.newest(&client).await;
        assert!(matches!(none, Err(CatalogError::NoTarget)), "{none:?}");
        targets.receive_from_stream(Some(target(2)));
        targets.stream_ended();
        let known = targets.newest(&client).await.expect("a target");
        assert_eq!((known.target, known.from_cache), (target(2), true));
    }
}
