//! The `bunraku` binary. All of it is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bunraku::main_with(std::env::args_os(), bunraku::Wiring::default())
}
