//! Memory and swap, from /proc/meminfo.

use serde_json::{Map, Value, json};

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::units;
use super::warning::FactWarning;

const PATH: &str = "/proc/meminfo";

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    parse(&machine.text(PATH)?)
}

fn parse(text: &str) -> Result<Facts, GroupError> {
    let total = field(text, "MemTotal").ok_or(GroupError::Missing {
        path: PATH,
        what: "`MemTotal`",
    })?;
    let mut memory = single("system", usage(total, available(text)));
    let swap = field(text, "SwapTotal").unwrap_or(0);
    if swap > 0 {
        let free = field(text, "SwapFree").unwrap_or(0);
        memory.insert("swap".to_owned(), usage(swap, free));
    }
    Ok(single("memory", memory))
}

/// Returns the available memory. Kernels before 3.14 do not estimate it.
fn available(text: &str) -> u64 {
    field(text, "MemAvailable").unwrap_or_else(|| {
        ["MemFree", "Buffers", "Cached"]
            .into_iter()
            .filter_map(|name| field(text, name))
            .fold(0, u64::saturating_add)
    })
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field == name).then_some(value)
    })?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn usage(total: u64, available: u64) -> Value {
    let used = total.saturating_sub(available);
    Value::Object(Map::from_iter([
        ("total".to_owned(), json!(units::bytes(total))),
        ("total_bytes".to_owned(), json!(total)),
        ("available".to_owned(), json!(units::bytes(available))),
        ("available_bytes".to_owned(), json!(available)),
        ("used".to_owned(), json!(units::bytes(used))),
        ("used_bytes".to_owned(), json!(used)),
        (
            "capacity".to_owned(),
            json!(units::memory_capacity(used, total)),
        ),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expect: Expect) {
        let said = match parse(text) {
            Ok(facts) => Value::Object(facts).to_string(),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&said);
    }

    #[test]
    fn memory_and_swap_are_read() {
        check(
            "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable: 1536 kB\nSwapTotal: 1024 kB\nSwapFree: 1024 kB\n",
            expect![[
                r#"{"memory":{"system":{"total":"2.00 MiB","total_bytes":2097152,"available":"1.50 MiB","available_bytes":1572864,"used":"512.00 KiB","used_bytes":524288,"capacity":"25.00%"},"swap":{"total":"1.00 MiB","total_bytes":1048576,"available":"1.00 MiB","available_bytes":1048576,"used":"0 bytes","used_bytes":0,"capacity":"0.00%"}}}"#
            ]],
        );
    }

    #[test]
    fn an_old_kernel_reports_no_estimate_and_no_swap() {
        check(
            "MemTotal: 8 kB\nMemFree: 1 kB\nBuffers: 1 kB\nCached: 2 kB\nSwapCached: 9 kB\nSwapTotal: 0 kB\n",
            expect![[
                r#"{"memory":{"system":{"total":"8.00 KiB","total_bytes":8192,"available":"4.00 KiB","available_bytes":4096,"used":"4.00 KiB","used_bytes":4096,"capacity":"50.00%"}}}"#
            ]],
        );
    }

    #[test]
    fn a_file_without_a_total_is_an_error() {
        check(
            "nonsense",
            expect!["/proc/meminfo does not contain `MemTotal`"],
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((MemTotal|MemFree|SwapTotal|SwapFree|.{0,4}):? *[0-9]{0,21} ?(kB)?\n){0,6}") {
            let _ = parse(&text);
        }
    }
}
