//! Tests of cluster members: pure decisions, and real processes.

mod certificates;
mod failover;
mod failover_processes;
mod membership;
mod recover;
mod recovery;
mod removal;
mod strangers;
mod support;
mod upgrade;
mod upgrade_decision;
