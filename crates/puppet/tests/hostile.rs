//! Any input gives an answer in bounded time, without a panic or an overflow.

use bunraku_puppet::{Limits, NoModules, Sources, evaluate_site, parse};
use proptest::prelude::*;

fn evaluate(text: &str) -> Result<(), String> {
    let limits = Limits {
        steps: 200_000,
        elements: 10_000,
        string_bytes: 1 << 20,
        ..Limits::default()
    };
    let files = [("site.pp".to_owned(), text.to_owned())];
    evaluate_site(&files, &NoModules, &limits)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn refused(text: &str, why: &str) {
    let error = evaluate(text).expect_err("refused");
    assert!(error.contains(why), "{error}");
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{ a => ", "}"),
        ("!", ""),
        ("-", ""),
        ("f(", ")"),
    ] {
        let text = format!("$a = {}1{}", open.repeat(50_000), close.repeat(50_000));
        refused(&text, "nested deeper");
    }
    refused(&"if true { ".repeat(50_000), "nested deeper");
    refused(&"class a { ".repeat(50_000), "nested deeper");
    refused(&format!("$a = {}", "\"${".repeat(50_000)), "nested");
    refused(&format!("$a = 1{}", " + 1".repeat(50_000)), "nested deeper");
    refused(&format!("$a = $b{}", "[1]".repeat(50_000)), "nested deeper");
    refused(&format!("$a = $b{}", ".c".repeat(50_000)), "nested deeper");
    refused(
        &format!("if a {{}} {}", "elsif b {} ".repeat(50_000)),
        "nested deeper",
    );
    refused(
        &format!("a {{ 'a': }} {}", "-> b { 'b': } ".repeat(50_000)),
        "nested deeper",
    );
}

#[test]
fn endless_recursion_is_refused() {
    refused("function f($x) { f($x) }\n$a = f(1)", "nested too deeply");
    refused("type A = B\ntype B = A\n$a = 1 =~ A", "nested too deeply");
}

#[test]
fn work_and_sizes_are_bounded() {
    refused("$a = range(1, 1000000000000)", "more than");
    refused(
        "$a = Integer[1, 9223372036854775807].map |$x| { $x }",
        "more than",
    );
    refused(
        "$a = range(1, 9000).each |$x| { range(1, 9000).each |$y| { $y } }",
        "takes too long",
    );
    refused(
        "$a = range(1, 900).reduce('ab') |$m, $x| { \"${m}${m}\" }",
        "too long",
    );
    refused(
        "$a = range(1, 9000).reduce([]) |$m, $x| { [$m] }",
        "nested too deeply",
    );
    refused(
        "$a = range(1, 60).reduce([1]) |$m, $x| { [$m, $m] }\n$b = \"${a}\"",
        "too long",
    );
    refused(
        "$a = range(1, 9000).reduce(Integer) |$m, $x| { Optional[$m] }",
        "nested too deeply",
    );
    refused(
        "$a = range(1, 60).reduce(1) |$m, $x| { $m + $m }\n$b = $a * $a",
        "too large",
    );
    refused("$a = -9223372036854775807 - 2", "too large");
    refused("$a = (-9223372036854775807 - 1) / -1", "too large");
    refused("$a = 1 / 0", "division by zero");
    refused("$a = sprintf('%999999999d', 1)", "too large");
    refused(
        "$a = 'x' =~ /(a{1000}){1000}/",
        "invalid regular expression",
    );
}

#[test]
fn the_deepest_code_that_is_accepted_is_also_evaluated() {
    let limit = Limits::default().depth;
    let mut taken = 0;
    for depth in 1..limit {
        let text = format!("$a = {}1{}", "[".repeat(depth), "]".repeat(depth));
        if evaluate(&text).is_ok() {
            taken = depth;
        }
    }
    assert!(taken > limit / 3, "{taken}");
    let call = "f(".repeat(taken / 2) + "1" + &")".repeat(taken / 2);
    let text = format!(
        "function f($x) {{ $x.with |$y| {{ [$y].map |$z| {{ \"${{z}}\" }} }} }}\n$a = {call}"
    );
    evaluate(&text).expect("taken");
}

fn fragments() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "site",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "application",
        "define",
        "class",
        "node",
        "x",
        "lamp::y",
        "'a'",
        "\"a${b}\"",
        "\"${",
        "$x",
        "$x::y",
        "=>",
        "->",
        "=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "|",
        "|$x|",
        ":",
        ";",
        ",",
        ".",
        "?",
        "if",
        "else",
        "elsif",
        "unless",
        "case",
        "default",
        "undef",
        "true",
        "1",
        "0x1f",
        "1.5e3",
        "09",
        "Integer",
        "Sql",
        "Foo::Bar",
        "produces",
        "consumes",
        "export",
        "@(END)",
        "\n",
        "| END",
        "\n  | - END\n",
        "@",
        "@@",
        "<|",
        "|>",
        "<<|",
        "|>>",
        "/re/",
        "#c\n",
        "/*",
        "*/",
        "each",
        "map",
        "reduce",
        "in",
        "and",
        "!",
        "==",
        "=~",
        "function",
        "type",
        "*",
        "é",
        "\\",
        "$",
        "\u{0}",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gets_an_answer(text in "\\PC*") {
        let _ = evaluate(&text);
    }

    #[test]
    fn any_mix_of_words_gets_an_answer(text in fragments()) {
        let _ = evaluate(&text);
    }

    #[test]
    fn a_good_file_that_is_cut_or_damaged_gets_an_answer(cut in 0usize..2_000, byte in any::<u8>(), at in 0usize..2_000) {
        let mut bytes = [crate::site::LAMP, crate::site::SITE].concat().into_bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length - cut % length);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let _ = evaluate(&text);
    }

    #[test]
    fn what_is_parsed_twice_is_the_same(text in fragments()) {
        let mut sources = Sources::default();
        let file = sources.add("a.pp", &text);
        let limits = Limits::default();
        prop_assert_eq!(parse(&sources, file, &limits), parse(&sources, file, &limits));
    }
}
