//! Derives faults from a seed. Pure.
//!
//! A step breaks one or two things, holds, repairs them, and leaves some calm.
//! Faults that can damage data (a full disk, a damaged log) come alone, and only to
//! a complete cluster: if more than a minority of disks is damaged, the cluster is
//! lost, and no failover can repair that.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::history::Server;
use crate::setup::AGENTS;

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// `kill -9` of a server, including its datastore.
    Kill {
        server: Server,
    },
    /// `kill -9` of a datastore only.
    KillDatastore {
        server: Server,
    },
    /// The whole machine is paused.
    Pause {
        server: Server,
    },
    /// Only its datastore is paused.
    PauseDatastore {
        server: Server,
    },
    /// Only its server is paused, while its datastore keeps running.
    PauseServer {
        server: Server,
    },
    /// Nothing passes between these servers and the others.
    Partition {
        side: BTreeSet<Server>,
    },
    /// These servers hear the others and are not heard.
    Unheard {
        side: BTreeSet<Server>,
    },
    /// These servers are heard and hear nothing.
    Deaf {
        side: BTreeSet<Server>,
    },
    /// The links between these servers and the others go up and down.
    Flapping {
        side: BTreeSet<Server>,
    },
    /// This percentage of packets is lost, in both directions.
    Lossy {
        server: Server,
        percent: u8,
    },
    Slow {
        server: Server,
    },
    /// A clock is wrong by this many seconds.
    Clock {
        server: Server,
        seconds: i64,
    },
    /// The disk has no space left.
    FullDisk {
        server: Server,
    },
    /// The server is killed, and the last record of its log is only half written.
    Damaged {
        server: Server,
    },
    /// The server handles every message late: requests, replies, commits and watches.
    Late {
        server: Server,
        seed: u64,
    },
    /// The disk of the server with the embedded store has no space left. Some of the time, that
    /// server is also killed and starts again without space.
    FullEmbeddedDisk {
        killed: bool,
    },
    /// A node sends this server as much as it can.
    Flood {
        server: Server,
    },
    /// An agent is paused, with its connections open.
    FrozenAgent {
        agent: usize,
    },
    /// An operator revokes a certificate at this server, while somebody renews it at all servers.
    Revocation {
        server: Server,
    },
}

impl Fault {
    /// Returns true if the fault may damage data. Such faults need an otherwise complete cluster.
    pub fn damages_data(&self) -> bool {
        matches!(self, Self::FullDisk { .. } | Self::Damaged { .. })
    }

    /// Returns the same fault. A fault about data is moved to a server that keeps
    /// data: the seed's number selects one of those that do at the time.
    #[must_use]
    pub fn among(&self, keep_data: &[Server]) -> Self {
        let mut fault = self.clone();
        if let Self::KillDatastore { server }
        | Self::PauseDatastore { server }
        | Self::FullDisk { server }
        | Self::Damaged { server } = &mut fault
            && !keep_data.is_empty()
        {
            *server = keep_data[*server % keep_data.len()];
        }
        fault
    }

    fn affected_servers(&self) -> BTreeSet<Server> {
        match self {
            Self::Partition { side }
            | Self::Unheard { side }
            | Self::Deaf { side }
            | Self::Flapping { side } => side.clone(),
            Self::Kill { server }
            | Self::KillDatastore { server }
            | Self::Pause { server }
            | Self::PauseDatastore { server }
            | Self::PauseServer { server }
            | Self::Lossy { server, .. }
            | Self::Slow { server }
            | Self::Clock { server, .. }
            | Self::FullDisk { server }
            | Self::Damaged { server }
            | Self::Late { server, .. }
            | Self::Flood { server }
            | Self::Revocation { server } => BTreeSet::from([*server]),
            Self::FullEmbeddedDisk { .. } | Self::FrozenAgent { .. } => BTreeSet::new(),
        }
    }

    /// Returns true for faults of links. Two of them at a time would repair each other.
    fn of_links(&self) -> bool {
        matches!(
            self,
            Self::Partition { .. }
                | Self::Unheard { .. }
                | Self::Deaf { .. }
                | Self::Flapping { .. }
                | Self::Lossy { .. }
        )
    }
}

/// Faults that happen together, their duration, and the calm after them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub faults: Vec<Fault>,
    pub hold: Duration,
    pub calm: Duration,
}

/// The kinds of faults, by their names in `--only`.
pub const KINDS: [&str; 19] = [
    "kill",
    "kill-datastore",
    "pause",
    "pause-datastore",
    "pause-server",
    "partition",
    "unheard",
    "deaf",
    "flapping",
    "lossy",
    "slow",
    "clock",
    "full-disk",
    "damaged",
    "late",
    "full-embedded-disk",
    "flood",
    "frozen-agent",
    "revocation",
];

/// The endless sequence of faults of a seed. Every kind comes once before any kind comes again.
pub struct Faults {
    random: StdRng,
    servers: usize,
    kinds: Vec<usize>,
    deck: Vec<usize>,
    /// A fault that was drawn but does not go together with the one before.
    waiting: Option<Fault>,
}

impl Faults {
    pub fn new(seed: u64, servers: usize) -> Self {
        Self::only(seed, servers, &[])
    }

    /// Draws only from these kinds, or from all if there are none.
    pub fn only(seed: u64, servers: usize, kinds: &[String]) -> Self {
        let all = 0..KINDS.len();
        let wanted = |kind: &usize| kinds.is_empty() || kinds.iter().any(|it| it == KINDS[*kind]);
        Self {
            random: StdRng::seed_from_u64(seed),
            servers,
            kinds: all.filter(wanted).collect(),
            deck: Vec::new(),
            waiting: None,
        }
    }

    fn draw(&mut self) -> Fault {
        if let Some(fault) = self.waiting.take() {
            return fault;
        }
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
            self.deck.shuffle(&mut self.random);
        }
        let kind = self.deck.pop().unwrap_or(0);
        let server = self.random.random_range(0..self.servers);
        match kind {
            0 => Fault::Kill { server },
            1 => Fault::KillDatastore { server },
            2 => Fault::Pause { server },
            3 => Fault::PauseDatastore { server },
            4 => Fault::PauseServer { server },
            5 => Fault::Partition { side: self.side() },
            6 => Fault::Unheard { side: self.side() },
            7 => Fault::Deaf { side: self.side() },
            8 => Fault::Flapping { side: self.side() },
            9 => {
                let percent = self.random.random_range(10..50);
                Fault::Lossy { server, percent }
            }
            10 => Fault::Slow { server },
            11 => {
                let far = self.random.random_range(5..1200);
                let ahead = self.random.random_bool(0.5);
                let seconds = if ahead { far } else { -far };
                Fault::Clock { server, seconds }
            }
            12 => Fault::FullDisk { server },
            13 => Fault::Damaged { server },
            14 => {
                let seed = self.random.random_range(1..u64::MAX);
                Fault::Late { server, seed }
            }
            15 => {
                let killed = self.random.random_bool(0.5);
                Fault::FullEmbeddedDisk { killed }
            }
            16 => Fault::Flood { server },
            17 => {
                let agent = self.random.random_range(0..AGENTS.len());
                Fault::FrozenAgent { agent }
            }
            _ => Fault::Revocation { server },
        }
    }

    /// Returns some of the servers, never all.
    fn side(&mut self) -> BTreeSet<Server> {
        let size = self.random.random_range(1..=self.servers / 2);
        let mut all: Vec<Server> = (0..self.servers).collect();
        all.shuffle(&mut self.random);
        all.into_iter().take(size).collect()
    }
}

impl Iterator for Faults {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let mut faults = vec![self.draw()];
        let hold = Duration::from_millis(self.random.random_range(800..7_000));
        let calm = Duration::from_millis(self.random.random_range(200..2_500));
        if self.random.random_bool(0.35) {
            let second = self.draw();
            let apart = second
                .affected_servers()
                .is_disjoint(&faults[0].affected_servers());
            let both_links = second.of_links() && faults[0].of_links();
            let damages = second.damages_data() || faults[0].damages_data();
            if apart && !both_links && !damages {
                faults.push(second)
            } else {
                self.waiting = Some(second)
            }
        }
        Some(Step { faults, hold, calm })
    }
}
