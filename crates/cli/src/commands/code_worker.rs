//! `bunraku code-worker`: compiles code for the server that started it, confined.

use bunraku_compile::compiles::run_code_worker;

use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) fn run() -> Result<Exit, Failure> {
    run_code_worker()?;
    Ok(Exit::Done)
}
