//! Several servers, as users set them up.

use expect_test::expect;

use crate::support::{Site, bunraku, demo_text, start_demo, told};

#[test]
fn two_datastores_are_refused_with_the_reason() {
    let site = Site::new();
    let output = bunraku()
        .args([
            "cluster",
            "init",
            "--datastores",
            "2",
            "--address",
            "192.0.2.1",
        ])
        .args(["--name", "s1", "--data-dir"])
        .arg(site.path("s1"))
        .output()
        .expect("it runs");
    expect![[r#"
        exit 4
        --- stdout
        --- stderr
        error: 2 datastores survive the loss of no more servers than 1, and there is one more to lose: use 1, 3 or 5
    "#]]
    .assert_eq(&told(&output));
    assert!(!site.path("s1").exists());
}

#[test]
fn a_server_that_is_no_member_says_so() {
    let site = Site::new();
    let output = bunraku()
        .args(["cluster", "recover", "--data-dir"])
        .arg(site.path("none"))
        .output()
        .expect("it runs");
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: this server is not a member of a cluster
    "#]]
    .assert_eq(&told(&output));
}

#[test]
fn a_cluster_loses_a_datastore_and_carries_on() {
    let site = Site::new();
    let directory = site.path("demo");
    let demo = start_demo(&["--servers", "3"], &directory, &site.path("demo.log"));
    let text = demo_text(demo, &directory);
    for told in [
        "the data is on 3 servers, and one more could take the place of any",
        "which leads the run, was killed",
        "took over from the log of the run",
        "four reports of four nodes: none ran twice, none was forgotten, all succeeded",
        "was taken off the list of datastores",
        "the data is on 3 servers again",
        "all nodes answer, and nothing was lost",
    ] {
        assert!(text.contains(told), "`{told}` is missing in:\n{text}");
    }
    assert!(!directory.exists());
}
