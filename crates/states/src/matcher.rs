//! Node matching: globs, lists, grains, pillar, compounds.

use bunraku_model::Glob;
use regex::Regex;
use serde_json::{Map, Value};

/// The node to match.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) node: &'a str,
    pub(crate) grains: &'a Map<String, Value>,
    pub(crate) pillar: &'a Map<String, Value>,
}

/// An expression that cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("`{0}` is not a target: {1}")]
pub(crate) struct MatchError(String, String);

/// Returns true if a name matches a glob pattern.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    Glob::with_sets(pattern).matches(text)
}

/// Returns true if the text has wildcards, by Salt's rule.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// Evaluates one kind of match: `glob`, `pcre`, `grain`, `grain_pcre`, `pillar`, `pillar_pcre`,
/// `pillar_exact`, `list`, `compound`.
pub(crate) fn matches(
    kind: &str,
    expression: &str,
    subject: Subject<'_>,
) -> Result<bool, MatchError> {
    let refuse = |why: &str| MatchError(expression.to_owned(), why.to_owned());
    match kind {
        "glob" => Ok(matches_glob(expression, subject.node)),
        "pcre" => pattern(expression, subject.node),
        "list" => Ok(expression
            .split(',')
            .any(|name| name.trim() == subject.node)),
        "grain" => data(expression, subject.grains, |pattern, text| {
            Ok(matches_glob(pattern, text))
        }),
        "grain_pcre" => data(expression, subject.grains, pattern),
        "pillar" => data(expression, subject.pillar, |pattern, text| {
            Ok(matches_glob(pattern, text))
        }),
        "pillar_pcre" => data(expression, subject.pillar, pattern),
        "pillar_exact" => data(
            expression,
            subject.pillar,
            |wanted, text| Ok(wanted == text),
        ),
        "compound" => matches_compound(expression, subject),
        _ => Err(refuse("unknown kind of match")),
    }
}

fn pattern(expression: &str, text: &str) -> Result<bool, MatchError> {
    Regex::new(&format!("^(?:{expression})"))
        .map(|pattern| pattern.is_match(text))
        .map_err(|error| MatchError(expression.to_owned(), error.to_string()))
}

/// Matches `os_family:Debian`, `roles:web`, `a:b:c*`: a path and a pattern.
fn data(
    expression: &str,
    data: &Map<String, Value>,
    test: impl Fn(&str, &str) -> Result<bool, MatchError> + Copy,
) -> Result<bool, MatchError> {
    let parts: Vec<&str> = expression.split(':').collect();
    for split in 1..parts.len() {
        let wanted = parts[split..].join(":");
        let mut current = data.get(parts[0]);
        for part in &parts[1..split] {
            current = current.and_then(|value| value.get(part));
        }
        if let Some(value) = current
            && any_value(value, &wanted, test)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn any_value(
    value: &Value,
    wanted: &str,
    test: impl Fn(&str, &str) -> Result<bool, MatchError> + Copy,
) -> Result<bool, MatchError> {
    match value {
        Value::Array(items) => {
            for item in items {
                if any_value(item, wanted, test)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Object(members) => {
            for key in members.keys() {
                if test(wanted, key)? {
                    return Ok(true);
                }
            }
            Ok(wanted == "*")
        }
        // Salt compares case-insensitively.
        Value::String(text) => test(&wanted.to_lowercase(), &text.to_lowercase()),
        Value::Bool(truth) => test(
            &wanted.to_lowercase(),
            if *truth { "true" } else { "false" },
        ),
        Value::Null => Ok(false),
        Value::Number(number) => test(wanted, &number.to_string()),
    }
}

/// Evaluates `G@os:Debian and not ( web* or L@a,b )`.
pub(crate) fn matches_compound(expression: &str, subject: Subject<'_>) -> Result<bool, MatchError> {
    let mut words = MatchParser {
        expression,
        words: expression.split_whitespace().collect(),
        at: 0,
        subject,
    };
    let answer = words.disjunction(0)?;
    match words.peek() {
        None => Ok(answer),
        Some(word) => Err(words.refuse(format!("unexpected `{word}`"))),
    }
}

struct MatchParser<'a> {
    expression: &'a str,
    words: Vec<&'a str>,
    at: usize,
    subject: Subject<'a>,
}

impl<'a> MatchParser<'a> {
    fn refuse(&self, why: impl Into<String>) -> MatchError {
        MatchError(self.expression.to_owned(), why.into())
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn disjunction(&mut self, depth: usize) -> Result<bool, MatchError> {
        let mut answer = self.both(depth)?;
        while self.peek() == Some("or") {
            self.at += 1;
            answer |= self.both(depth)?;
        }
        Ok(answer)
    }

    fn both(&mut self, depth: usize) -> Result<bool, MatchError> {
        let mut answer = self.one(depth)?;
        while self.peek() == Some("and") {
            self.at += 1;
            answer &= self.one(depth)?;
        }
        Ok(answer)
    }

    fn one(&mut self, depth: usize) -> Result<bool, MatchError> {
        if depth > 32 {
            return Err(self.refuse("nested too deeply"));
        }
        let word = self.peek().ok_or_else(|| self.refuse("unexpected end"))?;
        self.at += 1;
        match word {
            "not" => Ok(!self.one(depth + 1)?),
            "(" => {
                let answer = self.disjunction(depth + 1)?;
                if self.peek() != Some(")") {
                    return Err(self.refuse("a `)` is missing"));
                }
                self.at += 1;
                Ok(answer)
            }
            _ => self.word(word),
        }
    }

    fn word(&self, word: &str) -> Result<bool, MatchError> {
        let (kind, rest) = match word.split_once('@') {
            Some(("G", rest)) => ("grain", rest),
            Some(("P", rest)) => ("grain_pcre", rest),
            Some(("I", rest)) => ("pillar", rest),
            Some(("J", rest)) => ("pillar_pcre", rest),
            Some(("L", rest)) => ("list", rest),
            Some(("E", rest)) => ("pcre", rest),
            Some((letter @ ("S" | "R" | "N"), _)) => {
                return Err(self.refuse(format!("`{letter}@` is not supported")));
            }
            _ => ("glob", word),
        };
        matches(kind, rest, self.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(expression: &str) -> Result<bool, MatchError> {
        let grains = json!({"os": "Debian", "roles": ["web", "db"], "a": {"b": {"c": "d"}}});
        let pillar = json!({"tier": "gold"});
        let subject = Subject {
            node: "web1.example",
            grains: grains.as_object().expect("a map"),
            pillar: pillar.as_object().expect("a map"),
        };
        matches_compound(expression, subject)
    }

    #[test]
    fn compounds_read_as_salt_writes_them() {
        for (expression, expected) in [
            ("G@os:Debian", true),
            ("G@os:debian and web*", true),
            ("G@roles:db and not L@web1.example,web2", false),
            ("( G@os:RedHat or I@tier:gold ) and E@web\\d", true),
            ("G@a:b:c:d", true),
            ("P@os:(Debian|Ubuntu)", true),
            ("not G@os:Debian or web1*", true),
        ] {
            assert_eq!(check(expression), Ok(expected), "{expression}");
        }
        assert!(check("G@os:x and").is_err());
        assert!(check("( web*").is_err());
        assert!(check("S@10.0.0.0/8").is_err());
    }
}
