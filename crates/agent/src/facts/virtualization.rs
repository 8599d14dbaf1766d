//! Detects virtual machines and containers, and their kind.
//!
//! Facter runs `virt-what` and `lspci` if they are installed. This module reads the same signs
//! directly: control groups and mounts, the processor's hypervisor leaf, the firmware's strings,
//! and devices on the PCI bus.

use serde_json::{Value, json};

use super::dmi;
use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::warning::FactWarning;

/// Kinds that name a host rather than a guest.
const PHYSICAL: [&str; 6] = [
    "physical",
    "xen0",
    "vmware_server",
    "vmware_workstation",
    "openvzhn",
    "vserver_host",
];

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let signs = HypervisorSigns::read(machine);
    let kind = signs.kind();
    let mut facts = single("is_virtual", !PHYSICAL.contains(&kind));
    let hypervisors = signs.hypervisors(kind);
    if !hypervisors.is_empty() {
        facts.insert("hypervisors".to_owned(), Value::Object(hypervisors));
    }
    facts.insert("virtual".to_owned(), json!(kind));
    Ok(facts)
}

/// A container: its runtime, and its id or name there.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Container {
    kind: &'static str,
    details: Value,
}

impl Container {
    pub(super) fn is_docker(&self) -> bool {
        self.kind == "docker"
    }
}

/// Returns the container that the machine runs in, if any.
pub(super) fn container(machine: &Machine) -> Option<Container> {
    let text = |path: &str| machine.optional(path).unwrap_or_default();
    // Only root can read the environment of process 1, and not on every system.
    container_from(
        &text("/proc/1/cgroup"),
        &text("/proc/1/environ"),
        &text("/proc/self/mountinfo"),
        machine.exists("/run/.containerenv"),
        machine.attribute("/etc/machine-id"),
    )
}

/// Detects a container. With control groups v2, a container does not see its own path. But Docker
/// mounts `/etc/hosts` from a directory that is named after the container. (`/.dockerenv` proves
/// nothing: it remains in virtual machines that were built from an image.)
fn container_from(
    cgroup: &str,
    environ: &str,
    mounts: &str,
    podman: bool,
    machine_id: Option<String>,
) -> Option<Container> {
    let manager = environ
        .split('\0')
        .find_map(|variable| variable.strip_prefix("container="));
    let after = |text: &str, mark: &str| {
        let (_, rest) = text.split_once(mark)?;
        let id = rest.split(['/', '\n', ' ']).next()?;
        (!id.is_empty()).then(|| id.to_owned())
    };
    let lxc = cgroup.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        after(path.strip_prefix('/')?, "lxc/")
    });
    if lxc.is_some() || manager == Some("lxc") {
        let details = lxc.map_or(json!({}), |name| json!({"name": name}));
        return Some(Container {
            kind: "lxc",
            details,
        });
    }
    let docker = after(cgroup, "docker/").or_else(|| after(mounts, "/docker/containers/"));
    if let Some(id) = docker {
        let details = json!({"id": id});
        return Some(Container {
            kind: "docker",
            details,
        });
    }
    let (kind, details) = match manager {
        Some("systemd-nspawn") => {
            let details = machine_id.map_or(json!({}), |id| json!({"id": id}));
            ("systemd_nspawn", details)
        }
        Some("podman") => ("podman", json!({})),
        _ if podman => ("podman", json!({})),
        Some(_) => ("container_other", json!({})),
        None => return None,
    };
    Some(Container { kind, details })
}

/// All the signs that can reveal a hypervisor.
#[derive(Default)]
struct HypervisorSigns {
    container: Option<Container>,
    bios_vendor: String,
    manufacturer: String,
    product: String,
    /// The signature in the processor's leaf 0x40000000: `KVMKVMKVM`.
    leaf: String,
    /// Vendor numbers on the PCI bus: `0x1af4`.
    pci: Vec<String>,
    /// `compatible` of the device tree's hypervisor node.
    device_tree: String,
    openvz: Option<u64>,
    vserver: Option<u64>,
    xen_host: bool,
    xen_guest: bool,
}

impl HypervisorSigns {
    fn read(machine: &Machine) -> Self {
        let dmi = |name: &str| dmi::field(machine, name).unwrap_or_default();
        let status = machine.optional("/proc/self/status").unwrap_or_default();
        let number = |field: &str| status_number(&status, field);
        let openvz = !machine.names("/proc/vz").is_empty() && !machine.exists("/proc/lve/list");
        let pci = machine.names("/sys/bus/pci/devices").into_iter();
        let pci = pci.filter_map(|device| {
            machine.attribute(&format!("/sys/bus/pci/devices/{device}/vendor"))
        });
        let xen = machine.attribute("/sys/hypervisor/type").as_deref() == Some("xen");
        Self {
            container: container(machine),
            bios_vendor: dmi("bios_vendor"),
            manufacturer: dmi("sys_vendor"),
            product: dmi("product_name"),
            leaf: if machine.is_live() {
                hypervisor_leaf(machine)
            } else {
                String::new()
            },
            pci: pci.collect(),
            device_tree: machine
                .attribute("/proc/device-tree/hypervisor/compatible")
                .unwrap_or_default(),
            openvz: number("envID:").filter(|_| openvz),
            vserver: number("VxID:").or_else(|| number("s_context:")),
            xen_host: machine.exists("/dev/xen/evtchn")
                && machine.attribute("/proc/xen/capabilities").as_deref() == Some("control_d"),
            xen_guest: xen || machine.exists("/proc/xen") || machine.exists("/dev/xvda1"),
        }
    }

    /// Returns Facter's name for the hypervisor. The checks are in Facter's order.
    fn kind(&self) -> &'static str {
        if let Some(container) = &self.container {
            return container.kind;
        }
        if self.bios_vendor.contains("Google") {
            return "gce";
        }
        let host = match (self.openvz, self.vserver) {
            _ if self.xen_host => Some("xen0"),
            (Some(0), _) => Some("openvzhn"),
            (Some(_), _) => Some("openvzve"),
            (_, Some(0)) => Some("vserver_host"),
            (_, Some(_)) => Some("vserver"),
            _ => None,
        };
        host.or_else(|| self.by_processor())
            .or_else(|| self.xen_guest.then(|| self.xen_kind()))
            .or_else(|| self.by_firmware())
            .or_else(|| self.by_device())
            .unwrap_or("physical")
    }

    fn by_processor(&self) -> Option<&'static str> {
        Some(match self.leaf.as_str() {
            "KVMKVMKVM" | "Linux KVM Hv" => "kvm",
            "VMwareVMware" => "vmware",
            "VBoxVBoxVBox" => "virtualbox",
            // Other hypervisors imitate Hyper-V and show the same leaf.
            "Microsoft Hv" => self.by_firmware().unwrap_or("hyperv"),
            "XenVMMXenVMM" => self.xen_kind(),
            "TCGTCGTCGTCG" => "qemu",
            "bhyve bhyve " => "bhyve",
            "prl hyperv  " | " lrpepyh  vr" => "parallels",
            "OpenBSDVMM58" => "vmm",
            _ if self.device_tree.contains("linux,kvm") => "kvm",
            _ if self.device_tree.contains("xen") => "xenu",
            _ => return None,
        })
    }

    fn xen_kind(&self) -> &'static str {
        if self.product.contains("HVM domU") || self.leaf == "XenVMMXenVMM" {
            "xenhvm"
        } else {
            "xenu"
        }
    }

    fn by_firmware(&self) -> Option<&'static str> {
        const PRODUCTS: [(&str, &str); 11] = [
            ("VMware", "vmware"),
            ("VirtualBox", "virtualbox"),
            ("Parallels", "parallels"),
            ("KVM", "kvm"),
            ("Virtual Machine", "hyperv"),
            ("RHEV Hypervisor", "rhev"),
            ("oVirt Node", "ovirt"),
            ("HVM domU", "xenhvm"),
            ("Bochs", "bochs"),
            ("OpenBSD", "vmm"),
            ("BHYVE", "bhyve"),
        ];
        if self.bios_vendor.contains("Amazon EC2") {
            return Some("kvm");
        }
        let known = PRODUCTS
            .iter()
            .find(|(name, _)| self.product.contains(name));
        known.map(|(_, kind)| *kind)
    }

    fn by_device(&self) -> Option<&'static str> {
        self.pci.iter().find_map(|vendor| match vendor.as_str() {
            "0x80ee" => Some("virtualbox"),
            "0x5853" => Some("xenhvm"),
            "0x1414" => Some("hyperv"),
            "0x15ad" => Some("vmware"),
            "0x1ab8" => Some("parallels"),
            "0x1af4" => Some("kvm"),
            _ => None,
        })
    }

    fn hypervisors(&self, kind: &str) -> Facts {
        let mut found = Facts::new();
        if let Some(container) = &self.container {
            put(&mut found, container.kind, Some(container.details.clone()));
        }
        let is_kvm = self.by_processor() == Some("kvm")
            || self.by_device() == Some("kvm")
            || self.bios_vendor.contains("Amazon EC2")
            || self.bios_vendor.contains("Google")
            || self.product.contains("OpenStack");
        let other = matches!(self.by_firmware(), Some("virtualbox" | "parallels"));
        put(
            &mut found,
            "kvm",
            (is_kvm && !other).then(|| self.provider()),
        );
        let empty = |is: bool| is.then(|| json!({}));
        let vmware = kind == "vmware" || self.manufacturer == "VMware, Inc.";
        let hyperv = self.manufacturer.contains("Microsoft") || self.product == "Virtual Machine";
        put(&mut found, "vmware", empty(vmware));
        put(&mut found, "virtualbox", empty(kind == "virtualbox"));
        put(&mut found, "hyperv", empty(hyperv));
        let openvz = self.openvz.map(|id| json!({"id": id, "host": id == 0}));
        put(&mut found, "openvz", openvz);
        let context = if kind == "xenhvm" { "hvm" } else { "pv" };
        let xen = json!({"context": context, "privileged": self.xen_host});
        put(&mut found, "xen", kind.contains("xen").then_some(xen));
        found
    }

    fn provider(&self) -> Value {
        match self.manufacturer.as_str() {
            "Google" => json!({"google": true}),
            name if name.starts_with("OpenStack") => json!({"openstack": true}),
            name if name.starts_with("Amazon") => json!({"amazon": true}),
            _ => json!({}),
        }
    }
}

fn status_number(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == field).then(|| words.next()?.parse().ok())?
    })
}

/// Returns the hypervisor's signature from the processor's identification.
#[cfg(target_arch = "x86_64")]
fn hypervisor_leaf(machine: &Machine) -> String {
    use std::arch::x86_64::__cpuid;
    let cpuinfo = machine.optional("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    // Without the flag, the leaf contains the data of the processor's last valid leaf.
    if !flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")) {
        return String::new();
    }
    let leaf = __cpuid(0x4000_0000);
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').to_owned()
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_leaf(_: &Machine) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(signs: HypervisorSigns, expect: Expect) {
        let kind = signs.kind();
        let hypervisors = Value::Object(signs.hypervisors(kind));
        expect.assert_eq(&format!("{kind} {hypervisors}"));
    }

    fn dmi(bios: &str, manufacturer: &str, product: &str) -> HypervisorSigns {
        HypervisorSigns {
            bios_vendor: bios.to_owned(),
            manufacturer: manufacturer.to_owned(),
            product: product.to_owned(),
            ..HypervisorSigns::default()
        }
    }

    #[test]
    fn firmware_gives_hypervisors_away() {
        check(
            dmi("Google", "Google", "Google Compute Engine"),
            expect![[r#"gce {"kvm":{"google":true}}"#]],
        );
        check(
            dmi("Amazon EC2", "Amazon EC2", "m5.large"),
            expect![[r#"kvm {"kvm":{"amazon":true}}"#]],
        );
        check(
            dmi("Phoenix", "VMware, Inc.", "VMware7,1"),
            expect![[r#"vmware {"vmware":{}}"#]],
        );
        check(
            dmi(
                "American Megatrends",
                "Microsoft Corporation",
                "Virtual Machine",
            ),
            expect![[r#"hyperv {"hyperv":{}}"#]],
        );
        check(
            dmi("innotek GmbH", "innotek GmbH", "VirtualBox"),
            expect![[r#"virtualbox {"virtualbox":{}}"#]],
        );
        check(
            dmi("Dell Inc.", "Dell Inc.", "PowerEdge R640"),
            expect!["physical {}"],
        );
    }

    #[test]
    fn the_processor_and_the_bus_give_hypervisors_away() {
        let leaf = |leaf: &str| HypervisorSigns {
            leaf: leaf.to_owned(),
            ..HypervisorSigns::default()
        };
        check(leaf("KVMKVMKVM"), expect![[r#"kvm {"kvm":{}}"#]]);
        check(
            leaf("XenVMMXenVMM"),
            expect![[r#"xenhvm {"xen":{"context":"hvm","privileged":false}}"#]],
        );
        let virtio = HypervisorSigns {
            pci: vec!["0x8086".to_owned(), "0x1af4".to_owned()],
            ..HypervisorSigns::default()
        };
        check(virtio, expect![[r#"kvm {"kvm":{}}"#]]);
    }

    #[test]
    fn hosts_of_guests_are_not_virtual() {
        let xen = HypervisorSigns {
            xen_host: true,
            xen_guest: true,
            ..HypervisorSigns::default()
        };
        assert!(PHYSICAL.contains(&xen.kind()));
        let openvz = HypervisorSigns {
            openvz: Some(0),
            ..HypervisorSigns::default()
        };
        assert!(PHYSICAL.contains(&openvz.kind()));
    }

    #[test]
    fn container_runtimes_are_distinguished() {
        let check = |cgroup: &str, environ: &str, mounts: &str, podman, expect: Expect| {
            let found = container_from(cgroup, environ, mounts, podman, Some("m1".to_owned()));
            let said = found.map_or("none".to_owned(), |c| format!("{} {}", c.kind, c.details));
            expect.assert_eq(&said);
        };
        check(
            "9:cpu:/docker/abc\n",
            "",
            "",
            false,
            expect![[r#"docker {"id":"abc"}"#]],
        );
        check(
            "0::/\n",
            "",
            "7 8 0:1 /var/lib/docker/containers/abc/hosts /etc/hosts rw - ext4 x rw\n",
            false,
            expect![[r#"docker {"id":"abc"}"#]],
        );
        check(
            "9:cpu:/lxc/web/x\n",
            "",
            "",
            false,
            expect![[r#"lxc {"name":"web"}"#]],
        );
        check(
            "0::/\n",
            "A=1\0container=lxc\0",
            "",
            false,
            expect!["lxc {}"],
        );
        check(
            "0::/\n",
            "container=systemd-nspawn\0",
            "",
            false,
            expect![[r#"systemd_nspawn {"id":"m1"}"#]],
        );
        check("0::/\n", "", "", true, expect!["podman {}"]);
        check(
            "0::/\n",
            "container=oci\0",
            "",
            false,
            expect!["container_other {}"],
        );
        check("0::/init.scope\n", "HOME=/\0", "", false, expect!["none"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([0-9]?:?/?(docker/|lxc/|container=)?.{0,6}\n?){0,5}") {
            container_from(&text, &text, &text, false, None);
            status_number(&text, "envID:");
        }
    }
}
