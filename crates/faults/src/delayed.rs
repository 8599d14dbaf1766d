//! `bunraku-delayed`: the released program, with every answer delayed.
//!
//! Its servers answer late. Their requests to the store and the store's answers are
//! late, too: usually by a little, sometimes by a lot, as determined by the seed in
//! `BUNRAKU_DELAY_SEED`. Binary tests run it in place of `bunraku` when
//! `BUNRAKU_TEST_PROGRAM` names it. A test that fails only then has a race.
//! Nothing else differs from the `bunraku` binary.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bunraku::Wiring;
use bunraku_store::testing::DelayedStore;
use bunraku_testkit::Chance;

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
    bunraku_faults::late::next(chance)
}
