//! Differences between catalogs as text.
//!
//! `+` means added, `-` removed, `~` changed. Both values of a parameter follow its name; texts are
//! shown as the lines that differ. The output is legible without colour.

use std::fmt::Write;

use anstyle::AnsiColor;
use bunraku_model::NodeName;
use bunraku_model::catalog::{
    CatalogDiff, Difference, DisplayValue, ResourceChange, ResourceDiff, SourceDiff,
};
use bunraku_wire::api::FleetDiff;
use serde_json::Value;

use crate::output::count;
use crate::terminal::visible;

/// The number of names that are listed. More are only counted.
const MOST_NAMES: usize = 8;
/// The maximum length of a value. Longer ones are cut off.
const LONGEST_VALUE: usize = 400;

/// Formats the difference of one node.
pub(crate) fn diff(diff: &CatalogDiff) -> String {
    let mut out = String::new();
    let (mut tags_only, mut first) = (0, true);
    for one in &diff.resources {
        if is_tags_only(one) {
            tags_only += 1;
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push('\n');
        }
        resource(&mut out, one);
    }
    for one in &diff.sources {
        source(&mut out, one);
    }
    for edge in &diff.edges.removed {
        line(&mut out, &format!("- {edge} (contains)"));
    }
    for edge in &diff.edges.added {
        line(&mut out, &format!("+ {edge} (contains)"));
    }
    for about in &diff.about {
        line(&mut out, "~ the catalog");
        difference(&mut out, about);
    }
    if diff.reordered {
        line(&mut out, "~ the order of resources");
    }
    if tags_only > 0 {
        line(
            &mut out,
            &format!("~ only the tags of {}", count(tags_only, "resource")),
        );
    }
    out
}

fn add_heading(out: &mut String, nodes: &[NodeName], what: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    let count = count(nodes.len(), "node");
    let _ = writeln!(out, "{count}{what}: {}", names(nodes));
}

/// Formats the differences of a fleet. Equal changes are listed once.
pub(crate) fn fleet(diff_of: &FleetDiff) -> String {
    let mut out = String::new();
    // Neighbours with the same nodes share one heading.
    let mut heading: Option<&[NodeName]> = None;
    for group in &diff_of.groups {
        if heading != Some(&group.nodes) {
            add_heading(&mut out, &group.nodes, "");
            heading = Some(&group.nodes);
        }
        for line in diff(&group.change).lines() {
            let _ = writeln!(out, "{}", format!("  {line}").trim_end());
        }
    }
    for failure in &diff_of.failures {
        add_heading(&mut out, &failure.nodes, " failed to compile");
        for line in failure.message.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// Formats the last line: the number of changed nodes and of all nodes.
pub(crate) fn summary(diff: &FleetDiff) -> String {
    let changed = diff.compared - diff.unchanged;
    let mut printed = format!(
        "{} compared: {changed} changed, {} unchanged",
        count(diff.compared, "node"),
        diff.unchanged
    );
    let failed: usize = diff
        .failures
        .iter()
        .map(|failure| failure.nodes.len())
        .sum();
    if failed > 0 {
        let _ = write!(printed, ", {failed} failed to compile");
    }
    if !diff.without_catalog.is_empty() {
        let _ = write!(
            printed,
            "; no catalog to compare with: {}",
            names(&diff.without_catalog)
        );
    }
    printed
}

/// Prints with colour on a terminal.
pub(crate) fn print(text: &str) {
    let mut painted = String::with_capacity(text.len());
    for printed in visible(text).lines() {
        let colour = match printed.trim_start().as_bytes().first() {
            Some(b'+') => Some(AnsiColor::Green),
            Some(b'-') => Some(AnsiColor::Red),
            Some(b'~') => Some(AnsiColor::Yellow),
            Some(b'@') => Some(AnsiColor::Cyan),
            _ => None,
        };
        let _ = match colour {
            Some(colour) => {
                let style = colour.on_default();
                writeln!(painted, "{style}{printed}{style:#}")
            }
            None => writeln!(painted, "{printed}"),
        };
    }
    crate::waiting::before_output();
    anstream::print!("{painted}");
}

/// Lists node names, the first ones in full.
pub(crate) fn names(nodes: &[NodeName]) -> String {
    let printed: Vec<&str> = nodes
        .iter()
        .take(MOST_NAMES)
        .map(NodeName::as_str)
        .collect();
    let rest = nodes.len() - printed.len();
    match rest {
        0 => printed.join(", "),
        rest => format!("{} and {rest} more", printed.join(", ")),
    }
}

fn is_tags_only(one: &ResourceDiff) -> bool {
    match &one.change {
        ResourceChange::Changed {
            parameters,
            members,
        } => parameters.is_empty() && members.iter().all(|member| member.name == "tags"),
        _ => false,
    }
}

fn resource(out: &mut String, one: &ResourceDiff) {
    let sign = match &one.change {
        ResourceChange::Added { .. } => '+',
        ResourceChange::Removed { .. } => '-',
        ResourceChange::Changed { .. } => '~',
    };
    let place = one
        .place
        .as_ref()
        .map_or(String::new(), |place| format!("  ({place})"));
    line(out, &format!("{sign} {}{place}", one.resource));
    match &one.change {
        ResourceChange::Added { parameters } | ResourceChange::Removed { parameters } => {
            for (name, value) in parameters {
                line(out, &format!("    {name} = {}", display_text(value)));
            }
        }
        ResourceChange::Changed {
            parameters,
            members,
        } => {
            let members = members.iter().filter(|member| member.name != "tags");
            for one in parameters.iter().chain(members) {
                difference(out, one);
            }
        }
    }
}

fn difference(out: &mut String, one: &Difference) {
    line(out, &format!("    {}", one.name));
    if let Some(text) = &one.text {
        return lines(out, text);
    }
    if one.before == Some(DisplayValue::Secret) && one.after == Some(DisplayValue::Secret) {
        return line(out, "      ~ (secret)");
    }
    if let Some(before) = &one.before {
        line(out, &format!("      - {}", display_text(before)));
    }
    if let Some(after) = &one.after {
        line(out, &format!("      + {}", display_text(after)));
    }
}

fn source(out: &mut String, one: &SourceDiff) {
    let (sign, printed) = match (one.secret, one.before, one.after) {
        (true, ..) => ('~', "  (secret)".to_owned()),
        (_, None, Some(after)) => ('+', format!("  {}", after.short())),
        (_, Some(before), None) => ('-', format!("  {}", before.short())),
        (_, None, None) => ('~', "  (directory added or removed)".to_owned()),
        (_, Some(before), Some(after)) => {
            ('~', format!("  {} -> {}", before.short(), after.short()))
        }
    };
    line(out, &format!("{sign} {}{printed}", one.address));
    if let Some(text) = &one.text {
        lines(out, text);
    }
}

fn lines(out: &mut String, text: &str) {
    for printed in text.lines() {
        line(out, &format!("      {printed}"));
    }
}

/// Adds a line. Catalogs may contain anything, so control characters do not reach the terminal.
fn line(out: &mut String, text: &str) {
    let safe = text.chars().map(|character| match character {
        '\t' => '\t',
        control if control.is_control() => '\u{fffd}',
        other => other,
    });
    out.extend(safe);
    out.push('\n');
}

fn display_text(value: &DisplayValue) -> String {
    let text = match value {
        DisplayValue::Secret => return "(secret)".to_owned(),
        DisplayValue::Value(Value::String(text)) if is_plain(text) => text.clone(),
        DisplayValue::Value(value) => value.to_string(),
    };
    match text.char_indices().nth(LONGEST_VALUE) {
        None => text,
        Some((cut, _)) => format!("{}… ({} characters)", &text[..cut], text.chars().count()),
    }
}

/// Returns true if the text can be shown without quotes, as octocatalog-diff does, without being
/// mistaken for another value.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && !text.contains(['\n', '\r', '"', '\\'])
        && !matches!(text, "true" | "false" | "null")
        && text.parse::<f64>().is_err() | text.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::Catalog;
    use bunraku_wire::api::{FleetChange, FleetFailure};
    use expect_test::expect;
    use serde_json::json;

    fn between(before: Value, after: Value) -> CatalogDiff {
        let [before, after] = [before, after].map(|resources| {
            let text = json!({"name": "web-1", "resources": resources}).to_string();
            Catalog::from_json(text.as_bytes()).expect("a catalog")
        });
        let mut diff = CatalogDiff::between(&before, &after);
        for resource in &mut diff.resources {
            if let ResourceChange::Changed { parameters, .. } = &mut resource.change {
                for one in parameters.iter_mut().filter(|one| one.name == "content") {
                    one.text = Some("@@ -1,2 +1,2 @@\n hello\n-old\n+new\n".to_owned());
                }
            }
        }
        diff
    }

    fn some_diff() -> CatalogDiff {
        between(
            json!([
                {"type": "File", "title": "/etc/app.conf", "parameters": {"mode": "0644", "content": "hello\nold\n", "owner": "root"}},
                {"type": "Package", "title": "telnet", "parameters": {"ensure": "present"}},
                {"type": "User", "title": "app", "parameters": {"password": "x", "uid": 7}, "sensitive_parameters": ["password"]},
                {"type": "Class", "title": "a", "tags": ["x"]},
            ]),
            json!([
                {"type": "File", "title": "/etc/app.conf", "file": "modules/app/init.pp", "line": 3, "parameters": {"mode": "0600", "content": "hello\nnew\n", "group": "app"}},
                {"type": "Package", "title": "ssh", "parameters": {"ensure": "present", "version": "true"}},
                {"type": "User", "title": "app", "parameters": {"password": "y", "uid": "7"}, "sensitive_parameters": ["password"]},
                {"type": "Class", "title": "a", "tags": ["y"]},
            ]),
        )
    }

    #[test]
    fn a_difference_reads_as_what_came_went_and_changed() {
        expect![[r#"
            ~ File[/etc/app.conf]  (modules/app/init.pp:3)
                content
                  @@ -1,2 +1,2 @@
                   hello
                  -old
                  +new
                group
                  + app
                mode
                  - 0644
                  + 0600
                owner
                  - root

            + Package[ssh]
                ensure = present
                version = "true"

            - Package[telnet]
                ensure = present

            ~ User[app]
                password
                  ~ (secret)
                uid
                  - 7
                  + "7"
            ~ only the tags of 1 resource
        "#]]
        .assert_eq(&diff(&some_diff()));
    }

    #[test]
    fn equal_changes_of_a_fleet_share_their_heading() {
        let node = |n: usize| NodeName::new(format!("web-{n}")).expect("a name");
        let change = |kind: &str| {
            between(
                json!([]),
                json!([{"type": kind, "title": "x", "parameters": {}}]),
            )
        };
        let many: Vec<NodeName> = (0..12).map(node).collect();
        let printed = FleetDiff {
            compared: 20,
            unchanged: 8,
            groups: vec![
                FleetChange {
                    nodes: many.clone(),
                    change: change("Package"),
                },
                FleetChange {
                    nodes: many,
                    change: change("Service"),
                },
                FleetChange {
                    nodes: vec![node(3)],
                    change: change("Mount"),
                },
            ],
            failures: vec![FleetFailure {
                nodes: vec![node(99)],
                message: "site.yaml:3: no such group".to_owned(),
            }],
            ..FleetDiff::default()
        };
        expect![[r#"
            12 nodes: web-0, web-1, web-2, web-3, web-4, web-5, web-6, web-7 and 4 more
              + Package[x]
              + Service[x]

            1 node: web-3
              + Mount[x]

            1 node failed to compile: web-99
              site.yaml:3: no such group
        "#]]
        .assert_eq(&fleet(&printed));
        assert_eq!(
            summary(&printed),
            "20 nodes compared: 12 changed, 8 unchanged, 1 failed to compile"
        );
    }

    #[test]
    fn a_terminal_gets_no_commands_from_a_catalog() {
        let printed = diff(&between(
            json!([]),
            json!([{"type": "File", "title": "/\u{1b}[31mx", "parameters": {"a": "b\u{7}"}}]),
        ));
        assert!(!printed.contains(['\u{1b}', '\u{7}']), "{printed:?}");
    }
}
