//! A control repository, from git to nodes and back: the commands of `docs/puppet.md` as printed,
//! with Debian's real Puppet.
//!
//! The page names `git.example.com` and `web-1.example.com`. Git's own configuration leads the
//! first one to a repository of the test, and the second one is an agent of the test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, eventually_or, run};

const PAGE: &str = include_str!("../../../../docs/puppet.md");
const SECTION: &str = "## From a control repository to a node and back";
/// The site of the page's example: four nodes, of which the first comes before the others.
const LAMP: &str = "applications:
  lamp:
    components:
      db: {node: dev1.devco.net, produces: [sql]}
      web: {nodes: [dev2.devco.net, dev3.devco.net, dev4.devco.net], consumes: [sql]}
";

/// A type with a provider, a function to call on the node, and facts in both forms.
const TYPE: &str = "Puppet::Type.newtype(:site_note) do
  ensurable
  newparam(:path, namevar: true)
  newparam(:text)
end
";
const PROVIDER: &str = "Puppet::Type.type(:site_note).provide(:ruby) do
  def exists?
    File.exist?(resource[:path])
  end

  def create
    File.write(resource[:path], resource[:text])
  end

  def destroy
    File.delete(resource[:path])
  end
end
";
const FUNCTION: &str = "Puppet::Functions.create_function(:'profile::shout') do
  dispatch(:shout) { param 'String', :text }
  def shout(text)
    text.upcase
  end
end
";
const FACT: &str = "Facter.add(:site_role) { setcode { 'frontend' } }\n";
const EXTERNAL_FACT: &str = "#!/bin/sh\necho site_rack=r7\n";

/// A test's control repository, and a clone of it.
struct ControlRepository {
    site: Site,
}

impl ControlRepository {
    fn new() -> Self {
        let repository = Self { site: Site::new() };
        std::fs::create_dir(repository.machine("")).expect("made");
        run(
            &repository.root(),
            "git",
            &["init", "-q", "-b", "main", "clone"],
        );
        let clone = repository.clone();
        for setting in [["user.name", "test"], ["user.email", "test@example.com"]] {
            run(&clone, "git", &["config", setting[0], setting[1]]);
        }
        repository.write("environment.conf", "modulepath = site:modules\n");
        let site = "node 'web-1.example.com', 'db-2.example.com' { include profile::base }
node 'db-1.example.com' { include profile::motd }
";
        repository.write("manifests/site.pp", site);
        let at = |name: &str| repository.machine(name).display().to_string();
        let base = format!(
            "class profile::base {{
  include profile::motd
  site_note {{ '{}': ensure => present, text => \"${{facts['site_role']}} ${{facts['site_rack']}}\\n\" }}
  file {{ '{}': content => Deferred('profile::shout', ['hello']) }}
  file {{ '{}': ensure => directory, recurse => true, source => 'puppet:///modules/profile/tree' }}
}}
",
            at("note"),
            at("shout"),
            at("tree")
        );
        repository.write("site/profile/manifests/base.pp", &base);
        let motd = format!(
            "class profile::motd {{
  file {{ \"{}-${{trusted['certname']}}\": source => 'puppet:///modules/profile/motd' }}
}}
",
            at("motd")
        );
        repository.write("site/profile/manifests/motd.pp", &motd);
        repository.write("site/profile/files/motd", "first\n");
        repository.write("site/profile/files/tree/below/leaf", "leaf\n");
        repository.write("site/profile/lib/puppet/type/site_note.rb", TYPE);
        repository.write(
            "site/profile/lib/puppet/provider/site_note/ruby.rb",
            PROVIDER,
        );
        repository.write(
            "site/profile/lib/puppet/functions/profile/shout.rb",
            FUNCTION,
        );
        repository.write("site/profile/lib/facter/site_role.rb", FACT);
        repository.write("site/profile/facts.d/rack.sh", EXTERNAL_FACT);
        let executable = std::fs::Permissions::from_mode(0o755);
        let fact = clone.join("site/profile/facts.d/rack.sh");
        std::fs::set_permissions(fact, executable).expect("changed");
        repository.commit("first");
        let bare = "git.example.com/puppet/control-repo.git";
        std::fs::create_dir_all(repository.site.path("git.example.com/puppet")).expect("made");
        run(
            &repository.root(),
            "git",
            &["clone", "-q", "--bare", "clone", bare],
        );
        let url = repository.site.path(bare).display().to_string();
        run(&clone, "git", &["remote", "add", "origin", &url]);
        run(&clone, "git", &["push", "-q", "-u", "origin", "main"]);
        repository
    }

    fn root(&self) -> PathBuf {
        self.site.path("")
    }

    fn clone(&self) -> PathBuf {
        self.site.path("clone")
    }

    /// Returns the path of something that catalogs manage.
    fn machine(&self, name: &str) -> PathBuf {
        self.site.path("machine").join(name)
    }

    fn managed(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.machine(name)).ok()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.clone().join(name);
        std::fs::create_dir_all(path.parent().expect("below")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn commit(&self, message: &str) {
        run(&self.clone(), "git", &["add", "-A"]);
        run(&self.clone(), "git", &["commit", "-q", "-m", message]);
    }

    fn server(&self) -> ServerProcess {
        let here = format!(
            "url.{}.insteadOf",
            self.site.path("git.example.com").display()
        );
        let environment = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", here.as_str()),
            ("GIT_CONFIG_VALUE_0", "https://git.example.com"),
        ];
        self.site.server_with("server", 0, &[], &environment)
    }

    /// Starts an agent whose Puppet, if it uses one, has directories of its own.
    fn agent(&self, server: &ServerProcess, node: &str, by_puppet: bool) -> Running {
        let mut config = "[agent]\nrun_interval = \"0s\"\nexternal_facts = []\n".to_owned();
        if by_puppet {
            config.push_str("run_method = \"puppet\"\n");
        }
        config.push_str("[agent.puppet]\nform = \"apply\"\nreleased = true\n");
        self.start_agent(server, node, config)
    }

    /// Starts an agent as the page sets up a node that keeps its own Puppet code. Its Puppet needs
    /// no server here.
    fn agent_with_manifest(&self, server: &ServerProcess, node: &str, manifest: &str) -> Running {
        let file = self.site.path(&format!("{node}.pp"));
        std::fs::write(&file, manifest).expect("written");
        let page = block("## Set up a node", "toml");
        let form = format!(
            "form = \"apply\"\nmanifest = {file:?}\narguments = [\"--modulepath\", {:?}]\n",
            self.site.path("no-modules")
        );
        let config = page.lines().map(|line| {
            let line = if line.starts_with("form = ") {
                &form
            } else {
                line
            };
            format!("{line}\n")
        });
        self.start_agent(server, node, config.collect())
    }

    /// Starts an agent whose Puppet has directories of its own.
    fn start_agent(&self, server: &ServerProcess, node: &str, mut config: String) -> Running {
        for name in ["confdir", "vardir", "publicdir", "ssldir"] {
            let path = self.site.path(&format!("{node}.puppet")).join(name);
            std::fs::create_dir_all(&path).expect("made");
            config.push_str(&format!("{name} = {path:?}\n"));
        }
        let path = self.site.path(&format!("{node}.toml"));
        std::fs::write(&path, config).expect("written");
        let flags = ["--config", path.to_str().expect("text")];
        let agent = self.site.agent_with(node, &[server], true, &flags);
        server.wait_for(node, "idle");
        agent
    }

    /// Disables a node's Puppet, as an administrator does.
    fn disable(&self, node: &str, reason: &str) {
        let mut command = Command::new("puppet");
        command.args(["agent", "--disable", reason]);
        for name in ["confdir", "vardir", "publicdir", "ssldir"] {
            let path = self.site.path(&format!("{node}.puppet")).join(name);
            command.arg(format!("--{name}")).arg(path);
        }
        let output = command.output().expect("puppet runs");
        assert!(output.status.success(), "{}", all_output(&output));
    }

    /// Runs a block of the page, which must succeed.
    fn run_block(&self, server: &ServerProcess, block: &str) -> Output {
        let output = self.try_block(server, block);
        let agent = self.site.path("web-1.example.com.log");
        let agent = std::fs::read_to_string(agent).unwrap_or_default();
        assert!(
            output.status.success(),
            "{block}\n{}\n{agent}",
            all_output(&output)
        );
        output
    }

    /// Runs a block of the page, in the clone and with `bunraku` in the path.
    fn try_block(&self, server: &ServerProcess, block: &str) -> Output {
        let programs = self.site.path("bin");
        if !programs.exists() {
            std::fs::create_dir(&programs).expect("made");
            let program = bunraku().get_program().to_owned();
            std::os::unix::fs::symlink(program, programs.join("bunraku")).expect("linked");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(self.clone())
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("HOME", self.root())
            .env("BUNRAKU_SERVERS", server.address.to_string())
            .env("BUNRAKU_CREDENTIALS", server.credentials())
            .output()
            .expect("bash runs")
    }
}

/// Returns the section with this heading.
fn section(heading: &str) -> &'static str {
    let start = PAGE.find(heading).expect("the section exists") + heading.len();
    let rest = &PAGE[start..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// Returns the first block of a section with this tag.
fn block(heading: &str, tag: &str) -> &'static str {
    let rest = section(heading).split_once(&format!("```{tag}\n"));
    let (_, rest) = rest.expect("the section has such a block");
    rest.split("```").next().unwrap_or_default()
}

/// Returns the shell blocks of the section, by their headings.
fn blocks() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in section(SECTION).split("\n### ").skip(1) {
        let heading = part.lines().next().unwrap_or_default().to_owned();
        for block in part.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            found.push((heading.clone(), block.to_owned()));
        }
    }
    found
}

/// Waits until the newest catalog of a node contains a text.
fn wait_for_catalog(server: &ServerProcess, node: &str, text: &str) {
    let shown = || server.operator(&["catalog", "show", node, "--json"]);
    let has_it = || String::from_utf8_lossy(&shown().stdout).contains(text);
    eventually_or(&format!("the catalog of {node} has {text}"), has_it, || {
        all_output(&shown())
    });
}

fn resources(server: &ServerProcess, node: &str, type_name: &str) -> usize {
    let query = format!("resources {{ certname = \"{node}\" and type = \"{type_name}\" }}");
    let found = server.json(&["query", &query]);
    let rows = found.as_array().or_else(|| found["rows"].as_array());
    rows.map_or(0, Vec::len)
}

fn directories(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.path().is_dir());
    directories
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn every_command_of_the_page_works_as_printed_and_both_ways_apply_the_catalog() {
    let control = ControlRepository::new();
    let server = control.server();
    let _web = control.agent(&server, "web-1.example.com", true);
    let _native = control.agent(&server, "db-1.example.com", false);
    let _refusing = control.agent(&server, "db-2.example.com", false);
    let blocks = blocks();
    let headings: Vec<&str> = blocks.iter().map(|(heading, _)| heading.as_str()).collect();
    assert_eq!(
        headings,
        [
            "Deploy the code",
            "Compare with plain Puppet",
            "Release and apply",
            "Change the code",
            "Go back"
        ]
    );
    for (heading, block) in &blocks {
        match heading.as_str() {
            "Change the code" => {
                control.write("site/profile/files/motd", "second\n");
                // The plugins change as well: a fact is removed, and a type behaves differently.
                std::fs::remove_file(control.clone().join("site/profile/facts.d/rack.sh"))
                    .expect("removed");
                let provider = PROVIDER.replace("resource[:text])", "'v2 ' + resource[:text])");
                control.write(
                    "site/profile/lib/puppet/provider/site_note/ruby.rb",
                    &provider,
                );
                control.commit("second");
                std::fs::remove_file(control.machine("note")).expect("removed");
            }
            "Go back" => std::fs::remove_file(control.machine("note")).expect("removed"),
            _ => {}
        }
        let output = control.run_block(&server, block);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match heading.as_str() {
            "Deploy the code" => {
                // Facts of the commit's modules reach the compile.
                wait_for_catalog(&server, "web-1.example.com", "frontend r7");
            }
            "Compare with plain Puppet" => {
                assert!(text.contains("equal to plain Puppet"), "{text}");
            }
            "Release and apply" => {
                assert_eq!(control.managed("note").as_deref(), Some("frontend r7\n"));
                assert_eq!(control.managed("shout").as_deref(), Some("HELLO"));
                assert_eq!(
                    control.managed("tree/below/leaf").as_deref(),
                    Some("leaf\n")
                );
                let motd = control.managed("motd-web-1.example.com");
                assert_eq!(motd.as_deref(), Some("first\n"));
                assert_eq!(resources(&server, "web-1.example.com", "Site_note"), 1);
            }
            "Change the code" => {
                let motd = control.managed("motd-web-1.example.com");
                assert_eq!(motd.as_deref(), Some("second\n"));
                // The catalog's own provider was used. The facts are the old ones until the node
                // collects them again.
                let note = control.managed("note").expect("a note");
                assert!(note.starts_with("v2 frontend"), "{note}");
            }
            "Go back" => {
                let motd = control.managed("motd-web-1.example.com");
                assert_eq!(motd.as_deref(), Some("first\n"));
                let note = control.managed("note");
                assert_eq!(note.as_deref(), Some("frontend r7\n"), "the old provider");
            }
            other => panic!("unexpected heading {other}"),
        }
    }
    a_removed_fact_disappears(&control, &server);
    octocatalog_diff_reads_catalogs(&control, &server);
    the_engine_applies_catalogs_whose_types_it_knows(&control, &server);
    exit_codes_say_whether_catalogs_are_equal(&control, &server);
}

#[test]
fn nodes_that_keep_their_own_puppet_code_run_as_printed() {
    let control = ControlRepository::new();
    let server = control.server();
    let file = |name: &str| control.machine(name).display().to_string();
    let content = |node: &str| format!("file {{ '{}': content => \"{node}\\n\" }}", file(node));
    let failing = format!(
        "exec {{ '/usr/bin/test -d {}': }} -> {}",
        file("missing"),
        content("dev3.devco.net")
    );
    let nodes = [
        ("web-1.example.com", content("web-1.example.com")),
        ("dev1.devco.net", content("dev1.devco.net")),
        ("dev2.devco.net", content("dev2.devco.net")),
        ("dev3.devco.net", failing),
        ("dev4.devco.net", content("dev4.devco.net")),
    ];
    let start =
        |(node, manifest): &(&str, String)| control.agent_with_manifest(&server, node, manifest);
    let _agents: Vec<Running> = nodes.iter().map(start).collect();
    let site = "application shop() { shop::web { $name: } }
define shop::web() { }
site { shop { 's': nodes => { Node['web-1.example.com'] => Shop::Web['s'] } } }
";
    control.write("site.pp", site);
    control.run_block(&server, block("## Set up a node", "sh"));
    let written = control.managed("web-1.example.com");
    assert_eq!(written.as_deref(), Some("web-1.example.com\n"));

    control.write("lamp.yaml", LAMP);
    control.disable("dev4.devco.net", "disk swap");
    let example = section("## How a run can end").lines();
    let commands: Vec<&str> = example.filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let ran = control.try_block(&server, commands[0]);
    let text = all_output(&ran);
    assert_eq!(ran.status.code(), Some(3), "{text}");
    assert!(text.contains("✓ dev2.devco.net"), "{text}");
    assert!(text.contains("✗ dev3.devco.net"), "{text}");
    let disabled = "dev4.devco.net  disabled: Puppet is disabled on this node: disk swap";
    assert!(text.contains(disabled), "{text}");
    let report = all_output(&control.run_block(&server, commands[1]));
    assert!(report.contains("✗ Exec["), "{report}");
    assert!(report.contains("- File["), "{report}");
}

fn a_removed_fact_disappears(control: &ControlRepository, server: &ServerProcess) {
    let node = "web-1.example.com";
    let refreshed = server.operator(&["facts", "refresh", node, "--timeout", "5m"]);
    assert!(refreshed.status.success(), "{}", all_output(&refreshed));
    let shown = || server.json(&["facts", "show", node]);
    let is_gone = || shown().get("site_rack").is_none();
    eventually_or("the fact is gone", is_gone, || shown().to_string());
    let kept = shown();
    assert_eq!(
        kept.get("site_role").and_then(Value::as_str),
        Some("frontend"),
        "{kept}"
    );
    // The node is compiled again, without the fact.
    let newest = || all_output(&server.operator(&["catalog", "show", node, "--json"]));
    let is_compiled = || {
        let newest = newest();
        newest.contains("frontend") && !newest.contains("frontend r7")
    };
    eventually_or("a catalog without the fact", is_compiled, newest);
    let plugins = control.site.path(node).join("plugins");
    let kept = directories(&plugins);
    assert!((1..=2).contains(&kept.len()), "{kept:?}");
    assert!(
        kept.iter().all(|name| !name.starts_with("incoming")),
        "{kept:?}"
    );
}

fn the_engine_applies_catalogs_whose_types_it_knows(
    control: &ControlRepository,
    server: &ServerProcess,
) {
    let native = server.operator(&["node", "run", "db-1.example.com", "--wait"]);
    assert!(native.status.success(), "{}", all_output(&native));
    let motd = control.managed("motd-db-1.example.com");
    assert_eq!(motd.as_deref(), Some("first\n"));
    assert_eq!(resources(server, "db-1.example.com", "File"), 1);
    let refused = server.operator(&["node", "run", "db-2.example.com", "--wait"]);
    assert_eq!(refused.status.code(), Some(3), "{}", all_output(&refused));
    let text = all_output(&refused);
    assert!(text.contains("Site_note (1 resource)"), "{text}");
    assert!(text.contains("run_method = \"puppet\""), "{text}");
    assert_eq!(
        control.managed("motd-db-2.example.com"),
        None,
        "nothing is applied"
    );
}

/// Compares the newest catalog with the released one, which is older after the rollback.
fn octocatalog_diff_reads_catalogs(control: &ControlRepository, server: &ServerProcess) {
    let save = |name: &str, flags: &[&str]| {
        let arguments = [&["catalog", "show", "web-1.example.com", "--json"], flags].concat();
        let shown = server.operator(&arguments);
        assert!(shown.status.success(), "{}", all_output(&shown));
        let path = control.site.path(name);
        std::fs::write(&path, &shown.stdout).expect("written");
        path
    };
    let (newest, released) = (
        save("newest.json", &[]),
        save("released.json", &["--released"]),
    );
    let differences = |from: &Path, to: &Path| {
        Command::new("octocatalog-diff")
            .arg(format!("--from-catalog={}", from.display()))
            .arg(format!("--to-catalog={}", to.display()))
            .args(["--no-color", "--no-compare-file-text"])
            .current_dir(control.root())
            .env("HOME", control.root())
            .output()
            .expect("octocatalog-diff runs; scripts/setup test installs it")
    };
    let none = differences(&released, &released);
    assert_eq!(none.status.code(), Some(0), "{}", all_output(&none));
    let some = differences(&released, &newest);
    assert_eq!(some.status.code(), Some(2), "{}", all_output(&some));
    let text = all_output(&some);
    assert!(text.contains("Site_note["), "{text}");
}

fn exit_codes_say_whether_catalogs_are_equal(control: &ControlRepository, server: &ServerProcess) {
    let node = "db-1.example.com";
    let compare = |node: &str| server.operator(&["catalog", "compare", "--puppet", node]);
    let equal = compare(node);
    assert_eq!(equal.status.code(), Some(0), "{}", all_output(&equal));
    // Code that depends on the moment gives two different catalogs.
    let file = control.machine("now").display().to_string();
    let content = "inline_template('<%= Process.clock_gettime(1).to_s %>')";
    let random = format!("class profile::motd {{ file {{ '{file}': content => {content} }} }}\n");
    control.write("site/profile/manifests/motd.pp", &random);
    control.commit("random");
    run(&control.clone(), "git", &["push", "-q"]);
    let deployed = server.operator(&["environment", "deploy", "production", "--wait"]);
    assert!(deployed.status.success(), "{}", all_output(&deployed));
    let different = compare(node);
    assert_eq!(
        different.status.code(),
        Some(2),
        "{}",
        all_output(&different)
    );
    assert!(
        all_output(&different).contains(&format!("File[{file}]")),
        "{}",
        all_output(&different)
    );
    let unknown = compare("nobody.example.com");
    assert_eq!(unknown.status.code(), Some(1), "{}", all_output(&unknown));
    for (node, code) in [(node, 0), ("nobody.example.com", 1)] {
        let shown = server.operator(&["catalog", "show", node]);
        assert_eq!(shown.status.code(), Some(code), "{}", all_output(&shown));
    }
}
