//! `bunraku apply` as users run it: exit code, stdout and stderr together.

mod behaviour;
mod modules;
mod places;
mod puppet;
mod states;
mod world;
