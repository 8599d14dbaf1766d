//! Randomness from one seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The handle; clones draw from the same sequence.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<u64>>);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Returns the next number. SplitMix64: small, and good enough for shuffling.
    pub fn number(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub fn below(&self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    pub fn happens(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn up_to(&self, longest: Duration) -> Duration {
        longest.mul_f64((self.number() >> 11) as f64 / (1_u64 << 53) as f64)
    }
}
