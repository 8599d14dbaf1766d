//! Decisions, without any manager.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::desired::version_fits;
use super::{Package, Status, Statuses};
use crate::{Declaration, DisplayValue, ResourceType};

fn check(parameters: Value, statuses: &[(&str, Status)], expected: Expect) {
    let resource =
        serde_json::from_value(json!({"type": "Package", "title": "p", "parameters": parameters}));
    let resource = resource.unwrap();
    let declaration = Declaration::new(&resource, "name");
    let transcript = match Package.desire(&declaration) {
        Err(refusal) => format!("refused: {refusal}\n"),
        Ok(desired) => {
            let observed: Statuses = statuses
                .iter()
                .map(|(name, status)| ((*name).to_owned(), status.clone()))
                .collect();
            let side = |side: &DisplayValue| serde_json::to_string(side).unwrap();
            let changes = Package.changes(&desired, &observed);
            let lines = changes.iter().map(|one| {
                format!(
                    "{}: {} -> {}\n",
                    one.property,
                    side(&one.from),
                    side(&one.to)
                )
            });
            lines.collect()
        }
    };
    expected.assert_eq(&transcript);
}

fn installed(version: &str) -> Status {
    Status {
        version: Some(version.to_owned()),
        ..Status::default()
    }
}

#[test]
fn the_latest_compares_with_what_the_repositories_offer() {
    let offered = |candidate: Option<&str>| Status {
        candidate: candidate.map(str::to_owned),
        ..installed("1")
    };
    check(
        json!({"ensure": "latest"}),
        &[("p", offered(Some("2")))],
        expect![[r#"
        ensure: "1" -> "2"
    "#]],
    );
    check(
        json!({"ensure": "latest"}),
        &[("p", offered(Some("1")))],
        expect![""],
    );
    check(
        json!({"ensure": "latest"}),
        &[("p", offered(None))],
        expect![""],
    );
    let unfetched = Status {
        unfetched: true,
        ..installed("1")
    };
    check(
        json!({"ensure": "latest"}),
        &[("p", unfetched)],
        expect![[r#"
        ensure: "1" -> "latest"
    "#]],
    );
}

#[test]
fn what_a_manager_could_take_for_something_else_is_refused() {
    check(
        json!({"name": "--purge"}),
        &[],
        expect![[r#"
        refused: `--purge` is not a valid package name
    "#]],
    );
    check(
        json!({"name": "bash-"}),
        &[],
        expect![[r#"
        refused: `bash-` is not a valid package name
    "#]],
    );
    check(
        json!({"name": "/tmp/evil.deb"}),
        &[],
        expect![[r#"
        refused: `/tmp/evil.deb` is not a valid package name
    "#]],
    );
    check(
        json!({"ensure": ">=1.0 <2.0"}),
        &[],
        expect![[r#"
        refused: `ensure` must be installed, latest, held, absent, purged or a version, not `">=1.0 <2.0"`
    "#]],
    );
}

#[test]
fn a_hold_does_not_matter_for_a_package_to_remove() {
    check(
        json!({"ensure": "absent", "hold": true}),
        &[("p", installed("1"))],
        expect![[r#"
        ensure: "1" -> "absent"
    "#]],
    );
    check(
        json!({"hold": true}),
        &[],
        expect![[r#"
        ensure: null -> "installed"
        hold: false -> true
    "#]],
    );
}

#[test]
fn versions_fit_with_and_without_epoch_and_release() {
    assert!(version_fits("1.0", "0:1.0-1.el9"));
    assert!(version_fits("1.0-1.el9", "0:1.0-1.el9"));
    assert!(version_fits("1.*", "1.4-2"));
    assert!(!version_fits("1.0", "1.0.1"));
    assert!(!version_fits("1.0", "2:1.0-1"));
    assert!(!version_fits("1", "1.0-1"));
}
