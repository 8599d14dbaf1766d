//! Checks of the Markdown files: links, anchors, the index and the decision records.
//!
//! Only relative links are checked. Nothing is fetched from the network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use expect_test::{Expect, expect};

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let pages = Pages::of_repository();
    assert!(pages.texts.len() > 30, "the pages were not found");
    assert_eq!(pages.broken_links(), Vec::<String>::new());
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let pages = Pages::of_repository();
    let mut reached = BTreeSet::new();
    let mut next = vec![PathBuf::from("README.md")];
    while let Some(page) = next.pop() {
        let Some(text) = pages.texts.get(&page) else {
            continue;
        };
        if reached.insert(page.clone()) {
            let directory = page.parent().unwrap_or(Path::new(""));
            let linked = links(text).into_iter().map(|(_, link)| {
                let file = link.split('#').next().unwrap_or_default();
                normal(&directory.join(file))
            });
            next.extend(linked);
        }
    }
    let lost: Vec<&PathBuf> = pages
        .texts
        .keys()
        .filter(|page| page.starts_with("docs") && !reached.contains(*page))
        .collect();
    assert!(lost.is_empty(), "no page leads to {lost:?}");
}

#[test]
fn decision_records_are_numbered_consecutively_and_listed() {
    let pages = Pages::of_repository();
    let directory = Path::new("docs/adr");
    let index = &pages.texts[&directory.join("README.md")];
    let records = pages
        .texts
        .iter()
        .filter(|(page, _)| page.parent() == Some(directory) && !page.ends_with("README.md"));
    for (place, (page, text)) in records.enumerate() {
        let number = place + 1;
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        assert!(
            name.starts_with(&format!("{number:04}-")),
            "{name} is not number {number}"
        );
        assert!(
            text.starts_with(&format!("# {number}. ")),
            "the title of {name} lacks its number"
        );
        assert!(index.contains(&*name), "docs/adr/README.md lacks {name}");
    }
}

/// Files that the worked examples of `CONTRIBUTING.md` create.
const CREATED_BY_EXAMPLES: &[&str] = &["timezone.rs", "whoami.rs"];

#[test]
fn every_source_file_that_a_page_names_exists() {
    let pages = Pages::of_repository();
    let root = pages.root.as_deref().expect("a root");
    let mut missing = Vec::new();
    for (page, text) in &pages.texts {
        for (line, path) in source_paths(text) {
            let created = CREATED_BY_EXAMPLES.iter().any(|name| path.ends_with(name));
            if !created && !root.join(path).exists() {
                missing.push(format!("{}:{line}: {path}", page.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_missing_file_or_heading_is_found() {
    check(
        &[
            (
                "README.md",
                "[a](docs/a.md) [b](docs/b.md#two)\n[c](docs/c.md)\n",
            ),
            ("docs/a.md", "[up](../README.md) [self](#one)\n# One\n"),
            (
                "docs/b.md",
                "# One\n```\n# Two\n[x](y.md)\n```\n`[x](z.md)`\n",
            ),
        ],
        expect![[r#"
            README.md:1: docs/b.md has no heading #two
            README.md:2: docs/c.md does not exist
        "#]],
    );
}

#[test]
fn headings_get_the_anchors_that_hosts_give_them() {
    check(
        &[(
            "a.md",
            "[1](#a-b--c) [2](#a-b-c) [3](#a-b-c-1) [4](#a-b-c-2)\n\
             [5](#type-lock) [6](#3-orders-of-x_y)\n\
             # A, b & c\n# A b c\n## A b (c)\n### Type `lock`\n# 3. Orders of x_y\n",
        )],
        expect![[r#"
            a.md:1: a.md has no heading #a-b-c-2
        "#]],
    );
}

fn check(texts: &[(&str, &str)], expected: Expect) {
    let texts = texts
        .iter()
        .map(|(page, text)| (PathBuf::from(page), (*text).to_owned()))
        .collect();
    let broken = Pages { texts, root: None }.broken_links();
    let lines: String = broken.iter().map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&lines);
}

/// Markdown files by their path from the root of the repository.
struct Pages {
    texts: BTreeMap<PathBuf, String>,
    /// The directory in which other files are looked up.
    root: Option<PathBuf>,
}

impl Pages {
    fn of_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts = BTreeMap::new();
        collect(&root, Path::new(""), &mut texts);
        Self {
            texts,
            root: Some(root),
        }
    }

    fn broken_links(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (page, text) in &self.texts {
            for (line, link) in links(text) {
                if let Some(problem) = self.problem(page, &link) {
                    broken.push(format!("{}:{line}: {problem}", page.display()));
                }
            }
        }
        broken
    }

    fn problem(&self, page: &Path, link: &str) -> Option<String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() {
            page.to_owned()
        } else {
            normal(&page.parent().unwrap_or(Path::new("")).join(file))
        };
        let Some(text) = self.texts.get(&target) else {
            let exists = |root: &PathBuf| root.join(&target).exists();
            return (!self.root.as_ref().is_some_and(exists))
                .then(|| format!("{} does not exist", target.display()));
        };
        (!anchor.is_empty() && !anchors(text).contains(anchor))
            .then(|| format!("{} has no heading #{anchor}", target.display()))
    }
}

fn collect(root: &Path, below: &Path, texts: &mut BTreeMap<PathBuf, String>) {
    let directory = std::fs::read_dir(root.join(below)).expect("the directory is readable");
    for entry in directory {
        let entry = entry.expect("the directory is readable");
        let name = entry.file_name();
        let path = below.join(&name);
        let name = name.to_string_lossy();
        if entry.path().is_dir() {
            let skipped = name == "target" || (name.starts_with('.') && name != ".github");
            if !skipped {
                collect(root, &path, texts);
            }
        } else if name.ends_with(".md") {
            let text = std::fs::read_to_string(entry.path()).expect("pages are text");
            texts.insert(path, text);
        }
    }
}

/// Returns the lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// Returns the targets of `[text](target)` and `![text](target)`, with their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let words: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        let mut rest = words.as_str();
        while let Some((_, tail)) = rest.split_once("](") {
            let Some((link, tail)) = tail.split_once(')') else {
                break;
            };
            found.push((number, link.to_owned()));
            rest = tail;
        }
    }
    found
}

/// Returns paths in backticks that begin with a source directory, with their line numbers.
fn source_paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for code in line.split('`').skip(1).step_by(2) {
            let is_source = ["crates/", "scripts/", "examples/", "puppet-module/", ".ci/"]
                .iter()
                .any(|directory| code.starts_with(directory));
            if is_source && !code.contains(['*', ' ', '<', '{']) {
                found.push((number, code));
            }
        }
    }
    found
}

/// Returns the anchors of all headings, as GitHub and similar hosts generate them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = seen.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 {
            slug
        } else {
            format!("{slug}-{count}")
        });
        *count += 1;
    }
    anchors
}

/// Returns the path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}
