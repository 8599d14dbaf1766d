//! Applies faults, and repairs what they broke.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fault::{Fault, Step};
use crate::history::{Micros, NetworkCut, Server};
use crate::site::{Site, SiteError};
use crate::workload::Recorder;

/// The time that a flapping link stays up, and down.
const FLAP: Duration = Duration::from_millis(350);
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct FaultInjector {
    recorder: Recorder,
    /// Servers whose clocks were wrong at some time.
    shifted: Vec<Server>,
    until: Instant,
}

impl FaultInjector {
    pub(super) fn new(recorder: Recorder, time: Duration) -> Self {
        Self {
            recorder,
            shifted: Vec::new(),
            until: Instant::now() + time,
        }
    }

    pub(super) fn shifted(&self) -> &[Server] {
        &self.shifted
    }

    /// Applies a step: breaks, holds, repairs, and waits for a while.
    pub(super) async fn step(&mut self, site: &mut Site, step: &Step) -> Result<(), SiteError> {
        let damages = step.faults.iter().any(Fault::damages_data);
        if damages {
            // If another one is away or damaged, a majority could be permanently lost.
            site.wait_until_healthy().await?;
        }
        for fault in &step.faults {
            self.begin(site, fault).await?;
        }
        let cut = self.cut(site, step);
        self.hold(site, step).await?;
        if let Some(mut cut) = cut {
            cut.ended = self.recorder.now();
            self.recorder.cut(cut);
        }
        for fault in &step.faults {
            end(site, fault).await?;
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

    async fn hold(&self, site: &mut Site, step: &Step) -> Result<(), SiteError> {
        let end = Instant::now() + step.hold;
        let mut up = false;
        let mut turned = Instant::now();
        while Instant::now() < end {
            tokio::time::sleep(LOOK).await;
            site.restart_dead_processes();
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

    async fn begin(&mut self, site: &mut Site, fault: &Fault) -> Result<(), SiteError> {
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
        }
        Ok(())
    }
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
