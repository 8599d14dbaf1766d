//! Sections of `.repo` files.

use crate::types::config_file;

fn section_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[')?.strip_suffix(']')
}

pub(super) fn has(content: &[u8], section: &str) -> bool {
    config_file::lines(content).any(|line| section_of(&config_file::text(line)) == Some(section))
}

/// Returns the file with the given settings of the section. Other settings and other sections stay.
pub(super) fn put(
    content: &[u8],
    section: &str,
    settings: &[(String, Option<String>)],
    present: bool,
) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(content.len() + 256);
    let mut inside = false;
    let mut done = !present;
    let mut open: Vec<&(String, Option<String>)> = settings.iter().collect();
    for line in config_file::lines(content) {
        let text = config_file::text(line);
        if let Some(found) = section_of(&text) {
            if inside && !done {
                finish(&mut out, &open);
                // They must not appear again in a second section of the same name.
                open.clear();
                done = true;
            }
            inside = found == section;
            if inside && !present {
                continue;
            }
        } else if inside {
            if !present {
                continue;
            }
            let key = text.split_once('=').map(|(key, _)| key.trim());
            if let Some(key) = key
                && let Some((name, value)) = settings.iter().find(|(name, _)| name == key)
            {
                let first = open.iter().any(|(open, _)| open == name);
                open.retain(|(open, _)| open != name);
                if let Some(value) = value.as_ref().filter(|_| first) {
                    put_line(&mut out, &format!("{name}={value}"));
                }
                continue;
            }
        }
        out.extend_from_slice(line);
    }
    if !done {
        if !inside {
            put_line(&mut out, &format!("[{section}]"));
        }
        finish(&mut out, &open);
    }
    out
}

fn put_line(out: &mut Vec<u8>, line: &str) {
    if !out.is_empty() && out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

fn finish(out: &mut Vec<u8>, open: &[&(String, Option<String>)]) {
    // An empty line that separates sections stays after the settings.
    let blank = out.ends_with(b"\n\n");
    if blank {
        out.pop();
    }
    for (name, value) in open {
        if let Some(value) = value {
            put_line(out, &format!("{name}={value}"));
        }
    }
    if blank {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> Vec<(String, Option<String>)> {
        vec![
            ("name".to_owned(), Some("Ours".to_owned())),
            ("enabled".to_owned(), Some("1".to_owned())),
            ("gpgkey".to_owned(), None),
        ]
    }

    #[test]
    fn only_the_named_settings_of_the_section_change() {
        let old = "[a]\nname=A\n\n[ours]\nname = old\ngpgkey=x\ncost=5\n\n[b]\nname=B\n";
        let new = String::from_utf8(put(old.as_bytes(), "ours", &settings(), true)).unwrap();
        assert_eq!(
            new,
            "[a]\nname=A\n\n[ours]\nname=Ours\ncost=5\nenabled=1\n\n[b]\nname=B\n"
        );
        let gone = String::from_utf8(put(new.as_bytes(), "ours", &settings(), false)).unwrap();
        assert_eq!(gone, "[a]\nname=A\n\n[b]\nname=B\n");
    }

    proptest! {
        #[test]
        fn putting_a_section_twice_is_putting_it_once(
            lines in proptest::collection::vec("\\[(a|ours)\\]|name=[a-z]{0,2}|gpgkey=x|[a-z]{0,3}||#.", 0..9),
        ) {
            let once = put(lines.join("\n").as_bytes(), "ours", &settings(), true);
            prop_assert_eq!(put(&once, "ours", &settings(), true), once.clone());
            prop_assert!(has(&once, "ours"));
        }
    }
}
