//! A worker's own process: confined, then one line in and one line out.

use std::io::{BufRead, BufReader, Stdin, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_control::error::chain;
use bunraku_process::{Sandbox, SandboxError, Signal, limit_cpu};
use bunraku_wire::api::CompileProblem;
use serde_json::{Value, json};

use super::perform::CodeTasks;
use super::{AskServer, ResultLine, TaskLine, TaskResult, WorkerSetup};

/// The stack of the thread that works. All nesting is bounded far below it.
const STACK: usize = 16 << 20;
/// Code is read file by file.
const MOST_FILES: u64 = 64;

/// Serves one server on standard input and output, until the input ends. Blocks.
///
/// Nothing of this process but the thread that works ever sees what the server sends.
pub fn run_code_worker() -> std::io::Result<()> {
    // A compile that never ends would go on after `kill -9` of the server.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let work = std::thread::Builder::new()
        .name("code".to_owned())
        .stack_size(STACK)
        .spawn(serve)?;
    match work.join() {
        Ok(ended) => ended,
        // The message is on standard error.
        Err(_) => Err(std::io::Error::other("the compile panicked")),
    }
}

/// The two pipes to the server.
struct Pipes {
    input: BufReader<Stdin>,
    output: std::io::Stdout,
}

impl Pipes {
    /// Returns the next line, or nothing at the end.
    fn read(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let count = self.input.read_until(b'\n', &mut line)?;
        Ok((count > 0).then_some(line))
    }

    fn write(&mut self, mut line: Vec<u8>) -> std::io::Result<()> {
        line.push(b'\n');
        self.output.write_all(&line)?;
        self.output.flush()
    }
}

struct PipeAsker(Mutex<Pipes>);

impl PipeAsker {
    fn pipes(&self) -> std::sync::MutexGuard<'_, Pipes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskServer for PipeAsker {
    fn ask(&self, question: Value) -> Result<Value, String> {
        let gone = |error: std::io::Error| format!("the server is gone: {error}");
        let mut pipes = self.pipes();
        let line = json!({ "ask": question }).to_string();
        pipes.write(line.into_bytes()).map_err(gone)?;
        let line = pipes.read().map_err(gone)?.unwrap_or_default();
        let reply: Value = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        let Value::Object(mut reply) = reply else {
            return Err("the server sent no answer".to_owned());
        };
        match (reply.remove("answer"), reply.remove("error")) {
            (Some(answer), _) => Ok(answer),
            (None, Some(Value::String(error))) => Err(error),
            (None, _) => Err("the server sent no answer".to_owned()),
        }
    }
}

fn serve() -> std::io::Result<()> {
    let pipes = Arc::new(PipeAsker(Mutex::new(Pipes {
        input: BufReader::new(std::io::stdin()),
        output: std::io::stdout(),
    })));
    let Some(first) = pipes.pipes().read()? else {
        return Ok(());
    };
    let setup: WorkerSetup = serde_json::from_slice(&first)?;
    let confined = confine(&setup);
    let tasks = CodeTasks::new(&setup.tree);
    loop {
        let Some(line) = pipes.pipes().read()? else {
            return Ok(());
        };
        let TaskLine { id, task } = serde_json::from_slice(&line)?;
        let result = match &confined {
            Ok(()) => {
                limit_cpu(setup.cpu_seconds).map_err(std::io::Error::other)?;
                tasks.perform(&task, Arc::clone(&pipes) as Arc<dyn AskServer>)
            }
            // Never touch code without the sandbox.
            Err(error) => TaskResult::Errors(vec![unconfined(error)]),
        };
        let result = &result;
        pipes
            .pipes()
            .write(serde_json::to_vec(&ResultLine { id, result })?)?;
    }
}

fn confine(setup: &WorkerSetup) -> Result<(), SandboxError> {
    let sandbox = Sandbox {
        readable: vec![setup.tree.clone()],
        memory: setup.memory,
        open_files: MOST_FILES,
        needs_landlock: setup.needs_landlock,
    };
    sandbox.enter()
}

fn unconfined(error: &SandboxError) -> CompileProblem {
    let hint = match error {
        SandboxError::NoLandlock => Some(
            "Set `require_landlock = false` under [server.compile] to compile without it."
                .to_owned(),
        ),
        _ => None,
    };
    CompileProblem {
        message: format!("code cannot be compiled on this server: {}", chain(error)),
        hint,
        ..CompileProblem::default()
    }
}
