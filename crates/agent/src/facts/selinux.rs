//! SELinux, from its file system and its configuration.

use serde_json::{Value, json};

use super::group::{Facts, put};
use super::machine::Machine;
use super::mounts;

pub(super) fn facts(machine: &Machine) -> Value {
    let mounts = machine.optional("/proc/self/mounts").unwrap_or_default();
    let place = mounts::parse(&mounts)
        .into_iter()
        .find(|mount| mount.kind == "selinuxfs")
        .map(|mount| mount.path);
    let config = machine.optional("/etc/selinux/config");
    let (Some(place), Some(config)) = (place, config) else {
        return json!({"enabled": false});
    };
    let enforced = machine.attribute(&format!("{place}/enforce")).as_deref() == Some("1");
    let mode = if enforced { "enforcing" } else { "permissive" };
    let mut facts = Facts::new();
    put(&mut facts, "enabled", Some(true));
    put(&mut facts, "enforced", Some(enforced));
    put(&mut facts, "current_mode", Some(mode));
    put(
        &mut facts,
        "policy_version",
        machine.attribute(&format!("{place}/policyvers")),
    );
    put(&mut facts, "config_mode", setting(&config, "SELINUX"));
    put(&mut facts, "config_policy", setting(&config, "SELINUXTYPE"));
    Value::Object(facts)
}

fn setting(config: &str, name: &str) -> Option<String> {
    config.lines().rev().find_map(|line| {
        let (found, value) = line.split_once('=')?;
        (found == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts_and_comments_do_not() {
        let config =
            "#SELINUX=disabled\nSELINUX=permissive\nSELINUX=enforcing\nSELINUXTYPE= targeted\n";
        assert_eq!(setting(config, "SELINUX").as_deref(), Some("enforcing"));
        assert_eq!(setting(config, "SELINUXTYPE").as_deref(), Some("targeted"));
    }
}
