//! Parsing never panics on any input, and changed input is detected.

use std::sync::OnceLock;

use bunraku_model::Role;
use bunraku_wire::Authority;
use bunraku_wire::certificate::{Certificate, chain_from_pem};
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::request::Request;
use bunraku_wire::revocation::{RevocationList, RevokedCertificate};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::support::{DAY, authority, grant, issue, name};

/// Returns one valid specimen of each kind, in PEM.
fn specimens() -> &'static [String; 4] {
    static SPECIMENS: OnceLock<[String; 4]> = OnceLock::new();
    SPECIMENS.get_or_init(|| {
        let (authority, now) = (authority(), Timestamp::now());
        let (signed, _) = issue(&authority, &grant("server1", Role::Server), now);
        let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
        let revoked = [RevokedCertificate {
            serial: signed.serial.clone(),
            at: now,
        }];
        let list = authority.revocation_list(&revoked, 1, now, DAY).unwrap();
        [
            signed.pem,
            Request::create(&name("node1"), &key).unwrap(),
            list.to_pem(),
            key.to_pem(),
        ]
    })
}

fn read_everything(text: &str) {
    let _ = Certificate::from_pem(text);
    let _ = chain_from_pem(text);
    let _ = Request::from_pem(text);
    let _ = RevocationList::from_pem(text);
    let _ = PrivateKey::from_pem(text);
    let _ = Authority::from_pem(text, text);
}

fn read_everything_der(der: &[u8]) {
    let _ = Certificate::from_der(der);
    let _ = Request::from_der(der);
    let _ = RevocationList::from_der(der);
    let labels = [
        "CERTIFICATE",
        "CERTIFICATE REQUEST",
        "X509 CRL",
        "PRIVATE KEY",
    ];
    for label in labels {
        read_everything(&pem::encode(&pem::Pem::new(label, der)));
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,400}") {
        read_everything(&text);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_everything_der(&bytes);
    }

    #[test]
    fn damaged_text_is_read_without_a_panic(
        which in 0..4_usize,
        cut in any::<prop::sample::Index>(),
        insert in "[-A-Za-z0-9+/=\n ]{0,20}",
    ) {
        let good = &specimens()[which];
        let position = cut.index(good.len());
        let changed = format!("{}{insert}{}", &good[..position], &good[position..]);
        read_everything(&changed);
        read_everything(&good[..position]);
    }

    #[test]
    fn damaged_bytes_are_read_without_a_panic(
        which in 0..4_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut der = pem::parse(&specimens()[which]).unwrap().into_contents();
        for (position, byte) in changes {
            let position = position.index(der.len());
            der[position] = byte;
        }
        read_everything_der(&der);
        read_everything_der(&der[..keep.index(der.len())]);
    }

    #[test]
    fn a_request_with_any_bit_changed_is_refused_or_says_the_same(
        position in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let good = pem::parse(&specimens()[1]).unwrap().into_contents();
        let mut changed = good.clone();
        let position = position.index(changed.len());
        changed[position] ^= 1 << bit;
        // Outside the signed part some bits do not matter; inside, all do.
        if let Ok(read) = Request::from_der(&changed) {
            let original = Request::from_der(&good).unwrap();
            prop_assert_eq!(read.name(), original.name());
            prop_assert_eq!(read.requested_names(), original.requested_names());
            let signed_part = 3..good.len() - 90;
            prop_assert!(!signed_part.contains(&position), "bit {bit} of byte {position}");
        }
    }
}
