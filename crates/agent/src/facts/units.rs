//! Numbers in Facter's format: `23.54 GiB`, `2.30 GHz`, `12.34%`.

/// Formats bytes in binary units with two decimal places, rounded half up.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut unit = (63 - bytes.leading_zeros() as usize) / 10;
    let scale = 1u64 << (10 * unit);
    let mut number = (100.0 * (bytes as f64 / scale as f64)).round() / 100.0;
    if number == 1024.0 && unit < UNITS.len() {
        unit += 1;
        number = 1.0;
    }
    format!("{number:.2} {}", UNITS[unit - 1])
}

/// Formats a frequency in decimal units with two decimal places. Returns nothing for zero.
pub(super) fn hertz(hertz: u64) -> Option<String> {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let step = hertz.checked_ilog10()? / 3;
    let unit = UNITS.get(step as usize)?;
    let number = hertz as f64 / 10f64.powi(3 * step as i32);
    Some(format!("{number:.2} {unit}Hz"))
}

/// Formats the memory usage, always with two decimal places.
pub(super) fn memory_capacity(used: u64, total: u64) -> String {
    format!("{:.2}%", used as f64 / total as f64 * 100.0)
}

/// Formats the usage of a file system. `100%` and `0%` have no decimal places.
pub(super) fn disk_capacity(used: u64, total: u64) -> String {
    if used == total {
        "100%".to_owned()
    } else if used == 0 {
        "0%".to_owned()
    } else {
        memory_capacity(used, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_facter_writes_them() {
        for (number, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (668_016_640, "637.07 MiB"),
            (25_274_793_984, "23.54 GiB"),
            (1024 * 1024 - 1, "1.00 MiB"),
            (274_877_906_944, "256.00 GiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn frequencies_are_written_as_facter_writes_them() {
        assert_eq!(hertz(2_300_000_000).as_deref(), Some("2.30 GHz"));
        assert_eq!(hertz(999), Some("999.00 Hz".to_owned()));
        assert_eq!(hertz(0), None);
        assert_eq!(hertz(u64::MAX), None);
    }

    #[test]
    fn capacities_are_written_as_facter_writes_them() {
        assert_eq!(disk_capacity(0, 0), "100%");
        assert_eq!(disk_capacity(0, 5), "0%");
        assert_eq!(disk_capacity(1, 3), "33.33%");
        assert_eq!(memory_capacity(0, 3), "0.00%");
    }

    proptest::proptest! {
        #[test]
        fn any_number_can_be_written(number: u64, other: u64) {
            bytes(number);
            hertz(number);
            disk_capacity(number, other);
        }
    }
}
