//! The fact `platform`: details that Facter does not report and that Salt's grains need.
//!
//! Everything is read from files. Nothing asks the network or starts a program, so the version of
//! systemd comes from its library and the addresses of the node's own name from /etc/hosts.

use serde_json::{Value, json};

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::os_release::OsRelease;
use super::warning::FactWarning;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let mut facts = Facts::new();
    put(&mut facts, "init", Some(init(machine)));
    put(&mut facts, "systemd", systemd(machine));
    let build = machine.attribute("/proc/sys/kernel/version");
    put(&mut facts, "kernel_build", build);
    let id = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let id = id.iter().find_map(|path| machine.attribute(path));
    put(&mut facts, "machine_id", id);
    let parameters = machine.optional("/proc/cmdline");
    let parameters = parameters.map(|line| kernel_parameters(&line));
    put(&mut facts, "kernel_parameters", parameters);
    let processors = machine.optional("/proc/cpuinfo");
    put(
        &mut facts,
        "cpu_flags",
        processors.and_then(|text| cpu_flags(&text)),
    );
    put(
        &mut facts,
        "efi",
        Some(machine.is_directory("/sys/firmware/efi")),
    );
    let release = machine.optional("/etc/os-release");
    let release = release.or_else(|| machine.optional("/usr/lib/os-release"));
    let release = OsRelease::parse(&release.unwrap_or_default());
    put(&mut facts, "os_name", release.get("name"));
    let resolver = machine.optional("/etc/resolv.conf");
    put(
        &mut facts,
        "resolver",
        resolver.map(|text| resolver_of(&text)),
    );
    let (ip4, ip6) = (
        machine.optional("/proc/net/route"),
        machine.optional("/proc/net/ipv6_route"),
    );
    let ip4 = ip4.and_then(|text| gateway4(&text));
    let ip6 = ip6.and_then(|text| gateway6(&text));
    put(
        &mut facts,
        "gateways",
        Some(json!({"ip4": ip4, "ip6": ip6})),
    );
    let host = machine.attribute("/proc/sys/kernel/hostname");
    let hosts = machine.optional("/etc/hosts");
    let own = host
        .zip(hosts)
        .and_then(|(host, hosts)| own_addresses(&hosts, &host));
    put(&mut facts, "own_addresses", own);
    Ok(single("platform", Value::Object(facts)))
}

/// Returns the name of the first process, as Salt finds it.
fn init(machine: &Machine) -> &'static str {
    if machine.is_directory("/run/systemd/system") {
        return "systemd";
    }
    let command = machine.optional("/proc/1/cmdline").unwrap_or_default();
    let program = command.split('\0').next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    match name {
        "init" => {
            let path = if program.starts_with('/') {
                program
            } else {
                "/sbin/init"
            };
            let bytes = machine.bytes(path).unwrap_or_default().to_ascii_lowercase();
            let has = |word: &&str| contains(&bytes, word.as_bytes()).is_some();
            let words = ["upstart", "sysvinit", "systemd"];
            words
                .into_iter()
                .find(|word| has(word))
                .unwrap_or("unknown")
        }
        "supervisord" => "supervisord",
        "dumb-init" => "dumb-init",
        "tini" => "tini",
        "runit" | "my_init" => "runit",
        _ => "unknown",
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|part| part == word)
}

/// Returns the version and the features of systemd, from the library that all of its programs share.
fn systemd(machine: &Machine) -> Option<Value> {
    let directories = ["/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd"];
    let multi = machine.names("/usr/lib");
    let multi = multi.iter().filter(|name| name.contains("-linux-gnu"));
    let multi = multi.map(|name| format!("/usr/lib/{name}/systemd"));
    let mut all = directories
        .iter()
        .map(|path| (*path).to_owned())
        .chain(multi);
    all.find_map(|directory| {
        let names = machine.names(&directory);
        let library = names.iter().find_map(|name| {
            let version = name
                .strip_prefix("libsystemd-shared-")?
                .strip_suffix(".so")?;
            Some((name, version))
        });
        let (name, version) = library?;
        let bytes = machine
            .bytes(&format!("{directory}/{name}"))
            .unwrap_or_default();
        // Distributions append their own version: `252-1~deb12u1`, `257.3-1`.
        let number = version.split(['-', '.', '~']).next().unwrap_or(version);
        Some(json!({"version": number, "features": features(&bytes)}))
    })
}

/// Returns the text that `systemctl --version` prints: `+PAM +AUDIT -GNUTLS …`.
fn features(library: &[u8]) -> String {
    let start = ["\0+PAM ", "\0-PAM "]
        .iter()
        .find_map(|word| contains(library, word.as_bytes()));
    let Some(start) = start else {
        return String::new();
    };
    let text = library[start + 1..].split(|byte| *byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

fn kernel_parameters(line: &str) -> Value {
    let words = line.split_whitespace();
    words
        .map(|word| match word.split_once('=') {
            Some((name, value)) => json!([name, value.trim_matches('"')]),
            None => json!([word, null]),
        })
        .collect()
}

fn cpu_flags(text: &str) -> Option<Vec<String>> {
    let line = text.lines().find_map(|line| {
        let (name, flags) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(flags)
    })?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

fn resolver_of(text: &str) -> Value {
    let mut servers: Vec<&str> = Vec::new();
    let (mut search, mut options, mut sortlist) = (Vec::new(), Vec::new(), Vec::new());
    let mut domain = "";
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => servers.extend(words.next()),
            Some("domain") => domain = words.next().unwrap_or_default(),
            Some("search") => search = words.collect(),
            Some("options") => options.extend(words),
            Some("sortlist") => sortlist.extend(words),
            _ => {}
        }
    }
    let of_version = |v6: bool| -> Vec<&str> {
        let mut found = servers.clone();
        found.retain(|server| server.contains(':') == v6);
        found
    };
    json!({
        "nameservers": servers, "ip4_nameservers": of_version(false),
        "ip6_nameservers": of_version(true), "sortlist": sortlist, "domain": domain,
        "search": search, "options": options,
    })
}

/// Returns the gateway of the default route.
fn gateway4(routes: &str) -> Option<String> {
    routes.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (target, gateway) = (fields.get(1)?, fields.get(2)?);
        let number = u32::from_str_radix(gateway, 16).ok()?;
        let is_default = *target == "00000000" && number != 0;
        is_default.then(|| std::net::Ipv4Addr::from(number.swap_bytes()).to_string())
    })
}

fn gateway6(routes: &str) -> Option<String> {
    routes.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (target, prefix, gateway) = (fields.first()?, fields.get(1)?, fields.get(4)?);
        let number = u128::from_str_radix(gateway, 16).ok()?;
        let is_default = target.bytes().all(|byte| byte == b'0') && *prefix == "00" && number != 0;
        is_default.then(|| std::net::Ipv6Addr::from(number).to_string())
    })
}

/// Returns the addresses of the node's own name in /etc/hosts, if it is there.
fn own_addresses(hosts: &str, host: &str) -> Option<Value> {
    let long = format!("{host}.");
    let mut found: Vec<&str> = Vec::new();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let address = words.next();
        if words.any(|name| name == host || name.starts_with(&long)) {
            found.extend(address.filter(|address| !found.contains(address)));
        }
    }
    if found.is_empty() {
        return None;
    }
    let (ip6, ip4): (Vec<&str>, Vec<&str>) = found.into_iter().partition(|one| one.contains(':'));
    Some(json!({"ip4": ip4, "ip6": ip6}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_read_from_files() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |path: &str, bytes: &[u8]| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, bytes).expect("a file");
        };
        write("run/systemd/system/x", b"");
        write(
            "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so",
            b"\x7fELF\0junk\0+PAM +AUDIT -GNUTLS\0more\0",
        );
        write("proc/sys/kernel/version", b"#1 SMP Debian\n");
        write("proc/sys/kernel/hostname", b"web1\n");
        write("etc/machine-id", b"3d12\n");
        write("proc/cmdline", b"root=/dev/sda1 quiet x=\"a\"\n");
        write(
            "proc/cpuinfo",
            b"processor: 0\nflags\t\t: fpu vme\nprocessor: 1\nflags: x\n",
        );
        write("etc/os-release", b"NAME=\"Debian GNU/Linux\"\n");
        write(
            "etc/resolv.conf",
            b"# x\nnameserver 192.0.2.53\nnameserver fd00::53\nsearch a b\n",
        );
        write(
            "proc/net/route",
            b"Iface\tDestination\tGateway\neth0\t00000000\t010200C0\t0003\n",
        );
        write(
            "etc/hosts",
            b"127.0.0.1 localhost\n192.0.2.2 web1.example.net web1\n",
        );
        let machine = Machine::new(place.path().to_owned());
        let facts = collect(&machine, &mut Vec::new()).expect("facts");
        assert_eq!(
            facts["platform"],
            json!({
                "init": "systemd", "systemd": {"version": "252", "features": "+PAM +AUDIT -GNUTLS"},
                "kernel_build": "#1 SMP Debian", "machine_id": "3d12",
                "kernel_parameters": [["root", "/dev/sda1"], ["quiet", null], ["x", "a"]],
                "cpu_flags": ["fpu", "vme"], "efi": false, "os_name": "Debian GNU/Linux",
                "resolver": {"nameservers": ["192.0.2.53", "fd00::53"],
                             "ip4_nameservers": ["192.0.2.53"], "ip6_nameservers": ["fd00::53"],
                             "sortlist": [], "domain": "", "search": ["a", "b"], "options": []},
                "gateways": {"ip4": "192.0.2.1", "ip6": null},
                "own_addresses": {"ip4": ["192.0.2.2"], "ip6": []},
            })
        );
    }

    #[test]
    fn a_machine_without_any_of_them_has_few_details() {
        let place = tempfile::tempdir().expect("a directory");
        let machine = Machine::new(place.path().to_owned());
        let facts = collect(&machine, &mut Vec::new()).expect("facts");
        let expected =
            json!({"init": "unknown", "efi": false, "gateways": {"ip4": null, "ip6": null}});
        assert_eq!(facts["platform"], expected);
    }
}
