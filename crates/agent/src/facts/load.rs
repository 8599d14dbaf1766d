//! Load averages, from /proc/loadavg.

use serde_json::json;

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::warning::FactWarning;

const PATH: &str = "/proc/loadavg";

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    parse(&machine.text(PATH)?).ok_or(GroupError::Missing {
        path: PATH,
        what: "three averages",
    })
}

fn parse(text: &str) -> Option<Facts> {
    let mut words = text.split_whitespace();
    let mut average = || words.next()?.parse::<f64>().ok().filter(|n| n.is_finite());
    let (one, five, fifteen) = (average()?, average()?, average()?);
    Some(single(
        "load_averages",
        json!({"1m": one, "5m": five, "15m": fifteen}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_averages_or_none() {
        let facts = parse("0.35 0.57 12.00 1/200 4711\n").unwrap();
        assert_eq!(
            facts["load_averages"],
            json!({"1m": 0.35, "5m": 0.57, "15m": 12.0})
        );
        assert_eq!(parse("0.35 0.57"), None);
        assert_eq!(parse("nan 1 1"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = parse(&text);
        }
    }
}
