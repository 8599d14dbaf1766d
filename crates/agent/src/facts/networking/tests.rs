//! Interfaces, addresses and routes of simulated machines.

use super::netlink::SourceRoute;
use super::*;
use expect_test::{Expect, expect};

fn link(index: u32, name: &str, address: &[u8]) -> Link {
    Link {
        index,
        name: name.to_owned(),
        address: address.to_vec(),
        mtu: Some(1500),
        master: None,
    }
}

fn address(index: u32, label: Option<&str>, address: &str, prefix: u8) -> Address {
    Address {
        index,
        label: label.map(str::to_owned),
        address: address.parse().unwrap(),
        prefix,
    }
}

fn check(dump: &Dump, name: &str, expect: Expect) {
    let interfaces = interfaces(dump, &[]);
    let found = interfaces.into_iter().find(|found| found.name == name);
    expect.assert_eq(&Value::Object(found.unwrap().facts).to_string());
}

#[test]
fn the_most_useful_address_represents_the_interface() {
    let dump = Dump {
        links: vec![link(2, "eth0", &[2, 0, 0, 0, 0, 1])],
        addresses: vec![
            address(2, None, "169.254.1.1", 16),
            address(2, None, "192.0.2.7", 24),
            address(2, None, "fe80::1", 64),
            address(2, None, "2001:db8::7", 128),
        ],
        routes: Vec::new(),
    };
    check(
        &dump,
        "eth0",
        expect![[
            r#"{"mac":"02:00:00:00:00:01","mtu":1500,"bindings":[{"address":"169.254.1.1","netmask":"255.255.0.0","network":"169.254.0.0"},{"address":"192.0.2.7","netmask":"255.255.255.0","network":"192.0.2.0"}],"ip":"192.0.2.7","netmask":"255.255.255.0","network":"192.0.2.0","bindings6":[{"address":"fe80::1","netmask":"ffff:ffff:ffff:ffff::","network":"fe80::","scope6":"link"},{"address":"2001:db8::7","netmask":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff","network":"2001:db8::7","scope6":"global"}],"ip6":"2001:db8::7","netmask6":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff","network6":"2001:db8::7","scope6":"global"}"#
        ]],
    );
}

#[test]
fn a_label_is_an_interface_and_a_route_may_name_an_address() {
    let dump = Dump {
        links: vec![link(2, "eth0", &[0; 6])],
        addresses: vec![address(2, Some("eth0:1"), "192.0.2.8", 0)],
        routes: vec![SourceRoute {
            index: 2,
            source: "192.0.2.9".parse().unwrap(),
        }],
    };
    check(
        &dump,
        "eth0:1",
        expect![[
            r#"{"bindings":[{"address":"192.0.2.8","netmask":"0.0.0.0","network":"0.0.0.0"}],"ip":"192.0.2.8","netmask":"0.0.0.0","network":"0.0.0.0"}"#
        ]],
    );
    check(
        &dump,
        "eth0",
        expect![[r#"{"mtu":1500,"bindings":[{"address":"192.0.2.9"}],"ip":"192.0.2.9"}"#]],
    );
}

#[test]
fn the_first_default_route_names_the_primary_interface() {
    let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
        eth1\t00020000\t0\t1\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        *\t00000000\t0\t200\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t00000000\t010200C0\t3\t0\t0\t0\t00000000\t0\t0\t0\n";
    assert_eq!(default_interface(routes), Some("eth0"));
    assert_eq!(default_interface(""), None);
}

#[test]
fn flags_and_permanent_addresses_are_read() {
    let line = "fd000000000000000000000000000002 02 40 00 82 eth0";
    assert_eq!(Inet6::parse(line).unwrap().flags(), ["noad", "permanent"]);
    let bond = "Bonding Mode: x\n\nSlave Interface: eth0\nPermanent HW addr: 02:00:00:00:00:0a\n\
        Slave Interface: eth1\nPermanent HW addr: 02:00:00:00:00:0b\n";
    assert_eq!(
        permanent_mac(bond, "eth1").as_deref(),
        Some("02:00:00:00:00:0b")
    );
    assert_eq!(permanent_mac(bond, "eth2"), None);
}

#[test]
fn scopes_are_named_as_facter_names_them() {
    let scope_of = |text: &str| scope(&text.parse().unwrap());
    assert_eq!(scope_of("::1"), "host");
    assert_eq!(scope_of("fec0::1"), "site");
    assert_eq!(scope_of("::192.0.2.1"), "compat,global");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "([0-9a-f*\t ]{0,40}\n?.{0,5}){0,4}") {
        default_interface(&text);
        permanent_mac(&text, "eth0");
        text.lines().for_each(|line| drop(Inet6::parse(line)));
    }

    #[test]
    fn any_address_and_prefix_has_a_fact(bits: u128, prefix: u8, four: bool) {
        let address = if four { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
        Binding { address, prefix: Some(prefix), flags: None }.fact();
    }
}
