//! Runs the target `site_file` under libFuzzer. See `scripts/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bunraku_fuzz::site_file(data));
