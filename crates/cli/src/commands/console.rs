//! `bunraku console`.

use std::net::SocketAddr;

use clap::Args;

use crate::connection::own_name;
use crate::console;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Args)]
#[command(
    after_help = "The console listens on a loopback address and uses your credentials. It is read-only.
Only the printed address gives access to it. To use it from another machine:
  ssh -L 8160:127.0.0.1:8160 HOST bunraku console --listen 127.0.0.1:8160

Example:
  bunraku console"
)]
pub(crate) struct ConsoleArguments {
    /// Loopback address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Exit when the parent process with this id exits
    #[arg(long, hide = true, value_name = "PID")]
    end_with_parent: Option<i32>,
}

pub(crate) fn run(arguments: &ConsoleArguments, context: &Context) -> Result<Exit, Failure> {
    crate::signals::end_with_parent(arguments.end_with_parent)?;
    let listen = arguments.listen;
    if !listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{listen} can be reached from other machines, and the console uses HTTP without encryption"
        ))
        .hint("listen on 127.0.0.1 and forward the port: ssh -L 8160:127.0.0.1:8160 HOST"));
    }
    let operator = own_name(&context.global, &context.loaded)?;
    context.with_client(|client| console::serve(client, operator, listen))
}
