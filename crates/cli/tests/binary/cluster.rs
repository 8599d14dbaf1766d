//! Several servers, as users set them up.

use expect_test::expect;

use crate::support::{Site, demo_text, output_in, start_demo};

#[test]
fn two_datastores_are_refused_with_the_reason() {
    let site = Site::new();
    let init = ["cluster", "init", "--datastores", "2"];
    let here = ["--address", "192.0.2.1", "--name", "s1"];
    let shown = output_in(&site.path("s1"), &[init, here].concat());
    expect![[r#"
        exit 4
        --- stdout
        --- stderr
        error: 2 datastores tolerate no more failures than 1: use 1, 3 or 5
    "#]]
    .assert_eq(&shown);
    assert!(!site.path("s1").exists());
}

#[test]
fn a_server_that_is_not_a_member_reports_that() {
    let site = Site::new();
    let shown = output_in(&site.path("none"), &["cluster", "recover"]);
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: this server is not a member of a cluster
    "#]]
    .assert_eq(&shown);
}

#[test]
fn a_cluster_loses_a_datastore_and_carries_on() {
    let site = Site::new();
    let directory = site.path("demo");
    let demo = start_demo(&["--servers", "3"], &directory, &site.path("demo.log"));
    let text = demo_text(demo, &directory);
    for shown in [
        "3 servers store the data; one more is ready to replace any of them",
        ", the leader of the run, is killed",
        "took over the run from its log",
        "four reports from four nodes: each ran exactly once, and all succeeded",
        "removed from the datastores",
        "3 servers store the data again",
        "all nodes answer; nothing was lost",
        ", leading a run; ",
        "\n  recovery  run taken over in ",
    ] {
        assert!(text.contains(shown), "`{shown}` is missing in:\n{text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 100), "{text}");
    assert!(!directory.exists());
}
