//! Hostile queries.

use bunraku_query::{AnswerError, Index, Limits, Query};
use proptest::prelude::*;
use serde_json::json;

use crate::fleet::{fleet, name, object};

#[test]
fn deep_nesting_is_refused_and_does_not_end_the_stack() {
    for text in [
        format!(
            "nodes {{ {} status = \"a\" {} }}",
            "(".repeat(20_000),
            ")".repeat(20_000)
        ),
        format!("nodes {{ {} status = \"a\" }}", "not ".repeat(15_000)),
        "nodes { ".repeat(4_000),
        format!(
            "nodes {{ {}",
            "certname in nodes[certname] { ".repeat(1_500)
        ),
    ] {
        let error = Query::parse(&text).expect_err("too deep");
        assert!(error.message.contains("64 levels"), "{}", error.message);
    }
}

#[test]
fn a_long_text_is_refused_before_it_is_read() {
    let error = Query::parse(&" ".repeat(100_000)).expect_err("too long");
    assert!(error.message.contains("at most"), "{}", error.message);
}

fn answer(index: &Index, text: &str, limits: Limits) -> Result<usize, AnswerError> {
    let query = Query::parse(text).expect("it makes sense");
    index
        .answer(&query, &limits)
        .map(|answer| answer.rows.len())
}

#[test]
fn a_query_ends_when_it_has_looked_at_too_much() {
    let few = Limits {
        steps: 3,
        ..Limits::default()
    };
    let outcome = answer(
        &fleet(),
        r#"nodes { facts.networking.interfaces.*.ip ~ "x" }"#,
        few,
    );
    assert_eq!(outcome, Err(AnswerError::TooManySteps(3)));
    // All subqueries share the same budget.
    let nested = r#"nodes { certname in nodes[certname] { certname in nodes[certname] { certname in nodes[certname] {} } } }"#;
    assert_eq!(
        answer(&fleet(), nested, few),
        Err(AnswerError::TooManySteps(3))
    );
    assert_eq!(answer(&fleet(), nested, Limits::default()), Ok(4));
}

#[test]
fn an_answer_that_is_too_large_is_refused_and_says_so() {
    let mut index = Index::new();
    for number in 0..100 {
        let facts = object(json!({"text": "x".repeat(1_000)}));
        index.set_facts(&name(&format!("n-{number}")), &facts);
    }
    let few = Limits {
        rows: 50,
        ..Limits::default()
    };
    assert_eq!(
        answer(&index, "nodes[certname]", few),
        Err(AnswerError::TooManyRows(50))
    );
    assert_eq!(answer(&index, "nodes[certname] { limit 50 }", few), Ok(50));
    assert_eq!(answer(&index, "nodes[count()]", few), Ok(1));
    let small = Limits {
        bytes: 50_000,
        ..Limits::default()
    };
    assert_eq!(
        answer(&index, "nodes[facts.text]", small),
        Err(AnswerError::TooManyBytes(50_000))
    );
    assert_eq!(answer(&index, "nodes[certname]", small), Ok(100));
}

#[test]
fn one_node_with_endless_facts_does_not_fill_the_index() {
    let mut index = Index::new();
    let many = (0..200_000).map(|number| (format!("f{number}"), json!(number)));
    assert!(!index.set_facts(&name("hostile"), &many.collect()));
    assert!(index.size().fact_values <= 50_000, "{:?}", index.size());
    assert!(index.set_facts(&name("hostile"), &object(json!({"a": 1}))));
    assert_eq!(index.size().fact_values, 1);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_place_inside_it(text in "\\PC{0,80}") {
        if let Err(error) = Query::parse(&text) {
            error.render(&text);
            prop_assert!(error.span.end <= text.len());
        }
    }

    #[test]
    fn words_of_the_language_in_any_order_are_read_or_refused(
        words in proptest::collection::vec(proptest::sample::select(&[
            "nodes", "facts", "resources", "certname", "{", "}", "[", "]", "(", ")", ",", ".", "=", "~", "in", "not",
            "and", "or", "is", "null", "\"x\"", "1", "*", "order", "by", "limit", "count", "group", "type", "~>", "!=",
        ][..]), 0..25)
    ) {
        let text = words.join(" ");
        match Query::parse(&text) {
            Ok(query) => { let _ = fleet().answer(&query, &Limits::default()); }
            Err(error) => { error.render(&text); }
        }
    }
}
