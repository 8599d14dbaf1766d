//! Why a worker ended without an answer, in words.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use bunraku_process::{Signal, describe};

use super::worker_pool::WorkerLimits;
use super::worker_process::WorkerError;

/// Texts by which programs report that they ran out of memory: Rust, Ruby, C++.
const OUT_OF_MEMORY: [&str; 3] = [
    "memory allocation of ",
    "failed to allocate memory",
    "std::bad_alloc",
];
/// Texts by which programs report that their stack overflowed: Rust, Ruby.
const STACK_OVERFLOW: [&str; 2] = ["has overflowed its stack", "SystemStackError"];

/// Returns the reason, if the compile killed its worker.
pub(super) fn worker_death(
    error: &WorkerError,
    words: &str,
    limits: &WorkerLimits,
) -> Option<String> {
    let how = match error {
        WorkerError::Start { .. } | WorkerError::TooLong(_) => return None,
        WorkerError::TimeOut(_) | WorkerError::Closed => error.to_string(),
        WorkerError::Ended(status) => ended(*status, words, limits),
    };
    Some(if words.is_empty() {
        how
    } else {
        format!("{how}; its output: {words}")
    })
}

fn ended(status: ExitStatus, words: &str, limits: &WorkerLimits) -> String {
    let says = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
    let signal = status.signal();
    let by = if signal == Some(Signal::XCPU.as_raw()) {
        let seconds = limits.time_limit.as_secs();
        format!("killed by the CPU limit of {seconds} s")
    } else if says(&STACK_OVERFLOW) {
        "killed by a stack overflow".to_owned()
    } else if says(&OUT_OF_MEMORY) {
        match limits.hard_memory_limit {
            Some(limit) => format!("killed by the memory limit of {} MiB", limit >> 20),
            None => "killed because it ran out of memory".to_owned(),
        }
    } else if let Some(signal) = signal {
        format!("killed by signal {signal}")
    } else {
        return format!(
            "the compiler ended ({}) without an answer",
            describe(status)
        );
    };
    format!("the compiler was {by}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn death(status: i32, words: &str) -> String {
        let limits = WorkerLimits {
            workers: 1,
            time_limit: Duration::from_secs(60),
            recycle_after: 1,
            memory_limit: None,
            hard_memory_limit: Some(512 << 20),
            longest_answer: 1,
        };
        let ended = WorkerError::Ended(ExitStatus::from_raw(status));
        worker_death(&ended, words, &limits).expect("a death")
    }

    #[test]
    fn a_death_names_the_limit_that_was_reached() {
        for (status, words, expected) in [
            (24, "", "the compiler was killed by the CPU limit of 60 s"),
            (9, "", "the compiler was killed by signal 9"),
            (
                3 << 8,
                "",
                "the compiler ended (exit code 3) without an answer",
            ),
        ] {
            assert_eq!(death(status, words), expected);
        }
        let memory = death(6, "memory allocation of 8 bytes failed");
        assert!(memory.starts_with("the compiler was killed by the memory limit of 512 MiB; "));
        let stack = death(6, "thread 'code' has overflowed its stack");
        assert!(stack.starts_with("the compiler was killed by a stack overflow; "));
    }
}
