//! Runs the target `puppet_parser` under libFuzzer. See `scripts/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bunraku_fuzz::puppet_parser(data));
