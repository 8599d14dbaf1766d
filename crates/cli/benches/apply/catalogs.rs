//! The same files in each program's own format.

use std::path::{Path, PathBuf};

use serde_json::json;

pub(crate) fn path(place: &Path, index: usize) -> PathBuf {
    place.join(format!("file-{index}"))
}

fn content(index: usize) -> String {
    format!("managed file number {index}\n{}\n", "some text ".repeat(8))
}

pub(crate) fn files(place: &Path, count: usize) -> String {
    let resource = |index| {
        json!({"type": "File", "title": path(place, index), "kind": "compilable_type", "tags": ["file"], "exported": false,
               "file": "site.pp", "line": index + 1,
               "parameters": {"ensure": "file", "content": content(index), "mode": "0644", "owner": "root"}})
    };
    json!({"name": "bench", "resources": (0..count).map(resource).collect::<Vec<_>>(), "edges": [], "classes": []}).to_string()
}

pub(crate) fn sleeps(count: usize) -> String {
    let resource = |index| json!({"type": "Exec", "title": format!("sleep {index}"), "parameters": {"command": "/bin/sleep 0.1"}});
    json!({"name": "bench", "resources": (0..count).map(resource).collect::<Vec<_>>()}).to_string()
}

/// Writes one entry for each file from its path and its content, with escaped line ends.
fn each_file(
    place: &Path,
    count: usize,
    entry: impl Fn(std::path::Display<'_>, &str) -> String,
) -> String {
    let entries = (0..count).map(|index| {
        let content = content(index).replace('\n', "\\n");
        entry(path(place, index).display(), &content)
    });
    entries.collect()
}

pub(crate) fn manifest(place: &Path, count: usize) -> String {
    each_file(place, count, |path, content| {
        format!(
            "file {{ '{path}': ensure => file, content => \"{content}\", mode => '0644', owner => 'root' }}\n"
        )
    })
}

pub(crate) fn states(place: &Path, count: usize) -> String {
    each_file(place, count, |path, content| {
        format!(
            "{path}:\n  file.managed:\n    - contents: \"{content}\"\n    - mode: '0644'\n    - user: root\n"
        )
    })
}

pub(crate) fn playbook(place: &Path, count: usize) -> String {
    let head = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n";
    let tasks = each_file(place, count, |path, content| {
        format!("  - copy: {{dest: '{path}', content: \"{content}\", mode: '0644', owner: root}}\n")
    });
    format!("{head}{tasks}")
}
