//! `sysctl`: a kernel setting, now and after the next boot.

use serde_json::json;

use super::config_file::{self, LineEdit, NewFile};
use super::{presence, single_line};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    Relations, ResourceType, StateFunction, StepError, SystemObject, TypeSpec,
};

pub(crate) struct Sysctl;

const USUAL_FILE: &str = "/etc/sysctl.d/99-bunraku.conf";

static SPEC: TypeSpec = TypeSpec {
    name: "sysctl",
    aliases: &[],
    summary: "A kernel parameter, in the running kernel and in a file for the next boot.",
    name_parameter: "name",
    parameters: &[
        parameter(
            "ensure",
            "`present` (the default) or `absent`: removed from the file; the running value stays",
        ),
        parameter("value", "the value; required unless absent"),
        parameter(
            "target",
            "the file; `/etc/sysctl.d/99-bunraku.conf` by default",
        ),
        parameter("persist", "false: only the running kernel; true by default"),
        parameter("apply", "false: only the file; true by default"),
        parameter(
            "comment",
            "accepted for compatibility with Puppet; no effect",
        ),
    ],
    states: &[StateFunction {
        function: "sysctl.present",
        implies: &[("ensure", "present")],
        arguments: &[argument("config", "target")],
    }],
    example: r#"[{"type": "Sysctl", "title": "net.ipv4.ip_forward", "parameters": {
  "value": "1", "apply": false, "target": "@ROOT@/sysctl.conf"}}]"#,
};

pub(crate) struct DesiredSysctl {
    name: String,
    present: bool,
    value: String,
    target: String,
    persist: bool,
    apply: bool,
}

pub(crate) struct ObservedSysctl {
    running: Option<String>,
    persisted: Option<String>,
}

/// Normalises white space. Tabs and runs of spaces mean the same to the kernel.
fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the parts of a name. `net.ipv4.conf.all` and `net/ipv4/conf/all` are the
/// same setting. In the form with slashes a dot is part of a name (`eth0.1`).
fn parts(name: &str) -> Vec<String> {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.split('/').map(str::to_owned).collect(),
        // In the dotted form a slash stands for a dot.
        _ => name.split('.').map(|part| part.replace('/', ".")).collect(),
    }
}

fn assignment(line: &str) -> Option<(Vec<String>, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.split_once('=')?;
    Some((parts(name.trim().trim_start_matches('-')), normal(value)))
}

impl DesiredSysctl {
    fn kernel_path(&self) -> String {
        format!("/proc/sys/{}", parts(&self.name).join("/"))
    }

    fn find(&self, content: &[u8]) -> Option<String> {
        let mine = parts(&self.name);
        // The last assignment wins.
        config_file::lines(content)
            .filter_map(|line| assignment(&config_file::text(line)))
            .filter(|(name, _)| *name == mine)
            .last()
            .map(|(_, value)| value)
    }

    fn put(&self, content: &[u8]) -> Vec<u8> {
        let mine = parts(&self.name);
        let entry = (self.present).then(|| format!("{} = {}", self.name, self.value));
        let mut first = entry.clone();
        config_file::rewrite(content, entry, |line| match assignment(line) {
            Some((name, _)) if name == mine => {
                first.take().map_or(LineEdit::Remove, LineEdit::Become)
            }
            _ => LineEdit::Keep,
        })
    }
}

impl ResourceType for Sysctl {
    type Desired = DesiredSysctl;
    type Observed = ObservedSysctl;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredSysctl, Refusal> {
        let present = presence::present(declaration)?;
        let name = single_line::name_word(declaration)?;
        if parts(&name)
            .iter()
            .any(|part| matches!(part.as_str(), "" | "." | ".."))
        {
            return Err(Refusal::other(format!(
                "`{name}` is not a valid kernel parameter"
            )));
        }
        let value = match single_line::line(declaration, "value")? {
            None if present => return Err(Refusal::Missing("value")),
            value => normal(&value.unwrap_or_default()),
        };
        declaration.text("comment")?;
        Ok(DesiredSysctl {
            name,
            present,
            value,
            target: (declaration.text("target")?).unwrap_or_else(|| USUAL_FILE.to_owned()),
            persist: declaration.boolean("persist")?.unwrap_or(true),
            apply: declaration.boolean("apply")?.unwrap_or(true),
        })
    }

    fn changes(&self, desired: &DesiredSysctl, observed: &ObservedSysctl) -> Vec<Change> {
        let mut changes = Vec::new();
        if !desired.present {
            if observed.persisted.is_some() {
                changes.push(Change::new("ensure", json!("present"), json!("absent")));
            }
            return changes;
        }
        let from = |value: &Option<String>| {
            value
                .clone()
                .map_or(DisplayValue::Absent, DisplayValue::from)
        };
        if desired.persist && observed.persisted.as_ref() != Some(&desired.value) {
            let old = from(&observed.persisted);
            changes.push(Change::new("persisted", old, json!(desired.value)));
        }
        if desired.apply && observed.running.as_ref() != Some(&desired.value) {
            let old = from(&observed.running);
            changes.push(Change::new("value", old, json!(desired.value)));
        }
        changes
    }

    fn relations(&self, desired: &DesiredSysctl, relations: &mut Relations) {
        relations.provides(SystemObject::Other("sysctl", desired.name.clone()));
        relations.needs(
            SystemObject::Path(desired.target.clone().into()),
            "its file",
        );
    }
}

impl Provider for Sysctl {
    fn observe(
        &self,
        desired: &DesiredSysctl,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedSysctl, StepError> {
        let file = config_file::read(&access.path(&desired.target))?;
        let kernel = access.path(desired.kernel_path());
        let running = match std::fs::read_to_string(&kernel) {
            Ok(value) => Some(normal(&value)),
            Err(_) if !desired.apply || !desired.present || access.may_appear() => None,
            Err(error) => {
                let message = format!("the running kernel has no parameter `{}`", desired.name);
                return Err(StepError::because(message, error));
            }
        };
        Ok(ObservedSysctl {
            running,
            persisted: desired.find(file.as_deref().unwrap_or_default()),
        })
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, _, changes, write_access) = step.parts();
        for change in changes {
            if change.property == "value" {
                // The kernel checks the value before it is written to a file.
                std::fs::write(write_access.path(desired.kernel_path()), &desired.value).map_err(
                    |error| {
                        let message = format!("the kernel refused `{}`", desired.value);
                        StepError::because(message, error)
                    },
                )?;
            }
        }
        if changes.iter().any(|change| change.property != "value") {
            let path = write_access.path(&desired.target);
            let put = |content: &[u8]| desired.put(content);
            config_file::edit(&path, NewFile::PUBLIC, write_access, put)?;
        }
        Ok(ApplyResult::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing_root::Machine;
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_setting_lands_in_the_kernel_and_in_the_file() {
        let machine = Machine::new();
        machine.write("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
        machine.write("/etc/sysctl.d/99-bunraku.conf", "# ours\nvm.swappiness=1\n");
        let transcript = machine.converges(json!([{
            "type": "Sysctl", "title": "net.ipv4.ip_local_port_range", "parameters": {"value": "1024  65000"},
        }]));
        expect![[r#"
            Sysctl[net.ipv4.ip_local_port_range] changed
              persisted: - -> 1024 65000
              value: 32768 60999 -> 1024 65000
        "#]]
        .assert_eq(&transcript);
        expect![[r#"
            # ours
            vm.swappiness=1
            net.ipv4.ip_local_port_range = 1024 65000
        "#]]
        .assert_eq(&machine.read("/etc/sysctl.d/99-bunraku.conf"));
    }

    #[test]
    fn dots_and_slashes_name_the_same_setting() {
        assert_eq!(
            parts("net/ipv4/conf/eth0.1/rp_filter"),
            parts("net.ipv4.conf.eth0/1.rp_filter")
        );
        let machine = Machine::new();
        machine.write("/etc/s.conf", "net/ipv4/ip_forward=0\n");
        machine.converges(json!([{"type": "Sysctl", "title": "net.ipv4.ip_forward",
            "parameters": {"value": 1, "apply": false, "target": "/etc/s.conf"}}]));
        assert_eq!(machine.read("/etc/s.conf"), "net.ipv4.ip_forward = 1\n");
        machine.converges(json!([{"type": "Sysctl", "title": "net.ipv4.ip_forward",
            "parameters": {"ensure": "absent", "target": "/etc/s.conf"}}]));
        assert_eq!(machine.read("/etc/s.conf"), "");
    }

    #[test]
    fn an_unknown_setting_fails_and_leaves_no_trace_in_the_file() {
        let machine = Machine::new();
        let transcript = machine
            .apply(json!([{"type": "Sysctl", "title": "no.such", "parameters": {"value": 1}}]));
        assert!(
            transcript.contains("the running kernel has no parameter `no.such`"),
            "{transcript}"
        );
        assert!(!machine.path("/etc/sysctl.d").exists());
    }

    #[test]
    fn the_real_kernel_takes_a_value() {
        let place = tempfile::tempdir().unwrap();
        let now = std::fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
        let summary = super::super::testing::apply(
            place.path(),
            json!([{"type": "Sysctl",
            "title": "kernel.domainname", "parameters": {"value": now.trim(), "persist": false}}]),
        );
        let transcript = super::super::testing_root::transcript(&summary);
        assert_eq!(transcript, "Sysctl[kernel.domainname] unchanged\n");
    }
}
