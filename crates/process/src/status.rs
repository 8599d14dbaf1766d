//! Exit statuses as text and as the number that a shell would report.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Returns the status as readable text: `exit code 2`, `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// Returns the exit code that a shell would report: 128 plus the signal's number for a process that
/// was killed.
pub fn shell_code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_described_by_its_code_or_its_signal() {
        let failed = ExitStatus::from_raw(2 << 8);
        assert_eq!(
            (describe(failed).as_str(), shell_code(failed)),
            ("exit code 2", 2)
        );
        let killed = ExitStatus::from_raw(9);
        assert_eq!(
            (describe(killed).as_str(), shell_code(killed)),
            ("signal 9", 137)
        );
    }
}
