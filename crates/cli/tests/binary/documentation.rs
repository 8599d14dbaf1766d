//! Every shell command in `docs/` runs as printed, in order.
//!
//! Shell commands are in blocks that are tagged `sh`, and in lines that begin with `$ ` in other
//! blocks. A comment above a block says what the runner has to know:
//!
//! - `<!-- not run here: REASON -->`: needs something that is not on every machine
//! - `<!-- run with Puppet -->`: tests with real Puppet run it (`puppet_page.rs`, `puppet_server.rs`)
//! - `<!-- exits with 3 -->`: the command that ends the block exits with this code
//! - `<!-- runs until it is stopped, prints TEXT -->`: each line of the block is started, and keeps
//!   running until the end of the page; the next one starts when it has printed this text
//!
//! A YAML block that begins with `# PATH` is that file. A page may assume more, such as a program of
//! the reader: `tests/documentation/PAGE.sh` creates that. What a reader has to fill in, such as a
//! token or an id, `tests/documentation/PAGE.sed` fills in. The commands of a page run in one shell,
//! and in one directory per page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ONE_GROUP, Running, ServerProcess, Site, all_output, run, write_and_commit};

/// The pages that share one fleet, in the order in which people read them.
const SHARED: &[&str] = &[
    "environments",
    "catalogs",
    "releases",
    "agent",
    "facts",
    "reports",
    "queries",
    "compilers",
    "exports",
    "plan",
    "runs",
    "triggers",
    "reactors",
    "locks",
    "once",
    "modules",
    "states",
    "configuration",
    "contexts",
    "json",
    "api",
    "audit",
    "console",
    "operating",
    "cluster",
    "storage",
    "ssh",
    "from-salt",
    "puppet",
    "puppet-code",
    "puppet-catalogs",
    "benchmarks",
    "releasing",
];

/// Pages that revoke or remove nodes or access. Each has a fleet of its own, with these nodes.
const ALONE: &[(&str, &[&str])] = &[
    ("getting-started", &[]),
    ("security", &["web-1.example.com"]),
    ("access", &["web-1.example.com"]),
];

/// The most blocks that need something that is not on every machine.
const MOST_NOT_RUN: usize = 22;

/// Defines `start TEXT COMMAND` and `at_exit COMMAND`. Each background command is in a process group
/// of its own, and ends with the page.
const FUNCTIONS: &str = r#"
endings=()
at_exit() { endings+=("$1"); }
trap 'set +e; for ending in "${endings[@]}"; do eval "$ending"; done' EXIT
start() {
    local number=${#endings[@]}
    set -m
    (eval "$2") > "background.$number" 2>&1 < /dev/null &
    set +m
    at_exit "kill -- -$! 2> /dev/null"
    until grep -q -e "$1" "background.$number"; do
        kill -0 -- "-$!" 2> /dev/null || { cat "background.$number"; echo "it ended: $2"; exit 1; }
        sleep 0.1
    done
}
"#;

const NODES: &[&str] = &[
    "web-1.example.com",
    "web-2.example.com",
    "db-1.example.com",
    "lb01.example.com",
    "lb02.example.com",
];

#[test]
fn every_command_of_the_documentation_runs_on_one_fleet() {
    let fleet = Fleet::start(NODES);
    for page in SHARED {
        fleet.run(page);
    }
}

#[test]
fn every_command_that_removes_nodes_runs_too() {
    for (page, nodes) in ALONE {
        Fleet::start(nodes).run(page);
    }
}

#[test]
fn every_page_with_commands_is_run() {
    let alone = ALONE.iter().map(|(page, _)| page);
    let known: BTreeSet<&str> = SHARED.iter().chain(alone).copied().collect();
    let mut left_out = Vec::new();
    for entry in std::fs::read_dir(docs()).expect("docs exists") {
        let path = entry.expect("readable").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(name) = name.strip_suffix(".md") else {
            continue;
        };
        let text = std::fs::read_to_string(&path).expect("pages are text");
        let blocks = blocks(&text);
        assert!(
            blocks.is_empty() || known.contains(name),
            "name {name} in SHARED or ALONE"
        );
        for block in blocks {
            if let Remark::NotHere(reason) = block.remark {
                assert!(reason.len() > 10, "{name}:{}: give a reason", block.line);
                left_out.push(format!("{name}:{}: {reason}", block.line));
            }
        }
    }
    assert!(
        left_out.len() <= MOST_NOT_RUN,
        "more than {MOST_NOT_RUN} blocks are not run: {left_out:#?}"
    );
}

/// What a comment says about a block.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Remark {
    None,
    NotHere(String),
    WithPuppet,
    Exits(i32),
    /// Keeps running; the text that it prints when it is ready.
    KeepsRunning(String),
}

#[derive(Debug)]
struct Block {
    line: usize,
    script: String,
    remark: Remark,
}

impl Block {
    /// Returns the commands as a part of a script that ends with an error if one of them fails.
    fn checked_script(&self) -> String {
        let script = self.script.trim_end();
        match &self.remark {
            Remark::NotHere(_) | Remark::WithPuppet => String::new(),
            Remark::None => format!("{script}\n"),
            Remark::Exits(code) => format!(
                "set +e\n{script}\nended=$?\nset -e\n\
                 [ $ended = {code} ] || {{ echo \"it exited with $ended\"; exit 1; }}\n"
            ),
            Remark::KeepsRunning(text) => {
                let commands = script.lines().filter(|line| !line.trim().is_empty());
                let start = |command: &str| {
                    let command = command.trim().replace('\'', r"'\''");
                    format!("start '{text}' '{command}'\n")
                };
                commands.map(start).collect()
            }
        }
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the shell commands of a page.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut remark = Remark::None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(tag) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, line)| line);
            let inside: Vec<&str> = inside
                .take_while(|line| !line.trim_start().starts_with("```"))
                .collect();
            let script = match tag {
                "sh" => inside.join("\n"),
                "" | "console" => typed(&inside),
                _ => String::new(),
            };
            if !script.trim().is_empty() {
                blocks.push(Block {
                    line: number + 1,
                    script,
                    remark: remark.clone(),
                });
            }
            remark = Remark::None;
        } else if !line.trim().is_empty() {
            remark = remark_of(line);
        }
    }
    blocks
}

/// Returns the files that a page shows, with their paths.
fn files(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("\n```yaml\n# ").skip(1);
    let files = blocks.filter_map(|block| {
        let block = block.split("\n```").next()?;
        let (path, content) = block.split_once('\n')?;
        let is_path = !path.contains(' ') && path.contains('.');
        is_path.then_some((path, content))
    });
    files.collect()
}

/// Returns the lines that a user types: after `$ `, and those that continue them.
fn typed(lines: &[&str]) -> String {
    let mut script = String::new();
    let mut continues = false;
    for line in lines {
        let line = line.trim_start();
        let Some(command) = line.strip_prefix("$ ").or(continues.then_some(line)) else {
            continue;
        };
        script.push_str(command);
        script.push('\n');
        continues = command.ends_with('\\');
    }
    script
}

fn remark_of(line: &str) -> Remark {
    let comment = line.trim().strip_prefix("<!-- ");
    let Some(comment) = comment.and_then(|it| it.strip_suffix(" -->")) else {
        return Remark::None;
    };
    if let Some(reason) = comment.strip_prefix("not run here: ") {
        return Remark::NotHere(reason.to_owned());
    }
    if let Some(text) = comment.strip_prefix("runs until it is stopped, prints ") {
        return Remark::KeepsRunning(text.to_owned());
    }
    if comment == "run with Puppet" {
        return Remark::WithPuppet;
    }
    match comment.strip_prefix("exits with ").map(str::parse) {
        Some(Ok(code)) => Remark::Exits(code),
        _ => Remark::None,
    }
}

/// A server, nodes, and the git repositories that the pages name.
struct Fleet {
    server: ServerProcess,
    _agents: Vec<Running>,
    site: Site,
}

impl Fleet {
    fn start(nodes: &[&str]) -> Self {
        let site = Site::new();
        let here = site.path("");
        create_repositories(&site);
        let git = site.path("gitconfig");
        let git = git.to_str().expect("a path");
        let alias = ["--name-alias", "bunraku.example.com"];
        let server = site.server_with("server", 0, &alias, &[("GIT_CONFIG_GLOBAL", git)]);
        let agents = nodes.iter().map(|node| {
            let facts = site.path(&format!("facts/{node}"));
            std::fs::create_dir_all(&facts).expect("a directory");
            std::fs::write(facts.join("role.yaml"), format!("role: {}\n", role(node)))
                .expect("written");
            let facts = facts.to_str().expect("a path");
            site.agent_with(node, &[&server], true, &["--external-facts", facts])
        });
        let agents: Vec<Running> = agents.collect();
        for node in nodes {
            server.wait_for_facts(node);
        }
        let programs = here.join("programs");
        std::fs::create_dir(&programs).expect("a directory");
        let program = crate::support::bunraku().get_program().to_owned();
        std::os::unix::fs::symlink(program, programs.join("bunraku")).expect("a link");
        Self {
            server,
            _agents: agents,
            site,
        }
    }

    /// Runs all commands of a page, in a directory of its own.
    fn run(&self, page: &str) {
        let text = std::fs::read_to_string(docs().join(format!("{page}.md")));
        let Ok(text) = text else { return };
        let here = self.site.path("pages").join(page);
        std::fs::create_dir_all(&here).expect("a directory");
        let root = docs().join("..");
        for name in ["examples", "scripts", "puppet-module"] {
            let link = std::os::unix::fs::symlink(root.join(name), here.join(name));
            link.expect("a link");
        }
        for (path, content) in files(&text) {
            let path = here.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, content).expect("written");
        }
        let support = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documentation");
        let before = std::fs::read_to_string(support.join(format!("{page}.sh")));
        let mut script = String::new();
        for block in blocks(&text) {
            script.push_str(&format!("echo '@@ docs/{page}.md:{}'\n", block.line));
            script.push_str(&block.checked_script());
        }
        let script = filled_in(&support.join(format!("{page}.sed")), script);
        let script = format!("{FUNCTIONS}{}{script}", before.unwrap_or_default());
        std::fs::write(here.join("commands"), script).expect("written");
        let output = self
            .shell(&here)
            .args(["-e", "-o", "pipefail", "commands"])
            .output()
            .expect("bash runs");
        assert!(
            output.status.success(),
            "docs/{page}.md: {}",
            all_output(&output)
        );
    }

    fn shell(&self, here: &Path) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.site.path("programs");
        let mut shell = Command::new("timeout");
        shell
            .args(["600", "bash"])
            .current_dir(here)
            .env_clear()
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("HOME", self.site.path("home"))
            .env("GIT_CONFIG_GLOBAL", self.site.path("gitconfig"))
            .env("GIT", self.site.path("git"))
            .env("FACTS", self.site.path("facts"))
            .env("BUNRAKU_SERVERS", self.server.address.to_string())
            .env("BUNRAKU_CREDENTIALS", self.server.credentials())
            .env("BUNRAKU_STATE_DIR", here.join("state"))
            .env("BUNRAKU_MODULE_KEYS", here.join("module-keys"))
            .env("BUNRAKU_DATA_DIR", here.join("data"))
            .stdin(std::process::Stdio::null());
        shell
    }
}

/// Fills in what readers have to fill in, with a script for `sed` if the page has one.
fn filled_in(by: &Path, script: String) -> String {
    if !by.exists() {
        return script;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &script).expect("written");
    let mut sed = Command::new("sed");
    let output = sed.arg("-f").arg(by).arg(file.path()).output();
    let output = output.expect("sed runs");
    assert!(output.status.success(), "{}", all_output(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the role that the pages give a node.
fn role(node: &str) -> &'static str {
    match node {
        "lb01.example.com" | "lb02.example.com" => "loadbalancer",
        "web-2.example.com" => "build",
        _ => "web",
    }
}

/// Creates the repositories of `git.example.com`, which git then finds here.
fn create_repositories(site: &Site) {
    let git = site.path("git");
    for repository in [
        "infra/code.git",
        "infra/control.git",
        "puppet/control-repo.git",
    ] {
        let place = git.join(repository);
        let all = ("all.yaml", "resources:\n  Notify[hello]: {}\n");
        write_and_commit(&place, &[ONE_GROUP, all]);
        for arguments in [
            &["branch", "staging"][..],
            &["branch", "feature/dns"],
            &["tag", "v1.4.0"],
        ] {
            run(&place, "git", arguments);
        }
    }
    let config = format!(
        "[url \"file://{}/\"]\n\tinsteadOf = https://git.example.com/\n[user]\n\tname = test\n\temail = test@example.com\n",
        git.display()
    );
    std::fs::write(site.path("gitconfig"), config).expect("written");
}

#[test]
fn commands_are_found_with_their_remarks() {
    let page = "text\n```sh\na\nb\n```\n<!-- exits with 3 -->\n```console\n$ c \\\n  d\nprinted\n$ e\n```\n\
                <!-- not run here: needs sshd -->\n\n```\n$ f\n```\n```toml\n$ g\n```\n\
                <!-- runs until it is stopped, prints up -->\n```sh\nh\ni 'j'\n```\n";
    let found: Vec<String> = blocks(page)
        .iter()
        .map(|block| format!("{} {:?} {:?}", block.line, block.script, block.remark))
        .collect();
    assert_eq!(
        found,
        [
            r#"2 "a\nb" None"#,
            r#"7 "c \\\nd\ne\n" Exits(3)"#,
            r#"15 "f\n" NotHere("needs sshd")"#,
            r#"22 "h\ni 'j'" KeepsRunning("up")"#,
        ]
    );
    let started = blocks(page).pop().expect("a block").checked_script();
    assert_eq!(started, "start 'up' 'h'\nstart 'up' 'i '\\''j'\\'''\n");
}
