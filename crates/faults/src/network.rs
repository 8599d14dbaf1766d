//! Links between servers, and their faults.
//!
//! Every server has a network namespace with one interface on a bridge. nftables
//! drops packets where they arrive, so that one direction can be cut without the
//! other. If the kernel has no `netem`, a slow link is a narrow one: packets queue
//! up and are late.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::Server;
use crate::tool::{ToolError, feed, run};

/// The names of one stage's namespaces.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) prefix: String,
}

impl Names {
    pub(crate) fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    pub(crate) fn server(&self, server: Server) -> String {
        format!("{}-s{}", self.prefix, server + 1)
    }
}

/// Returns the address of a server.
pub(crate) fn address(server: Server) -> String {
    format!("10.77.0.{}", 11 + server)
}

/// The links, with the packet loss from one server to another in percent.
#[derive(Default)]
pub(crate) struct Network {
    lost: BTreeMap<(Server, Server), u8>,
    names: Option<Names>,
    servers: usize,
    netem: bool,
}

impl Network {
    /// Creates a bridge in this process's own namespace, which is the hub's, and
    /// one namespace on it for each server.
    pub(crate) async fn build(names: Names, servers: usize) -> Result<Self, ToolError> {
        run(&["ip", "link", "set", "lo", "up"]).await?;
        run(&["ip", "link", "add", "bridge", "type", "bridge"]).await?;
        run(&["ip", "address", "add", "10.77.0.1/24", "dev", "bridge"]).await?;
        run(&["ip", "link", "set", "bridge", "up"]).await?;
        for server in 0..servers {
            let (near, space) = (format!("s{}", server + 1), names.server(server));
            run(&[
                "ip", "link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", &space,
            ])
            .await?;
            run(&["ip", "link", "set", &near, "master", "bridge", "up"]).await?;
            let inside = |words: &[&'static str]| {
                let mut all = vec!["ip".to_owned(), "-n".to_owned(), space.clone()];
                all.extend(words.iter().map(|word| (*word).to_owned()));
                all
            };
            let address = format!("{}/24", address(server));
            for mut words in [
                inside(&["link", "set", "lo", "up"]),
                inside(&["address", "add", "ADDRESS", "dev", "eth0"]),
                inside(&["link", "set", "eth0", "up"]),
            ] {
                for word in &mut words {
                    if word == "ADDRESS" {
                        word.clone_from(&address);
                    }
                }
                run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            }
        }
        let network = Self {
            lost: BTreeMap::new(),
            netem: has_netem(&names).await,
            names: Some(names),
            servers,
        };
        Ok(network)
    }

    /// Returns true if the kernel can delay packets.
    pub(crate) fn delays(&self) -> bool {
        self.netem
    }

    fn space(&self, server: Server) -> String {
        let names = self.names.as_ref().expect("a network has its names");
        names.server(server)
    }

    /// Drops everything from any of these servers to any of those.
    pub(crate) async fn cut(
        &mut self,
        from: &BTreeSet<Server>,
        to: &BTreeSet<Server>,
    ) -> Result<(), ToolError> {
        self.set_loss(from, to, 100).await
    }

    /// Drops this percentage of packets between these servers and those.
    pub(crate) async fn set_loss(
        &mut self,
        from: &BTreeSet<Server>,
        to: &BTreeSet<Server>,
        percent: u8,
    ) -> Result<(), ToolError> {
        for to in to {
            for from in from.iter().filter(|from| *from != to) {
                match percent {
                    0 => self.lost.remove(&(*from, *to)),
                    _ => self.lost.insert((*from, *to), percent),
                };
            }
            self.apply(*to).await?;
        }
        Ok(())
    }

    async fn apply(&self, to: Server) -> Result<(), ToolError> {
        let mut rules = String::new();
        for ((from, _), percent) in self.lost.iter().filter(|((_, it), _)| *it == to) {
            let chance = match percent {
                100 => String::new(),
                _ => format!("numgen random mod 100 < {percent} "),
            };
            rules.push_str(&format!("ip saddr {} {chance}drop\n", address(*from)));
        }
        // One file is one transaction: there is no moment without rules.
        let table = format!(
            "table inet faults\ndelete table inet faults\ntable inet faults {{\nchain input {{\n\
             type filter hook input priority 0; policy accept;\n{rules}}}\n}}\n"
        );
        let space = self.space(to);
        feed(&["ip", "netns", "exec", &space, "nft", "-f", "-"], &table).await?;
        Ok(())
    }

    /// Delays everything that this server sends.
    pub(crate) async fn set_slow(&self, server: Server, slow: bool) -> Result<(), ToolError> {
        let space = self.space(server);
        let mut words = vec!["tc", "-n", &space, "qdisc"];
        match (slow, self.netem) {
            (false, _) => words.extend(["delete", "dev", "eth0", "root"]),
            (true, true) => words.extend([
                "add", "dev", "eth0", "root", "netem", "delay", "60ms", "30ms",
            ]),
            (true, false) => words.extend([
                "add", "dev", "eth0", "root", "tbf", "rate", "768kbit", "burst", "4kb", "latency",
                "600ms",
            ]),
        }
        run(&words).await?;
        Ok(())
    }

    pub(crate) fn all(&self) -> BTreeSet<Server> {
        (0..self.servers).collect()
    }
}

async fn has_netem(names: &Names) -> bool {
    let space = names.server(0);
    let add = [
        "tc", "-n", &space, "qdisc", "add", "dev", "lo", "root", "netem",
    ];
    if run(&add).await.is_err() {
        return false;
    }
    let _ = run(&["tc", "-n", &space, "qdisc", "delete", "dev", "lo", "root"]).await;
    true
}
