//! Every shell command in `docs/` runs as printed, in order.
//!
//! Shell commands are in blocks that are tagged `sh`, and in lines that begin with `$ ` in other
//! blocks. A comment above a block says what the runner has to know:
//!
//! - `<!-- not run here: REASON -->`: needs something that is not on every machine
//! - `<!-- exits with 3 -->`: the command that ends the block exits with this code
//!
//! A YAML block that begins with `# PATH` is that file. A page may assume more, such as a program of
//! the reader: `tests/documentation/PAGE.sh` creates that. The commands of a page run in one shell, and in one directory per page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Running, ServerProcess, Site, run};

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
    "ssh",
    "from-salt",
    "puppet",
    "puppet-code",
    "puppet-catalogs",
    "benchmarks",
    "releasing",
];

/// Pages that revoke or remove nodes or access. Each has a fleet of its own.
const ALONE: &[&str] = &["getting-started", "security", "access"];

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
    for page in ALONE {
        Fleet::start(&NODES[..1]).run(page);
    }
}

#[test]
fn every_page_with_commands_is_run() {
    let known: BTreeSet<&str> = SHARED.iter().chain(ALONE).copied().collect();
    let mut run = 0;
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
            match block.remark {
                Remark::NotHere(reason) => {
                    assert!(reason.len() > 10, "{name}:{}: give a reason", block.line);
                    left_out.push(format!("{name}:{}: {reason}", block.line));
                }
                _ => run += 1,
            }
        }
    }
    assert!(
        run > left_out.len(),
        "{run} blocks run, and not {left_out:#?}"
    );
}

/// What a comment says about a block.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Remark {
    None,
    NotHere(String),
    Exits(i32),
}

#[derive(Debug)]
struct Block {
    line: usize,
    script: String,
    remark: Remark,
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
        let before = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/documentation")
            .join(format!("{page}.sh"));
        let mut script = std::fs::read_to_string(before).unwrap_or_default();
        for block in blocks(&text) {
            script.push_str(&format!("echo '@@ docs/{page}.md:{}'\n", block.line));
            match block.remark {
                Remark::NotHere(_) => {}
                Remark::None => script.push_str(&format!("{}\n", block.script.trim_end())),
                Remark::Exits(code) => script.push_str(&format!(
                    "set +e\n{}\nended=$?\nset -e\n[ $ended = {code} ] || {{ echo \"it exited with $ended\"; exit 1; }}\n",
                    block.script.trim_end()
                )),
            }
        }
        std::fs::write(here.join("commands"), script).expect("written");
        let output = self
            .shell(&here)
            .args(["-e", "-o", "pipefail", "commands"])
            .output()
            .expect("bash runs");
        assert!(
            output.status.success(),
            "docs/{page}.md: {}",
            crate::support::all_output(&output)
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
        std::fs::create_dir_all(&place).expect("a directory");
        run(&place, "git", &["init", "--quiet", "--initial-branch=main"]);
        std::fs::write(
            place.join("site.yaml"),
            "groups: {all: {nodes: '*', resources: all.yaml}}\n",
        )
        .expect("written");
        std::fs::write(place.join("all.yaml"), "resources:\n  Notify[hello]: {}\n")
            .expect("written");
        for arguments in [
            &["add", "--all"][..],
            &[
                "-c",
                "user.name=test",
                "-c",
                "user.email=test@example.com",
                "commit",
                "--quiet",
                "--message=first",
            ],
            &["branch", "staging"],
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
                <!-- not run here: needs sshd -->\n\n```\n$ f\n```\n```toml\n$ g\n```\n";
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
        ]
    );
}
