//! Disks, and the file systems that the kernel can mount.

use serde_json::{Value, json};

use super::block_attributes::{Attributes, udev};
use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::units;
use super::warning::FactWarning;

pub(super) const BLOCK: &str = "/sys/block";

/// Linux counts in sectors of 512 bytes, whatever the device's sector size is.
const SECTOR: u64 = 512;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let mut disks = Facts::new();
    for name in machine.names(BLOCK) {
        if machine.exists(&format!("{BLOCK}/{name}/device")) {
            let fact = disk(machine, &name);
            disks.insert(name, fact);
        }
    }
    Ok(if disks.is_empty() {
        Facts::new()
    } else {
        single("disks", Value::Object(disks))
    })
}

fn disk(machine: &Machine, name: &str) -> Value {
    let attribute = |path: &str| machine.attribute(&format!("{BLOCK}/{name}/{path}"));
    let known = udev(machine, &format!("{BLOCK}/{name}"));
    let kind = attribute("queue/rotational").map(|flag| if flag == "0" { "ssd" } else { "hdd" });
    let mut disk = Facts::new();
    put(&mut disk, "model", attribute("device/model"));
    put(&mut disk, "vendor", attribute("device/vendor"));
    put(&mut disk, "type", kind);
    put(
        &mut disk,
        "serial",
        serial(&known).or_else(|| attribute("device/serial")),
    );
    put(
        &mut disk,
        "wwn",
        known.first_of(&["ID_WWN_WITH_EXTENSION", "ID_WWN"]),
    );
    disk.extend(size(machine, &format!("{BLOCK}/{name}")));
    Value::Object(disk)
}

/// Returns the first serial number that udev knows, in the order of `lsblk`.
fn serial(known: &Attributes) -> Option<String> {
    known.first_of(&[
        "SCSI_IDENT_SERIAL",
        "ID_SCSI_SERIAL",
        "ID_SERIAL_SHORT",
        "ID_SERIAL",
    ])
}

/// Returns `size` and `size_bytes` of a disk or partition.
pub(super) fn size(machine: &Machine, device: &str) -> Facts {
    let sectors = machine.attribute(&format!("{device}/size"));
    let sectors: Option<u64> = sectors.and_then(|sectors| sectors.parse().ok());
    let Some(bytes) = sectors.and_then(|sectors| sectors.checked_mul(SECTOR)) else {
        return Facts::new();
    };
    let mut facts = single("size", units::bytes(bytes));
    facts.insert("size_bytes".to_owned(), json!(bytes));
    facts
}

pub(super) fn collect_filesystems(
    machine: &Machine,
    _: &mut Vec<FactWarning>,
) -> Result<Facts, GroupError> {
    let text = machine.text("/proc/filesystems")?;
    Ok(single("filesystems", filesystems(&text)))
}

/// Returns the file systems that need a device. The others are marked `nodev`.
fn filesystems(text: &str) -> String {
    let mut names: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains(char::is_whitespace))
        .filter(|name| *name != "fuseblk")
        .collect();
    names.sort_unstable();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_on_devices_are_listed() {
        let text = "nodev\tsysfs\n\text4\n\tfuseblk\n\tbtrfs\n";
        assert_eq!(filesystems(text), "btrfs,ext4");
    }
}
