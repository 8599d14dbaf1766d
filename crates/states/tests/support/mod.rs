//! A tree in a directory or in memory, with the engine's functions.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_engine::{
    ApplyOptions, Cancellation, CatalogPlan, OrderingMode, PlanOptions, Registry, Summary,
    apply_plan,
};
use bunraku_states::{
    CompileError, CompiledStates, Function, Input, Lookup, Target, Tree, World, WorldError, compile,
};
use serde_json::{Map, Value};

/// Files by path, for each tree.
pub(crate) struct Memory {
    pub(crate) states: BTreeMap<String, String>,
    pub(crate) pillar: BTreeMap<String, String>,
    registry: Registry,
}

impl Memory {
    pub(crate) fn new(states: &[(&str, &str)], pillar: &[(&str, &str)]) -> Self {
        let owned = |files: &[(&str, &str)]| {
            files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect()
        };
        Self {
            states: owned(states),
            pillar: owned(pillar),
            registry: Registry::standard(),
        }
    }

    /// Reads all files below two directories.
    pub(crate) fn read(states: &Path, pillar: &Path) -> Self {
        let mut memory = Self::new(&[], &[]);
        memory.states = files_below(states);
        memory.pillar = files_below(pillar);
        memory
    }
}

fn files_below(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let below = path.strip_prefix(root).expect("below the root");
                files.insert(below.to_string_lossy().into_owned(), text);
            }
        }
    }
    files
}

impl World for Memory {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        let files = if tree == Tree::States {
            &self.states
        } else {
            &self.pillar
        };
        Ok(files.get(path).cloned())
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        let files = if tree == Tree::States {
            &self.states
        } else {
            &self.pillar
        };
        Ok(files
            .keys()
            .filter(|path| path.ends_with(".sls"))
            .cloned()
            .collect())
    }

    fn function(&self, name: &str) -> Lookup {
        let Some((spec, function)) = self.registry.state_function(name) else {
            return Lookup::UnknownFunction;
        };
        Lookup::Known(Function {
            type_name: spec.name.to_owned(),
            implies: owned(function.implies),
            arguments: (function.arguments.iter())
                .map(|argument| (argument.salt.to_owned(), argument.ours.to_owned()))
                .collect(),
            name_parameter: spec.name_parameter.to_owned(),
            parameters: spec
                .parameters
                .iter()
                .map(|parameter| parameter.name.to_owned())
                .collect(),
        })
    }

    /// Reads from this machine, for formulas.
    fn call(
        &self,
        function: &str,
        positional: &[Value],
        _: &Map<String, Value>,
    ) -> Result<Value, WorldError> {
        let argument = positional
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default();
        match function {
            "file.file_exists" => Ok(Path::new(argument).is_file().into()),
            "file.directory_exists" => Ok(Path::new(argument).is_dir().into()),
            _ => Err(WorldError::new(format!(
                "`{function}` is not available while states are compiled"
            ))),
        }
    }

    fn functions(&self) -> Vec<String> {
        let all = self.registry.specs().flat_map(|spec| spec.states);
        all.map(|state| state.function.to_owned()).collect()
    }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) fn facts() -> Map<String, Value> {
    let facts = serde_json::json!({
        "os": {"name": "Debian", "family": "Debian", "release": {"full": "12.5", "major": "12"},
               "distro": {"codename": "bookworm"}},
        "kernel": "Linux", "networking": {"fqdn": "web1.example.net", "hostname": "web1"},
    });
    facts.as_object().cloned().expect("a map")
}

/// The facts of a whole Debian machine, as the agent reports them.
pub(crate) fn debian_facts() -> Map<String, Value> {
    let facts = serde_json::json!({
        "os": {"name": "Debian", "family": "Debian", "architecture": "amd64", "hardware": "x86_64",
               "release": {"full": "12.11", "major": "12", "minor": "11"},
               "selinux": {"enabled": false},
               "distro": {"codename": "bookworm", "id": "Debian",
                          "description": "Debian GNU/Linux 12 (bookworm)",
                          "release": {"full": "12.11", "major": "12", "minor": "11"}}},
        "kernel": "Linux", "kernelrelease": "6.1.0-18-amd64", "kernelversion": "6.1.0",
        "kernelmajversion": "6.1", "timezone": "UTC", "virtual": "kvm", "is_virtual": true,
        "path": "/usr/sbin:/usr/bin:/sbin:/bin", "fips_enabled": false, "filesystems": "ext4",
        "networking": {"fqdn": "web1.example.net", "hostname": "web1", "domain": "example.net",
                       "ip": "192.0.2.2", "ip6": "fd00::2", "primary": "eth0",
                       "interfaces": {
                           "lo": {"bindings": [{"address": "127.0.0.1"}],
                                  "bindings6": [{"address": "::1"}], "ip": "127.0.0.1"},
                           "eth0": {"bindings": [{"address": "192.0.2.2"}],
                                    "bindings6": [{"address": "fd00::2"}], "ip": "192.0.2.2",
                                    "mac": "02:fc:00:00:00:01"}}},
        "processors": {"count": 2, "models": ["AMD EPYC", "AMD EPYC"]},
        "memory": {"system": {"total_bytes": 25_276_518_400_u64}},
        "disks": {"vda": {"type": "hdd"}}, "mountpoints": {"/": {"filesystem": "ext4"}},
        "identity": {"uid": 0, "gid": 0, "user": "root", "group": "root"},
        "ssh": {}, "system_uptime": {"seconds": 1}, "dmi": {"manufacturer": "Example"},
        "platform": {"init": "systemd", "kernel_build": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1",
                     "systemd": {"version": "252", "features": "+PAM +AUDIT"},
                     "machine_id": "3d1219c7c4c5404aaa1f6d2a48adfda4", "efi": false,
                     "os_name": "Debian GNU/Linux", "shell": "/bin/sh",
                     "kernel_parameters": [["quiet", null]], "cpu_flags": ["fpu"],
                     "locale": {"defaultlanguage": "en_US", "defaultencoding": "UTF-8",
                                "detectedencoding": "utf-8", "timezone": "UTC"},
                     "resolver": {"nameservers": ["192.0.2.53"], "ip4_nameservers": ["192.0.2.53"],
                                  "ip6_nameservers": [], "sortlist": [], "domain": "",
                                  "search": [], "options": []},
                     "gateways": {"ip4": "192.0.2.1", "ip6": "fd00::1"}},
    });
    facts.as_object().cloned().expect("a map")
}

/// Compiles one file by name.
pub(crate) fn compiled(world: &Arc<dyn World>, sls: &str) -> Result<CompiledStates, CompileError> {
    let input = Input {
        node: "web1.example.net".to_owned(),
        facts: facts(),
        target: Target::Files(vec![sls.to_owned()]),
        ..Input::default()
    };
    compile(world, &input)
}

/// Compiles one text.
pub(crate) fn compiled_text(text: &str) -> Result<CompiledStates, CompileError> {
    let world: Arc<dyn World> = Arc::new(Memory::new(&[("case.sls", text)], &[]));
    compiled(&world, "case")
}

/// Returns the error of a text that cannot be compiled.
pub(crate) fn refused(text: &str) -> String {
    match compiled_text(text) {
        Ok(_) => panic!("it was compiled:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Applies the compiled catalog, one state after the other.
pub(crate) fn run(compiled: &CompiledStates, state: &Path, root: Option<PathBuf>) -> Summary {
    apply_with(compiled, state, root, false)
}

#[allow(dead_code, reason = "not every test program looks only")]
pub(crate) fn apply_noop(compiled: &CompiledStates, state: &Path) -> Summary {
    apply_with(compiled, state, None, true)
}

fn apply_with(
    compiled: &CompiledStates,
    state: &Path,
    root: Option<PathBuf>,
    noop: bool,
) -> Summary {
    let options = PlanOptions {
        mode: OrderingMode::Ansible,
        ..PlanOptions::default()
    };
    let plan = CatalogPlan::new(&compiled.catalog, &Registry::standard(), options)
        .unwrap_or_else(|error| panic!("{error}"));
    let how = ApplyOptions {
        root,
        noop,
        ..ApplyOptions::new(state, Cancellation::new().expect("a pipe"), &())
    };
    apply_plan(&plan, how).expect("a record of the run")
}
