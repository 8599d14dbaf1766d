//! `bunraku-delayed`: what people run, with everything late.
//!
//! Its servers answer late, and what they ask of their store and what the store
//! tells them is late, too: mostly by little, sometimes by a lot, as the seed in
//! `BUNRAKU_DELAY_SEED` says. Binary tests run it in place of `bunraku` when
//! `BUNRAKU_TEST_PROGRAM` names it. Whatever fails then and not otherwise has a
//! race. Nothing else differs from the `bunraku` binary.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bunraku::Wiring;
use bunraku_store::testing::DelayedStore;
use bunraku_testkit::Chance;

const USUAL: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_millis(250);
/// How many of a hundred take long.
const OFTEN: usize = 4;

fn main() -> ExitCode {
    let wiring = Wiring {
        store: |inner| Arc::new(DelayedStore::new(inner, Arc::new(delay))),
        delay: Some(delay),
    };
    bunraku::main_with(std::env::args_os(), wiring)
}

fn delay() -> Duration {
    static CHANCE: OnceLock<Chance> = OnceLock::new();
    let chance = CHANCE.get_or_init(|| {
        let seed = std::env::var("BUNRAKU_DELAY_SEED").ok();
        Chance::new(seed.and_then(|seed| seed.parse().ok()).unwrap_or(1))
    });
    chance.up_to(if chance.happens(OFTEN) { LONG } else { USUAL })
}
