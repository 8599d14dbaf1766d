//! Facts under the names that Salt users know ("grains").
//!
//! Salt's core grains are computed from the node's facts, which have Facter's structured names. A
//! fact that neither Facter nor the agent defines is the node's own: it keeps its name, like a grain
//! of `/etc/salt/grains`. Facter's own names are not grains, because a template that asks for
//! `grains.get('timezone', …)` expects Salt's answer.
//!
//! Absent: grains that describe Salt's own process (`pid`, `pythonpath`, `saltpath` …).

mod addresses;
mod hardware;
mod os;

use serde_json::{Map, Value, json};

/// The version of Salt whose behaviour this crate implements.
const SALT_VERSION: (u32, u32) = (3008, 3);

/// The top-level names of Facter, of its optional groups, and of our agent.
const FACTS_OF_FACTER: &[&str] = &[
    "aio_agent_version",
    "augeas",
    "az_metadata",
    "bunraku_version",
    "chassistype",
    "cloud",
    "disks",
    "dmi",
    "ec2_metadata",
    "ec2_userdata",
    "env_windows_installdir",
    "facterversion",
    "filesystems",
    "fips_enabled",
    "gce",
    "hostname",
    "hypervisors",
    "identity",
    "is_virtual",
    "kernel",
    "kernelmajversion",
    "kernelrelease",
    "kernelversion",
    "load_averages",
    "memory",
    "mountpoints",
    "networking",
    "nim_type",
    "os",
    "os_service_default",
    "partitions",
    "path",
    "platform",
    "processors",
    "puppetversion",
    "ruby",
    "ssh",
    "system_profiler",
    "system_uptime",
    "timezone",
    "trusted",
    "virtual",
    "xen",
];

/// Returns the grains of a node.
pub fn grains(node: &str, facts: &Map<String, Value>) -> Map<String, Value> {
    let own = facts.iter().filter(|(name, _)| !is_of_facter(name));
    let mut grains = GrainSet {
        facts,
        grains: own
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    };
    names(node, &mut grains);
    os::add(&mut grains);
    hardware::add(&mut grains);
    addresses::add(&mut grains);
    let (major, minor) = SALT_VERSION;
    grains.put("saltversion", json!(format!("{major}.{minor}")));
    grains.put("saltversioninfo", json!([major, minor]));
    // Templates compare it to choose package names. It is the Python of Salt's own packages.
    grains.put("pythonversion", json!([3, 11, 0, "final", 0]));
    grains.grains
}

fn is_of_facter(name: &str) -> bool {
    FACTS_OF_FACTER.contains(&name)
}

fn names(node: &str, grains: &mut GrainSet<'_>) {
    let hostname = grains.text("networking.hostname");
    let fqdn = grains.text("networking.fqdn");
    let (first, after) = node.split_once('.').unwrap_or((node, ""));
    let domain = grains.text("networking.domain");
    // Without facts, the node's name is all there is.
    let domain = domain.unwrap_or_else(|| match fqdn {
        Some(_) => String::new(),
        None => after.to_owned(),
    });
    grains.put("id", json!(node));
    grains.put("fqdn", json!(fqdn.as_deref().unwrap_or(node)));
    grains.put("domain", json!(domain));
    grains.put("localhost", hostname.clone());
    grains.put("nodename", hostname.clone());
    grains.put("host", json!(hostname.unwrap_or_else(|| first.to_owned())));
    grains.put("machine_id", grains.text("platform.machine_id"));
    grains.put("master", json!("salt"));
    for (grain, fact) in [
        ("uid", "identity.uid"),
        ("gid", "identity.gid"),
        ("username", "identity.user"),
        ("groupname", "identity.group"),
    ] {
        grains.put(grain, grains.at(fact).cloned());
    }
}

/// The grains so far, and the facts to compute more from.
struct GrainSet<'a> {
    facts: &'a Map<String, Value>,
    grains: Map<String, Value>,
}

impl<'a> GrainSet<'a> {
    /// Adds a grain that has a value.
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.grains.insert(name.to_owned(), value);
        }
    }

    /// Returns the fact at a path with dots.
    fn at(&self, path: &str) -> Option<&'a Value> {
        let mut parts = path.split('.');
        let first = self.facts.get(parts.next()?)?;
        parts.try_fold(first, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        })
    }

    fn text(&self, path: &str) -> Option<String> {
        self.at(path).and_then(Value::as_str).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(facts: &Value) -> Map<String, Value> {
        grains("web1.example.net", facts.as_object().expect("a map"))
    }

    fn check(facts: &Value, expected: &Value) {
        let grains = of(facts);
        for (name, expected) in expected.as_object().expect("a map") {
            assert_eq!(grains.get(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn facters_names_become_salts() {
        check(
            &json!({
                "os": {"name": "Debian", "family": "Debian", "architecture": "amd64", "hardware": "x86_64",
                       "release": {"full": "12.5", "major": "12"},
                       "distro": {"codename": "bookworm", "id": "Debian", "description": "Debian GNU/Linux 12 (bookworm)"}},
                "networking": {"hostname": "web1", "fqdn": "web1.example.net", "domain": "example.net",
                               "interfaces": {"eth0": {"bindings": [{"address": "10.0.0.1"}], "mac": "aa:bb"},
                                              "lo": {"ip": "127.0.0.1"}}},
                "kernel": "Linux", "kernelrelease": "6.1.0", "processors": {"count": 2, "models": ["a"]},
                "memory": {"system": {"total_bytes": 8_589_934_592_u64}}, "virtual": "docker", "role": "web",
                "disks": {"vda": {"type": "hdd"}, "nvme0n1": {"type": "ssd"}},
                "platform": {"kernel_build": "#1 SMP", "init": "systemd", "systemd": {"version": "252", "features": "+PAM"},
                             "machine_id": "3d12", "gateways": {"ip4": "10.0.0.254"}},
            }),
            &json!({
                "os": "Debian", "os_family": "Debian", "osrelease": "12", "osmajorrelease": 12,
                "osrelease_info": [12], "osfinger": "Debian-12", "oscodename": "bookworm",
                "osfullname": "Debian GNU/Linux", "lsb_distrib_id": "Debian GNU/Linux",
                "lsb_distrib_release": "12", "lsb_distrib_codename": "bookworm",
                "id": "web1.example.net", "host": "web1", "domain": "example.net", "cpuarch": "x86_64",
                "osarch": "amd64", "num_cpus": 2, "cpu_model": "a", "mem_total": 8192, "swap_total": 0,
                "virtual": "container", "virtual_subtype": "Docker",
                "disks": ["vda"], "ssds": ["nvme0n1"],
                "kernelversion": "#1 SMP", "init": "systemd",
                "systemd": {"version": "252", "features": "+PAM"}, "machine_id": "3d12",
                "ipv4": ["10.0.0.1", "127.0.0.1"], "fqdn_ip4": ["10.0.0.1"], "fqdn_ip6": [],
                "ip4_interfaces": {"eth0": ["10.0.0.1"], "lo": ["127.0.0.1"]},
                "ip4_gw": "10.0.0.254", "ip_gw": true, "ip6_gw": false,
                "role": "web", "saltversioninfo": [3008, 3],
            }),
        );
    }

    #[test]
    fn other_distributions_have_salts_names() {
        let os = |name: &str, family: &str, full: &str, description: &str| {
            let major = full.split('.').next();
            json!({"os": {"name": name, "family": family, "release": {"full": full, "major": major},
                          "distro": {"description": description}}})
        };
        check(
            &os("Ubuntu", "Debian", "22.04", "Ubuntu 22.04.3 LTS"),
            &json!({"os": "Ubuntu", "osfullname": "Ubuntu", "osrelease": "22.04", "osmajorrelease": 22,
                    "osrelease_info": [22, 4], "osfinger": "Ubuntu-22.04"}),
        );
        check(
            &os(
                "Rocky",
                "RedHat",
                "9.3",
                "Rocky Linux release 9.3 (Blue Onyx)",
            ),
            &json!({"os": "Rocky", "osfullname": "Rocky Linux", "osrelease": "9.3", "osrelease_info": [9, 3],
                    "osfinger": "Rocky Linux-9"}),
        );
        check(
            &os("Archlinux", "Archlinux", "6.1", "Arch Linux"),
            &json!({"os": "Arch", "os_family": "Arch", "osfullname": "Arch Linux"}),
        );
        check(
            &os(
                "SLES",
                "Suse",
                "15.5",
                "SUSE Linux Enterprise Server 15 SP5",
            ),
            &json!({"os": "SUSE", "os_family": "Suse", "osfullname": "SLES", "osfinger": "SLES-15"}),
        );
    }

    #[test]
    fn facters_own_names_are_not_grains_and_the_nodes_are() {
        let grains = of(&json!({
            "timezone": "UTC", "ssh": {}, "memory": {}, "mountpoints": {}, "networking": {},
            "role": "web", "roles": ["a"],
        }));
        for name in ["timezone", "ssh", "memory", "mountpoints", "networking"] {
            assert_eq!(grains.get(name), None, "{name}");
        }
        assert_eq!(grains["role"], "web");
        assert_eq!(grains["roles"], json!(["a"]));
    }
}
