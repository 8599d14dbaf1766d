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
    after_help = "The pages are served on this machine only, to whoever has the address that is printed, and ask
servers with your credentials. They only look: nothing can be changed through them.
From another machine: ssh -L 8160:127.0.0.1:8160 HOST bunraku console --listen 127.0.0.1:8160

Example:
  bunraku console"
)]
pub(crate) struct ConsoleArguments {
    /// Where to listen: an address of this machine itself; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

pub(crate) fn run(arguments: &ConsoleArguments, context: &Context) -> Result<Exit, Failure> {
    let listen = arguments.listen;
    if !listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{listen} can be reached from other machines, and the console speaks plain HTTP"
        ))
        .hint("listen on 127.0.0.1, and forward the port: ssh -L 8160:127.0.0.1:8160 HOST"));
    }
    let operator = own_name(&context.global, &context.loaded)?;
    context.with_client(|client| console::serve(client, operator, listen))
}
