//! Template functions that attack their worker, for tests. Release builds do not have them.
//!
//! The limits of the languages stop all known attacks before a worker dies. These functions have no
//! such limits, so that tests reach the process around them.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::state_world::TemplateCall;

/// Calls a function, if it is one of these.
pub(super) fn call(call: &TemplateCall<'_>) -> Option<Value> {
    let text = || call.text(0, "name").unwrap_or_default().to_owned();
    let shown = |result: std::io::Result<()>| match result {
        Ok(()) => json!("succeeded"),
        Err(error) => json!(error.to_string()),
    };
    Some(match call.function {
        "attack.stack" => json!(deeper(0)),
        "attack.memory" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(vec![1; 1 << 20]);
            }
        }
        "attack.cpu" => loop {
            std::hint::spin_loop();
        },
        "attack.read" => shown(std::fs::read(text()).map(drop)),
        "attack.list" => shown(std::fs::read_dir(text()).map(drop)),
        "attack.write" => shown(std::fs::write(text(), "")),
        "attack.connect" => shown(TcpStream::connect(text()).map(drop)),
        "attack.fork" => shown(std::thread::Builder::new().spawn(|| ()).map(drop)),
        _ => return None,
    })
}

/// Each call needs more of the stack, and there is always one more.
fn deeper(depth: u64) -> u64 {
    let here = std::hint::black_box([depth; 128]);
    if depth == u64::MAX {
        return 0;
    }
    deeper(here[7] + 1) + here[3]
}
