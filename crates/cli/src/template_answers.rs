//! Execution functions that templates on this machine may call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bunraku_compile::state_world::{AnswerTemplates, TemplateCall};
use bunraku_engine::CommandSetting;
use bunraku_model::LockName;
use bunraku_process::{OutputLimits, Program};
use bunraku_states::{World, WorldError};
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// The time limit for a command of a template.
const LONGEST_COMMAND: Duration = Duration::from_secs(3600);

/// Answers templates on this machine.
pub(crate) struct MachineAnswers {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) commands: CommandSetting,
}

impl AnswerTemplates for MachineAnswers {
    fn lock_holders(&self, lock: &LockName) -> Result<Vec<String>, WorldError> {
        let locks = (self.fleet.lock_statuses())
            .map_err(|why| WorldError::new(format!("cannot read the locks: {why}")))?;
        let mut owners: Vec<String> = Vec::new();
        let lock = locks.into_iter().find(|found| found.name == *lock);
        for holder in lock.into_iter().flat_map(|lock| lock.holders) {
            // In a lock with several slots, one owner may hold more than one.
            if !owners.contains(&holder.owner) {
                owners.push(holder.owner);
            }
        }
        Ok(owners)
    }

    /// These are the functions that templates of a masterless tree use most.
    fn call(&self, _: &dyn World, call: &TemplateCall<'_>) -> Result<Value, WorldError> {
        match call.function {
            "cmd.run" | "cmd.shell" | "cmd.run_stdout" | "cmd.retcode" | "cmd.run_all" => {
                let command = call.text(0, "cmd")?;
                // The program stays in our process group, so that Ctrl-C ends it too.
                let mut program = Program::new("/bin/sh").args(["-c", command]).in_our_group();
                for (name, value) in &self.commands.environment {
                    program = program.env(name, value);
                }
                if self.commands.end_with_us {
                    program = program.ends_with_us();
                }
                let output = program
                    .output_blocking(OutputLimits::with_timeout(LONGEST_COMMAND))
                    .map_err(|error| WorldError::new(format!("`{command}` {error}")))?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
                let code = output.status.code().unwrap_or(-1);
                Ok(match call.function {
                    "cmd.retcode" => json!(code),
                    "cmd.run_all" => json!({
                        "retcode": code, "stdout": text(&output.stdout), "stderr": text(&output.stderr),
                    }),
                    _ => json!(text(&output.stdout)),
                })
            }
            "cmd.which" | "cmd.has_exec" => {
                let program = call.text(0, "cmd")?;
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = std::env::split_paths(&path)
                    .map(|directory| directory.join(program))
                    .find(|file| file.is_file());
                Ok(if call.function == "cmd.has_exec" {
                    json!(found.is_some())
                } else {
                    found.map_or(Value::Null, |file| json!(file.to_string_lossy()))
                })
            }
            "file.file_exists" => Ok(json!(Path::new(call.text(0, "path")?).is_file())),
            "file.directory_exists" => Ok(json!(Path::new(call.text(0, "path")?).is_dir())),
            "file.read" => {
                let path = call.text(0, "path")?;
                let text = std::fs::read_to_string(path);
                text.map(Value::from)
                    .map_err(|error| WorldError::new(format!("cannot read {path}: {error}")))
            }
            "environ.get" => {
                let key = call.text(0, "key")?;
                let set = self
                    .commands
                    .environment
                    .iter()
                    .find(|(name, _)| name == key);
                let value = set.map(|(_, value)| value.clone());
                let value = value.or_else(|| std::env::var(key).ok());
                let default = call.argument(1, "default").cloned();
                Ok(value.map_or_else(|| default.unwrap_or(json!("")), Value::from))
            }
            "test.ping" => Ok(json!(true)),
            _ => Err(WorldError::new(format!(
                "the execution function `{}` is not available in templates",
                call.function
            ))),
        }
    }
}
