//! Messages and documents: catalogs, module packages, request bodies, gossip.

use std::time::Duration;

use bunraku_cluster::membership::{MemberIdentity, Swim, SwimOptions};
use bunraku_model::catalog::CatalogDiff;
use bunraku_model::{Catalog, NodeName, canonical_json};
use bunraku_module::{Manifest, Trust, verify};

/// A catalog, its id, and its difference from itself.
pub fn catalog(data: &[u8]) {
    let Ok(catalog) = Catalog::from_json(data) else {
        return;
    };
    let id = catalog.id();
    assert_eq!(id, catalog.clone().id());
    assert!(CatalogDiff::between(&catalog, &catalog).is_empty());
    catalog.contents();
    if let Ok(value) = serde_json::from_slice(data) {
        canonical_json(&value);
    }
}

/// A module package that nobody trusts, and its manifest.
pub fn module_package(data: &[u8]) {
    let _ = verify(data, &Trust::default());
    if let Ok(manifest) = Manifest::parse(data) {
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::parse(&bytes).ok().as_ref(), Some(&manifest));
    }
}

/// The body of a request. The first byte selects the endpoint.
pub fn http_body(data: &[u8]) {
    let Some((number, body)) = data.split_first() else {
        return;
    };
    let endpoints: Vec<_> = bunraku_wire::endpoints::all().collect();
    let endpoint = endpoints[usize::from(*number) % endpoints.len()];
    endpoint.can_read(body);
}

/// Messages between cluster members. Each has its length in the two bytes before it.
pub fn gossip(data: &[u8]) {
    let identity = |name: &str| MemberIdentity {
        name: NodeName::new(name).expect("a name"),
        address: "127.0.0.1:8151".to_owned(),
        life: 1,
        leaving: false,
    };
    let mut member = Swim::new(identity("server-1"), &SwimOptions::default(), 1);
    member.introduce([identity("server-2")], Duration::ZERO);
    let from = NodeName::new("server-2").expect("a name");
    let (mut rest, mut now) = (data, Duration::ZERO);
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(tail.len());
        let (message, tail) = tail.split_at(length);
        now += Duration::from_millis(100);
        member.receive(&from, message, now);
        member.tick(now);
        member.take_outgoing();
        rest = tail;
    }
}
