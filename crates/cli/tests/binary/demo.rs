//! The demo, as a new user runs it.

use rustix::process::Signal;

use crate::support::{Site, all_output, bunraku, demo_text, eventually, start_demo};

#[test]
fn the_demo_comes_to_its_end_and_leaves_nothing_behind() {
    let site = Site::new();
    let directory = site.path("demo");
    let demo = start_demo(&[], &directory, &site.path("demo.log"));
    let text = demo_text(demo, &directory);
    for printed in [
        "1/9  A server starts",
        "/?key=",
        "dev1 joined: ",
        "all four answered",
        "4 nodes compiled",
        "compiled, not released",
        "to 50 %  enforce  2 of 2 nodes changed",
        "rollback to 2  enforce  3 of 4 nodes changed",
        "4 nodes, 2 groups  succeeded",
        "answered the queued command",
        "disabled   disk replacement",
        "refresh load balancers  fired by",
        "\n  killed    the server (kill -9), with a command waiting; the agent of dev2\n",
        "\n  lost      nothing",
        "\n  recovery  server ready again after ",
    ] {
        assert!(text.contains(printed), "`{printed}` is missing in:\n{text}");
    }
    // A new release is a new desired state, not drift.
    assert!(!text.contains("corrected"), "{text}");
    is_readable(&text, &directory);
    assert!(!directory.exists());
    assert!(left_over(&directory.display().to_string()).is_empty());
}

/// Every line fits 100 columns, each diff appears once, and nothing shows a terminal's sequences,
/// the directory of the demo, or a long hash.
fn is_readable(text: &str, directory: &std::path::Path) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(text.lines().count() < 150, "{text}");
    assert_eq!(text.matches("Version 2 of teh shop").count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(!text.contains(&directory.display().to_string()), "{text}");
    assert!(!text.contains("SHA256:"), "{text}");
}

#[test]
fn a_demo_as_json_is_one_value_per_line() {
    let site = Site::new();
    let directory = site.path("demo");
    let demo = start_demo(&["--json"], &directory, &site.path("demo.log"));
    let text = demo_text(demo, &directory);
    let lines = text.lines().map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        value
    });
    let lines: Vec<_> = lines.collect();
    let acts = lines
        .iter()
        .filter(|line| line["title"].is_string())
        .count();
    assert_eq!(acts, 9, "{text}");
    let summary = lines.iter().find(|line| line["summary"].is_object());
    let lost = summary.and_then(|line| line["summary"]["lost"].as_str());
    assert!(
        lost.is_some_and(|lost| lost.starts_with("nothing")),
        "{text}"
    );
}

#[test]
fn a_demo_that_fails_leaves_its_logs_and_says_where_they_are() {
    let site = Site::new();
    let directory = site.path("demo");
    let mut command = bunraku();
    // A git that fails: there is no code.
    let programs = site.path("programs");
    std::fs::create_dir(&programs).expect("a directory");
    std::os::unix::fs::symlink("/bin/false", programs.join("git")).expect("a link");
    command.env("PATH", programs);
    let output = command.arg("demo").arg("--dir").arg(&directory).output();
    let shown = all_output(&output.expect("it runs"));
    assert!(shown.starts_with("exit 1\n"), "{shown}");
    let place = format!("read their logs in {}", directory.display());
    assert!(shown.contains(&place), "{shown}");
    let log = std::fs::read_to_string(directory.join("server.log"));
    assert!(log.expect("it stays").contains("the server is up"));
    assert!(left_over(&directory.display().to_string()).is_empty());
}

#[test]
fn a_demo_without_git_says_so_before_it_starts_anything() {
    let site = Site::new();
    let directory = site.path("demo");
    let mut command = bunraku();
    command.env("PATH", site.path("nothing"));
    let output = command.arg("demo").arg("--dir").arg(&directory).output();
    let shown = all_output(&output.expect("it runs"));
    assert!(shown.starts_with("exit 1\n"), "{shown}");
    assert!(shown.contains("git is not installed"), "{shown}");
    assert!(shown.contains("apt-get install git"), "{shown}");
    assert!(!directory.exists());
}

#[test]
fn an_interrupted_demo_cleans_up_too() {
    let site = Site::new();
    let directory = site.path("demo");
    let mut demo = start_demo(&["--keep"], &directory, &site.path("demo.log"));
    let place = directory.display().to_string();
    eventually("the agents run", || left_over(&place).len() >= 5);
    demo.signal(Signal::INT);
    assert_eq!(demo.wait(), Some(1), "{}", demo.log());
    assert!(!directory.exists());
    assert!(left_over(&place).is_empty());
}

#[test]
fn a_killed_demo_takes_its_children_along() {
    let site = Site::new();
    let directory = site.path("demo");
    let demo = start_demo(&["--keep"], &directory, &site.path("demo.log"));
    let place = directory.display().to_string();
    eventually("the agents run", || left_over(&place).len() >= 5);
    demo.kill();
    eventually("its children end", || left_over(&place).is_empty());
}

/// Returns the processes that were started with this directory, except for the demo itself.
fn left_over(directory: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc")
        .expect("proc")
        .filter_map(Result::ok);
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts
        .filter(|line| line.contains(directory) && !line.contains(" demo "))
        .collect()
}
