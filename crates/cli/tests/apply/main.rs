//! `bunraku apply` as users run it: exit code, stdout and stderr together.

mod behaviour;
mod grains_beside_salt;
mod modules;
mod places;
mod puppet;
mod states;
mod world;
