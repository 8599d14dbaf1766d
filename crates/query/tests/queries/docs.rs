//! Tests the examples of `docs/queries.md`, each with the answer below it.

use crate::fleet::{answer_text, ask, fleet};

#[test]
fn every_example_of_the_manual_gives_the_answer_that_it_shows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/queries.md");
    let manual = std::fs::read_to_string(path).expect("the manual is there");
    let index = fleet();
    let mut examples = 0;
    let mut rest = manual.as_str();
    while let Some((_, tail)) = rest.split_once("```pql\n") {
        let (query, tail) = tail.split_once("\n```\n").expect("an example ends");
        let (shown, tail) = tail
            .strip_prefix("```text\n")
            .and_then(|tail| tail.split_once("```\n"))
            .unwrap_or_else(|| panic!("no answer stands under {query}"));
        assert_eq!(answer_text(&ask(&index, query)), shown, "{query}");
        examples += 1;
        rest = tail;
    }
    assert!(examples > 10, "the manual has lost its examples");
}
