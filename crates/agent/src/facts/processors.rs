//! Processors, from /proc/cpuinfo and the topology in sysfs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::warning::FactWarning;
use super::{kernel, os, units};

const TOPOLOGY: &str = "/sys/devices/system/cpu";

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let cpuinfo = CpuInfo::parse(&machine.text("/proc/cpuinfo")?);
    let topology = Topology::read(machine);
    let hardware = kernel::hardware(machine);
    let packages = match cpuinfo.packages.len() {
        0 => topology.packages.len(),
        packages => packages,
    };
    let mut facts = Facts::new();
    put(&mut facts, "count", Some(cpuinfo.count));
    put(&mut facts, "physicalcount", Some(packages));
    put(&mut facts, "models", Some(cpuinfo.models));
    put(&mut facts, "speed", cpuinfo.speed.and_then(units::hertz));
    put(&mut facts, "cores", topology.cores_per_package());
    put(&mut facts, "threads", topology.threads_per_core());
    put(
        &mut facts,
        "isa",
        Some(os::processor_type(machine, &hardware)),
    );
    put(
        &mut facts,
        "extensions",
        extensions(&hardware, &cpuinfo.flags),
    );
    Ok(single("processors", Value::Object(facts)))
}

/// The content of /proc/cpuinfo, on x86, Arm, POWER and others.
#[derive(Default)]
struct CpuInfo {
    count: usize,
    models: Vec<String>,
    packages: BTreeSet<i64>,
    speed: Option<u64>,
    flags: BTreeSet<String>,
}

impl CpuInfo {
    fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.trim() {
                "processor" => info.count += 1,
                "model name" | "cpu" => info.models.push(value.to_owned()),
                "physical id" => info.packages.extend(value.parse::<i64>().ok()),
                "cpu MHz" | "clock" => info.speed = megahertz(value).or(info.speed),
                "flags" if info.flags.is_empty() => {
                    info.flags = value.split_whitespace().map(str::to_owned).collect();
                }
                _ => {}
            }
        }
        info
    }
}

/// Parses a frequency as whole megahertz, as Facter does.
fn megahertz(value: &str) -> Option<u64> {
    let digits = value.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<u64>().ok()?.checked_mul(1_000_000)
}

/// The topology: which threads share a core, and which cores share a package.
#[derive(Default)]
struct Topology {
    packages: BTreeSet<String>,
    cores: BTreeSet<String>,
    threads: usize,
}

impl Topology {
    fn read(machine: &Machine) -> Self {
        let mut topology = Self::default();
        for name in machine.names(TOPOLOGY) {
            let number = name.strip_prefix("cpu").unwrap_or_default();
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let attribute = |attribute: &str| {
                machine.attribute(&format!("{TOPOLOGY}/{name}/topology/{attribute}"))
            };
            topology.packages.extend(attribute("physical_package_id"));
            if let Some(siblings) = attribute("thread_siblings_list") {
                topology.threads = topology.threads.max(count_of_list(&siblings));
                topology.cores.insert(siblings);
            }
        }
        topology
    }

    fn cores_per_package(&self) -> Option<usize> {
        let cores = self.cores.len() / self.packages.len().max(1);
        (cores > 0).then_some(cores)
    }

    fn threads_per_core(&self) -> Option<usize> {
        (self.threads > 0).then_some(self.threads)
    }
}

/// Counts the numbers in a list such as `0-3,8`.
fn count_of_list(list: &str) -> usize {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? as usize + 1)
    };
    list.trim().split(',').filter_map(count).sum()
}

/// Returns the microarchitecture levels of the x86-64 psABI that the flags allow.
fn extensions(hardware: &str, flags: &BTreeSet<String>) -> Option<Value> {
    const LEVELS: [(&str, &[&str]); 4] = [
        (
            "x86_64-v1",
            &["cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"],
        ),
        (
            "x86_64-v2",
            &["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"],
        ),
        (
            "x86_64-v3",
            &[
                "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave",
            ],
        ),
        (
            "x86_64-v4",
            &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        ),
    ];
    if hardware != "x86_64" {
        return None;
    }
    let reached = LEVELS
        .iter()
        .take_while(|(_, needed)| needed.iter().all(|flag| flags.contains(*flag)))
        .map(|(level, _)| *level);
    Some(json!(
        std::iter::once("x86_64").chain(reached).collect::<Vec<_>>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expect: Expect) {
        let info = CpuInfo::parse(text);
        expect.assert_eq(&format!(
            "{} × {:?}, {} packages, {:?}",
            info.count,
            info.models,
            info.packages.len(),
            info.speed.and_then(units::hertz)
        ));
    }

    #[test]
    fn cpuinfo_is_read_on_several_architectures() {
        check(
            "processor\t: 0\nmodel name\t: Intel(R) Xeon(R): 2\ncpu MHz\t\t: 2299.998\nphysical id\t: 0\n\nprocessor\t: 1\nmodel name\t: Intel(R) Xeon(R): 2\nphysical id\t: 1\n",
            expect![[
                r#"2 × ["Intel(R) Xeon(R): 2", "Intel(R) Xeon(R): 2"], 2 packages, Some("2.30 GHz")"#
            ]],
        );
        check(
            "processor\t: 0\ncpu\t\t: POWER8 (raw), altivec supported\nclock\t\t: 3425.000000MHz\n",
            expect![[r#"1 × ["POWER8 (raw), altivec supported"], 0 packages, Some("3.42 GHz")"#]],
        );
        check(
            "processor\t: 0\nBogoMIPS\t: 243.75\nCPU part\t: 0xd0c\n",
            expect!["1 × [], 0 packages, None"],
        );
        check("", expect!["0 × [], 0 packages, None"]);
    }

    #[test]
    fn a_list_of_threads_is_counted() {
        assert_eq!(count_of_list("0-3,8"), 5);
        assert_eq!(count_of_list("0"), 1);
        assert_eq!(count_of_list("3-1,x"), 0);
    }

    #[test]
    fn a_level_needs_all_levels_below_it() {
        let flags = |text: &str| text.split(' ').map(str::to_owned).collect();
        let first = "cmov cx8 fpu fxsr mmx sse sse2";
        assert_eq!(
            extensions("x86_64", &flags(&format!("{first} avx512f"))),
            Some(json!(["x86_64", "x86_64-v1"]))
        );
        assert_eq!(extensions("aarch64", &flags(first)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((processor|clock|cpu MHz|physical id|flags)?[ \t]*:?.{0,20}\n?){0,5}") {
            CpuInfo::parse(&text);
            count_of_list(&text);
        }
    }
}
