//! `bunraku apply`: applies states or a catalog to this machine, without a server.

use std::process::ExitCode;
use std::sync::Arc;

use bunraku_engine::{Cancellation, CommandSetting};

use crate::apply_view::Printer;
use crate::context::Context;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::local_apply::{ApplyArgs, LocalApply};

/// Runs the command.
pub(crate) fn run(arguments: &ApplyArgs, context: &Context) -> Result<ExitCode, Failure> {
    if let Some(destination) = &arguments.ssh {
        return Ok(super::apply_ssh::run(
            destination,
            arguments,
            context.global.json,
        ));
    }
    let apply = LocalApply {
        fleet: Arc::new(Fleet::new(context)),
        json: context.global.json,
        printer: Printer::default(),
        cancellation: Cancellation::new()?,
        listen_for_signals: true,
        commands: CommandSetting::default(),
    };
    Ok(apply.run(arguments).into())
}
