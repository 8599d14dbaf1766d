//! YAML with the positions of its values.

use serde_json::json;

use super::*;

fn value(text: &str) -> Value {
    parse(text)
        .unwrap_or_else(|error| panic!("{error:?}"))
        .to_json()
}

fn refusal(text: &str) -> String {
    let error = parse(text).expect_err("it is refused");
    format!("{}:{}: {}", error.line, error.column, error.message)
}

#[test]
fn plain_scalars_follow_yaml_1_1_as_salt_reads_it() {
    for (text, expected) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("0644", json!(644)),
        ("'0644'", json!("0644")),
        ("0899", json!("0899")),
        ("0o644", json!("0o644")),
        ("00", json!(0)),
        ("-017", json!(-15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("1:30", json!(90)),
        ("1e3", json!("1e3")),
        ("1.5e+3", json!(1500.0)),
        (".5", json!(0.5)),
        ("~", json!(null)),
        ("", json!(null)),
        ("1.2.3", json!("1.2.3")),
        ("2026-11-15", json!("2026-11-15")),
        ("-", json!([null])),
        ("!!str 12", json!("12")),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn every_node_knows_where_it_begins() {
    let node = parse("a:\n  - b\n  - ü: c\n").expect("YAML");
    let list = node.as_map().expect("a map")[0]
        .1
        .as_list()
        .expect("a list");
    assert_eq!((list[0].line, list[0].column), (2, 5));
    let inner = &list[1].as_map().expect("a map")[0];
    assert_eq!((inner.0.line, inner.0.column), (3, 5));
    assert_eq!((inner.1.line, inner.1.column), (3, 8));
}

#[test]
fn duplicate_keys_name_both_places() {
    let error = parse("a: 1\nb:\n  c: 1\n  c: 2\n").expect_err("twice");
    assert_eq!((error.line, error.first), (4, Some((3, 3))));
    assert_eq!(error.message, "the key `c` is set twice");
}

#[test]
fn tabs_in_the_indentation_are_refused_with_their_place() {
    assert_eq!(
        refusal("a:\n\t- b\n"),
        "2:1: a tab in the indentation; use spaces"
    );
    assert_eq!(value("a: b\tc"), json!({"a": "b\tc"}));
}

#[test]
fn anchors_aliases_and_merges_work() {
    assert_eq!(
        value("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b\n"),
        json!({"base": {"x": 1, "y": 2}, "use": {"x": 1, "y": 3}, "again": {"x": 1, "y": 2}})
    );
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = vec![below; 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(refusal(&text).contains("aliases expand to too many nodes"));
}

#[test]
fn long_text_cannot_be_repeated_without_end() {
    let text = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(500_000),
        "*a,".repeat(100_000)
    );
    assert!(refusal(&text).contains("aliases expand to too much text"));
}

#[test]
fn anchors_around_each_other_do_not_keep_copies_without_end() {
    let open: String = (0..100).map(|level| format!("&a{level} [")).collect();
    let text = format!("{open}{}{}", "0,".repeat(100_000), "]".repeat(100));
    assert!(refusal(&text).contains("aliases expand to too many nodes"));
}

#[test]
fn an_alias_to_what_it_is_part_of_is_refused() {
    assert!(refusal("a: &a [*a]").contains("an alias to a node that contains it"));
}

#[test]
fn nesting_has_an_end() {
    let flow = refusal(&"[".repeat(100_000));
    assert!(
        flow.contains("depth") || flow.contains("deep") || flow.contains("recursion"),
        "{flow}"
    );
    let deep: String = (0..200)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    assert!(refusal(&deep).contains("nested too deeply"));
}

#[test]
fn nesting_is_counted_through_aliases() {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..20_000 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(refusal(&text).contains("nested too deeply through an alias"));
}

#[test]
fn a_hundred_levels_through_aliases_are_fine() {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..100 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert_eq!(
        parse(&text).expect("it is YAML").as_map().map(<[_]>::len),
        Some(100)
    );
}

#[test]
fn many_merged_maps_keep_the_earlier_value_of_each_key() {
    let mut text = "one: &one\n".to_owned();
    for key in 0..20_000 {
        text.push_str(&format!("  k{key}: 1\n"));
    }
    text.push_str("two: &two {k0: 2, other: 2}\nall:\n  <<: [*one, *two]\n");
    let parsed = parse(&text).expect("it is YAML").to_json();
    assert_eq!(parsed["all"]["k0"], 1);
    assert_eq!(parsed["all"]["other"], 2);
}

#[test]
fn a_second_document_and_an_unknown_tag_are_refused() {
    assert!(refusal("a: 1\n---\nb: 2\n").contains("another one"));
    assert!(refusal("a: !!python/object 1").contains("cannot be used here"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ \\t\\n:\\-\\[\\]{}&*!|>'\"%#?,a-c0-9ü]{0,80}") {
        let _ = parse(&text);
    }
}
