//! `bunraku apply` as people run it: exit code, stdout and stderr together.

mod behaviour;
mod places;
mod puppet;
mod world;
