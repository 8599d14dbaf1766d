//! The wait before another attempt.
//!
//! Pure: randomness is an argument. Each round doubles the span, up to a limit. The wait is
//! between a quarter of the span and the whole span, so that a fleet that lost its server
//! does not reconnect all at once.

use std::time::Duration;

/// The first span and the longest span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackOff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(60),
        }
    }
}

impl BackOff {
    /// Returns the wait after `round` earlier failures. `fraction`, between 0 and 1, comes
    /// from a random generator.
    pub fn wait(&self, round: u32, fraction: f64) -> Duration {
        let doubled = self.first.saturating_mul(1_u32 << round.min(20));
        let span = doubled.min(self.longest);
        let fraction = if fraction.is_finite() {
            fraction.clamp(0.0, 1.0)
        } else {
            1.0
        };
        span.mul_f64(0.25 + 0.75 * fraction)
    }

    /// Like [`BackOff::wait`], with the system's randomness.
    pub fn random_wait(&self, round: u32) -> Duration {
        self.wait(round, super::random_fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_limit_and_is_spread() {
        let back_off = BackOff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(10),
        };
        let longest: Vec<_> = (0..6)
            .map(|round| back_off.wait(round, 1.0).as_secs())
            .collect();
        assert_eq!(longest, [1, 2, 4, 8, 10, 10]);
        assert_eq!(back_off.wait(2, 0.0), Duration::from_secs(1));
        assert_eq!(back_off.wait(u32::MAX, f64::NAN), Duration::from_secs(10));
    }
}
