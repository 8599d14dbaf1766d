//! The host's name, its domain, and its fully qualified name.
//!
//! Facter asks the resolver for the canonical name, which may query DNS. This module reads only
//! files: a fact must not wait for a server or change with it.

use super::machine::Machine;

#[derive(Debug, PartialEq)]
pub(super) struct HostName {
    pub(super) hostname: String,
    pub(super) domain: Option<String>,
    pub(super) fqdn: String,
}

pub(super) fn read(machine: &Machine) -> Option<HostName> {
    let name = machine
        .attribute("/proc/sys/kernel/hostname")
        .or_else(|| machine.attribute("/etc/hostname"))?;
    let text = |path: &str| machine.optional(path).unwrap_or_default();
    Some(resolve(
        &name,
        &text("/etc/hosts"),
        &text("/etc/resolv.conf"),
    ))
}

fn resolve(name: &str, hosts: &str, resolv_conf: &str) -> HostName {
    let split = |name: &str| {
        let (host, domain) = name.split_once('.')?;
        (!domain.is_empty()).then(|| (host.to_owned(), domain.to_owned()))
    };
    let (hostname, own) = match split(name) {
        Some((hostname, domain)) => (hostname, Some(domain)),
        None => (name.to_owned(), None),
    };
    let canonical = || {
        let (host, domain) = split(&canonical(hosts, &hostname)?)?;
        (host == hostname).then_some(domain)
    };
    let domain = own
        .or_else(canonical)
        .or_else(|| setting(resolv_conf, "domain"))
        .or_else(|| setting(resolv_conf, "search"));
    let fqdn = match &domain {
        Some(domain) => format!("{hostname}.{domain}"),
        None => hostname.clone(),
    };
    HostName {
        hostname,
        domain,
        fqdn,
    }
}

/// Returns the first name on the first line that contains this name.
fn canonical(hosts: &str, name: &str) -> Option<String> {
    hosts.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let mut names = line.split_whitespace().skip(1);
        let first = names.clone().next()?;
        names.any(|found| found == name).then(|| first.to_owned())
    })
}

fn setting(resolv_conf: &str, name: &str) -> Option<String> {
    resolv_conf.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.split_whitespace().next()?;
        rest.starts_with(char::is_whitespace)
            .then(|| value.trim_end_matches('.').to_owned())
            .filter(|value| !value.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(name: &str, hosts: &str, resolv_conf: &str, expect: Expect) {
        let found = resolve(name, hosts, resolv_conf);
        expect.assert_eq(&format!(
            "{} {:?} {}",
            found.hostname, found.domain, found.fqdn
        ));
    }

    #[test]
    fn the_domain_comes_from_the_name_the_hosts_or_the_resolver() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 web.example.org web # web.wrong.org\n";
        let search = "search other.org more.org\n";
        check(
            "web.example.net",
            hosts,
            search,
            expect![[r#"web Some("example.net") web.example.net"#]],
        );
        check(
            "web",
            hosts,
            search,
            expect![[r#"web Some("example.org") web.example.org"#]],
        );
        check(
            "db",
            hosts,
            search,
            expect![[r#"db Some("other.org") db.other.org"#]],
        );
        check(
            "db",
            "",
            "search other.org\ndomain first.org\n",
            expect![[r#"db Some("first.org") db.first.org"#]],
        );
        check("db", "", "search .\nsearching x\n", expect!["db None db"]);
        check("db", "::1 localhost db\n", "", expect!["db None db"]);
        check("db.", "", "", expect!["db. None db."]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(name in "[a.]{0,4}", text in "((search|domain)?[ a.#]{0,9}\n){0,3}") {
            resolve(&name, &text, &text);
        }
    }
}
