//! Facts under the names that Salt users know ("grains").
//!
//! The node's facts in Facter's structured names are mapped. Facts without a counterpart in Salt
//! keep their own names, so nothing is lost.

use serde_json::{Map, Value, json};

/// Returns the grains of a node.
pub fn grains(node: &str, facts: &Map<String, Value>) -> Map<String, Value> {
    let mut grains = facts.clone();
    let at = |path: &str| look_up(facts, path);
    let text = |path: &str| at(path).and_then(Value::as_str).map(str::to_owned);
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            grains.insert(name.to_owned(), value);
        }
    };
    put("id", Some(json!(node)));
    put(
        "host",
        text("networking.hostname")
            .or_else(|| node.split('.').next().map(str::to_owned))
            .map(Value::from),
    );
    put("localhost", text("networking.hostname").map(Value::from));
    put("nodename", text("networking.hostname").map(Value::from));
    put(
        "fqdn",
        Some(json!(
            text("networking.fqdn").unwrap_or_else(|| node.to_owned())
        )),
    );
    let domain = text("networking.domain")
        .or_else(|| node.split_once('.').map(|(_, domain)| domain.to_owned()));
    put("domain", Some(json!(domain.unwrap_or_default())));
    operating_system(facts, &mut put);
    put("kernel", text("kernel").map(Value::from));
    put("kernelrelease", text("kernelrelease").map(Value::from));
    put("kernelversion", text("kernelversion").map(Value::from));
    put("osarch", text("os.architecture").map(Value::from));
    put(
        "cpuarch",
        text("os.hardware")
            .or_else(|| text("os.architecture"))
            .map(Value::from),
    );
    put("num_cpus", at("processors.count").cloned());
    put("cpu_model", at("processors.models.0").cloned());
    put(
        "mem_total",
        at("memory.system.total_bytes")
            .and_then(Value::as_u64)
            .map(|bytes| json!(bytes / 1_048_576)),
    );
    put(
        "swap_total",
        at("memory.swap.total_bytes")
            .and_then(Value::as_u64)
            .map(|bytes| json!(bytes / 1_048_576)),
    );
    put("virtual", Some(json!(virtualisation(text("virtual")))));
    put("path", text("path").map(Value::from));
    put("pythonversion", None);
    addresses(facts, &mut put);
    put("saltversion", Some(json!("3008.3")));
    grains
}

fn look_up<'a>(facts: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('.');
    let first = facts.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}

fn operating_system(facts: &Map<String, Value>, put: &mut impl FnMut(&str, Option<Value>)) {
    let text = |path: &str| {
        look_up(facts, path)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    // `os` is a map in Facter's facts and a word in Salt's grains.
    let name = text("os.name");
    let family = text("os.family");
    let release = text("os.release.full");
    let major = text("os.release.major");
    put("os", name.clone().map(Value::from));
    put("os_family", family.map(Value::from));
    put(
        "osrelease",
        major.clone().or(release.clone()).map(Value::from),
    );
    if let Some(full) = &release {
        let short = full.split('.').next().unwrap_or(full);
        let is_whole = name.as_deref() == Some("Debian");
        put(
            "osrelease",
            Some(json!(if is_whole { short } else { full })),
        );
        let info: Vec<Value> = full
            .split('.')
            .filter_map(|part| part.parse::<i64>().ok())
            .map(Value::from)
            .collect();
        put("osrelease_info", Some(Value::Array(info)));
    }
    put(
        "osmajorrelease",
        major
            .as_ref()
            .and_then(|major| major.parse::<i64>().ok())
            .map(Value::from),
    );
    put("oscodename", text("os.distro.codename").map(Value::from));
    put(
        "osfullname",
        text("os.distro.id").or(name.clone()).map(Value::from),
    );
    if let (Some(name), Some(major)) = (name, major) {
        put("osfinger", Some(json!(format!("{name}-{major}"))));
    }
}

fn virtualisation(fact: Option<String>) -> String {
    match fact.as_deref() {
        None => "physical".to_owned(),
        Some("docker" | "podman" | "lxc" | "systemd_nspawn" | "openvz") => "container".to_owned(),
        Some(other) => other.to_owned(),
    }
}

fn addresses(facts: &Map<String, Value>, put: &mut impl FnMut(&str, Option<Value>)) {
    let Some(interfaces) = look_up(facts, "networking.interfaces").and_then(Value::as_object)
    else {
        return;
    };
    let mut all: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    let mut by_interface: [Map<String, Value>; 2] = [Map::new(), Map::new()];
    let mut hardware = Map::new();
    for (name, interface) in interfaces {
        for (version, key, single) in [(0, "bindings", "ip"), (1, "bindings6", "ip6")] {
            let mut found: Vec<String> = (interface
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten())
            .filter_map(|binding| binding.get("address")?.as_str().map(str::to_owned))
            .collect();
            if found.is_empty() {
                found.extend(
                    interface
                        .get(single)
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
            }
            all[version].extend(found.iter().cloned());
            by_interface[version].insert(name.clone(), json!(found));
        }
        if let Some(mac) = interface.get("mac") {
            hardware.insert(name.clone(), mac.clone());
        }
    }
    all.iter_mut().for_each(|list| {
        list.sort();
        list.dedup();
    });
    let [ipv4, ipv6] = all;
    let [ip4_interfaces, ip6_interfaces] = by_interface;
    put("ipv4", Some(json!(ipv4)));
    put("ipv6", Some(json!(ipv6)));
    put("ip4_interfaces", Some(Value::Object(ip4_interfaces)));
    put("ip6_interfaces", Some(Value::Object(ip6_interfaces)));
    put("hwaddr_interfaces", Some(Value::Object(hardware)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facters_names_become_salts() {
        let facts = json!({
            "os": {"name": "Debian", "family": "Debian", "architecture": "amd64", "hardware": "x86_64",
                   "release": {"full": "12.5", "major": "12"}, "distro": {"codename": "bookworm", "id": "Debian"}},
            "networking": {"hostname": "web1", "fqdn": "web1.example.net", "domain": "example.net",
                           "interfaces": {"eth0": {"bindings": [{"address": "10.0.0.1"}], "mac": "aa:bb"},
                                          "lo": {"ip": "127.0.0.1"}}},
            "kernel": "Linux", "kernelrelease": "6.1.0", "processors": {"count": 2},
            "memory": {"system": {"total_bytes": 8_589_934_592_u64}}, "virtual": "docker", "role": "web",
        });
        let grains = grains("web1.example.net", facts.as_object().expect("a map"));
        for (name, expected) in [
            ("os", json!("Debian")),
            ("os_family", json!("Debian")),
            ("osrelease", json!("12")),
            ("osmajorrelease", json!(12)),
            ("osfinger", json!("Debian-12")),
            ("oscodename", json!("bookworm")),
            ("id", json!("web1.example.net")),
            ("host", json!("web1")),
            ("domain", json!("example.net")),
            ("cpuarch", json!("x86_64")),
            ("num_cpus", json!(2)),
            ("mem_total", json!(8192)),
            ("virtual", json!("container")),
            ("ipv4", json!(["10.0.0.1", "127.0.0.1"])),
            (
                "ip4_interfaces",
                json!({"eth0": ["10.0.0.1"], "lo": ["127.0.0.1"]}),
            ),
            ("role", json!("web")),
        ] {
            assert_eq!(grains.get(name), Some(&expected), "{name}");
        }
    }
}
