//! Grains of the hardware and of what stands in for it.

use serde_json::{Value, json};

use super::GrainSet;

const MEBIBYTE: u64 = 1 << 20;

pub(super) fn add(grains: &mut GrainSet<'_>) {
    grains.put("num_cpus", grains.at("processors.count").cloned());
    grains.put("cpu_model", grains.at("processors.models.0").cloned());
    grains.put("cpu_flags", grains.at("platform.cpu_flags").cloned());
    let mebibytes = |path: &str| {
        let bytes = grains.at(path).and_then(Value::as_u64);
        bytes.map(|bytes| bytes / MEBIBYTE)
    };
    let memory = mebibytes("memory.system.total_bytes");
    // Facter has no fact for swap space that does not exist.
    let swap = mebibytes("memory.swap.total_bytes").or(memory.map(|_| 0));
    grains.put("mem_total", memory);
    grains.put("swap_total", swap);
    grains.put("efi", grains.at("platform.efi").cloned());
    disks(grains);
    virtualization(grains);
    identification(grains);
}

fn disks(grains: &mut GrainSet<'_>) {
    let Some(all) = grains.at("disks").and_then(Value::as_object) else {
        return;
    };
    let is_ssd = |disk: &Value| disk.get("type").and_then(Value::as_str) == Some("ssd");
    let chosen = |ssd: bool| -> Value {
        let names = all.iter().filter(|(_, disk)| is_ssd(disk) == ssd);
        names.map(|(name, _)| name.as_str()).collect()
    };
    let (disks, ssds) = (chosen(false), chosen(true));
    grains.put("disks", disks);
    grains.put("ssds", ssds);
}

/// Facter's word, Salt's `virtual` and its `virtual_subtype`.
const VIRTUAL: &[(&str, &str, Option<&str>)] = &[
    ("docker", "container", Some("Docker")),
    ("gce", "kvm", None),
    ("hyperv", "HyperV", None),
    ("lxc", "container", Some("LXC")),
    ("nitro", "Nitro", Some("Amazon EC2")),
    ("openvz", "openvzve", None),
    ("openvzve", "openvzve", None),
    ("ovirt", "kvm", Some("ovirt")),
    ("parallels", "Parallels", None),
    ("podman", "container", Some("Podman")),
    ("rhev", "kvm", Some("rhev")),
    ("systemd_nspawn", "container", Some("systemd-nspawn")),
    ("virtualbox", "VirtualBox", None),
    ("vmware", "VMware", None),
    ("xen0", "xen", Some("Xen Dom0")),
    ("xenhvm", "xen", Some("Xen HVM DomU")),
    ("xenu", "xen", Some("Xen PV DomU")),
];

fn virtualization(grains: &mut GrainSet<'_>) {
    let fact = grains
        .text("virtual")
        .unwrap_or_else(|| "physical".to_owned());
    let known = VIRTUAL.iter().find(|(name, _, _)| *name == fact);
    let (kind, subtype) = known.map_or((fact.as_str(), None), |(_, kind, sub)| (*kind, *sub));
    let kind = json!(kind);
    grains.put("virtual", kind);
    grains.put("virtual_subtype", subtype);
}

/// The names of maker, product and firmware.
fn identification(grains: &mut GrainSet<'_>) {
    for (grain, fact) in [
        ("biosversion", "dmi.bios.version"),
        ("biosvendor", "dmi.bios.vendor"),
        ("biosreleasedate", "dmi.bios.release_date"),
        ("boardname", "dmi.board.product"),
        ("manufacturer", "dmi.manufacturer"),
        ("productname", "dmi.product.name"),
        ("serialnumber", "dmi.product.serial_number"),
        ("uuid", "dmi.product.uuid"),
    ] {
        grains.put(grain, grains.text(fact));
    }
    if let Some(zfs) = grains.at("zfs_version").cloned() {
        grains.put("zfs_support", json!(true));
        grains.put("zfs_feature_flags", json!(zfs != json!("5")));
    }
}
