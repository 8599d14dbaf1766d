//! Network interfaces with their addresses, the primary interface, and the host's name.
//!
//! Below a test root there is no kernel to query. There, links come from sysfs, IPv6 addresses come
//! from /proc, and IPv4 addresses are missing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::netlink::{self, Address, Dump, Link};
use super::warning::FactWarning;
use super::{dhcp, host_name};

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let inet6 = machine.optional("/proc/net/if_inet6").unwrap_or_default();
    let inet6: Vec<Inet6> = inet6.lines().filter_map(Inet6::parse).collect();
    let dump = if machine.is_live() {
        netlink::dump().map_err(|source| GroupError::Kernel {
            what: "links and addresses",
            source,
        })?
    } else {
        from_files(machine, &inet6)
    };
    let mut interfaces = interfaces(&dump, &inet6);
    for interface in &mut interfaces {
        add_from_files(machine, &dump, interface);
    }
    let route = machine.optional("/proc/net/route").unwrap_or_default();
    let primary = default_interface(&route)
        .map(str::to_owned)
        .or_else(|| first_reachable(&interfaces));
    Ok(facts(interfaces, primary, host_name::read(machine)))
}

fn facts(
    interfaces: Vec<Interface>,
    primary: Option<String>,
    name: Option<host_name::HostName>,
) -> Facts {
    let mut networking = Facts::new();
    let main = interfaces
        .iter()
        .find(|found| Some(&found.name) == primary.as_ref());
    for key in [
        "dhcp", "ip", "ip6", "mac", "mtu", "netmask", "netmask6", "network", "network6", "scope6",
    ] {
        put(
            &mut networking,
            key,
            main.and_then(|main| main.facts.get(key).cloned()),
        );
    }
    let all = interfaces
        .into_iter()
        .map(|one| (one.name, Value::Object(one.facts)));
    put(
        &mut networking,
        "interfaces",
        Some(Value::Object(all.collect())),
    );
    put(&mut networking, "primary", primary);
    let mut top = Facts::new();
    if let Some(name) = name {
        put(&mut networking, "hostname", Some(name.hostname.clone()));
        put(&mut networking, "domain", name.domain);
        put(&mut networking, "fqdn", Some(name.fqdn.clone()));
        put(&mut top, "hostname", Some(name.hostname));
        put(&mut top, "fqdn", Some(name.fqdn));
    }
    top.extend(single("networking", Value::Object(networking)));
    top
}

struct Interface {
    name: String,
    index: u32,
    master: Option<u32>,
    bindings: Vec<Binding>,
    bindings6: Vec<Binding>,
    facts: Facts,
}

struct Binding {
    address: IpAddr,
    prefix: Option<u8>,
    flags: Option<Vec<&'static str>>,
}

/// Returns links in the kernel's order, then labels such as `eth0:1` that exist only on addresses.
fn interfaces(dump: &Dump, inet6: &[Inet6]) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = dump.links.iter().map(from_link).collect();
    let names: HashMap<u32, &str> = dump
        .links
        .iter()
        .map(|link| (link.index, link.name.as_str()))
        .collect();
    for address in &dump.addresses {
        let name = address
            .label
            .as_deref()
            .or_else(|| names.get(&address.index).copied());
        if let Some(name) = name {
            let flags = inet6
                .iter()
                .find(|line| line.interface == name && IpAddr::V6(line.address) == address.address)
                .map(Inet6::flags);
            let binding = Binding {
                address: address.address,
                prefix: Some(address.prefix),
                flags,
            };
            entry(&mut interfaces, name, address.index).bind(binding);
        }
    }
    for route in &dump.routes {
        let known = interfaces
            .iter_mut()
            .find(|found| found.index == route.index);
        if let Some(interface) = known {
            let bindings = interface.bindings_for(&route.source);
            if !bindings
                .iter()
                .any(|binding| binding.address == route.source)
            {
                bindings.push(Binding {
                    address: route.source,
                    prefix: None,
                    flags: None,
                });
            }
        }
    }
    interfaces.iter_mut().for_each(Interface::expand);
    interfaces
}

fn from_link(link: &Link) -> Interface {
    let mut facts = Facts::new();
    put(&mut facts, "mac", mac(&link.address));
    put(&mut facts, "mtu", link.mtu);
    Interface {
        name: link.name.clone(),
        index: link.index,
        master: link.master,
        bindings: Vec::new(),
        bindings6: Vec::new(),
        facts,
    }
}

fn entry<'a>(interfaces: &'a mut Vec<Interface>, name: &str, index: u32) -> &'a mut Interface {
    let place = interfaces.iter().position(|found| found.name == name);
    let place = place.unwrap_or_else(|| {
        interfaces.push(Interface {
            name: name.to_owned(),
            index,
            master: None,
            bindings: Vec::new(),
            bindings6: Vec::new(),
            facts: Facts::new(),
        });
        interfaces.len() - 1
    });
    &mut interfaces[place]
}

impl Interface {
    fn bindings_for(&mut self, address: &IpAddr) -> &mut Vec<Binding> {
        match address {
            IpAddr::V4(_) => &mut self.bindings,
            IpAddr::V6(_) => &mut self.bindings6,
        }
    }

    fn bind(&mut self, binding: Binding) {
        self.bindings_for(&binding.address).push(binding);
    }

    /// Writes the bindings, and copies the most useful one to the interface itself.
    fn expand(&mut self) {
        for (bindings, key, end) in [
            (&self.bindings, "bindings", ""),
            (&self.bindings6, "bindings6", "6"),
        ] {
            let useful = bindings
                .iter()
                .find(|binding| !is_ignored(&binding.address));
            let Some(chosen) = useful.or(bindings.first()) else {
                continue;
            };
            let all: Vec<Value> = bindings.iter().map(Binding::fact).collect();
            put(&mut self.facts, key, Some(all));
            put(
                &mut self.facts,
                &format!("ip{end}"),
                Some(chosen.address.to_string()),
            );
            put(&mut self.facts, &format!("netmask{end}"), chosen.netmask());
            put(&mut self.facts, &format!("network{end}"), chosen.network());
            if let IpAddr::V6(address) = &chosen.address {
                put(&mut self.facts, "scope6", Some(scope(address)));
            }
        }
    }
}

impl Binding {
    fn fact(&self) -> Value {
        let mut fact = single("address", self.address.to_string());
        put(&mut fact, "netmask", self.netmask());
        put(&mut fact, "network", self.network());
        if let (IpAddr::V6(address), Some(_)) = (&self.address, self.prefix) {
            put(&mut fact, "scope6", Some(scope(address)));
        }
        put(&mut fact, "flags", self.flags.clone());
        Value::Object(fact)
    }

    fn netmask(&self) -> Option<String> {
        Some(match self.address {
            IpAddr::V4(_) => Ipv4Addr::from(self.mask_v4()?).to_string(),
            IpAddr::V6(_) => Ipv6Addr::from(self.mask_v6()?).to_string(),
        })
    }

    fn network(&self) -> Option<String> {
        Some(match self.address {
            IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) & self.mask_v4()?).to_string(),
            IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & self.mask_v6()?).to_string(),
        })
    }

    fn mask_v4(&self) -> Option<u32> {
        let host = 32u32.checked_sub(u32::from(self.prefix?))?;
        Some(u32::MAX.checked_shl(host).unwrap_or(0))
    }

    fn mask_v6(&self) -> Option<u128> {
        let host = 128u32.checked_sub(u32::from(self.prefix?))?;
        Some(u128::MAX.checked_shl(host).unwrap_or(0))
    }
}

/// Adds data from sysfs, lease files and the bonding driver.
fn add_from_files(machine: &Machine, dump: &Dump, interface: &mut Interface) {
    let name = interface.name.clone();
    let attribute = |file: &str| machine.attribute(&format!("/sys/class/net/{name}/{file}"));
    put(
        &mut interface.facts,
        "dhcp",
        dhcp::server(machine, &name, interface.index),
    );
    if machine.exists(&format!("/sys/class/net/{name}")) {
        let physical = machine.exists(&format!("/sys/class/net/{name}/device"));
        put(
            &mut interface.facts,
            "operational_state",
            attribute("operstate"),
        );
        put(&mut interface.facts, "physical", Some(physical));
        if physical {
            let speed: Option<i64> = attribute("speed").and_then(|speed| speed.parse().ok());
            put(&mut interface.facts, "duplex", attribute("duplex"));
            put(&mut interface.facts, "speed", speed);
        }
    }
    let master = dump
        .links
        .iter()
        .find(|link| Some(link.index) == interface.master);
    let bond =
        master.and_then(|link| machine.optional(&format!("/proc/net/bonding/{}", link.name)));
    // A bond gives all its members the same address; the permanent one distinguishes them.
    let permanent = bond.as_deref().and_then(|bond| permanent_mac(bond, &name));
    put(&mut interface.facts, "mac", permanent);
}

fn permanent_mac(bond: &str, interface: &str) -> Option<String> {
    let mut ours = false;
    bond.lines().find_map(|line| {
        if let Some(name) = line.trim().strip_prefix("Slave Interface: ") {
            ours = name == interface;
        }
        let mac = line.trim().strip_prefix("Permanent HW addr: ")?;
        ours.then(|| mac.to_owned())
    })
}

/// Formats a hardware address of six to twenty bytes (InfiniBand) that are not all zero.
fn mac(address: &[u8]) -> Option<String> {
    let usable = (6..=20).contains(&address.len()) && address.iter().any(|byte| *byte != 0);
    let pairs: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    usable.then(|| pairs.join(":"))
}

/// Detects addresses that do not show how to reach the machine from other hosts.
fn is_ignored(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local(),
    }
}

fn scope(address: &Ipv6Addr) -> String {
    let compatible = matches!(address.segments(), [0, 0, 0, 0, 0, 0, ..])
        && !address.is_loopback()
        && !address.is_unspecified();
    let scope = if address.is_unicast_link_local() {
        "link"
    } else if address.segments()[0] & 0xffc0 == 0xfec0 {
        "site"
    } else if address.is_loopback() {
        "host"
    } else {
        "global"
    };
    format!("{}{scope}", if compatible { "compat," } else { "" })
}

/// Returns the interface of the first default route in /proc/net/route.
fn default_interface(routes: &str) -> Option<&str> {
    routes.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [interface, "00000000", _, _, _, _, _, "00000000", ..] if *interface != "*" => {
                Some(*interface)
            }
            _ => None,
        }
    })
}

fn first_reachable(interfaces: &[Interface]) -> Option<String> {
    let reachable = |interface: &&Interface| {
        let mut all = interface.bindings.iter().chain(&interface.bindings6);
        all.any(|binding| !is_ignored(&binding.address))
    };
    Some(interfaces.iter().find(reachable)?.name.clone())
}

/// One line of /proc/net/if_inet6.
struct Inet6 {
    address: Ipv6Addr,
    index: u32,
    prefix: u8,
    bits: u32,
    interface: String,
}

impl Inet6 {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, index, prefix, _, bits, interface] = fields.as_slice() else {
            return None;
        };
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        Some(Self {
            address: u128::from_str_radix(address, 16).ok()?.into(),
            index: number(index)?,
            prefix: u8::try_from(number(prefix)?).ok()?,
            bits: number(bits)?,
            interface: (*interface).to_owned(),
        })
    }

    /// Returns the flags under Facter's names. `noad` is the kernel's "no duplicate address
    /// detection".
    fn flags(&self) -> Vec<&'static str> {
        let names = [
            "temporary",
            "noad",
            "optimistic",
            "dadfailed",
            "homeaddress",
            "deprecated",
            "tentative",
            "permanent",
        ];
        let set = |(bit, name)| (self.bits & (1u32 << bit) != 0).then_some(name);
        names.into_iter().enumerate().filter_map(set).collect()
    }
}

fn from_files(machine: &Machine, inet6: &[Inet6]) -> Dump {
    let links = machine
        .names("/sys/class/net")
        .into_iter()
        .filter_map(|name| {
            let attribute =
                |file: &str| machine.attribute(&format!("/sys/class/net/{name}/{file}"));
            let address = attribute("address").unwrap_or_default();
            let bytes = address.split(':').map(|pair| u8::from_str_radix(pair, 16));
            Some(Link {
                index: attribute("ifindex")?.parse().ok()?,
                address: bytes.collect::<Result<_, _>>().unwrap_or_default(),
                mtu: attribute("mtu").and_then(|mtu| mtu.parse().ok()),
                master: None,
                name,
            })
        });
    let addresses = inet6.iter().map(|line| Address {
        index: line.index,
        label: Some(line.interface.clone()),
        address: line.address.into(),
        prefix: line.prefix,
    });
    Dump {
        links: links.collect(),
        addresses: addresses.collect(),
        routes: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
