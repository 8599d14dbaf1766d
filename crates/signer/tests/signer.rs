//! A signer behind a socket: what it signs, what it refuses, and what it remembers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bunraku_model::access::GroupName;
use bunraku_model::{NodeName, Role};
use bunraku_signer::{
    Ask, Caller, IssuerChoice, RefusalKind, SignAsk, SignatureLog, Signer, SignerError,
    SignerHandle, SignerKind, SignerOptions, SigningPolicy, TlsSigner, UnixSigner, serve_tls,
    serve_unix,
};
use bunraku_wire::key::KeyKind;
use bunraku_wire::revocation::RevokedCertificate;
use bunraku_wire::tls::{client_config_exact, server_config_exact};
use bunraku_wire::{
    Certificate, Credentials, OperatorProof, PrivateKey, Request, RequestedCertificate,
};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

struct Key {
    name: NodeName,
    key: PrivateKey,
}

impl Key {
    fn of(name: &str) -> Self {
        Self {
            name: NodeName::new(name).expect("it works"),
            key: PrivateKey::generate(KeyKind::EcdsaP256).expect("it works"),
        }
    }

    fn ask(&self, role: Role) -> SignAsk {
        SignAsk {
            certificate_request: Request::create(&self.name, &self.key).expect("it works"),
            role,
            lifetime_seconds: 3600,
            server_names: Vec::new(),
            groups: BTreeSet::new(),
            proof: None,
            issuer: IssuerChoice::Current,
        }
    }

    /// Adds this operator's proof to a request.
    fn prove(&self, certificate: &Certificate, ask: SignAsk) -> SignAsk {
        let proof = OperatorProof::create(
            certificate,
            &self.key,
            &RequestedCertificate {
                certificate_request: &ask.certificate_request,
                role: ask.role,
                server_names: &ask.server_names,
                groups: &ask.groups,
            },
            Timestamp::now(),
        );
        SignAsk {
            proof: Some(proof.expect("it works")),
            ..ask
        }
    }
}

fn options(directory: &Path) -> SignerOptions {
    SignerOptions {
        kind: SignerKind::Own,
        directory: directory.join("ca"),
        state: directory.join("ca"),
        policy: SigningPolicy {
            operators_without_proof: vec!["operator.s1".to_owned()],
            server_names: vec!["s1".to_owned(), "*.example.com".to_owned()],
            ..SigningPolicy::default()
        },
    }
}

/// A signer on a socket, which ends with this value.
struct Running {
    handle: SignerHandle,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(directory: &Path, options: SignerOptions) -> Self {
        let signer = Arc::new(Signer::open(options, Timestamp::now()).expect("it works"));
        let (path, stop) = (directory.join("socket"), CancellationToken::new());
        let _ = std::fs::remove_file(&path);
        let (place, until) = (path.clone(), stop.clone());
        let task = tokio::spawn(async move { serve_unix(signer, &place, until).await });
        let remembered = Some(directory.join("authority.json"));
        Self {
            handle: SignerHandle::remote(UnixSigner { path }, remembered),
            stop,
            task,
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("it works").expect("it works");
    }

    async fn signs(&self, ask: SignAsk) -> Result<Certificate, String> {
        sign(&self.handle, ask).await
    }
}

async fn sign(handle: &SignerHandle, ask: SignAsk) -> Result<Certificate, String> {
    match handle.sign(ask, Timestamp::now()).await {
        Ok(signed) => Ok(Certificate::from_pem(&signed.pem).expect("it works")),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until the signer has its socket.
async fn listening(directory: &Path) {
    while !directory.join("socket").exists() {
        tokio::task::yield_now().await;
    }
}

async fn started(options: impl FnOnce(&mut SignerOptions)) -> (TempDir, Running) {
    let directory = TempDir::new().expect("it works");
    let mut settings = self::options(directory.path());
    options(&mut settings);
    let running = Running::start(directory.path(), settings);
    listening(directory.path()).await;
    (directory, running)
}

#[tokio::test]
async fn each_role_has_its_rule() {
    let (_directory, signer) = started(|_| {}).await;
    assert!(signer.signs(Key::of("web-1").ask(Role::Node)).await.is_ok());
    let mut long = Key::of("web-2").ask(Role::Node);
    long.lifetime_seconds = 500 * 24 * 3600;
    let refused = signer.signs(long).await.unwrap_err();
    assert!(refused.contains("at most 400 days"), "{refused}");
    let mut serving = Key::of("web-3").ask(Role::Node);
    serving.server_names = vec!["s1".to_owned()];
    assert!(signer.signs(serving).await.is_err());

    assert!(signer.signs(Key::of("s1").ask(Role::Server)).await.is_ok());
    let refused = signer.signs(Key::of("s2").ask(Role::Server)).await;
    assert!(refused.unwrap_err().contains("may not serve"));
    let mut other = Key::of("s1").ask(Role::Server);
    other.server_names = vec!["a.example.com".to_owned()];
    assert!(signer.signs(other.clone()).await.is_ok());
    other.server_names = vec!["bank.example.org".to_owned()];
    assert!(signer.signs(other).await.is_err());

    let refused = signer.signs(Key::of("mallory").ask(Role::Operator)).await;
    assert!(refused.unwrap_err().contains("needs the proof"));
}

#[tokio::test]
async fn an_operator_needs_the_proof_of_an_operator_who_is_not_revoked() {
    let (directory, signer) = started(|_| {}).await;
    let first = Key::of("operator.s1");
    let certificate = signer.signs(first.ask(Role::Operator)).await.unwrap();
    // The name belongs to its first key, across restarts.
    assert!(signer.signs(first.ask(Role::Operator)).await.is_ok());
    let thief = Key::of("operator.s1");
    assert!(signer.signs(thief.ask(Role::Operator)).await.is_err());
    signer.end().await;
    let signer = Running::start(directory.path(), options(directory.path()));
    let again = first.ask(Role::Operator);
    listening(directory.path()).await;
    assert!(signer.signs(thief.ask(Role::Operator)).await.is_err());
    assert!(signer.signs(again).await.is_ok());

    let alice = Key::of("alice");
    let proved = first.prove(&certificate, alice.ask(Role::Operator));
    assert!(signer.signs(proved.clone()).await.is_ok());
    // A proof for one request is no proof for another.
    let mut stolen = Key::of("mallory").ask(Role::Operator);
    stolen.proof = proved.proof.clone();
    assert!(signer.signs(stolen).await.is_err());
    // The proof also covers servers that the signer does not know.
    let unknown = first.prove(&certificate, Key::of("s9").ask(Role::Server));
    assert!(signer.signs(unknown).await.is_ok());

    let revoked = RevokedCertificate {
        serial: certificate.serial.clone(),
        at: Timestamp::now(),
    };
    let list = signer
        .handle
        .revocation_lists(vec![revoked], 1, Timestamp::now());
    list.await.unwrap();
    // A later list without it changes nothing: the signer never forgets, not even after a
    // restart.
    let list = signer
        .handle
        .revocation_lists(Vec::new(), 2, Timestamp::now());
    list.await.unwrap();
    let refused = signer.signs(proved.clone()).await.unwrap_err();
    assert!(refused.contains("is revoked"), "{refused}");
    signer.end().await;
    let signer = Running::start(directory.path(), options(directory.path()));
    listening(directory.path()).await;
    assert!(
        signer
            .signs(proved)
            .await
            .unwrap_err()
            .contains("is revoked")
    );
}

fn groups(names: &[&str]) -> BTreeSet<GroupName> {
    names
        .iter()
        .map(|name| name.parse().expect("a group"))
        .collect()
}

#[tokio::test]
async fn groups_need_a_proof_and_limit_their_holder_to_renewals() {
    let (_directory, signer) = started(|_| {}).await;
    let first = Key::of("operator.s1");
    let certificate = signer.signs(first.ask(Role::Operator)).await.unwrap();
    let with_groups = |key: &Key, role, names: &[&str]| SignAsk {
        groups: groups(names),
        ..key.ask(role)
    };
    // Only operators have groups, and a server alone cannot ask for them.
    let node = with_groups(&Key::of("web-1"), Role::Node, &["dba"]);
    assert!(signer.signs(node).await.is_err());
    let server = with_groups(&Key::of("s1"), Role::Server, &["dba"]);
    assert!(
        signer
            .signs(first.prove(&certificate, server))
            .await
            .is_err()
    );
    let alone = with_groups(&first, Role::Operator, &["administrators"]);
    assert!(signer.signs(alone).await.is_err());
    // A server that adds a group to what the operator signed is refused.
    let bob = Key::of("bob");
    let mut changed = first.prove(&certificate, with_groups(&bob, Role::Operator, &["dba"]));
    changed.groups = groups(&["administrators"]);
    assert!(signer.signs(changed.clone()).await.is_err());
    changed.groups = BTreeSet::new();
    assert!(signer.signs(changed).await.is_err());

    let wanted = with_groups(&bob, Role::Operator, &["dba", "oncall"]);
    let signed = signer.signs(first.prove(&certificate, wanted)).await;
    let signed = signed.expect("an operator asked for it");
    assert_eq!(signed.groups, groups(&["dba", "oncall"]));
    // Its holder renews it with these groups, and with no others.
    let renewed = with_groups(&bob, Role::Operator, &["dba", "oncall"]);
    let renewed = signer.signs(bob.prove(&signed, renewed)).await;
    assert_eq!(renewed.expect("renewed").groups, signed.groups);
    for names in [&[][..], &["dba"], &["dba", "oncall", "administrators"]] {
        let other = with_groups(&bob, Role::Operator, names);
        let refused = signer.signs(bob.prove(&signed, other)).await.unwrap_err();
        assert!(refused.contains("renewing"), "{refused}");
    }
    // And it requests nothing for others.
    for (name, role) in [("eve", Role::Operator), ("s9", Role::Server)] {
        let other = with_groups(&Key::of(name), role, &[]);
        assert!(signer.signs(bob.prove(&signed, other)).await.is_err());
    }

    // A member of `administrators` may.
    let carol = Key::of("carol");
    let wanted = with_groups(&carol, Role::Operator, &["administrators"]);
    let carols = signer.signs(first.prove(&certificate, wanted)).await;
    let carols = carols.expect("an administrator");
    let dave = with_groups(&Key::of("dave"), Role::Operator, &["dba"]);
    let signed = signer.signs(carol.prove(&carols, dave)).await;
    assert_eq!(signed.expect("signed").groups, groups(&["dba"]));
}

#[tokio::test]
async fn the_limit_per_hour_survives_a_restart() {
    let limit = |options: &mut SignerOptions| options.policy.most_per_hour.node = 3;
    let (directory, signer) = started(limit).await;
    for number in 0..3 {
        let node = Key::of(&format!("web-{number}"));
        assert!(signer.signs(node.ask(Role::Node)).await.is_ok());
    }
    let refused = signer.signs(Key::of("web-4").ask(Role::Node)).await;
    assert!(refused.unwrap_err().contains("its limit"));
    assert!(signer.signs(Key::of("s1").ask(Role::Server)).await.is_ok());
    signer.end().await;
    let mut settings = options(directory.path());
    limit(&mut settings);
    let signer = Signer::open(settings, Timestamp::now()).unwrap();
    let ask = Ask::Sign(Box::new(Key::of("web-5").ask(Role::Node)));
    let refused = signer.answer(ask, &Caller::local(), Timestamp::now());
    assert_eq!(refused.err().unwrap().kind, RefusalKind::Busy);
}

#[tokio::test]
async fn every_signature_is_in_the_log() {
    let (directory, signer) = started(|_| {}).await;
    let node = signer
        .signs(Key::of("web-1").ask(Role::Node))
        .await
        .unwrap();
    signer
        .signs(Key::of("x").ask(Role::Operator))
        .await
        .unwrap_err();
    let list = signer
        .handle
        .revocation_lists(Vec::new(), 7, Timestamp::now());
    list.await.unwrap();
    let log = SignatureLog::new(directory.path().join("ca/signatures.log"));
    assert_eq!(log.verify().unwrap(), 2);
    let entries = log.recent().unwrap();
    assert_eq!(entries[0]["name"], "web-1");
    assert_eq!(entries[0]["serial"], node.serial.to_string());
    assert_eq!(entries[1]["number"], 7);
}

#[tokio::test]
async fn what_cannot_be_logged_is_not_signed() {
    let (directory, signer) = started(|_| {}).await;
    signer.handle.describe().await.unwrap();
    std::fs::create_dir(directory.path().join("ca/signatures.log")).unwrap();
    let refused = signer.signs(Key::of("web-1").ask(Role::Node)).await;
    assert!(refused.unwrap_err().contains("cannot write its log"));
}

#[tokio::test]
async fn the_key_leaves_only_a_signer_that_shares_it() {
    let (_directory, signer) = started(|_| {}).await;
    assert!(matches!(
        signer.handle.export().await,
        Err(SignerError::Refused(refusal)) if refusal.kind == RefusalKind::Forbidden
    ));
    let (_directory, signer) = started(|options| options.policy.shares_key = true).await;
    let files = signer.handle.export().await.unwrap();
    assert!(files.key.contains("PRIVATE KEY"));
}

#[tokio::test]
async fn while_the_signer_is_away_its_ca_is_still_known_and_signing_says_so() {
    let (directory, signer) = started(|_| {}).await;
    let described = signer.handle.describe().await.unwrap();
    signer.end().await;
    std::fs::remove_file(directory.path().join("socket")).unwrap();
    let path = directory.path().join("socket");
    let remembered = Some(directory.path().join("authority.json"));
    let handle = SignerHandle::remote(UnixSigner { path }, remembered);
    assert_eq!(handle.describe().await.unwrap(), described);
    let refused = sign(&handle, Key::of("web-1").ask(Role::Node)).await;
    assert!(refused.unwrap_err().contains("does not answer"));
    // It comes back.
    let signer = Running::start(directory.path(), options(directory.path()));
    listening(directory.path()).await;
    let signed = sign(&handle, Key::of("web-1").ask(Role::Node))
        .await
        .unwrap();
    let ca = Certificate::from_pem(&described.certificates).unwrap();
    assert!(signed.is_signed_by(&ca));
    signer.end().await;
}

#[tokio::test]
async fn over_tls_only_known_certificates_count_on_both_sides() {
    let directory = TempDir::new().unwrap();
    let identity = |name: &str| {
        Credentials::new(directory.path().join(name))
            .load_or_create_self_signed(name)
            .unwrap()
    };
    let (own, s1, s2) = (identity("signer"), identity("s1"), identity("s2"));
    let caller = Caller {
        name: "s1".to_owned(),
        fingerprint: Some(s1.certificate().fingerprint),
        server_names: Some(vec!["s1".to_owned()]),
    };
    let config = server_config_exact(&own, vec![s1.certificate().fingerprint]).unwrap();
    let signer = Arc::new(Signer::open(options(directory.path()), Timestamp::now()).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    tokio::spawn(serve_tls(
        signer,
        listener,
        config,
        vec![caller],
        stop.clone(),
    ));
    let dial = |identity, fingerprint| {
        let config = client_config_exact(identity, fingerprint).unwrap();
        let signer = TlsSigner {
            address: address.clone(),
            config: Arc::new(config),
        };
        SignerHandle::remote(signer, None)
    };
    let pin = own.certificate().fingerprint;
    let good = dial(&s1, pin);
    assert!(sign(&good, Key::of("web-1").ask(Role::Node)).await.is_ok());
    assert!(sign(&good, Key::of("s1").ask(Role::Server)).await.is_ok());
    // The names of this caller count, not those of the policy.
    let mut other = Key::of("s1").ask(Role::Server);
    other.server_names = vec!["a.example.com".to_owned()];
    assert!(sign(&good, other).await.is_err());
    assert!(dial(&s2, pin).describe().await.unwrap_err().is_away());
    let wrong = s2.certificate().fingerprint;
    assert!(dial(&s1, wrong).describe().await.unwrap_err().is_away());
    stop.cancel();
}

#[tokio::test]
async fn a_rotation_step_survives_a_restart_and_can_be_repeated() {
    let (directory, signer) = started(|options| options.policy.shares_key = true).await;
    let now = Timestamp::now();
    let before = signer.handle.describe().await.unwrap();
    let prepared = signer.handle.rotate(Ask::PrepareNext, now).await.unwrap();
    let next = prepared.next.clone().unwrap();
    let again = signer.handle.rotate(Ask::PrepareNext, now).await.unwrap();
    assert_eq!(again.next, prepared.next);
    let mut ask = Key::of("web-1").ask(Role::Node);
    ask.issuer = IssuerChoice::Next;
    let signed = signer.signs(ask).await.unwrap();
    let next_ca = Certificate::from_pem(&next).unwrap();
    assert!(signed.is_signed_by(&next_ca));

    // Another signer with a copy of the current CA takes the next one over.
    let other = TempDir::new().unwrap();
    std::fs::create_dir(other.path().join("ca")).unwrap();
    for file in ["ca.pem", "ca.key"] {
        let from = directory.path().join("ca").join(file);
        std::fs::copy(from, other.path().join("ca").join(file)).unwrap();
    }
    let sealed = prepared.sealed_next.unwrap();
    let adopt = || Ask::AdoptNext {
        sealed: sealed.clone(),
    };
    let copy = Running::start(other.path(), options(other.path()));
    listening(other.path()).await;
    let adopted = copy.handle.rotate(adopt(), now).await.unwrap();
    assert_eq!(adopted.next.as_deref(), Some(next.as_str()));
    copy.end().await;
    let copy = Signer::open(options(other.path()), now).unwrap();
    let fingerprint = next_ca.fingerprint.to_string();
    let promote = || Ask::PromoteNext {
        fingerprint: fingerprint.clone(),
    };
    for _ in 0..2 {
        assert!(copy.answer(promote(), &Caller::local(), now).is_ok());
    }
    let copy = Signer::open(options(other.path()), now).unwrap();
    assert_eq!(copy.fingerprint(), fingerprint);
    assert!(!other.path().join("ca/next").exists());
    let key = std::fs::read_to_string(other.path().join("ca/ca.key")).unwrap();
    let old = std::fs::read_to_string(directory.path().join("ca/ca.key")).unwrap();
    assert_ne!(key, old, "the former key is gone");

    let dropped = signer.handle.rotate(Ask::DropNext, now).await.unwrap();
    assert_eq!(dropped, before);
}
