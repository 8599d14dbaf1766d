//! Noop runs of states: what earlier states would create may be missing, and comments are kept.

use crate::support::{apply_noop, compiled_text, run};

/// The status, reasons and message of each state.
fn shown(summary: &bunraku_engine::Summary) -> String {
    let lines = summary.finished.iter().map(|finished| {
        let state = finished.state.as_ref().expect("a state");
        let outcome = &finished.outcome;
        let reasons: Vec<String> = outcome.reasons.iter().map(ToString::to_string).collect();
        let message = outcome.message.as_deref().unwrap_or("-");
        format!(
            "{} {} [{}] {message}\n",
            state.id,
            outcome.status.as_str(),
            reasons.join("; ")
        )
    });
    lines.collect()
}

#[test]
fn a_directory_that_an_earlier_state_may_create_is_no_failure_in_noop() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("missing/file");
    let text = format!(
        "package:\n  test.succeed_with_changes: []\nother:\n  test.nop: []\n{}:\n  file.managed:\n    - contents: x\n",
        file.display()
    );
    let compiled = compiled_text(&text).expect("states");
    let summary = apply_noop(&compiled, &place.path().join("state"));
    let file = summary.finished.last().expect("the file");
    assert_eq!(
        file.outcome.status.as_str(),
        "pending",
        "{}",
        shown(&summary)
    );
}

#[test]
fn states_that_have_nothing_to_do_keep_their_comments() {
    let place = tempfile::tempdir().expect("a directory");
    let text = "one:\n  test.succeed_without_changes: []\n\
                two:\n  test.configurable_test_state:\n    - changes: False\n    - result: True\n    - comment: own words\n\
                three:\n  cmd.run:\n    - name: 'true'\n    - creates: /etc/passwd\n\
                four:\n  cmd.run:\n    - name: 'true'\n    - onlyif: 'false'\n\
                five:\n  test.nop:\n    - creates: /etc/passwd\n";
    let compiled = compiled_text(text).expect("states");
    let expected = "one unchanged [] Success!\ntwo unchanged [] own words\n\
                    three unchanged [] /etc/passwd exists\nfour unchanged [] onlyif failed\n\
                    five skipped [creates: /etc/passwd exists] -\n";
    let summary = run(&compiled, &place.path().join("state"), None);
    assert_eq!(shown(&summary), expected);
    let summary = apply_noop(&compiled, &place.path().join("noop"));
    assert_eq!(shown(&summary), expected);
}

#[test]
fn every_failed_requisite_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let text = "one:\n  test.fail_without_changes: []\n\
                two:\n  test.fail_without_changes: []\n\
                three:\n  test.nop:\n    - require:\n      - test: one\n      - test: two\n";
    let compiled = compiled_text(text).expect("states");
    let summary = run(&compiled, &place.path().join("state"), None);
    assert_eq!(
        shown(&summary),
        "one failed [] Failure!\ntwo failed [] Failure!\nthree skipped [Test[one] failed; Test[two] failed] -\n"
    );
}
