//! The Puppet modules, with real Puppet.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bunraku_store::testing::EtcdCluster;
use serde_json::json;

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, ended, eventually};

/// Puppet with its own directories, and our binary in its path.
struct Puppet {
    directory: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Puppet {
    fn new(directory: PathBuf, environment: Vec<(&'static str, String)>) -> Self {
        assert!(
            Path::new("/usr/bin/puppet").exists(),
            "/usr/bin/puppet is missing: run `scripts/setup test`, which installs it"
        );
        let programs = directory.join("bin");
        std::fs::create_dir_all(&programs).expect("a directory");
        let own = programs.join("bunraku");
        if !own.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bunraku"), own).expect("a link");
        }
        Self {
            directory,
            environment,
        }
    }

    fn with_server(directory: PathBuf, server: &ServerProcess, credentials: &Path) -> Self {
        let environment = vec![
            ("BUNRAKU_SERVERS", server.address.to_string()),
            ("BUNRAKU_CREDENTIALS", credentials.display().to_string()),
        ];
        Self::new(directory, environment)
    }

    fn programs(&self) -> String {
        self.directory.join("bin").display().to_string()
    }

    fn command(&self, manifest: &str, flags: &[&str]) -> Command {
        let file = self.directory.join(format!("{}.pp", uuid()));
        std::fs::write(&file, manifest).expect("written");
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../puppet-module");
        let mut command = Command::new("/usr/bin/puppet");
        command.args([
            "apply",
            "--detailed-exitcodes",
            "--color=false",
            "--certname",
            "web-1",
        ]);
        for (flag, place) in [("--confdir", "conf"), ("--vardir", "var")] {
            command.arg(flag).arg(self.directory.join(place));
        }
        command
            .arg("--modulepath")
            .arg(modules)
            .args(flags)
            .arg(file);
        command
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.programs()),
            )
            .env("HOME", &self.directory)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    fn apply(&self, manifest: &str, flags: &[&str]) -> Output {
        self.command(manifest, flags).output().expect("puppet runs")
    }

    fn start(&self, manifest: &str) -> Child {
        let mut command = self.command(manifest, &[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("puppet starts")
    }
}

fn uuid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .expect("the kernel draws one")
        .trim()
        .to_owned()
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn sorted(file: &Path) -> Vec<String> {
    let mut lines: Vec<String> = text(file).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_change_that_notifies_a_trigger_starts_one_run_on_each_host_and_nothing_else_does() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let etcd = runtime.block_on(EtcdCluster::start(1));
    let endpoint = etcd.endpoints()[0].clone();
    let site = Site::new();
    let watchers: Vec<Running> = ["lb-1", "lb-2"]
        .iter()
        .map(|host| {
            let mut command = bunraku();
            command.args([
                "trigger", "watch", "--log", "info", "--etcd", &endpoint, "--name", host, "--state",
            ]);
            command.arg(site.path(&format!("{host}.json")));
            let script = format!(
                "echo \"$BUNRAKU_TRIGGERS\" >> {}",
                site.path(&format!("{host}.runs")).display()
            );
            command.args(["--", "sh", "-c", &script]);
            let running = Running::start(command, &site.path(&format!("{host}.log")));
            eventually("it watches", || running.log().contains("watching"));
            running
        })
        .collect();
    let puppet = Puppet::new(site.path("."), Vec::new());
    let manifest = |content: &str| {
        format!(
            "file {{ '{}': ensure => file, content => '{content}', notify => Trigger['refresh load balancers'] }}
             trigger {{ 'refresh load balancers': hosts => ['lb-1', 'lb-2'], provider => 'etcd', endpoints => ['{endpoint}'] }}",
            site.path("conf.txt").display()
        )
    };
    let runs = |host: &str| text(&site.path(&format!("{host}.runs")));
    ended(&puppet.apply(&manifest("one"), &["--noop"]), 0);
    ended(&puppet.apply(&manifest("one"), &[]), 2);
    ended(&puppet.apply(&manifest("one"), &[]), 0);
    for host in ["lb-1", "lb-2"] {
        eventually("it ran", || !runs(host).is_empty());
    }
    // A last cue shows that everything before it was seen.
    let mut last = bunraku();
    last.args([
        "trigger",
        "fire",
        "last",
        "--provider",
        "etcd",
        "--etcd",
        &endpoint,
        "--hosts",
        "lb-1,lb-2",
    ]);
    ended(&last.output().expect("it runs"), 0);
    for host in ["lb-1", "lb-2"] {
        eventually("the last is seen", || runs(host).contains("last"));
        assert_eq!(runs(host), "refresh load balancers\nlast\n", "{host}");
    }
    drop(watchers);
}

#[test]
fn through_the_server_a_trigger_waits_for_hosts_that_are_away() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let mut agent = site.agent("lb-1", &[&server], true);
    server.wait_for("lb-1", "idle");
    assert_eq!(agent.end(), Some(0), "{}", agent.log());
    let puppet = Puppet::with_server(site.path("."), &server, &server.credentials());
    let manifest = "notify { 'changed': notify => Trigger['go'] }
        trigger { 'go': hosts => ['lb-1'], reason => 'because', ttl => 3 }";
    ended(&puppet.apply(manifest, &["--noop"]), 0);
    let pending = || server.json(&["node", "show", "lb-1"])["pending_commands"].clone();
    assert_eq!(pending(), 0);
    ended(&puppet.apply(manifest, &[]), 2);
    assert_eq!(pending(), 1);
    let history = server.json(&["trigger", "history"]);
    assert_eq!(history[0]["reason"], "because");
    let declared = "trigger { 'go': hosts => ['lb-1'] }";
    ended(&puppet.apply(declared, &[]), 0);
    assert_eq!(pending(), 1, "declared and not notified: nothing happens");
    let nobody =
        "notify { 'changed': notify => Trigger['go'] } trigger { 'go': hosts => ['nobody'] }";
    let failed = puppet.apply(nobody, &[]);
    assert!(
        matches!(failed.status.code(), Some(4 | 6)),
        "{}",
        all_output(&failed)
    );
    let wrong = puppet.apply(
        "trigger { 'go': provider => 'etcd', etcd_key => '/k' }",
        &[],
    );
    ended(&wrong, 1);
    assert!(
        all_output(&wrong).contains("need each other"),
        "{}",
        all_output(&wrong)
    );
}

#[test]
fn the_hosts_of_a_trigger_come_from_a_query() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    for node in ["lb-1", "lb-2", "web-1"] {
        let mut agent = site.agent(node, &[&server], true);
        server.wait_for(node, "idle");
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    let puppet = Puppet::with_server(site.path("."), &server, &server.credentials());
    let manifest = "notify { 'changed': notify => Trigger['go'] }
        trigger { 'go': hosts => bunraku::query_nodes('nodes { certname ~ \"^lb-\" }') }";
    ended(&puppet.apply(manifest, &[]), 2);
    let history = server.json(&["trigger", "history"]);
    assert_eq!(history[0]["hosts"], json!(["lb-1", "lb-2"]));
    let pending = |node: &str| server.json(&["node", "show", node])["pending_commands"].clone();
    assert_eq!((pending("lb-2"), pending("web-1")), (json!(1), json!(0)));
    let manifest = "notify { 'changed': notify => Trigger['again'] }
        trigger { 'again': hosts => query_nodes('(\"lb-1\" or \"lb-2\") and not \"lb-2\"') }";
    ended(&puppet.apply(manifest, &[]), 2);
    let history = server.json(&["trigger", "history"]);
    assert_eq!(history[0]["hosts"], json!(["lb-1"]));
    let wrong = "notice(bunraku::query_nodes('resources[type, title] { }'))";
    let wrong = puppet.apply(
        &format!("{wrong} notice(bunraku::query_nodes('nodes {{'))"),
        &[],
    );
    ended(&wrong, 1);
}

/// Returns the layout of the deploy host: ten definitions, and the exports of four hosts.
fn deploy_manifest(definitions: &Path, programs: &str, apps: &[(&str, &str)]) -> String {
    let once = apps.iter().map(|(host, app)| {
        format!(
            "bunraku::once {{ '{app} of {host}': app => '{app}', file => '{}/{app}.json', path => ['{programs}', '/usr/bin', '/bin'] }}\n",
            definitions.display()
        )
    });
    // Everything that is exported here is collected here, as PuppetDB does between hosts.
    once.collect::<String>() + "Exec <| tag == 'bunraku_once' |>\n"
}

const EXPORTED: [(&str, &str); 8] = [
    ("a", "app_1"),
    ("a", "app_2"),
    ("b", "app_1"),
    ("b", "app_2"),
    ("c", "app_1"),
    ("c", "app_3"),
    ("d", "app_1"),
    ("d", "app_4"),
];

fn define_ten(site: &Site, log: &Path, pause: &str) -> PathBuf {
    let definitions = site.path("apps");
    std::fs::create_dir_all(&definitions).expect("a directory");
    for number in 1..=10 {
        let command = format!("echo app_{number} >> {}{pause}", log.display());
        let definition =
            json!({"command": command, "sites": {"chicago": ["a", "b"], "ann-arbor": ["c", "d"]}});
        std::fs::write(
            definitions.join(format!("app_{number}.json")),
            definition.to_string(),
        )
        .expect("written");
    }
    definitions
}

#[test]
fn each_instantiated_app_is_initialised_once_and_none_of_the_others() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let log = site.path("inits");
    let definitions = define_ten(&site, &log, "");
    let puppet = Puppet::with_server(site.path("."), &server, &server.credentials());
    let manifest = deploy_manifest(&definitions, &puppet.programs(), &EXPORTED);
    ended(&puppet.apply(&manifest, &["--noop"]), 0);
    assert_eq!(text(&log), "", "noop does nothing");
    ended(&puppet.apply(&manifest, &[]), 2);
    let four = ["app_1", "app_2", "app_3", "app_4"];
    assert_eq!(sorted(&log), four);
    ended(&puppet.apply(&manifest, &[]), 0);
    assert_eq!(sorted(&log), four, "a second run does none");
    // A failing init fails the run.
    let failing = definitions.join("app_5.json");
    let command = format!("echo app_5 >> {}; exit 3", log.display());
    std::fs::write(failing, json!({ "command": command }).to_string()).expect("written");
    let manifest = deploy_manifest(&definitions, &puppet.programs(), &[("a", "app_5")]);
    let failed = puppet.apply(&manifest, &[]);
    assert!(
        matches!(failed.status.code(), Some(4 | 6)),
        "{}",
        all_output(&failed)
    );
    // It keeps failing until someone looks at it, and does not run again.
    let again = puppet.apply(&manifest, &[]);
    assert!(
        matches!(again.status.code(), Some(4 | 6)),
        "{}",
        all_output(&again)
    );
    assert_eq!(sorted(&log).len(), 5);
}

#[test]
fn puppet_runs_on_several_hosts_at_once_initialise_each_app_once() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let log = site.path("inits");
    let definitions = define_ten(&site, &log, "; sleep 1");
    let runs: Vec<Child> = (0..3)
        .map(|number| {
            let directory = site.path(&format!("host-{number}"));
            let puppet = Puppet::with_server(directory, &server, &server.credentials());
            puppet.start(&deploy_manifest(
                &definitions,
                &puppet.programs(),
                &EXPORTED,
            ))
        })
        .collect();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        assert!(
            matches!(output.status.code(), Some(0 | 2)),
            "{}",
            all_output(&output)
        );
    }
    assert_eq!(sorted(&log), ["app_1", "app_2", "app_3", "app_4"]);
}

#[test]
fn one_node_holds_the_lock_and_every_node_knows_which() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let agents: Vec<Running> = ["db-1", "db-2"]
        .iter()
        .map(|node| site.agent(node, &[&server], true))
        .collect();
    for node in ["db-1", "db-2"] {
        server.wait_for(node, "idle");
    }
    let puppet = |node: &str| {
        Puppet::with_server(
            site.path(&format!("puppet-{node}")),
            &server,
            &site.path(node).join("tls"),
        )
    };
    let (first, second) = (puppet("db-1"), puppet("db-2"));
    let permit = ["lock", "permit", "db-master", "--may-hold", "db-*"];
    let permitted = server.operator(&permit);
    assert_eq!(
        permitted.status.code(),
        Some(0),
        "{}",
        all_output(&permitted)
    );
    let manifest = "lock { 'db-master': ensure => held, lease => '1h', reason => 'primary' }";
    ended(&first.apply(manifest, &["--noop"]), 0);
    assert_eq!(
        server.json(&["lock", "list"])[0]["holders"],
        json!([]),
        "noop takes nothing"
    );
    ended(&first.apply(manifest, &[]), 2);
    ended(&first.apply(manifest, &[]), 0);
    ended(&second.apply(manifest, &[]), 0);
    let told_by = second.apply(
        "notice(\"master is ${bunraku::lock_holder('db-master')}\")
        notice(\"fact ${facts['bunraku_locks']['db-master'][0]}\")",
        &[],
    );
    ended(&told_by, 0);
    assert!(
        all_output(&told_by).contains("master is db-1"),
        "{}",
        all_output(&told_by)
    );
    assert!(
        all_output(&told_by).contains("fact db-1"),
        "{}",
        all_output(&told_by)
    );
    ended(
        &first.apply("lock { 'db-master': ensure => released }", &[]),
        2,
    );
    ended(&second.apply(manifest, &[]), 2);
    assert_eq!(
        server.json(&["lock", "show", "db-master"])["holders"][0]["owner"],
        "db-2"
    );
    drop(agents);
}

#[test]
fn the_watcher_is_a_service_with_the_command_that_was_asked_for() {
    let site = Site::new();
    let puppet = Puppet::new(site.path("."), Vec::new());
    let units = site.path("units");
    std::fs::create_dir_all(&units).expect("a directory");
    let manifest = format!(
        "class {{ 'trigger::watch': run_cmd => 'puppet apply manifest.pp', host => 'lb-1', endpoints => ['http://etcd:2379'], etcd_ca => '/ca.pem', unit_directory => '{}', manage_service => false }}",
        units.display()
    );
    ended(&puppet.apply(&manifest, &[]), 2);
    let unit = text(&units.join("bunraku-trigger-watch.service"));
    let expected = "ExecStart=/usr/bin/bunraku trigger watch --etcd http://etcd:2379 --etcd-api auto --etcd-ca /ca.pem --prefix /puppet_trigger/events --name lb-1 --state /var/lib/bunraku/trigger-watch.json -- puppet apply manifest.pp\n";
    assert!(unit.contains(expected), "{unit}");
    ended(&puppet.apply(&manifest, &[]), 0);
}

#[test]
fn the_classes_of_the_original_module_exist_with_their_parameters() {
    let site = Site::new();
    let puppet = Puppet::new(site.path("."), Vec::new());
    for (class, wanted) in [
        ("trigger: service_name => 'watch'", "watch.service"),
        (
            "trigger::watch::etcd: trigger_hostname => 'lb-1', etcdctl_prefix => '/p/hosts', etcdctl_cmd => '/opt/etcdctl'",
            "bunraku-trigger-watch.service",
        ),
        (
            "trigger::install::etcd: etcd_name => 'e', etcd_ip => '127.0.0.1', version => '0.4.6'",
            "/etc/default/etcd",
        ),
    ] {
        let (name, parameters) = class.split_once(": ").expect("both");
        let manifest = format!("class {{ '{name}': {parameters} }}");
        let planned = puppet.apply(&manifest, &["--noop"]);
        assert!(
            all_output(&planned).contains(wanted),
            "{}",
            all_output(&planned)
        );
    }
}

/// Returns every file of a module with this ending.
fn files(module: &str, ending: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../puppet-module");
    let (mut found, mut open) = (Vec::new(), vec![root.join(module)]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the parameters that a Puppet or Ruby file declares.
fn parameters(file: &Path) -> Vec<String> {
    let word = |text: &str| -> String {
        let plain = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        text.chars().take_while(plain).collect()
    };
    text(file)
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let printed = line.strip_prefix("# @param ");
            let printed = printed.or_else(|| line.strip_prefix("newparam(:"));
            printed
                .or_else(|| line.strip_prefix("newproperty(:"))
                .map(word)
        })
        .collect()
}

#[test]
fn puppet_accepts_every_file_and_the_readme_names_every_parameter() {
    let site = Site::new();
    let puppet = Puppet::new(site.path("."), Vec::new());
    for module in ["bunraku", "trigger"] {
        for (words, ending) in [
            (&["/usr/bin/puppet", "parser", "validate"][..], ".pp"),
            (&["/usr/bin/puppet", "epp", "validate"], ".epp"),
            (&["ruby", "-c"], ".rb"),
        ] {
            let files = files(module, ending);
            if files.is_empty() {
                continue;
            }
            let checked = Command::new(words[0])
                .args(&words[1..])
                .args(&files)
                .env("HOME", &puppet.directory)
                .output()
                .expect("it runs; scripts/setup installs puppet and ruby");
            assert!(checked.status.success(), "{}", all_output(&checked));
        }
        let readme = text(&files(module, "README.md")[0]);
        for file in [files(module, ".pp"), files(module, ".rb")].concat() {
            for parameter in parameters(&file) {
                let (shown, named) = (file.display(), format!("`{parameter}`"));
                assert!(readme.contains(&named), "{named} of {shown} in the README");
            }
        }
    }
    assert!(parameters(&files("trigger", "watch.pp")[0]).len() > 5);
}

#[test]
fn the_metadata_is_what_the_forge_asks_for() {
    for module in ["bunraku", "trigger"] {
        let file = &files(module, "metadata.json")[0];
        let metadata: serde_json::Value =
            serde_json::from_str(&text(file)).expect("metadata in JSON");
        let word = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(word("name"), format!("bunraku-{module}"));
        assert_eq!(word("version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(word("license"), "Apache-2.0");
        assert!((1..=144).contains(&word("summary").len()), "{module}");
        assert!(word("source").starts_with("https://"), "{module}");
        assert!(metadata["dependencies"].is_array(), "{module}");
        assert!(metadata["tags"].is_array(), "{module}");
        let requirement = &metadata["requirements"][0];
        assert_eq!(requirement["name"], "puppet");
        for wanted in ["README.md", "CHANGELOG.md", "LICENSE"] {
            assert_eq!(files(module, wanted).len(), 1, "{module}: {wanted}");
        }
    }
}
