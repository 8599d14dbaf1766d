//! Runs the target `gossip` under libFuzzer. See `scripts/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bunraku_fuzz::gossip(data));
