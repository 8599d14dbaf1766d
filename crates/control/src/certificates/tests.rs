//! Renewals and signatures that race with a revocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bunraku_model::{NodeName, Role};
use bunraku_signer::{AuthorityDescription, SignerHandle};
use bunraku_store::testing::{InterferingStore, MemoryStore, Overlay};
use bunraku_store::{SharedStore, StoreError, Transaction, TransactionOutcome};
use bunraku_wire::api::{CertificateState, IssueRequest, RenewRequest, RevokeRequest};
use bunraku_wire::key::KeyKind;
use bunraku_wire::{
    Authority, Certificate, PeerIdentity, PrivateKey, Request, Revocations, Serial,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::{CertificateOptions, Certificates, Signer};
use crate::{Clock, Nodes, ServiceError};

struct Fixture {
    store: SharedStore,
    authority: Arc<Authority>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            authority: Arc::new(Authority::create("test", Timestamp::now()).expect("an authority")),
        }
    }

    /// Returns the service of one server, on its own or another view of the store.
    fn on(&self, store: &SharedStore, hours_behind: i64) -> Certificates {
        let clock = Clock::new(move || Timestamp::now() - SignedDuration::from_hours(hours_behind));
        Certificates::new(
            Arc::clone(store),
            clock.clone(),
            signer_of(&self.authority),
            Revocations::default(),
            Nodes::new(Arc::clone(store), clock),
            CertificateOptions {
                operator_lifetime: SignedDuration::from_hours(365 * 24),
                ..CertificateOptions::default()
            },
        )
    }

    fn now(&self) -> Certificates {
        self.on(&self.store, 0)
    }

    /// Issues a certificate that is old enough to be renewed.
    async fn old_holder(&self, name: &str, role: Role) -> PeerIdentity {
        let request = IssueRequest {
            certificate_request: request(name),
            role,
            server_names: Vec::new(),
            groups: std::collections::BTreeSet::new(),
            proof: None,
        };
        let issued = self
            .on(&self.store, 300 * 24)
            .issue(&request, Signer::ThisServer)
            .await
            .expect("issued");
        identity(&issued.certificate)
    }

    async fn valid(&self, name: &str) -> usize {
        let all = self.now().list().await.expect("a list");
        all.iter()
            .filter(|entry| entry.name.as_str() == name)
            .filter(|entry| entry.state == CertificateState::Valid)
            .count()
    }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

/// A request with a new key.
fn request(text: &str) -> String {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
    Request::create(&name(text), &key).expect("a request")
}

fn identity(pem: &str) -> PeerIdentity {
    let certificate = Certificate::from_pem(pem).expect("a certificate");
    PeerIdentity::from_der(certificate.der()).expect("a peer")
}

fn renewal(text: &str) -> RenewRequest {
    RenewRequest {
        certificate_request: request(text),
        proof: None,
    }
}

fn revocation(serial: Option<&Serial>) -> RevokeRequest {
    RevokeRequest {
        reason: "stolen".to_owned(),
        serial: serial.map(ToString::to_string),
    }
}

/// Returns a store on which the certificates are revoked just before the first write.
fn revoked_before_the_write(
    fixture: &Fixture,
    of: &'static str,
    serial: Option<Serial>,
) -> SharedStore {
    let revoking = fixture.now();
    Arc::new(InterferingStore::new(
        Arc::clone(&fixture.store),
        async move {
            revoking
                .revoke(&name(of), &revocation(serial.as_ref()), "root")
                .await
                .expect("revoked");
        },
    ))
}

#[tokio::test]
async fn a_renewal_that_a_revocation_overtakes_yields_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let late = fixture.on(&revoked_before_the_write(&fixture, "web-1", None), 0);
    late.renew(&holder, &renewal("web-1"))
        .await
        .expect_err("it was revoked first");
    assert_eq!(fixture.valid("web-1").await, 0);
}

/// A store whose second write waits until it may continue.
struct PausedStore {
    inner: SharedStore,
    writes: AtomicUsize,
    reached: Arc<Notify>,
    may_continue: Arc<Notify>,
}

impl Overlay for PausedStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        if self.writes.fetch_add(1, Ordering::SeqCst) == 1 {
            self.reached.notify_one();
            self.may_continue.notified().await;
        }
        self.inner.commit(transaction).await
    }
}

/// The renewal has read everything, and the revocation has listed what it revokes, when the renewal
/// is written. Only the fence tells the renewal about the revocation then.
#[tokio::test]
async fn a_renewal_in_the_middle_of_a_revocation_yields_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let (reached, may_continue) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let paused: SharedStore = Arc::new(PausedStore {
        inner: Arc::clone(&fixture.store),
        writes: AtomicUsize::new(0),
        reached: Arc::clone(&reached),
        may_continue: Arc::clone(&may_continue),
    });
    let revoking = fixture.on(&paused, 0);
    let (revoked, done) = tokio::sync::oneshot::channel();
    let store = InterferingStore::new(Arc::clone(&fixture.store), async move {
        tokio::spawn(async move {
            let outcome = revoking
                .revoke(&name("web-1"), &revocation(None), "root")
                .await;
            revoked.send(outcome).expect("somebody waits");
        });
        reached.notified().await;
    });
    let renewing = fixture.on(&(Arc::new(store) as SharedStore), 0);
    let renewed = renewing.renew(&holder, &renewal("web-1")).await;
    may_continue.notify_one();
    done.await.expect("an outcome").expect("revoked");
    renewed.expect_err("the name is fenced");
    assert_eq!(fixture.valid("web-1").await, 0);
}

#[tokio::test]
async fn a_renewal_with_a_certificate_that_is_revoked_by_its_serial_yields_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let serial = Some(holder.serial.clone());
    let late = fixture.on(&revoked_before_the_write(&fixture, "web-1", serial), 0);
    late.renew(&holder, &renewal("web-1"))
        .await
        .expect_err("it was revoked first");
    assert_eq!(fixture.valid("web-1").await, 0);
}

#[tokio::test]
async fn a_server_that_has_not_heard_of_a_revocation_renews_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("root-2", Role::Operator).await;
    fixture
        .now()
        .revoke(&name("root-2"), &revocation(None), "root")
        .await
        .expect("revoked");
    let refused = fixture.now().renew(&holder, &renewal("root-2")).await;
    assert!(
        matches!(refused, Err(ServiceError::Forbidden { .. })),
        "{refused:?}"
    );
    assert_eq!(fixture.valid("root-2").await, 0);
}

#[tokio::test]
async fn an_operator_who_is_revoked_meanwhile_signs_nothing() {
    let fixture = Fixture::new();
    let operator = fixture.old_holder("mallory", Role::Operator).await;
    let late = fixture.on(&revoked_before_the_write(&fixture, "mallory", None), 0);
    let request = IssueRequest {
        certificate_request: request("backdoor"),
        role: Role::Operator,
        server_names: Vec::new(),
        groups: std::collections::BTreeSet::new(),
        proof: None,
    };
    late.issue(&request, Signer::Operator(&operator))
        .await
        .expect_err("the operator was revoked first");
    assert_eq!(fixture.valid("backdoor").await, 0);
}

#[tokio::test]
async fn a_certificate_is_renewed_only_in_the_second_half_of_its_life() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let renewed = fixture.now().renew(&holder, &renewal("web-1")).await;
    let renewed = identity(&renewed.expect("old enough").certificate);
    let refused = fixture.now().renew(&renewed, &renewal("web-1")).await;
    let refused = refused.expect_err("too new").to_string();
    assert!(refused.contains("too new to renew"), "{refused}");
}

#[tokio::test]
async fn a_repeated_renewal_with_the_same_key_returns_the_same_certificate() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let request = renewal("web-1");
    let first = fixture
        .now()
        .renew(&holder, &request)
        .await
        .expect("renewed");
    let again = fixture.now().renew(&holder, &request).await.expect("again");
    assert_eq!(first, again);
    assert_eq!(fixture.valid("web-1").await, 2);
}

#[tokio::test]
async fn a_name_gets_few_valid_certificates_by_renewal() {
    let fixture = Fixture::new();
    let holder = fixture.old_holder("web-1", Role::Node).await;
    let mut refused = 0;
    for _ in 0..8 {
        let renewed = fixture.now().renew(&holder, &renewal("web-1")).await;
        refused += usize::from(renewed.is_err());
    }
    assert_eq!(refused, 5);
    assert_eq!(fixture.valid("web-1").await, super::MOST_VALID);
}

#[tokio::test]
async fn after_a_revocation_a_signed_certificate_can_be_renewed_again() {
    let fixture = Fixture::new();
    fixture.old_holder("web-1", Role::Node).await;
    fixture
        .now()
        .revoke(&name("web-1"), &revocation(None), "root")
        .await
        .expect("revoked");
    let holder = fixture.old_holder("web-1", Role::Node).await;
    fixture
        .now()
        .renew(&holder, &renewal("web-1"))
        .await
        .expect("a new certificate lifts the fence");
}

/// A signer in this process, with what it says about its CA.
fn signer_of(authority: &Arc<Authority>) -> (SignerHandle, AuthorityDescription) {
    let description = AuthorityDescription {
        certificates: authority.certificates_pem(),
        next: None,
        sealed_next: None,
        is_puppet: false,
    };
    (Arc::clone(authority).into(), description)
}

#[tokio::test]
async fn a_certificate_is_deleted_a_margin_after_its_end_even_if_it_is_revoked() {
    let fixture = Fixture::new();
    let margin = super::expired::KEPT_AFTER_END.as_hours();
    for holder in ["kept", "revoked"] {
        fixture.old_holder(holder, Role::Operator).await;
    }
    let request = RevokeRequest {
        reason: "stolen".to_owned(),
        serial: None,
    };
    let now = fixture.now();
    let revoked = now.revoke(&name("revoked"), &request, "alice").await;
    revoked.expect("revoked");
    let names = async |ahead: i64| {
        let then = fixture.on(&fixture.store, -ahead);
        let deleted = then.forget_expired().await.expect("deleted");
        (deleted, then.list().await.expect("a list").len())
    };
    // They were issued 300 days ago for a year.
    assert_eq!(names(0).await, (0, 2), "a revocation counts until the end");
    assert_eq!(names(65 * 24 + margin - 1).await, (0, 2), "the margin");
    assert_eq!(names(65 * 24 + margin + 25).await, (2, 0));
}

#[tokio::test]
async fn every_certificate_is_on_one_page() {
    let fixture = Fixture::new();
    for number in 0..7 {
        fixture
            .old_holder(&format!("op-{number}"), Role::Operator)
            .await;
    }
    let mut query = bunraku_wire::api::PageQuery {
        limit: Some(3),
        after: None,
    };
    let mut found = Vec::new();
    loop {
        let page = fixture.now().page(&query).await.expect("a page");
        found.extend(page.items.iter().map(|entry| entry.name.to_string()));
        match page.next {
            None => break,
            next => query.after = next,
        }
    }
    let all = ["op-0", "op-1", "op-2", "op-3", "op-4", "op-5", "op-6"];
    assert_eq!(found, all);
}
