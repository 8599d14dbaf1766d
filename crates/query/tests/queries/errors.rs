//! Tests error messages: the problem, its place, and the hint.

use bunraku_query::Query;
use expect_test::{Expect, expect};

fn check(text: &str, expected: Expect) {
    let error = Query::parse(text).expect_err("it makes no sense");
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}"));
    expected.assert_eq(&format!(
        "{}{}",
        error.render(text),
        hint.unwrap_or_default()
    ));
}

#[test]
fn a_misspelt_name_is_pointed_at_with_the_near_one() {
    check(
        r#"nodes { certnam = "x" }"#,
        expect![[r#"
        `nodes` have no field `certnam`
         --> 1:9
        1 | nodes { certnam = "x" }
          |         ^^^^^^^
        hint: did you mean `certname`?"#]],
    );
    check(
        "nods { }",
        expect![[r#"
        unknown entity `nods`
         --> 1:1
        1 | nods { }
          | ^^^^
        hint: did you mean `nodes`?"#]],
    );
    check(
        r#"nodes { kernel = "Linux" }"#,
        expect![[r#"
        `nodes` have no field `kernel`
         --> 1:9
        1 | nodes { kernel = "Linux" }
          |         ^^^^^^
        hint: if it is a fact, write `facts.kernel`"#]],
    );
}

#[test]
fn the_place_is_right_on_later_lines_and_after_wide_characters() {
    check(
        "nodes {\n  facts.ü = \"ö\" and\n  facts.a == 1\n}",
        expect![[r#"
        expected a value, found `=`
         --> 3:12
        3 |   facts.a == 1
          |            ^
        hint: use `=` for equality and `~` for regular expressions"#]],
    );
}

#[test]
fn unfinished_queries_say_what_is_missing() {
    check(
        "nodes { certname = ",
        expect![[r#"
        expected a value, found the end
         --> 1:20
        1 | nodes { certname =
          |                    ^"#]],
    );
    check(
        r#"nodes { certname = "x"#,
        expect![[r#"
        this string is not closed
         --> 1:20
        1 | nodes { certname = "x
          |                    ^^
        hint: close it with ""#]],
    );
    check(
        r#"nodes { certname = "x" status = "y" }"#,
        expect![[r#"
        expected `and`, `or` or `}`, found `status`
         --> 1:24
        1 | nodes { certname = "x" status = "y" }
          |                        ^^^^^^"#]],
    );
}

#[test]
fn values_are_quoted_and_null_is_not_compared() {
    check(
        "nodes { status = idle }",
        expect![[r#"
        expected a value, found `idle`
         --> 1:18
        1 | nodes { status = idle }
          |                  ^^^^
        hint: put strings in quotes: "idle""#]],
    );
    check(
        "nodes { status = null }",
        expect![[r#"
        nothing is equal to `null`
         --> 1:18
        1 | nodes { status = null }
          |                  ^^^^
        hint: write `is null` or `is not null`"#]],
    );
    check(
        "nodes { facts.a > true }",
        expect![[r#"
        booleans have no order
         --> 1:19
        1 | nodes { facts.a > true }
          |                   ^^^^"#]],
    );
}

#[test]
fn regular_expressions_are_checked_before_they_are_used() {
    check(
        r#"nodes { certname ~ "(" }"#,
        expect![[r#"
        invalid regular expression: unclosed group
         --> 1:20
        1 | nodes { certname ~ "(" }
          |                    ^^^"#]],
    );
    check(
        r#"nodes { certname ~ "(((((a{100}){100}){100}){100}){100})" }"#,
        expect![[r#"
        this regular expression is too large
         --> 1:20
        1 | nodes { certname ~ "(((((a{100}){100}){100}){100}){100})" }
          |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"#]],
    );
}

#[test]
fn pages_and_groups_stand_where_they_mean_something() {
    check(
        "nodes {} limit 3",
        expect![[r#"
        expected the end of the query, found `limit`
         --> 1:10
        1 | nodes {} limit 3
          |          ^^^^^
        hint: write `order by`, `limit`, `offset` and `group by` inside the braces, at the end"#]],
    );
    check(
        "nodes { reports { limit 1 } }",
        expect![[r#"
        a condition cannot have an order, pages or groups
         --> 1:9
        1 | nodes { reports { limit 1 } }
          |         ^^^^^^^
        hint: to use them in a condition, write `certname in reports[certname] { … }`"#]],
    );
    check(
        "nodes[certname, count()] { group by status }",
        expect![[r#"
        `certname` differs within a group
         --> 1:7
        1 | nodes[certname, count()] { group by status }
          |       ^^^^^^^^
        hint: add it to `group by`, or use max(certname)"#]],
    );
    check(
        "nodes[status, count()] { order by certname }",
        expect![[r#"
        `certname` is not a column
         --> 1:35
        1 | nodes[status, count()] { order by certname }
          |                                   ^^^^^^^^
        hint: order groups by columns in the brackets"#]],
    );
    check(
        "nodes { limit 1 limit 2 }",
        expect![[r#"
        `limit` is used twice
         --> 1:17
        1 | nodes { limit 1 limit 2 }
          |                 ^^^^^"#]],
    );
}

#[test]
fn both_sides_of_in_have_as_many_columns() {
    check(
        "nodes { certname in resources[certname, title] {} }",
        expect![[r#"
        1 column on the left and 2 columns on the right
         --> 1:9
        1 | nodes { certname in resources[certname, title] {} }
          |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: list the columns: `certname in resources[certname] { … }`"#]],
    );
}
