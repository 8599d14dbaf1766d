//! The DHCP server that gave an interface its address, from lease files.

use super::machine::Machine;

const DIRECTORIES: [&str; 5] = [
    "/var/lib/dhclient",
    "/var/lib/dhcp",
    "/var/lib/dhcp3",
    "/var/lib/NetworkManager",
    "/var/db",
];

pub(super) fn server(machine: &Machine, interface: &str, index: u32) -> Option<String> {
    let networkd = machine.optional(&format!("/run/systemd/netif/leases/{index}"));
    networkd
        .and_then(|lease| setting(&lease, "SERVER_ADDRESS="))
        .or_else(|| dhclient(machine, interface))
        .or_else(|| network_manager(machine, interface))
}

fn dhclient(machine: &Machine, interface: &str) -> Option<String> {
    DIRECTORIES.iter().find_map(|directory| {
        let mut files = machine.names(directory);
        files.retain(|name| name.contains("dhclient") && name.contains(".lease"));
        files.iter().find_map(|file| {
            let leases = machine.optional(&format!("{directory}/{file}"))?;
            server_in_leases(&leases, interface)
        })
    })
}

fn network_manager(machine: &Machine, interface: &str) -> Option<String> {
    let directory = "/var/lib/NetworkManager";
    let end = format!("{interface}.lease");
    let names = machine.names(directory);
    let file = names
        .iter()
        .find(|name| name.contains("internal") && name.ends_with(&end))?;
    setting(
        &machine.optional(&format!("{directory}/{file}"))?,
        "SERVER_ADDRESS=",
    )
}

fn setting(text: &str, name: &str) -> Option<String> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name))?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// Returns the server of this interface's newest lease. Leases are appended, so it is the last.
fn server_in_leases(leases: &str, interface: &str) -> Option<String> {
    let quoted = format!("\"{interface}\"");
    let (mut ours, mut found) = (false, None);
    for line in leases.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("interface ") {
            ours = name.trim_end_matches(';') == quoted;
        } else if let Some((_, server)) = line.split_once("dhcp-server-identifier ")
            && ours
        {
            found = Some(server.trim_end_matches(';').to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lease_of_the_interface_counts() {
        let leases = "lease {\n  interface \"eth0\";\n  option dhcp-server-identifier 192.0.2.1;\n}\n\
            lease {\n  interface \"eth0\";\n  option dhcp-server-identifier 192.0.2.2;\n}\n\
            lease {\n  interface \"eth1\";\n  option dhcp-server-identifier 192.0.2.3;\n}\n";
        assert_eq!(
            server_in_leases(leases, "eth0").as_deref(),
            Some("192.0.2.2")
        );
        assert_eq!(server_in_leases(leases, "eth"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((interface \"a\"|dhcp-server-identifier )?.{0,9}\n){0,4}") {
            server_in_leases(&text, "a");
            setting(&text, "a");
        }
    }
}
