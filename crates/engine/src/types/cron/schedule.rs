//! The schedule of a job, as the five fields or a word such as `@daily`.

use crate::{Declaration, Refusal};

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SPECIAL: [&str; 8] = [
    "reboot", "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
];

/// Checks the times and returns them in the format of a crontab.
pub(super) fn read(declaration: &Declaration) -> Result<String, Refusal> {
    if let Some(special) = declaration.text("special")?
        && special != "absent"
    {
        let word = special.trim_start_matches('@').to_lowercase();
        if !SPECIAL.contains(&word.as_str()) {
            return Err(declaration.refuse("special", &format!("one of {}", SPECIAL.join(", "))));
        }
        return Ok(format!("@{word}"));
    }
    let fields = [
        field(declaration, "minute", 0, 59, &[], 0)?,
        field(declaration, "hour", 0, 23, &[], 0)?,
        field(declaration, "monthday", 1, 31, &[], 0)?,
        field(declaration, "month", 1, 12, &MONTHS, 1)?,
        field(declaration, "weekday", 0, 7, &DAYS, 0)?,
    ];
    Ok(fields.join(" "))
}

fn field(
    declaration: &Declaration,
    name: &str,
    low: u32,
    high: u32,
    names: &[&str],
    first: u32,
) -> Result<String, Refusal> {
    let Some(given) = declaration.texts(name)? else {
        return Ok("*".to_owned());
    };
    let parts: Option<Vec<String>> = (given.iter())
        .flat_map(|one| one.split(','))
        .map(|part| range(part.trim(), low, high, names, first))
        .collect();
    match parts {
        Some(parts) if !parts.is_empty() => Ok(parts.join(",")),
        _ => Err(declaration.refuse(name, &format!("times between {low} and {high}"))),
    }
}

/// Checks `*`, `*/5`, `3`, `1-5`, `1-10/2`, with names if the field has them.
fn range(part: &str, low: u32, high: u32, names: &[&str], first: u32) -> Option<String> {
    if part == "absent" {
        return Some("*".to_owned());
    }
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (
            range,
            Some(step.parse::<u32>().ok().filter(|step| *step > 0)?),
        ),
        None => (part, None),
    };
    let number = |text: &str| {
        let by_name = || {
            // Full names are allowed too: `Monday`.
            let word = text.to_lowercase();
            let word = word.get(..3)?;
            let at = names.iter().position(|name| *name == word)?;
            u32::try_from(at).ok().map(|at| at + first)
        };
        let number = text.parse().ok().or_else(by_name)?;
        (low..=high).contains(&number).then_some(number)
    };
    let range = match range.split_once('-') {
        _ if range == "*" => "*".to_owned(),
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then(|| format!("{from}-{to}"))?
        }
        None => number(range)?.to_string(),
    };
    Some(match step {
        Some(step) => format!("{range}/{step}"),
        None => range,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_puppet_salt_and_cron_write_them() {
        let minute = |part| range(part, 0, 59, &[], 0);
        assert_eq!(minute("*/5").as_deref(), Some("*/5"));
        assert_eq!(minute("05").as_deref(), Some("5"));
        assert_eq!(minute("1-10/2").as_deref(), Some("1-10/2"));
        for bad in [
            "60",
            "-1",
            "5-1",
            "*/0",
            "",
            "a",
            "1 * * * * root sh",
            "1\n2",
        ] {
            assert_eq!(minute(bad), None, "{bad}");
        }
        assert_eq!(range("Monday", 0, 7, &DAYS, 0).as_deref(), Some("1"));
        assert_eq!(range("Dec", 1, 12, &MONTHS, 1).as_deref(), Some("12"));
    }
}
