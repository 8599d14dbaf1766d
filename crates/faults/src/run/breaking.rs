//! Applies faults, and repairs what they broke.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bunraku_model::StatusWord;
use rustix::process::Signal;

use super::flood::RunningFlood;
use super::theft::RunningTheft;
use crate::fault::{Fault, Step};
use crate::history::{Micros, NetworkCut, Server};
use crate::incident::{Freeze, Incidents, Lateness};
use crate::setup::{AGENTS, PATIENCE, SiteError};
use crate::site::Site;
use crate::workload::Recorder;

/// The time that a flapping link stays up, and down.
const FLAP: Duration = Duration::from_millis(350);
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct FaultInjector {
    recorder: Recorder,
    /// Servers whose clocks were wrong at some time.
    shifted: Vec<Server>,
    until: Instant,
    incidents: Incidents,
    flood: Option<RunningFlood>,
    /// When the agent that is frozen now was frozen.
    frozen: Micros,
    thefts: Vec<RunningTheft>,
}

impl FaultInjector {
    pub(super) fn new(recorder: Recorder, time: Duration) -> Self {
        Self {
            recorder,
            shifted: Vec::new(),
            until: Instant::now() + time,
            incidents: Incidents::default(),
            flood: None,
            frozen: 0,
            thefts: Vec::new(),
        }
    }

    pub(super) fn shifted(&self) -> &[Server] {
        &self.shifted
    }

    /// Returns the incidents, with what became of them, now that everything is repaired.
    pub(super) async fn incidents(&mut self, site: &Site) -> Result<Incidents, SiteError> {
        for theft in &self.thefts {
            self.incidents.thefts.push(theft.outcome(site).await?);
        }
        Ok(self.incidents.clone())
    }

    /// Applies a step: breaks, holds, repairs, and waits for a while.
    pub(super) async fn step(&mut self, site: &mut Site, step: &Step) -> Result<(), SiteError> {
        let damages = step.faults.iter().any(Fault::damages_data);
        if damages {
            // If another one is away or damaged, a majority could be permanently lost.
            site.wait_until_healthy().await?;
        }
        for fault in &step.faults {
            self.begin(site, fault, step.faults.len() == 1).await?;
        }
        let cut = self.cut(site, step);
        self.hold(site, step).await?;
        if let Some(mut cut) = cut {
            cut.ended = self.recorder.now();
            self.recorder.cut(cut);
        }
        for fault in step.faults.iter().filter(|fault| !is_incident(fault)) {
            end(site, fault).await?;
        }
        // How they ended shows only when everything else works.
        for fault in step.faults.iter().filter(|fault| is_incident(fault)) {
            self.end_incident(site, fault).await?;
        }
        if damages {
            site.wait_until_healthy().await?;
        }
        let calm = Instant::now() + step.calm;
        while Instant::now() < calm.min(self.until) {
            site.restart_dead_processes();
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns the cut that begins now, if the step has a partition.
    fn cut(&self, site: &Site, step: &Step) -> Option<NetworkCut> {
        let side = step.faults.iter().find_map(|fault| match fault {
            Fault::Partition { side } => Some(side.clone()),
            _ => None,
        })?;
        let others = site.network.all().difference(&side).copied().collect();
        let begun: Micros = self.recorder.now();
        Some(NetworkCut {
            begun,
            ended: begun,
            sides: vec![side, others],
        })
    }

    async fn hold(&mut self, site: &mut Site, step: &Step) -> Result<(), SiteError> {
        let end = Instant::now() + step.hold;
        let middle = Instant::now() + step.hold / 2;
        let mut revoke_at = step.faults.iter().find_map(|fault| match fault {
            Fault::Revocation { server } => Some(*server),
            _ => None,
        });
        let mut up = false;
        let mut turned = Instant::now();
        while Instant::now() < end {
            tokio::time::sleep(LOOK).await;
            site.restart_dead_processes();
            if let (Some(server), true) = (revoke_at, Instant::now() > middle) {
                revoke_at = None;
                if let Some(theft) = self.thefts.last_mut() {
                    theft.revoke(site, server, &self.recorder).await;
                }
            }
            let flapping = step.faults.iter().find_map(|fault| match fault {
                Fault::Flapping { side } => Some(side),
                _ => None,
            });
            if let (Some(side), true) = (flapping, turned.elapsed() >= FLAP) {
                up = !up;
                turned = Instant::now();
                both_ways(site, side, if up { 0 } else { 100 }).await?;
            }
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        site: &mut Site,
        fault: &Fault,
        alone: bool,
    ) -> Result<(), SiteError> {
        match fault {
            Fault::Kill { server } => site.machines[*server].kill(),
            Fault::KillDatastore { server } => {
                site.machines[*server].signal_datastore(Signal::KILL);
            }
            Fault::Pause { server } => {
                site.machines[*server].signal(Signal::STOP);
                site.machines[*server].signal_datastore(Signal::STOP);
            }
            Fault::PauseDatastore { server } => {
                site.machines[*server].signal_datastore(Signal::STOP);
            }
            Fault::PauseServer { server } => site.machines[*server].signal(Signal::STOP),
            Fault::Partition { side } | Fault::Flapping { side } => {
                both_ways(site, side, 100).await?;
            }
            Fault::Unheard { side } => {
                let others = others(site, side);
                site.network.cut(side, &others).await?;
            }
            Fault::Deaf { side } => {
                let others = others(site, side);
                site.network.cut(&others, side).await?;
            }
            Fault::Lossy { server, percent } => {
                both_ways(site, &BTreeSet::from([*server]), *percent).await?;
            }
            Fault::Slow { server } => site.network.set_slow(*server, true).await?,
            Fault::Clock { server, seconds } => {
                self.shifted.push(*server);
                site.machines[*server].set_clock(*seconds);
            }
            Fault::FullDisk { server } => site.machines[*server].fill_disk(),
            Fault::Damaged { server } => {
                site.machines[*server].kill();
                site.machines[*server].damage();
            }
            Fault::Late { server, seed } => site.machines[*server].set_late(Some(*seed)),
            Fault::FullEmbeddedDisk { killed } => {
                site.alone.fill_disk();
                if *killed {
                    site.alone.kill();
                }
            }
            Fault::Flood { server } => {
                let node = site.flooder.as_ref().expect("joined at the start");
                let api = site.machines[*server].api();
                self.flood = Some(RunningFlood::start(node, &api, &self.recorder, alone)?);
            }
            Fault::FrozenAgent { agent } => {
                self.frozen = self.recorder.now();
                site.signal_agent(*agent, Signal::STOP);
            }
            Fault::Revocation { .. } => {
                // A run is too short for more.
                if let Some(stolen) = site.to_steal.pop() {
                    let theft = RunningTheft::start(stolen, site, &self.recorder)?;
                    self.thefts.push(theft);
                }
            }
        }
        Ok(())
    }
}

impl FaultInjector {
    async fn end_incident(&mut self, site: &mut Site, fault: &Fault) -> Result<(), SiteError> {
        match fault {
            Fault::Late { server, .. } => self.end_lateness(site, *server),
            Fault::Flood { .. } => {
                if let Some(flood) = self.flood.take() {
                    let flood = flood.end(&self.recorder).await;
                    self.incidents.floods.push(flood);
                }
            }
            Fault::FrozenAgent { agent } => self.thaw(site, *agent).await,
            Fault::Revocation { server } => {
                if let Some(theft) = self.thefts.last_mut() {
                    theft.revoke(site, *server, &self.recorder).await;
                    theft.end(site, &self.recorder).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end_lateness(&mut self, site: &Site, server: Server) {
        let machine = &site.machines[server];
        machine.set_late(None);
        self.incidents.lateness.push(Lateness {
            server: machine.name.clone(),
            messages: machine.late_messages(),
        });
    }

    /// Waits until servers say that a frozen agent is lost, and lets it continue.
    async fn thaw(&mut self, site: &mut Site, agent: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut noticed = None;
        while noticed.is_none() && Instant::now() < deadline {
            site.restart_dead_processes();
            if site.word(AGENTS[agent]).await == Some(StatusWord::Lost) {
                noticed = Some(self.recorder.now());
            } else {
                tokio::time::sleep(LOOK).await;
            }
        }
        site.signal_agent(agent, Signal::CONT);
        self.incidents.freezes.push(Freeze {
            node: AGENTS[agent].to_owned(),
            begun: self.frozen,
            noticed,
            ended: self.recorder.now(),
        });
    }
}

/// Returns true for faults that are recorded with how they ended.
fn is_incident(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Late { .. }
            | Fault::Flood { .. }
            | Fault::FrozenAgent { .. }
            | Fault::Revocation { .. }
    )
}

async fn end(site: &mut Site, fault: &Fault) -> Result<(), SiteError> {
    match fault {
        Fault::Kill { server } | Fault::Damaged { server } => site.machines[*server].start(),
        Fault::KillDatastore { .. } => {}
        Fault::Pause { server } => {
            site.machines[*server].signal_datastore(Signal::CONT);
            site.machines[*server].signal(Signal::CONT);
        }
        Fault::PauseDatastore { server } => site.machines[*server].signal_datastore(Signal::CONT),
        Fault::PauseServer { server } => site.machines[*server].signal(Signal::CONT),
        Fault::Partition { side }
        | Fault::Flapping { side }
        | Fault::Unheard { side }
        | Fault::Deaf { side } => both_ways(site, side, 0).await?,
        Fault::Lossy { server, .. } => both_ways(site, &BTreeSet::from([*server]), 0).await?,
        Fault::Slow { server } => site.network.set_slow(*server, false).await?,
        Fault::Clock { server, .. } => site.machines[*server].set_clock(0),
        Fault::FullDisk { server } => site.machines[*server].empty_disk(),
        Fault::FullEmbeddedDisk { .. } => site.alone.empty_disk(),
        Fault::Late { .. }
        | Fault::Flood { .. }
        | Fault::FrozenAgent { .. }
        | Fault::Revocation { .. } => {}
    }
    Ok(())
}

/// Aims faults about data at servers that keep data.
pub(super) async fn aim_at_data(site: &Site, step: Step) -> Step {
    let status = site.status().await;
    let names = status.iter().flat_map(|status| &status.datastores);
    let mut keep_data: Vec<Server> = names
        .filter_map(|datastore| {
            let name = datastore.name.as_ref()?;
            site.machines.iter().position(|it| it.name == name.as_str())
        })
        .collect();
    keep_data.sort_unstable();
    let faults = step.faults.iter().map(|fault| fault.among(&keep_data));
    Step {
        faults: faults.collect(),
        ..step
    }
}

fn others(site: &Site, side: &BTreeSet<Server>) -> BTreeSet<Server> {
    site.network.all().difference(side).copied().collect()
}

async fn both_ways(site: &mut Site, side: &BTreeSet<Server>, percent: u8) -> Result<(), SiteError> {
    let others = others(site, side);
    site.network.set_loss(side, &others, percent).await?;
    site.network.set_loss(&others, side, percent).await?;
    Ok(())
}
