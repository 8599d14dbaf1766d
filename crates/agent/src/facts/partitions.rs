//! Partitions, mapped devices and loop devices.

use serde_json::{Value, json};

use super::block_attributes::{blkid, udev};
use super::disks::{BLOCK, size};
use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::mounts;
use super::warning::FactWarning;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let mut partitions = Facts::new();
    for device in machine.names(BLOCK) {
        let path = format!("{BLOCK}/{device}");
        if machine.is_directory(&format!("{path}/device")) {
            for name in parts_of(machine, &path) {
                let fact = partition(machine, &format!("{path}/{name}"), &format!("/dev/{name}"));
                partitions.insert(format!("/dev/{name}"), fact);
            }
        } else if machine.is_directory(&format!("{path}/dm")) {
            let mapped = machine.attribute(&format!("{path}/dm/name"));
            let name = mapped.map_or(format!("/dev/{device}"), |name| {
                format!("/dev/mapper/{name}")
            });
            let fact = partition(machine, &path, &name);
            partitions.insert(name, fact);
        } else if machine.is_directory(&format!("{path}/loop")) {
            let name = format!("/dev/{device}");
            let mut fact = partition(machine, &path, &name);
            if let Some(file) = machine.attribute(&format!("{path}/loop/backing_file")) {
                fact["backing_file"] = json!(file);
            }
            partitions.insert(name, fact);
        }
    }
    add_mounts(machine, &mut partitions);
    Ok(if partitions.is_empty() {
        Facts::new()
    } else {
        single("partitions", Value::Object(partitions))
    })
}

fn parts_of(machine: &Machine, disk: &str) -> Vec<String> {
    let mut names = machine.names(disk);
    names.retain(|name| machine.exists(&format!("{disk}/{name}/partition")));
    names
}

fn partition(machine: &Machine, path: &str, name: &str) -> Value {
    let (first, second) = (udev(machine, path), blkid(machine, name));
    let known = |attribute: &str| {
        first
            .first_of(&[attribute])
            .or_else(|| second.first_of(&[attribute]))
    };
    let mut partition = size(machine, path);
    put(&mut partition, "filesystem", known("ID_FS_TYPE"));
    put(&mut partition, "uuid", known("ID_FS_UUID"));
    put(&mut partition, "label", known("ID_FS_LABEL"));
    put(&mut partition, "partuuid", known("ID_PART_ENTRY_UUID"));
    put(&mut partition, "partlabel", known("ID_PART_ENTRY_NAME"));
    Value::Object(partition)
}

/// Adds the mount points. If a device is mounted more than once, the first mount counts.
fn add_mounts(machine: &Machine, partitions: &mut Facts) {
    for mount in mounts::list(machine).unwrap_or_default().into_iter().rev() {
        if let Some(partition) = partitions.get_mut(&mount.device) {
            partition["mount"] = json!(mount.path);
        }
    }
}
