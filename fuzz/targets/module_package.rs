//! Runs the target `module_package` under libFuzzer. See `scripts/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bunraku_fuzz::module_package(data));
