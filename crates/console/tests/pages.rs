//! Pages from untrusted values.

use bunraku_console::{
    AuditLine, AuditPage, ChangeLine, ClusterPage, Count, Crumb, DiffLine, Frame, LogLine,
    NodeLine, NodePage, NodesPage, ReportLine, ReportPage, ResourceLine, Section, ServerLine,
    Template, Tone,
};

const HOSTILE: &str = r#"<script>alert(1)</script>"'&"#;

fn frame() -> Frame {
    Frame {
        title: HOSTILE.to_owned(),
        section: Section::Nodes,
        crumbs: vec![Crumb {
            title: HOSTILE.to_owned(),
            path: "/nodes".to_owned(),
        }],
        health: "3 servers, healthy".to_owned(),
        health_tone: Tone::Good,
        operator: HOSTILE.to_owned(),
        at: "2026-11-16 10:00:00".to_owned(),
        warning: Some(HOSTILE.to_owned()),
    }
}

fn node() -> NodeLine {
    NodeLine {
        name: HOSTILE.to_owned(),
        environment: HOSTILE.to_owned(),
        word: "lost".to_owned(),
        tone: Tone::Bad,
        since: "3 s".to_owned(),
        last_run: HOSTILE.to_owned(),
        facts: HOSTILE.to_owned(),
        note: HOSTILE.to_owned(),
    }
}

fn report() -> ReportLine {
    ReportLine {
        run: HOSTILE.to_owned(),
        node: HOSTILE.to_owned(),
        state: "failed".to_owned(),
        tone: Tone::Bad,
        when: "3 s ago".to_owned(),
        why: HOSTILE.to_owned(),
        ordered_run: Some(HOSTILE.to_owned()),
        counts: "1 failed of 3".to_owned(),
        failures: vec![HOSTILE.to_owned()],
    }
}

/// Checks that a page has nothing that a browser would treat as more than text.
fn assert_harmless(page: &str) {
    assert!(!page.contains("<script>"), "{page}");
    assert!(!page.contains("alert(1)</"), "{page}");
    for attribute in ["href=\"/nodes/", "value=\""] {
        for rest in page.split(attribute).skip(1) {
            let value = rest.split('"').next().unwrap_or_default();
            assert!(!value.contains(['<', '\'']), "{value}");
        }
    }
}

#[test]
fn whatever_nodes_say_is_text() {
    let one = NodePage {
        frame: frame(),
        node: node(),
        server: HOSTILE.to_owned(),
        agent: HOSTILE.to_owned(),
        compile: Some(HOSTILE.to_owned()),
        compile_problems: vec![HOSTILE.to_owned()],
        queue: vec![HOSTILE.to_owned()],
        reports: vec![report()],
        facts: vec![bunraku_console::FactLine {
            name: HOSTILE.to_owned(),
            value: HOSTILE.to_owned(),
        }],
    };
    let page = one.render().expect("a page");
    assert_harmless(&page);
    assert!(page.contains("alert(1)"), "it is shown all the same");
    let all = NodesPage {
        frame: frame(),
        counts: Vec::new(),
        wanted: HOSTILE.to_owned(),
        word: HOSTILE.to_owned(),
        nodes: vec![node()],
        more: 3,
    };
    assert_harmless(&all.render().expect("a page"));
    let report = ReportPage {
        frame: frame(),
        node: HOSTILE.to_owned(),
        run: HOSTILE.to_owned(),
        state: HOSTILE.to_owned(),
        tone: Tone::Bad,
        details: vec![bunraku_console::FactLine {
            name: "causes".to_owned(),
            value: HOSTILE.to_owned(),
        }],
        ordered_run: Some(HOSTILE.to_owned()),
        resources: vec![ResourceLine {
            name: HOSTILE.to_owned(),
            place: HOSTILE.to_owned(),
            result: "failed".to_owned(),
            tone: Tone::Bad,
            took: "0.1 s".to_owned(),
            messages: vec![HOSTILE.to_owned()],
            changes: vec![ChangeLine {
                property: HOSTILE.to_owned(),
                from: HOSTILE.to_owned(),
                to: HOSTILE.to_owned(),
                diff: vec![DiffLine {
                    text: format!("+{HOSTILE}"),
                }],
            }],
        }],
        more: 3,
        unchanged: 1,
        log: vec![LogLine {
            text: HOSTILE.to_owned(),
            tone: Tone::Bad,
        }],
    };
    let page = report.render().expect("a page");
    assert_harmless(&page);
    assert!(page.contains("class=\"added\""), "{page}");
}

#[test]
fn no_page_carries_a_script_or_a_style_of_its_own() {
    let page = ClusterPage {
        frame: frame(),
        name: Some("test".to_owned()),
        summary: "NO MAJORITY of 3 datastores".to_owned(),
        tone: Tone::Bad,
        servers: vec![ServerLine {
            name: "s1".to_owned(),
            state: "dead".to_owned(),
            tone: Tone::Bad,
            since: "4 s".to_owned(),
            said_by: "s2".to_owned(),
            datastore: "unreachable".to_owned(),
            datastore_tone: Tone::Bad,
            address: "127.0.0.1:1".to_owned(),
        }],
        seen_by: "s2".to_owned(),
        elected: "nobody".to_owned(),
        waits: Some("for a majority".to_owned()),
        hints: vec!["start the machines again".to_owned()],
        events: Vec::new(),
    };
    let page = page.render().expect("a page");
    // The policy forbids inline styles, so they would not work.
    assert!(!page.contains(" style="), "{page}");
    for handler in ["onclick=", "onload=", "onerror=", "onsubmit="] {
        assert!(!page.contains(handler), "{page}");
    }
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    assert!(
        page.contains(r#"<script src="/console.js" defer>"#),
        "{page}"
    );
    for word in ["dead", "unreachable", "for a majority", "NO MAJORITY"] {
        assert!(page.contains(word), "{word}: {page}");
    }
}

#[test]
fn what_is_counted_leads_to_what_it_counts() {
    let page = NodesPage {
        frame: frame(),
        counts: vec![Count {
            number: 3,
            what: "lost".to_owned(),
            tone: Tone::Bad,
            path: "/nodes?status=lost".to_owned(),
        }],
        wanted: String::new(),
        word: String::new(),
        nodes: Vec::new(),
        more: 0,
    };
    let page = page.render().expect("a page");
    assert!(
        page.contains(r#"<a href="/nodes?status=lost"><b class="bad">3</b> lost</a>"#),
        "{page}"
    );
    assert!(page.contains("bunraku token create"), "{page}");
}

fn audit(records: usize) -> AuditPage {
    let line = AuditLine {
        number: "7".to_owned(),
        at: "2026-11-16 10:00:00".to_owned(),
        who: HOSTILE.to_owned(),
        from: HOSTILE.to_owned(),
        action: HOSTILE.to_owned(),
        object: HOSTILE.to_owned(),
        outcome: "refused (403)".to_owned(),
        tone: Tone::Warn,
        reason: HOSTILE.to_owned(),
    };
    AuditPage {
        frame: frame(),
        who: HOSTILE.to_owned(),
        action: String::new(),
        object: "a&b".to_owned(),
        outcome: "refused".to_owned(),
        before: Some(9),
        records: vec![line; records],
        next: Some(7),
    }
}

#[test]
fn the_audit_log_shows_text_and_its_links_keep_the_filter() {
    let page = audit(2).render().expect("a page");
    assert_harmless(&page);
    assert!(page.contains("<option selected>refused</option>"), "{page}");
    let older = "object=a%26b&amp;outcome=refused&amp;before=7";
    assert!(page.contains(older), "{page}");
    assert!(page.contains(">Newest</a>"), "{page}");
    let page = audit(0).render().expect("a page");
    assert!(page.contains("Show all records"), "{page}");
}
