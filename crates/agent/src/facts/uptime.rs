//! The machine's uptime. In a Docker container, it is the uptime of the first process, as in
//! Facter.

use serde_json::{Value, json};

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::virtualization;
use super::warning::FactWarning;

const PATH: &str = "/proc/uptime";

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let mut seconds = parse(&machine.text(PATH)?).ok_or(GroupError::Missing {
        path: PATH,
        what: "a number of seconds",
    })?;
    if virtualization::container(machine).is_some_and(|found| found.is_docker()) {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let first = machine.optional("/proc/1/stat");
        if let Some(start) = first.as_deref().and_then(start_ticks) {
            seconds = seconds.saturating_sub(start / ticks);
        }
    }
    Ok(single("system_uptime", facts(seconds)))
}

fn parse(text: &str) -> Option<u64> {
    let seconds = text.split_whitespace().next()?.split('.').next()?;
    seconds.parse().ok()
}

/// Returns field 22 of /proc/PID/stat. The second field is a name in parentheses, which may itself
/// contain spaces and parentheses, so count from the last parenthesis.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn facts(seconds: u64) -> Value {
    let hours = seconds / 3600;
    let days = hours / 24;
    let uptime = match days {
        0 => format!("{hours}:{:02} hours", seconds / 60 % 60),
        1 => "1 day".to_owned(),
        _ => format!("{days} days"),
    };
    json!({"seconds": seconds, "hours": hours, "days": days, "uptime": uptime})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_is_written_as_facter_writes_it() {
        for (seconds, text) in [
            (59, "0:00 hours"),
            (931, "0:15 hours"),
            (86_399, "23:59 hours"),
            (86_400, "1 day"),
            (200_000, "2 days"),
        ] {
            assert_eq!(facts(seconds)["uptime"], text);
        }
    }

    #[test]
    fn the_start_of_a_process_with_a_hostile_name_is_found() {
        let stat = "1 (a) b (c) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        assert_eq!(start_ticks(stat), Some(4711));
        assert_eq!(start_ticks("1 (a"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            parse(&text);
            start_ticks(&text);
        }
    }
}
