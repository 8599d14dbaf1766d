//! Properties of block devices that udev and blkid have recorded.
//!
//! Reading their records needs no permissions on the devices and starts no process.

use std::collections::BTreeMap;

use super::machine::Machine;

/// Properties of one device by udev's names.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Attributes(BTreeMap<String, String>);

impl Attributes {
    pub(super) fn first_of(&self, names: &[&str]) -> Option<String> {
        names
            .iter()
            .filter_map(|name| self.0.get(*name))
            .find(|value| !value.is_empty())
            .cloned()
    }
}

/// Returns the properties of a sysfs device from udev's database.
pub(super) fn udev(machine: &Machine, device: &str) -> Attributes {
    let number = machine.attribute(&format!("{device}/dev"));
    let notes = number.and_then(|number| machine.optional(&format!("/run/udev/data/b{number}")));
    parse_udev(&notes.unwrap_or_default())
}

/// Returns the properties of a device such as `/dev/vda1` from blkid's cache, under udev's names.
pub(super) fn blkid(machine: &Machine, device: &str) -> Attributes {
    let cache = machine
        .optional("/run/blkid/blkid.tab")
        .or_else(|| machine.optional("/etc/blkid.tab"));
    parse_blkid(&cache.unwrap_or_default(), device)
}

fn parse_udev(text: &str) -> Attributes {
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("E:")?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Attributes(pairs.collect())
}

/// Parses lines such as `<device UUID="…" TYPE="ext4">/dev/vda1</device>`.
fn parse_blkid(text: &str, device: &str) -> Attributes {
    let line = text.lines().find_map(|line| {
        let (tag, rest) = line.strip_prefix("<device ")?.split_once('>')?;
        (rest.strip_suffix("</device>")? == device).then_some(tag)
    });
    let mut attributes = BTreeMap::new();
    let mut rest = line.unwrap_or_default();
    while let Some((name, (value, tail))) = rest
        .split_once("=\"")
        .and_then(|(name, tail)| Some((name, tail.split_once('"')?)))
    {
        let name = match name.trim() {
            "TYPE" => "ID_FS_TYPE",
            "UUID" => "ID_FS_UUID",
            "LABEL" => "ID_FS_LABEL",
            "PARTUUID" => "ID_PART_ENTRY_UUID",
            "PARTLABEL" => "ID_PART_ENTRY_NAME",
            other => other,
        };
        attributes.insert(name.to_owned(), value.to_owned());
        rest = tail;
    }
    Attributes(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udev_and_blkid_say_the_same_in_two_ways() {
        let udev =
            parse_udev("S:disk/by-uuid/1\nE:ID_FS_TYPE=ext4\nE:ID_FS_UUID=1-2=3\nnonsense\n");
        assert_eq!(
            udev.first_of(&["ID_FS_LABEL", "ID_FS_TYPE"]).as_deref(),
            Some("ext4")
        );
        let blkid = parse_blkid(
            "<device DEVNO=\"0x1\" TYPE=\"swap\">/dev/vda2</device>\n<device UUID=\"1-2=3\" TYPE=\"ext4\">/dev/vda1</device>\n",
            "/dev/vda1",
        );
        assert_eq!(udev, blkid);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(<device |E:)?([A-Z]{0,3}=?\"?.{0,3}){0,5}(>/dev/a</device>)?\n?") {
            parse_udev(&text);
            parse_blkid(&text, "/dev/a");
        }
    }
}
