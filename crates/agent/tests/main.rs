//! Facts of simulated and real machines.

mod facts_beside_facter;
mod facts_external;
mod facts_made_up_roots;
