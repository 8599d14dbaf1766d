//! Grains of interfaces, addresses and name servers.

use serde_json::{Map, Value, json};

use super::GrainSet;

pub(super) fn add(grains: &mut GrainSet<'_>) {
    gateways(grains);
    grains.put("dns", grains.at("platform.resolver").cloned());
    let interfaces = grains.at("networking.interfaces");
    let Some(interfaces) = interfaces.and_then(Value::as_object) else {
        return;
    };
    let mut all: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    let mut by_interface: [Map<String, Value>; 2] = [Map::new(), Map::new()];
    let mut both = Map::new();
    let mut hardware = Map::new();
    for (name, interface) in interfaces {
        let found = [
            addresses(interface, "bindings", "ip"),
            addresses(interface, "bindings6", "ip6"),
        ];
        both.insert(name.clone(), json!(found.concat()));
        for (version, found) in found.into_iter().enumerate() {
            by_interface[version].insert(name.clone(), json!(found));
            all[version].extend(found);
        }
        if let Some(mac) = interface.get("mac") {
            hardware.insert(name.clone(), mac.clone());
        } else if name == "lo" {
            hardware.insert(name.clone(), json!("00:00:00:00:00:00"));
        }
    }
    for list in &mut all {
        list.sort();
        list.dedup();
    }
    let [ipv4, ipv6] = all;
    let [ip4_interfaces, ip6_interfaces] = by_interface;
    own_name(grains, &ipv4, &ipv6);
    grains.put("ipv4", json!(ipv4));
    grains.put("ipv6", json!(ipv6));
    grains.put("ip4_interfaces", Value::Object(ip4_interfaces));
    grains.put("ip6_interfaces", Value::Object(ip6_interfaces));
    grains.put("ip_interfaces", Value::Object(both));
    grains.put("hwaddr_interfaces", Value::Object(hardware));
}

fn addresses(interface: &Value, list: &str, single: &str) -> Vec<String> {
    let bindings = interface.get(list).and_then(Value::as_array);
    let found = (bindings.into_iter().flatten())
        .filter_map(|binding| binding.get("address")?.as_str().map(str::to_owned));
    let found: Vec<String> = found.collect();
    if !found.is_empty() {
        return found;
    }
    let only = interface.get(single).and_then(Value::as_str);
    only.into_iter().map(str::to_owned).collect()
}

/// The addresses of the node's own name. Salt asks the resolver. The agent reports its answer; for
/// facts of others, the primary address stands in for it.
fn own_name(grains: &mut GrainSet<'_>, ipv4: &[String], ipv6: &[String]) {
    let is_outside = |address: &&String| {
        !address.starts_with("127.") && *address != "::1" && !address.starts_with("fe80:")
    };
    for (grain, fact, primary, known) in [
        (
            "fqdn_ip4",
            "platform.own_addresses.ip4",
            "networking.ip",
            ipv4,
        ),
        (
            "fqdn_ip6",
            "platform.own_addresses.ip6",
            "networking.ip6",
            ipv6,
        ),
    ] {
        let resolved = grains.at(fact).cloned();
        let first = grains
            .text(primary)
            .or_else(|| known.iter().find(is_outside).cloned());
        let first = first.filter(|address| is_outside(&address));
        let found = resolved.unwrap_or_else(|| json!(first.into_iter().collect::<Vec<_>>()));
        grains.put(grain, found);
    }
}

fn gateways(grains: &mut GrainSet<'_>) {
    let Some(known) = grains.at("platform.gateways") else {
        return;
    };
    let gateway = |key: &str| known.get(key).filter(|found| !found.is_null()).cloned();
    let (ip4, ip6) = (gateway("ip4"), gateway("ip6"));
    grains.put("ip_gw", ip4.is_some() || ip6.is_some());
    grains.put("ip4_gw", ip4.unwrap_or(Value::Bool(false)));
    grains.put("ip6_gw", ip6.unwrap_or(Value::Bool(false)));
}
