//! Facts about this machine, with the structured names of Facter 4.
//!
//! Every group has a pure part (text or bytes in, value out) and a thin part that reads a
//! [`Machine`]. Groups are independent: a group that fails is omitted and reported, and the others
//! are still used.
//!
//! Not included: network queries (cloud metadata, DNS), Ruby, and caching. `docs/facts.md` lists
//! the facts that Facter prints and this module does not.

mod block_attributes;
mod dhcp;
mod disks;
mod dmi;
mod external;
mod group;
mod host_name;
mod identity;
mod kernel;
mod load;
mod machine;
mod memory;
mod mounts;
mod netlink;
mod networking;
mod os;
mod os_release;
mod partitions;
mod platform;
mod processors;
mod selinux;
mod ssh;
mod timezone;
mod units;
mod uptime;
mod virtualization;
mod warning;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bunraku_model::FactSet;
use serde_json::{Map, Value, json};

use crate::ModuleFacts;
use group::Group;
use machine::Machine;
pub use warning::{FactWarning, WarningPlace};

/// The sources of facts, and the overrides.
#[derive(Clone, Debug)]
pub struct FactOptions {
    /// The machine's file system: `/`, or a directory that stands in for it.
    pub root: PathBuf,
    /// Directories of external facts. As in Facter, an earlier directory wins over a later one.
    /// Within one directory, the later file name wins.
    pub external_dirs: Vec<PathBuf>,
    /// The time limit for one executable fact. It is killed after that.
    pub external_timeout: Duration,
    /// Facts that Puppet modules define. They replace built-in ones, and external ones replace
    /// them, as in Facter.
    pub custom: Map<String, Value>,
    /// Facts that replace all others with the same name.
    pub overrides: Map<String, Value>,
}

impl Default for FactOptions {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            external_dirs: Vec::new(),
            external_timeout: Duration::from_secs(30),
            custom: Map::new(),
            overrides: Map::new(),
        }
    }
}

impl FactOptions {
    /// Returns the options with the facts of modules. The node's own directories win.
    pub fn with_modules(&self, modules: &ModuleFacts) -> Self {
        let mut options = self.clone();
        options.custom.extend(modules.custom.clone());
        options.external_dirs.extend(modules.external_dir.clone());
        options
    }
}

/// The facts, the problems that occurred, and the cost of each group.
#[derive(Clone, Debug)]
pub struct CollectedFacts {
    pub facts: FactSet,
    pub warnings: Vec<FactWarning>,
    pub durations: Vec<(&'static str, Duration)>,
}

const GROUPS: &[(&str, Group)] = &[
    ("kernel", kernel::collect),
    ("os", os::collect),
    ("networking", networking::collect),
    ("processors", processors::collect),
    ("memory", memory::collect),
    ("load_averages", load::collect),
    ("system_uptime", uptime::collect),
    ("mountpoints", mounts::collect),
    ("disks", disks::collect),
    ("partitions", partitions::collect),
    ("filesystems", disks::collect_filesystems),
    ("ssh", ssh::collect),
    ("identity", identity::collect),
    ("timezone", timezone::collect),
    ("virtual", virtualization::collect),
    ("dmi", dmi::collect),
    ("fips_enabled", kernel::collect_fips),
    ("path", identity::collect_path),
    ("platform", platform::collect),
];

/// Collects all facts. Blocks, so do not call it on the async threads.
///
/// Never fails as a whole: a group or file that cannot be read is omitted and reported in
/// `warnings`.
pub fn collect(options: &FactOptions) -> CollectedFacts {
    let machine = Machine::new(options.root.clone());
    let mut facts = Map::new();
    let mut warnings = Vec::new();
    let mut durations = Vec::new();
    for (name, group) in GROUPS {
        let started = Instant::now();
        match group(&machine, &mut warnings) {
            Ok(found) => facts.extend(found),
            Err(error) => warnings.push(FactWarning::of_group(name, &error)),
        }
        durations.push((*name, started.elapsed()));
    }
    facts.insert("bunraku_version".into(), json!(env!("CARGO_PKG_VERSION")));

    facts.extend(options.custom.clone());
    let started = Instant::now();
    let found = external::collect(&options.external_dirs, options.external_timeout);
    facts.extend(found.facts);
    warnings.extend(found.warnings);
    durations.push(("external", started.elapsed()));

    facts.extend(options.overrides.clone());
    facts.sort_keys();
    facts.values_mut().for_each(Value::sort_all_objects);
    CollectedFacts {
        facts: FactSet::new(facts),
        warnings,
        durations,
    }
}
