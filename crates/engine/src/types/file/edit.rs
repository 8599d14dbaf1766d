//! Changing parts of a text: lines, blocks, patterns. Pure.
//!
//! Each edit is a function of the old content, and editing twice is the same as editing
//! once. A proptest checks this.

use regex::bytes::{Regex, RegexBuilder};

use crate::{Declaration, Refusal};

/// One edit of the content.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Append(Vec<String>),
    Prepend(Vec<String>),
    Line {
        line: String,
        present: bool,
        matches: Option<Regex>,
        after: Option<Regex>,
        before: Option<Regex>,
    },
    Block {
        start: String,
        end: String,
        text: String,
    },
    Replace {
        pattern: Regex,
        replacement: String,
    },
}

/// Reads the edits of a declaration, in the order in which they are made.
pub(crate) fn read(declaration: &Declaration) -> Result<Vec<Edit>, Refusal> {
    let mut edits = Vec::new();
    if let Some(pattern) = pattern(declaration, "pattern", true)? {
        let replacement = declaration
            .text("replacement")?
            .ok_or(Refusal::Missing("replacement"))?;
        edits.push(Edit::Replace {
            pattern,
            replacement: python_groups(&replacement),
        });
    }
    if let Some(line) = declaration.text("line")? {
        edits.push(Edit::Line {
            line: line.trim_end_matches('\n').to_owned(),
            present: declaration.word("line_ensure", &["present", "absent"])? != Some("absent"),
            matches: pattern(declaration, "line_match", false)?,
            after: pattern(declaration, "line_after", false)?,
            before: pattern(declaration, "line_before", false)?,
        });
    }
    if let Some(text) = declaration.text("block")? {
        let start = declaration
            .text("block_start")?
            .ok_or(Refusal::Missing("block_start"))?;
        let end = declaration
            .text("block_end")?
            .ok_or(Refusal::Missing("block_end"))?;
        edits.push(Edit::Block { start, end, text });
    }
    edits.extend(
        declaration
            .texts("prepend")?
            .map(lines_of)
            .map(Edit::Prepend),
    );
    edits.extend(declaration.texts("append")?.map(lines_of).map(Edit::Append));
    Ok(edits)
}

fn lines_of(texts: Vec<String>) -> Vec<String> {
    texts
        .iter()
        .flat_map(|text| text.lines().map(str::to_owned))
        .collect()
}

fn pattern(
    declaration: &Declaration,
    name: &str,
    multi_line: bool,
) -> Result<Option<Regex>, Refusal> {
    let Some(text) = declaration.text(name)? else {
        return Ok(None);
    };
    let built = RegexBuilder::new(&text)
        .multi_line(multi_line)
        .size_limit(1 << 20)
        .build();
    built
        .map(Some)
        .map_err(|_| declaration.refuse(name, "a regular expression (without look-around)"))
}

/// Converts `\1` and `\g<name>` in the replacement, as Python writes them.
fn python_groups(replacement: &str) -> String {
    let mut out = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.peek().copied() {
            Some(digit) if digit.is_ascii_digit() => {
                characters.next();
                out.push_str(&format!("${{{digit}}}"));
            }
            Some('g') => {
                let rest: String = characters.clone().skip(1).collect();
                match rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
                    Some((group, _)) => {
                        out.push_str(&format!("${{{group}}}"));
                        characters.nth(group.chars().count() + 2);
                    }
                    None => out.push('\\'),
                }
            }
            Some('n') => {
                characters.next();
                out.push('\n');
            }
            _ => out.push('\\'),
        }
    }
    out
}

/// Returns the content after all edits.
pub(crate) fn edited(edits: &[Edit], content: &[u8]) -> Vec<u8> {
    edits
        .iter()
        .fold(content.to_vec(), |content, edit| one(edit, content))
}

fn one(edit: &Edit, content: Vec<u8>) -> Vec<u8> {
    match edit {
        Edit::Replace {
            pattern,
            replacement,
        } => pattern
            .replace_all(&content, replacement.as_bytes())
            .into_owned(),
        Edit::Append(lines) => {
            let have: Vec<&[u8]> = split(&content);
            let missing: Vec<&[u8]> = (lines.iter().map(String::as_bytes))
                .filter(|line| !have.contains(line))
                .collect();
            let all: Vec<&[u8]> = have
                .iter()
                .copied()
                .chain(missing.iter().copied())
                .collect();
            if missing.is_empty() {
                content.clone()
            } else {
                join(&all)
            }
        }
        Edit::Prepend(lines) => {
            let have: Vec<&[u8]> = split(&content);
            let missing: Vec<&[u8]> = (lines.iter().map(String::as_bytes))
                .filter(|line| !have.contains(line))
                .collect();
            let all: Vec<&[u8]> = missing
                .iter()
                .copied()
                .chain(have.iter().copied())
                .collect();
            if missing.is_empty() {
                content.clone()
            } else {
                join(&all)
            }
        }
        Edit::Line {
            line,
            present: false,
            matches,
            ..
        } => {
            let gone = |have: &[u8]| {
                matches
                    .as_ref()
                    .map_or(have == line.as_bytes(), |pattern| pattern.is_match(have))
            };
            let kept: Vec<&[u8]> = split(&content)
                .into_iter()
                .filter(|have| !gone(have))
                .collect();
            if kept.len() == split(&content).len() {
                content
            } else {
                join(&kept)
            }
        }
        Edit::Line {
            line,
            present: true,
            matches,
            after,
            before,
        } => with_line(
            &content,
            line.as_bytes(),
            matches.as_ref(),
            after.as_ref(),
            before.as_ref(),
        ),
        Edit::Block { start, end, text } => with_block(&content, start, end, text),
    }
}

fn with_line(
    content: &[u8],
    line: &[u8],
    matches: Option<&Regex>,
    after: Option<&Regex>,
    before: Option<&Regex>,
) -> Vec<u8> {
    let mut lines = split(content);
    if lines.contains(&line) {
        return content.to_vec();
    }
    let find = |pattern: Option<&Regex>| {
        pattern.and_then(|pattern| lines.iter().position(|have| pattern.is_match(have)))
    };
    if let Some(position) = find(matches) {
        lines[position] = line;
    } else if let Some(position) = find(after) {
        lines.insert(position + 1, line);
    } else if let Some(position) = find(before) {
        lines.insert(position, line);
    } else {
        lines.push(line);
    }
    join(&lines)
}

/// Puts the block between its markers, or at the end of the content if it is new. A
/// start marker without an end is left alone, and a new block follows: guessing its end
/// could swallow the rest of the file.
fn with_block(content: &[u8], start: &str, end: &str, text: &str) -> Vec<u8> {
    let lines = split(content);
    let has = |line: &[u8], marker: &str| {
        let marker = marker.trim_end_matches('\n').as_bytes();
        !marker.is_empty() && line.windows(marker.len()).any(|window| window == marker)
    };
    let begin = lines.iter().position(|line| has(line, start));
    let finish = begin.and_then(|begin| {
        let offset = lines[begin + 1..].iter().position(|line| has(line, end))?;
        Some(begin + 1 + offset)
    });
    let inside: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
    let mut out: Vec<&[u8]> = Vec::new();
    match (begin, finish) {
        (Some(begin), Some(finish)) => {
            out.extend(&lines[..=begin]);
            out.extend(inside);
            out.extend(&lines[finish..]);
        }
        _ => {
            out.extend(&lines);
            out.push(start.trim_end_matches('\n').as_bytes());
            out.extend(inside);
            out.push(end.trim_end_matches('\n').as_bytes());
        }
    }
    let joined = join(&out);
    if split(&joined) == lines {
        content.to_vec()
    } else {
        joined
    }
}

/// Splits content into lines without their line endings.
fn split(content: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

fn join(lines: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
    for line in lines {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::catalog::Resource;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn edits(parameters: Value) -> Vec<Edit> {
        let parameters = parameters.as_object().expect("a map").clone();
        let resource = Resource {
            type_name: "File".to_owned(),
            title: "/x".to_owned(),
            parameters,
            ..Resource::default()
        };
        read(&Declaration::new(&resource, "path")).expect("edits")
    }

    fn check(parameters: Value, before: &str, after: &str) {
        let edits = edits(parameters);
        let once = edited(&edits, before.as_bytes());
        assert_eq!(String::from_utf8_lossy(&once), after);
        assert_eq!(edited(&edits, &once), once, "editing again changes nothing");
    }

    #[test]
    fn lines_are_added_where_they_are_missing() {
        check(json!({"append": ["b", "c\nd"]}), "a\nb", "a\nb\nc\nd\n");
        check(json!({"append": "a"}), "a", "a");
        check(json!({"prepend": ["x", "y"]}), "a\n", "x\ny\na\n");
        check(json!({"append": ["x"]}), "", "x\n");
    }

    #[test]
    fn a_line_replaces_its_match_or_finds_its_place() {
        check(
            json!({"line": "size = 3", "line_match": "^size"}),
            "a\nsize = 1\nb\n",
            "a\nsize = 3\nb\n",
        );
        check(
            json!({"line": "new", "line_after": "^a"}),
            "a\nb\n",
            "a\nnew\nb\n",
        );
        check(
            json!({"line": "new", "line_before": "^b"}),
            "a\nb\n",
            "a\nnew\nb\n",
        );
        check(json!({"line": "new"}), "a\n", "a\nnew\n");
        check(
            json!({"line": "a", "line_ensure": "absent"}),
            "a\nb\na\n",
            "b\n",
        );
        check(
            json!({"line": "", "line_match": "^#", "line_ensure": "absent"}),
            "#x\nb\n",
            "b\n",
        );
    }

    #[test]
    fn a_block_is_kept_between_its_markers() {
        let block = json!({"block": "one\ntwo", "block_start": "# begin", "block_end": "# end"});
        check(
            block.clone(),
            "a\n# begin\nold\n# end\nz\n",
            "a\n# begin\none\ntwo\n# end\nz\n",
        );
        check(block.clone(), "a", "a\n# begin\none\ntwo\n# end\n");
        check(block, "", "# begin\none\ntwo\n# end\n");
    }

    #[test]
    fn a_pattern_is_replaced_with_its_groups() {
        check(
            json!({"pattern": "^port=(\\d+)$", "replacement": "port = \\1"}),
            "x\nport=80\n",
            "x\nport = 80\n",
        );
        check(
            json!({"pattern": "(?P<n>b+)", "replacement": "<\\g<n>"}).clone(),
            "aa",
            "aa",
        );
    }

    #[test]
    fn bytes_that_are_not_text_stay_as_they_are() {
        let edits = edits(json!({"append": ["x"]}));
        assert_eq!(edited(&edits, b"\xff\xfe\n"), b"\xff\xfe\nx\n");
    }

    proptest! {
        #[test]
        fn line_and_block_edits_settle_at_once(content in "[ab#\\n]{0,40}", line in "[abc]{1,3}", text in "[a-c\\n]{0,10}") {
            let edits = edits(json!({
                "line": line, "line_after": "^a", "append": ["b"], "prepend": ["#"],
                "block": text, "block_start": "<<", "block_end": ">>",
            }));
            let once = edited(&edits, content.as_bytes());
            prop_assert_eq!(edited(&edits, &once), once);
        }
    }
}
