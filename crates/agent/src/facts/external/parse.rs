//! Parsers for facts in JSON, YAML and `name=value` lines. Pure.

use serde_json::{Map, Value};

/// A problem with a file: its description, its line, and advice.
#[derive(Debug, PartialEq)]
pub(super) struct ParseProblem {
    pub(super) line: Option<u64>,
    pub(super) problem: String,
    pub(super) advice: String,
}

impl ParseProblem {
    pub(super) fn new(problem: &str, advice: &str) -> Self {
        Self {
            line: None,
            problem: problem.to_owned(),
            advice: advice.to_owned(),
        }
    }

    fn at(line: u64, problem: &str, advice: &str) -> Self {
        Self {
            line: Some(line),
            ..Self::new(problem, advice)
        }
    }
}

pub(super) fn json(bytes: &[u8]) -> Result<Map<String, Value>, ParseProblem> {
    let value = serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // The line number is reported separately from the message.
        let said = text.split(" at line ").next().unwrap_or(&text);
        let problem = format!("is not JSON: {said} (column {})", error.column());
        ParseProblem::at(error.line() as u64, &problem, "correct it there")
    })?;
    mapping(value)
}

pub(super) fn yaml(bytes: &[u8]) -> Result<Map<String, Value>, ParseProblem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        ParseProblem::at(line, "is not UTF-8", "save it as UTF-8")
    })?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    mapping(yaml_value(text).map_err(|(line, problem)| ParseProblem {
        line,
        ..ParseProblem::new(&format!("is not YAML: {problem}"), "correct it there")
    })?)
}

/// Parses YAML as Facter's parser does: version 1.1, so `0644` is octal and `yes` is true.
fn yaml_value(text: &str) -> Result<Value, (Option<u64>, String)> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 64,
            max_documents: 1,
            max_nodes: 100_000,
            max_events: 400_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
            max_alias_expansions_per_anchor: 1_000,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        let text = error.to_string();
        let problem = text.lines().next().unwrap_or("unreadable").to_owned();
        (line.filter(|line| *line > 0), problem)
    })
}

fn mapping(value: Value) -> Result<Map<String, Value>, ParseProblem> {
    let what = match value {
        Value::Object(facts) => return Ok(facts),
        Value::Null => return Ok(Map::new()),
        Value::Array(_) => "a list",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a boolean",
    };
    let problem = format!("contains {what}, not a map of facts");
    Err(ParseProblem::new(&problem, "write `name: value`"))
}

/// Parses lines of `name=value`. Reports other lines, except empty ones and comments.
pub(super) fn pairs(bytes: &[u8], troubles: &mut Vec<ParseProblem>) -> Map<String, Value> {
    let text = String::from_utf8_lossy(bytes);
    if let std::borrow::Cow::Owned(_) = text {
        let problem = "is not UTF-8; those bytes were replaced";
        troubles.push(ParseProblem::new(problem, "save it as UTF-8"));
    }
    let mut facts = Map::new();
    for (number, line) in (1..).zip(text.lines()) {
        match pair(line) {
            Some((name, value)) => {
                facts.insert(name.to_owned(), Value::from(value));
            }
            None if line.trim().is_empty() || line.starts_with('#') => {}
            None => {
                troubles.push(ParseProblem::at(
                    number,
                    "is not `name=value`",
                    "correct or remove the line",
                ));
            }
        }
    }
    facts
}

/// Splits a line at the first `=` that has text on both sides.
fn pair(line: &str) -> Option<(&str, &str)> {
    let first = line
        .chars()
        .next()
        .filter(|first| *first != '#')?
        .len_utf8();
    let place = first + line[first..].find('=')?;
    let (name, value) = (&line[..place], &line[place + 1..]);
    (!value.is_empty()).then_some((name, value))
}

/// Parses the output of an executable: as YAML (and so JSON) if that yields a mapping, otherwise as
/// `name=value` lines.
pub(super) fn output(bytes: &[u8], troubles: &mut Vec<ParseProblem>) -> Map<String, Value> {
    let text = std::str::from_utf8(bytes).ok();
    match text.and_then(|text| yaml_value(text).ok()) {
        Some(Value::Object(facts)) => facts,
        _ => {
            let mut found = Vec::new();
            let facts = pairs(bytes, &mut found);
            // The line numbers refer to the output, not to the file.
            troubles.extend(found.into_iter().map(|trouble| ParseProblem {
                problem: match trouble.line {
                    Some(line) => format!("line {line} of its output {}", trouble.problem),
                    None => format!("its output {}", trouble.problem),
                },
                line: None,
                advice: "print YAML, JSON or `name=value` lines".to_owned(),
            }));
            facts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn show(found: Result<Map<String, Value>, ParseProblem>, troubles: &[ParseProblem]) -> String {
        let mut said = String::new();
        let line = |trouble: &ParseProblem| match trouble.line {
            Some(line) => format!("{line}: {} ({})\n", trouble.problem, trouble.advice),
            None => format!("{} ({})\n", trouble.problem, trouble.advice),
        };
        match found {
            Ok(facts) => said += &format!("{}\n", Value::Object(facts)),
            Err(trouble) => said += &line(&trouble),
        }
        troubles.iter().for_each(|trouble| said += &line(trouble));
        said
    }

    fn check_yaml(text: &[u8], expect: Expect) {
        expect.assert_eq(&show(yaml(text), &[]));
    }

    fn check_output(text: &[u8], expect: Expect) {
        let mut troubles = Vec::new();
        let facts = output(text, &mut troubles);
        expect.assert_eq(&show(Ok(facts), &troubles));
    }

    #[test]
    fn yaml_is_read_as_facter_reads_it() {
        check_yaml(
            b"mode: 0644\non: yes\nlist: [1, {a: ~}]\nwhen: 2020-01-02 03:04:05\n1: one\n",
            expect![[r#"
                {"mode":420,"on":true,"list":[1,{"a":null}],"when":"2020-01-02 03:04:05","1":"one"}
            "#]],
        );
        check_yaml(
            b"a: &x {k: v}\nb: {<<: *x, z: 1}\n",
            expect![[r#"
            {"a":{"k":"v"},"b":{"z":1,"k":"v"}}
        "#]],
        );
        check_yaml(b"", expect!["{}\n"]);
        check_yaml(b"# nothing\n", expect!["{}\n"]);
    }

    #[test]
    fn broken_files_say_where() {
        check_yaml(
            b"a: 1\nb: [1, 2\nc: 3\n",
            expect![[r#"
            3: is not YAML: illegal placement of ':' indicator at line 3, column 2 (correct it there)
        "#]],
        );
        check_yaml(
            b"- 1\n",
            expect![[r#"
            contains a list, not a map of facts (write `name: value`)
        "#]],
        );
        check_yaml(
            b"a: 1\nb: \xff\n",
            expect![[r#"
            2: is not UTF-8 (save it as UTF-8)
        "#]],
        );
        let text = b"{\n \"a\": 1,\n}";
        expect![[r#"
            3: is not JSON: trailing comma (column 1) (correct it there)
        "#]]
        .assert_eq(&show(json(text), &[]));
        expect![[r#"
            contains a list, not a map of facts (write `name: value`)
        "#]]
        .assert_eq(&show(json(b"[1]"), &[]));
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let below = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb += &format!("a{level}: &a{level} [{below}]\n");
        }
        assert!(yaml(bomb.as_bytes()).is_err());
        let deep = "[".repeat(100_000);
        assert!(yaml(deep.as_bytes()).is_err());
        assert!(json(deep.as_bytes()).is_err());
    }

    #[test]
    fn lines_are_split_at_the_first_equals_sign() {
        let mut troubles = Vec::new();
        let facts = pairs(
            b"a=b=c\n# note=1\n\nno pair\nempty=\n=x=1\nbad=\xff\n",
            &mut troubles,
        );
        expect![[r#"
            {"a":"b=c","=x":"1","bad":"�"}
            is not UTF-8; those bytes were replaced (save it as UTF-8)
            4: is not `name=value` (correct or remove the line)
            5: is not `name=value` (correct or remove the line)
        "#]]
        .assert_eq(&show(Ok(facts), &troubles));
    }

    #[test]
    fn output_is_yaml_json_or_lines() {
        check_output(
            b"a: 1\n",
            expect![[r#"
                {"a":1}
            "#]],
        );
        check_output(
            b"{\"a\": [1]}",
            expect![[r#"
                {"a":[1]}
            "#]],
        );
        check_output(
            b"a=1\nb=two\n",
            expect![[r#"
                {"a":"1","b":"two"}
            "#]],
        );
        check_output(
            b"hello\n",
            expect![[r#"
                {}
                line 1 of its output is not `name=value` (print YAML, JSON or `name=value` lines)
            "#]],
        );
        check_output(b"", expect!["{}\n"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = json(&bytes);
            let _ = yaml(&bytes);
            output(&bytes, &mut Vec::new());
        }

        #[test]
        fn any_text_that_looks_like_facts_is_read_without_panic(text in "([a-zä=:&*\\[{\"'<|>!%@`-]{0,4}[ \n]?){0,20}") {
            let _ = json(text.as_bytes());
            let _ = yaml(text.as_bytes());
            output(text.as_bytes(), &mut Vec::new());
        }
    }
}
