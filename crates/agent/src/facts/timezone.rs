//! The time zone's abbreviation, as `date +%Z` prints it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::warning::FactWarning;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let zone = zone(machine).unwrap_or(TimeZone::UTC);
    let now = zone.to_offset_info(Timestamp::now());
    Ok(single("timezone", now.abbreviation()))
}

/// Returns the time zone. `TZ` applies only to our own process; without it, /etc/localtime decides.
fn zone(machine: &Machine) -> Option<TimeZone> {
    let variable = std::env::var("TZ").ok().filter(|_| machine.is_live());
    match variable.as_deref().map(|name| name.trim_start_matches(':')) {
        None => from_file(machine, "/etc/localtime"),
        Some("") => None,
        Some(name) if name.starts_with('/') => from_file(machine, name),
        Some(name) => from_file(machine, &format!("/usr/share/zoneinfo/{name}"))
            .or_else(|| TimeZone::posix(name).ok()),
    }
}

fn from_file(machine: &Machine, path: &str) -> Option<TimeZone> {
    let bytes = machine.bytes(path).ok()?;
    TimeZone::tzif("local", &bytes).ok()
}
