//! Rules about all sources that no compiler checks.
//!
//! Each rule has a table of the places that may break it. A new place belongs in the table only
//! with a reason. A place that no longer needs its line makes the test fail, so the tables stay
//! short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A source file, with its path below `crates/`.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Returns true for product code: no tests, benches, or development-only crates.
    fn is_product(&self) -> bool {
        let inside = ["/tests/", "/benches/", "/testing/", "/contract/"];
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let development = ["faults/", "sim/", "testkit/"];
        !(development.iter().any(|it| self.path.starts_with(it))
            || inside.iter().any(|it| self.path.contains(it))
            || self.is_unit_test(name))
    }

    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || self.is_unit_test(name)
    }

    fn is_unit_test(&self, name: &str) -> bool {
        name == "tests.rs" || name.ends_with("_tests.rs") || name.starts_with("tests_")
    }

    /// Returns numbered lines of code, without comments and without unit tests at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let code = lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        code.map(|(number, line)| (number + 1, line.trim_start()))
            .filter(|(_, line)| !line.starts_with("//"))
    }

    /// Returns the places in this file that contain one of these words.
    fn places(&self, words: &[&str]) -> Vec<String> {
        let found = self.code().filter(|(_, line)| {
            let names_it =
                |word: &&str| line.match_indices(*word).any(|(at, _)| is_whole(line, at));
            words.iter().any(names_it)
        });
        found
            .map(|(number, line)| format!("{}:{number}: {line}", self.path))
            .collect()
    }
}

/// Returns true if no longer word ends here: `println!` is not `eprintln!`.
fn is_whole(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    before.is_none_or(|before| !before.is_alphanumeric() && before != '_')
}

fn sources() -> Vec<Source> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut open: Vec<PathBuf> = vec![crates.clone()];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let below = path.strip_prefix(&crates).expect("it was found there");
                found.push(Source {
                    path: below.display().to_string(),
                    text,
                });
            }
        }
    }
    assert!(found.len() > 500, "only {} sources", found.len());
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Fails for every place outside the allowed ones, and for every line of the
/// table that allows nothing.
fn check(rule: &str, broken: &[String], allowed: &[&str]) {
    let mut used = BTreeSet::new();
    let mut wrong: Vec<String> = Vec::new();
    for place in broken {
        match allowed.iter().find(|start| place.contains(**start)) {
            Some(start) => {
                used.insert(*start);
            }
            None => wrong.push(place.clone()),
        }
    }
    let idle = allowed.iter().filter(|start| !used.contains(**start));
    wrong.extend(idle.map(|start| format!("{start}: allowed for no reason, remove its line here")));
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

fn product(words: &[&str]) -> Vec<String> {
    let sources = sources();
    let product = sources.iter().filter(|source| source.is_product());
    product.flat_map(|source| source.places(words)).collect()
}

#[test]
fn only_the_command_line_prints() {
    let printing = product(&["println!", "eprintln!", "print!(", "eprint!(", "dbg!"]);
    check("libraries never print", &printing, &["cli/"]);
}

/// What a node supplied must not control an operator's terminal.
#[test]
fn text_for_people_passes_one_place() {
    let printing = product(&["eprintln!", "eprint!("]);
    let printing: Vec<String> = printing
        .into_iter()
        .filter(|place| place.starts_with("cli/"))
        .collect();
    // The word `error` in red, and questions that this program asks.
    let others = [
        "cli/src/failure.rs",
        "cli/src/commands/cluster/recover.rs",
        "cli/src/commands/run.rs",
    ];
    check(
        "use `note!`, which escapes control characters",
        &printing,
        &others,
    );
}

#[test]
fn only_the_command_line_reads_the_environment() {
    let reading = product(&[
        "env::var",
        "env::var_os",
        "env::vars",
        "env::args",
        "env::args_os",
    ]);
    let allowed = [
        "cli/",
        // Facts about the agent's own process.
        "agent/src/facts/identity.rs",
        "agent/src/facts/timezone.rs",
        // Programs are found and started with the environment of their parent.
        "engine/src/types/exec/",
        "engine/src/types/tool.rs",
        "/compiler/worker_process.rs",
        "/git.rs",
    ];
    check("libraries never read the environment", &reading, &allowed);
}

/// Every program starts under the same rules, so a new limit has one place.
#[test]
fn programs_are_started_in_one_place() {
    let words = [
        "process::Command",
        "process::{Command",
        "process::{Child, Command",
    ];
    let allowed = [
        "process/src/",
        // Programs that use our terminal, or outlive us.
        "cli/src/cues/mcollective.rs",
        "cli/src/cues/watch.rs",
        "cli/src/run_hooks.rs",
        "cli/src/ssh/connection.rs",
        // It runs before the program exists.
        "cli/build.rs",
        // Tests.
        "engine/src/types/hostile_parents.rs",
        "engine/src/types/package/test_repository.rs",
    ];
    check(
        "the process crate starts programs",
        &product(&words),
        &allowed,
    );
}

/// Only the monotonic clock measures time: setting the wall clock must not end a wait early or let
/// it last forever. Services get the time from their clock, so that tests and the simulation
/// control it.
#[test]
fn the_wall_clock_is_read_where_allowed() {
    let reading = product(&["Timestamp::now", "SystemTime::now", "Zoned::now"]);
    let allowed = [
        "cli/",
        // A node is not simulated: its reports have its own time.
        "agent/",
        "cluster/src/directory.rs",
        "cluster/src/member/",
        "cluster/src/operator.rs",
        // The signer believes no server's clock.
        "signer/src/serve.rs",
        // The clocks that are passed to others.
        "/src/clock.rs",
        "store/src/embedded/clock.rs",
        // The time of a backup, which affects no decision.
        "engine/src/types/file/backup.rs",
    ];
    check("the wall clock is a parameter", &reading, &allowed);
}

/// Crates whose results depend only on their input.
const PURE: [&str; 7] = [
    "console/", "model/", "module/", "plan/", "puppet/", "query/", "states/",
];

#[test]
fn pure_crates_have_no_clock_no_randomness_and_no_files() {
    let words = [
        "Instant::now",
        "Uuid::new_v4",
        "Uuid::now_v7",
        "rand::",
        "RandomState",
        "std::fs",
        "std::net::Tcp",
        "std::net::Udp",
        "std::process",
        "std::thread",
    ];
    let impure: Vec<String> = product(&words)
        .into_iter()
        .filter(|place| PURE.iter().any(|pure| place.starts_with(pure)))
        .collect();
    // A new signing key needs randomness.
    check("pure crates stay pure", &impure, &["module/src/key.rs"]);
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect();
    check("the first line is a module doc", &silent, &[]);
}

/// All keys are in one place, so that the author of a key finds every other writer of it.
#[test]
fn keys_of_the_store_are_written_in_the_key_module() {
    let sources = sources();
    let is_key_module =
        |source: &Source| source.path.ends_with("/keys.rs") || source.path.contains("/keys/");
    let starts: BTreeSet<String> = sources
        .iter()
        .filter(|source| is_key_module(source))
        .flat_map(Source::code)
        .filter_map(|(_, line)| {
            line.split_once(": &str = \"")?
                .1
                .split_once("/\"")
                .map(|it| it.0)
        })
        .map(|start| format!("\"{start}/"))
        .collect();
    assert!(
        starts.len() > 20,
        "keys are defined otherwise now: {starts:?}"
    );
    let words: Vec<&str> = starts.iter().map(String::as_str).collect();
    let writers = ["control/", "compile/", "cues/", "orchestrate/", "server/"];
    let literals: Vec<String> = sources
        .iter()
        .filter(|source| source.is_product() && !is_key_module(source))
        .filter(|source| writers.iter().any(|it| source.path.starts_with(it)))
        .flat_map(|source| source.places(&words))
        .collect();
    check("keys have names", &literals, &[]);
}

/// Files should have fewer than 400 lines. Longer ones are printed, to be split by idea. Those with
/// more than 600 must be listed.
#[test]
fn large_files_are_listed() {
    let (mut large, mut huge) = (Vec::new(), Vec::new());
    for source in sources().iter().filter(|source| source.is_product()) {
        let lines = source.text.lines().count();
        if lines > 400 {
            large.push(format!("{lines:>5} {}", source.path));
        }
        if lines > 600 {
            huge.push(source.path.clone());
        }
    }
    large.sort();
    println!(
        "{} files have more than 400 lines:\n{}",
        large.len(),
        large.join("\n")
    );
    check("files are small", &huge, HUGE);
}

const HUGE: &[&str] = &["control/src/keys.rs"];

/// `if` is clearer. Tests follow the rule, too. A `match` on a tuple of booleans is fine.
#[test]
fn booleans_are_not_matched() {
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            if is_boolean_arm(line.trim_start()) {
                found.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    check("`if` instead of `match` on a boolean", &found, &[]);
}

fn is_boolean_arm(line: &str) -> bool {
    let rest = line
        .strip_prefix("true ")
        .or_else(|| line.strip_prefix("false "));
    rest.is_some_and(|rest| rest.starts_with("=>") || rest.starts_with("if "))
}

/// Each endpoint is defined once, in `wire`. Handlers and callers use that definition.
#[test]
fn paths_of_the_api_are_written_once() {
    let mut literals = product(&["\"/v1/"]);
    literals.retain(|place| !place.starts_with("wire/src/endpoints/"));
    check("endpoints are defined in wire", &literals, &[]);
}

/// One test binary per crate links only once. Its `main.rs` names every file.
#[test]
fn every_test_file_is_part_of_a_test_binary() {
    let sources = sources();
    let mains = sources.iter().filter_map(|source| {
        let folder = source.path.strip_suffix("/tests/main.rs")?;
        Some((folder, &source.text))
    });
    for (folder, main) in mains {
        let start = format!("{folder}/tests/");
        let files = sources
            .iter()
            .filter_map(|source| source.path.strip_prefix(&start));
        for name in files.filter_map(|file| file.strip_suffix(".rs")) {
            let is_named = name == "main" || main.contains(&format!("mod {name};"));
            assert!(
                name.contains('/') || is_named,
                "{start}{name}.rs is not compiled: name it in main.rs"
            );
        }
    }
}

/// Tests wait for a condition (`bunraku_testkit`), never for a duration.
#[test]
fn tests_do_not_sleep() {
    let sources = sources();
    let sleeping: Vec<String> = sources
        .iter()
        .filter(|source| source.is_test())
        .flat_map(|source| source.places(&["sleep("]))
        .filter(|place| !place.contains("time.sleep(") && !place.contains("\"sleep"))
        .collect();
    let allowed = [
        // The runtime's simulated time, which stands still until all tasks wait.
        "agent/src/runs/tests.rs",
        "control/src/presence/tests.rs",
        // Interrupts something that is not visible from outside.
        "engine/src/types/package/tests_apt.rs",
        // Kills at a random time.
        "store/tests/blobs_crash.rs",
        "store/tests/embedded_crash.rs",
        // Longer than a reader may lag; only the stream's internals know that limit.
        "store/tests/etcd_failover.rs",
        "store/tests/etcd_member.rs",
        // Lets the store become idle.
        "store/tests/embedded_leases.rs",
        // Slow on purpose: something happens meanwhile.
        "cluster/tests/upgrade.rs",
        "store/tests/follow.rs",
        "store/tests/support/writer.rs",
        "wire/tests/wire/support.rs",
    ];
    check("tests wait for conditions", &sleeping, &allowed);
}

/// A hint is a line to paste: it names what this command knows, and no placeholders.
#[test]
fn hints_name_no_placeholders() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.is_product()) {
        for (number, line) in source.text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            // Every second piece between backticks is code.
            let mut commands = line.split('`').skip(1).step_by(2);
            let names_placeholder = commands.any(|command| {
                let mut words = command.split(' ');
                words.next() == Some("bunraku") && words.any(is_placeholder)
            });
            if names_placeholder && !is_comment {
                broken.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    let allowed = [
        // Help, not hints.
        "cli/src/arguments.rs",
        "cli/src/commands/agent.rs",
        // Code does not know the name of its environment.
        "states/src/compile.rs",
        "states/src/sls.rs",
    ];
    check("hints name what is known", &broken, &allowed);
}

fn is_placeholder(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase())
}

/// Logs are for people: `Run(RunRequest {…` and `Some(14211)` are not.
#[test]
fn logs_show_no_debug_output() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.is_product()) {
        for (number, line) in source.text.lines().enumerate() {
            let is_log = ["info!(", "warn!(", "error!("]
                .iter()
                .any(|it| line.contains(it));
            let fields = line.split(['(', ',']).map(str::trim);
            let shows_debug = |field: &str| {
                let value = field.split_once("= ").map_or(field, |(_, value)| value);
                value.starts_with('?') && !is_plain(value)
            };
            if is_log && fields.into_iter().any(shows_debug) {
                broken.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    check("logs show values as people write them", &broken, &[]);
}

/// Returns whether the debug output is what people write: spans, and lists of names.
fn is_plain(value: &str) -> bool {
    let plain = [
        "?wait",
        "?pause",
        "?silence",
        "?triggers",
        "?chain",
        "?pid",
        "?failure",
        "?target.mode",
        "?started.mode",
        "?self.inner.silence",
        "?shared.endpoints",
        "?self.shared.endpoints",
        "?status.servers_waiting",
        "?status.waiting",
    ];
    plain.contains(&value.trim_end_matches(')'))
}
