//! The firmware's description of the machine, from /sys/class/dmi/id.

use serde_json::{Value, json};

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::warning::FactWarning;

/// Returns the content of a file below /sys/class/dmi/id. Serial numbers need root.
pub(super) fn field(machine: &Machine, name: &str) -> Option<String> {
    machine.attribute(&format!("/sys/class/dmi/id/{name}"))
}

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let part = |members: &[(&str, &str)]| {
        let mut part = Facts::new();
        for (name, file) in members {
            put(&mut part, name, field(machine, file));
        }
        part
    };
    let mut chassis = part(&[("asset_tag", "chassis_asset_tag")]);
    let kind = field(machine, "chassis_type");
    put(&mut chassis, "type", kind.as_deref().and_then(chassis_name));
    let parts = [
        (
            "bios",
            part(&[
                ("vendor", "bios_vendor"),
                ("version", "bios_version"),
                ("release_date", "bios_date"),
            ]),
        ),
        (
            "board",
            part(&[
                ("asset_tag", "board_asset_tag"),
                ("manufacturer", "board_vendor"),
                ("product", "board_name"),
                ("serial_number", "board_serial"),
            ]),
        ),
        ("chassis", chassis),
        (
            "product",
            part(&[
                ("name", "product_name"),
                ("serial_number", "product_serial"),
                ("uuid", "product_uuid"),
            ]),
        ),
    ];
    let mut dmi = part(&[("manufacturer", "sys_vendor")]);
    for (name, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
        dmi.insert(name.to_owned(), json!(part));
    }
    Ok(if dmi.is_empty() {
        Facts::new()
    } else {
        single("dmi", Value::Object(dmi))
    })
}

/// Returns the chassis name from the SMBIOS specification, 7.4.1. Number 2 is "unknown".
fn chassis_name(number: &str) -> Option<&'static str> {
    const NAMES: [&str; 32] = [
        "Other",
        "",
        "Desktop",
        "Low Profile Desktop",
        "Pizza Box",
        "Mini Tower",
        "Tower",
        "Portable",
        "Laptop",
        "Notebook",
        "Hand Held",
        "Docking Station",
        "All in One",
        "Sub Notebook",
        "Space-Saving",
        "Lunch Box",
        "Main System Chassis",
        "Expansion Chassis",
        "SubChassis",
        "Bus Expansion Chassis",
        "Peripheral Chassis",
        "Storage Chassis",
        "Rack Mount Chassis",
        "Sealed-Case PC",
        "Multi-system",
        "CompactPCI",
        "AdvancedTCA",
        "Blade",
        "Blade Enclosure",
        "Tablet",
        "Convertible",
        "Detachable",
    ];
    let index = number.trim().parse::<usize>().ok()?.checked_sub(1)?;
    NAMES.get(index).copied().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chassis_numbers_have_names() {
        assert_eq!(chassis_name("1"), Some("Other"));
        assert_eq!(chassis_name("23"), Some("Rack Mount Chassis"));
        for odd in ["0", "2", "33", "-1", "x", ""] {
            assert_eq!(chassis_name(odd), None, "{odd}");
        }
    }
}
