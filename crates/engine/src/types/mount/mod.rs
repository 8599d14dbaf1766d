//! `mount`: a line of `/etc/fstab`, and its mounted state.

mod fstab;

use std::path::Path;

use serde_json::json;

use super::config_file::{self, NewFile};
use super::exec::Run;
use super::file::place;
use super::{single_line, tool};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    Relations, ResourceType, StateFunction, StepError, SystemObject, TypeSpec, WriteAccess,
};
use fstab::Line;

pub(crate) struct Mount;

static SPEC: TypeSpec = TypeSpec {
    name: "mount",
    aliases: &[],
    summary: "An entry of `/etc/fstab`, and whether it is mounted. A refresh remounts it with its options.",
    name_parameter: "name",
    parameters: &[
        parameter(
            "ensure",
            "`mounted`, `present` (only the entry; mounts stay as they are), `unmounted` (the entry, not mounted), `absent` (neither); `present` by default",
        ),
        parameter("device", "the device; required unless absent or unmounted"),
        parameter("fstype", "the file system type; required with `device`"),
        parameter(
            "options",
            "mount options, as a list or separated by commas; `defaults` by default",
        ),
        parameter("dump", "the fifth field of fstab; 0 by default"),
        parameter("pass", "the sixth field of fstab; 0 by default"),
        parameter("atboot", "false: add the option `noauto`"),
        parameter("persist", "false: no entry in fstab; true by default"),
        parameter("mkmnt", "true: create the directory if it is missing"),
        parameter(
            "remounts",
            "false: unmount and mount instead of `-o remount`; true by default",
        ),
        parameter("target", "the file; `/etc/fstab` by default"),
    ],
    states: &[
        StateFunction {
            function: "mount.mounted",
            implies: &[("ensure", "mounted")],
            arguments: &[
                argument("opts", "options"),
                argument("pass_num", "pass"),
                argument("config", "target"),
            ],
        },
        StateFunction {
            function: "mount.unmounted",
            implies: &[("ensure", "unmounted"), ("persist", "false")],
            arguments: &[argument("config", "target")],
        },
        StateFunction {
            function: "mount.fstab_present",
            implies: &[("ensure", "present")],
            arguments: &[
                argument("name", "device"),
                argument("fs_file", "name"),
                argument("fs_vfstype", "fstype"),
                argument("fs_mntops", "options"),
                argument("fs_freq", "dump"),
                argument("fs_passno", "pass"),
                argument("config", "target"),
            ],
        },
        StateFunction {
            function: "mount.fstab_absent",
            implies: &[("ensure", "absent")],
            arguments: &[
                argument("name", "device"),
                argument("fs_file", "name"),
                argument("config", "target"),
            ],
        },
    ],
    example: r#"[{"type": "Mount", "title": "/srv/cache", "parameters": {
  "ensure": "present", "device": "tmpfs", "fstype": "tmpfs", "options": "size=64m",
  "target": "@ROOT@/fstab"}}]"#,
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ensure {
    Mounted,
    Present,
    Unmounted,
    Absent,
}

pub(crate) struct DesiredMount {
    name: String,
    ensure: Ensure,
    /// The desired line. `None` if none is declared.
    line: Option<Line>,
    persist: bool,
    make_directory: bool,
    remounts: bool,
    target: String,
}

pub(crate) struct ObservedMount {
    line: Option<Line>,
    /// The device that is mounted at the path.
    mounted: Option<String>,
}

impl ResourceType for Mount {
    type Desired = DesiredMount;
    type Observed = ObservedMount;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredMount, Refusal> {
        let words = ["mounted", "present", "defined", "unmounted", "absent"];
        let ensure = match declaration.word("ensure", &words)? {
            Some("mounted") => Ensure::Mounted,
            Some("unmounted") => Ensure::Unmounted,
            Some("absent") => Ensure::Absent,
            _ => Ensure::Present,
        };
        let name = declaration.name()?;
        if !name.starts_with('/') && name != "none" && name != "swap" {
            return Err(Refusal::other(format!("`{name}` must be an absolute path")));
        }
        let line = line(declaration, &name)?;
        if line.is_none() && matches!(ensure, Ensure::Mounted | Ensure::Present) {
            return Err(Refusal::Missing("device"));
        }
        Ok(DesiredMount {
            name: match name.trim_end_matches('/') {
                "" => "/".to_owned(),
                name => name.to_owned(),
            },
            ensure,
            line,
            persist: declaration.boolean("persist")?.unwrap_or(true),
            make_directory: declaration.boolean("mkmnt")?.unwrap_or(false),
            remounts: declaration.boolean("remounts")?.unwrap_or(true),
            target: (declaration.text("target")?).unwrap_or_else(|| "/etc/fstab".to_owned()),
        })
    }

    fn changes(&self, desired: &DesiredMount, observed: &ObservedMount) -> Vec<Change> {
        let mut changes = Vec::new();
        match (&observed.line, &desired.line) {
            (Some(_), _) if desired.persist && desired.ensure == Ensure::Absent => {
                changes.push(Change::new("fstab", json!("present"), json!("absent")));
            }
            (None, Some(_)) if desired.persist && desired.ensure != Ensure::Absent => {
                changes.push(Change::new("fstab", DisplayValue::Absent, json!("present")));
            }
            (Some(old), Some(new)) if desired.persist => changes.extend(old.differences(new)),
            _ => {}
        }
        match (desired.ensure, &observed.mounted) {
            (Ensure::Mounted, None) => {
                changes.push(Change::new("ensure", json!("unmounted"), json!("mounted")));
            }
            (Ensure::Unmounted | Ensure::Absent, Some(_)) => {
                let to = if desired.ensure == Ensure::Absent {
                    "absent"
                } else {
                    "unmounted"
                };
                changes.push(Change::new("ensure", json!("mounted"), json!(to)));
            }
            _ => {}
        }
        changes
    }

    fn refresh_change(&self, desired: &DesiredMount, observed: &ObservedMount) -> Option<Change> {
        let mounted = desired.ensure == Ensure::Mounted && observed.mounted.is_some();
        mounted.then(|| Change::new("mount", json!("mounted"), json!("mounted again")))
    }

    fn relations(&self, desired: &DesiredMount, relations: &mut Relations) {
        relations.provides(SystemObject::Other("mount", desired.name.clone()));
        relations.needs(
            SystemObject::Path(desired.name.clone().into()),
            "its directory",
        );
        relations.needs_path_above(&desired.name);
        for above in Path::new(&desired.name).ancestors().skip(1) {
            let above = above.to_string_lossy().into_owned();
            relations.needs(SystemObject::Other("mount", above), "the mount above it");
        }
    }
}

fn line(declaration: &Declaration, name: &str) -> Result<Option<Line>, Refusal> {
    let Some(device) = single_line::line(declaration, "device")? else {
        return Ok(None);
    };
    let fstype = single_line::word(declaration, "fstype")?;
    if let Some(options) = declaration.texts("options")?
        && options.iter().any(|one| one.contains(char::is_control))
    {
        return Err(declaration.refuse("options", "options without control characters"));
    }
    let mut options = (declaration.texts("options")?)
        .map(|options| options.join(","))
        .filter(|options| !options.is_empty())
        .unwrap_or_else(|| "defaults".to_owned());
    if declaration.boolean("atboot")? == Some(false)
        && !options.split(',').any(|option| option == "noauto")
    {
        options.push_str(",noauto");
    }
    let number = |name| -> Result<u8, Refusal> {
        let given = declaration.integer(name)?.unwrap_or(0);
        u8::try_from(given).map_err(|_| declaration.refuse(name, "a small number"))
    };
    Ok(Some(Line {
        device,
        name: name.to_owned(),
        fstype: fstype.ok_or(Refusal::Missing("fstype"))?,
        options,
        dump: number("dump")?,
        pass: number("pass")?,
    }))
}

impl Provider for Mount {
    fn observe(
        &self,
        desired: &DesiredMount,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedMount, StepError> {
        let content = config_file::read(&access.path(&desired.target))?;
        let table = std::fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| StepError::because("cannot read the mounted file systems", error))?;
        // The kernel reports the real path, without links.
        let path = access.path(&desired.name);
        let real = std::fs::canonicalize(&path).unwrap_or(path);
        Ok(ObservedMount {
            line: fstab::find(content.as_deref().unwrap_or_default(), &desired.name),
            mounted: fstab::mounted_at(&table, &real),
        })
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        if changes.iter().any(|change| change.property != "ensure") {
            let path = write_access.path(&desired.target);
            let line = desired
                .line
                .as_ref()
                .filter(|_| desired.ensure != Ensure::Absent);
            config_file::edit(&path, NewFile::PUBLIC, write_access, |content| {
                fstab::put(content, &desired.name, line)
            })?;
        }
        let mount_differs = changes.iter().any(|change| change.property == "ensure");
        match desired.ensure {
            Ensure::Mounted if mount_differs => mount(desired, write_access)?,
            // The mounted file system has other options than the new line.
            Ensure::Mounted if observed.mounted.is_some() => remount(desired, write_access)?,
            Ensure::Unmounted | Ensure::Absent if mount_differs => unmount(desired, write_access)?,
            _ => {}
        }
        Ok(ApplyResult::default())
    }

    fn refresh(
        &self,
        desired: &DesiredMount,
        _: &ObservedMount,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        remount(desired, write_access)?;
        Ok(ApplyResult::default())
    }
}

fn mount(desired: &DesiredMount, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let path = write_access.path(&desired.name);
    if desired.make_directory {
        place::created_directory(&path).map_err(|error| {
            StepError::because(format!("cannot create {}", path.display()), error)
        })?;
    }
    let line = desired
        .line
        .as_ref()
        .expect("`mounted` was refused without a device");
    let options: Vec<&str> = (line.options.split(','))
        .filter(|option| !matches!(*option, "noauto" | "auto" | "nofail"))
        .collect();
    let mut words = vec!["mount".into(), "-t".into(), line.fstype.clone().into()];
    if !options.is_empty() {
        words.extend(["-o".into(), options.join(",").into()]);
    }
    words.extend([
        "--".into(),
        line.device.clone().into(),
        path.into_os_string(),
    ]);
    tool::act(&Run::new(words), "mount", write_access).map(drop)
}

fn unmount(desired: &DesiredMount, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let words = [
        "umount".into(),
        "--".into(),
        write_access.path(&desired.name).into_os_string(),
    ];
    tool::act(&Run::new(words), "umount", write_access).map(drop)
}

fn remount(desired: &DesiredMount, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    if !desired.remounts {
        unmount(desired, write_access)?;
        return mount(desired, write_access);
    }
    let options = desired
        .line
        .as_ref()
        .map_or("", |line| line.options.as_str());
    let path = write_access.path(&desired.name).into_os_string();
    let words = [
        "mount".into(),
        "-o".into(),
        format!("remount,{options}").into(),
        "--".into(),
        path,
    ];
    tool::act(&Run::new(words), "mount -o remount", write_access).map(drop)
}

#[cfg(test)]
mod tests;
