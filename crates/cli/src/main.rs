//! The `bunraku` binary. The library beside it has all of the code.

use std::process::ExitCode;

fn main() -> ExitCode {
    bunraku::main_with(std::env::args_os(), bunraku::Wiring::default())
}
