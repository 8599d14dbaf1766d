//! Facter's old flat facts, such as `osfamily`, derived from the structured ones.
//!
//! Puppet 7 sends both, and many modules still read the old names. The agent sends only the
//! structured facts, so the missing old ones are added for the compile. Facts that the node sent
//! are never replaced.

use serde_json::{Map, Value, json};

/// Old names, and the paths of the same values.
const SAME: [(&str, &str); 36] = [
    ("osfamily", "/os/family"),
    ("operatingsystem", "/os/name"),
    ("operatingsystemrelease", "/os/release/full"),
    ("operatingsystemmajrelease", "/os/release/major"),
    ("architecture", "/os/architecture"),
    ("hardwaremodel", "/os/hardware"),
    ("hardwareisa", "/processors/isa"),
    ("lsbdistid", "/os/distro/id"),
    ("lsbdistcodename", "/os/distro/codename"),
    ("lsbdistdescription", "/os/distro/description"),
    ("lsbdistrelease", "/os/distro/release/full"),
    ("lsbmajdistrelease", "/os/distro/release/major"),
    ("lsbminordistrelease", "/os/distro/release/minor"),
    ("selinux", "/os/selinux/enabled"),
    ("fqdn", "/networking/fqdn"),
    ("hostname", "/networking/hostname"),
    ("domain", "/networking/domain"),
    ("ipaddress", "/networking/ip"),
    ("ipaddress6", "/networking/ip6"),
    ("macaddress", "/networking/mac"),
    ("netmask", "/networking/netmask"),
    ("netmask6", "/networking/netmask6"),
    ("network", "/networking/network"),
    ("dhcp_servers", "/networking/dhcp"),
    ("memorysize", "/memory/system/total"),
    ("memoryfree", "/memory/system/available"),
    ("swapsize", "/memory/swap/total"),
    ("swapfree", "/memory/swap/available"),
    ("uptime", "/system_uptime/uptime"),
    ("uptime_days", "/system_uptime/days"),
    ("uptime_hours", "/system_uptime/hours"),
    ("uptime_seconds", "/system_uptime/seconds"),
    ("id", "/identity/user"),
    ("gid", "/identity/group"),
    ("manufacturer", "/dmi/manufacturer"),
    ("productname", "/dmi/product/name"),
];

/// Parts of an interface, and the beginnings of the old names.
const OF_INTERFACES: [(&str, &str); 7] = [
    ("ip", "ipaddress"),
    ("ip6", "ipaddress6"),
    ("mac", "macaddress"),
    ("netmask", "netmask"),
    ("netmask6", "netmask6"),
    ("network", "network"),
    ("mtu", "mtu"),
];

/// Adds the old facts that are missing.
pub(super) fn add(facts: &mut Map<String, Value>) {
    let all = Value::Object(std::mem::take(facts));
    let mut old = Map::new();
    for (name, path) in SAME {
        if let Some(value) = all.pointer(path) {
            old.insert(name.to_owned(), value.clone());
        }
    }
    for (name, path) in [
        ("processorcount", "/processors/count"),
        ("physicalprocessorcount", "/processors/physicalcount"),
    ] {
        if let Some(count) = all.pointer(path).and_then(Value::as_u64) {
            old.insert(name.to_owned(), json!(count));
        }
    }
    let mebibytes = |bytes: &Value| Some(json!(bytes.as_f64()? / f64::from(1 << 20)));
    for (name, path) in [
        ("memorysize_mb", "/memory/system/total_bytes"),
        ("memoryfree_mb", "/memory/system/available_bytes"),
        ("swapsize_mb", "/memory/swap/total_bytes"),
        ("swapfree_mb", "/memory/swap/available_bytes"),
    ] {
        if let Some(size) = all.pointer(path).and_then(mebibytes) {
            old.insert(name.to_owned(), size);
        }
    }
    interfaces(&all, &mut old);
    if let Value::Object(given) = all {
        *facts = given;
    }
    for (name, value) in old {
        facts.entry(name).or_insert(value);
    }
}

fn interfaces(all: &Value, old: &mut Map<String, Value>) {
    let Some(interfaces) = all
        .pointer("/networking/interfaces")
        .and_then(Value::as_object)
    else {
        return;
    };
    let plain = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let names: Vec<String> = interfaces.keys().map(|name| plain(name)).collect();
    old.insert("interfaces".to_owned(), json!(names.join(",")));
    for (name, interface) in interfaces {
        for (part, begins) in OF_INTERFACES {
            if let Some(value) = interface.get(part) {
                old.insert(format!("{begins}_{}", plain(name)), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_facts_are_derived_and_never_replace_what_the_node_sent() {
        let given = json!({
            "os": {"family": "Debian", "name": "Debian", "release": {"full": "12.1", "major": "12"}},
            "networking": {"ip": "192.0.2.7", "interfaces": {"eth0.1": {"ip": "192.0.2.7", "mtu": 1500}, "lo": {}}},
            "memory": {"system": {"total_bytes": 1_073_741_824_u64}},
            "operatingsystem": "Mine",
        });
        let Value::Object(mut facts) = given else {
            unreachable!("it was written as an object");
        };
        add(&mut facts);
        let fact = |name: &str| facts.get(name).cloned().unwrap_or_default();
        assert_eq!(fact("osfamily"), "Debian");
        assert_eq!(fact("operatingsystem"), "Mine");
        assert_eq!(fact("operatingsystemmajrelease"), "12");
        assert_eq!(fact("ipaddress_eth0_1"), "192.0.2.7");
        assert_eq!(fact("interfaces"), "eth0_1,lo");
        assert_eq!(fact("memorysize_mb"), 1024.0);
        assert_eq!(fact("lsbdistid"), Value::Null);
        assert_eq!(fact("os")["family"], "Debian");
    }
}
