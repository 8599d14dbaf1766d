//! Exported resources between real nodes: from manifests to a real Puppet run, and from states.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Running, ServerProcess, Site, all_output, eventually_or, write_and_commit};

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("below something")).expect("a directory");
    std::fs::write(path, text).expect("written");
}

/// Starts a server that compiles again soon after an answer has changed.
fn server(site: &Site) -> ServerProcess {
    let config = site.path("server.toml");
    write(&config, "[server.compile]\nanswer_quiet = \"500ms\"\n");
    site.server("server", 0, &["--config", config.to_str().expect("text")])
}

/// Starts an agent whose facts say that it is another machine.
fn agent(site: &Site, server: &ServerProcess, node: &str, more: &str) -> Running {
    let facts = site.path(&format!("{node}.facts"));
    write(
        &facts.join("host.json"),
        &json!({"hostname": node}).to_string(),
    );
    let config = site.path(&format!("{node}.toml"));
    let text = format!("[agent]\nrun_interval = \"0s\"\nexternal_facts = [{facts:?}]\n{more}");
    write(&config, &text);
    let flags = ["--config", config.to_str().expect("text")];
    let agent = site.agent_with(node, &[server], true, &flags);
    server.wait_for(node, "idle");
    eventually_or(
        &format!("facts of {node}"),
        || {
            let shown = server.operator(&["facts", "show", node, "hostname"]);
            shown.stdout == format!("{node}\n").into_bytes()
        },
        || agent.log(),
    );
    agent
}

fn deploy(server: &ServerProcess, code: &Path) {
    write_and_commit(code, &[]);
    let url = format!("file://{}", code.display());
    for command in [
        &["environment", "add", "production", &url][..],
        &["environment", "deploy", "production", "--wait"],
    ] {
        let done = server.operator(command);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    }
}

/// Waits until a node's compiled catalog has exactly these resources of a type.
fn until_compiled(server: &ServerProcess, node: &str, kind: &str, expected: &[&str]) {
    let found = || -> Vec<String> {
        let shown = server.operator(&["catalog", "show", node, "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let resources = shown["resources"].as_array().cloned().unwrap_or_default();
        let mut titles: Vec<String> = (resources.iter())
            .filter(|one| one["type"] == kind)
            .filter_map(|one| Some(one["title"].as_str()?.to_owned()))
            .collect();
        titles.sort();
        titles
    };
    eventually_or(
        &format!("{kind} of {node}"),
        || found() == expected,
        || {
            let shown = server.operator(&["catalog", "show", node]);
            format!("{:?}\n{}", found(), all_output(&shown))
        },
    );
}

fn release(server: &ServerProcess) {
    for command in [
        &["release", "create", "production"][..],
        &["release", "show", "production", "--wait"],
    ] {
        let done = server.operator(command);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    }
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The decision that once tasks come from: every host with an instance exports an `exec`, and the
/// deploy host collects them all.
fn instances(server: &ServerProcess, definitions: &Path, programs: &Path) -> String {
    format!(
        r#"
define named_instance() {{
  @@exec {{ "${{title}} ${{facts['hostname']}} init":
    command     => "bunraku init ${{title}} --wait=1h -f {definitions}/${{title}}.json",
    onlyif      => "bunraku stat ${{title}} --or-failed -f {definitions}/${{title}}.json",
    path        => ['{programs}', '/usr/bin', '/bin'],
    environment => ['BUNRAKU_SERVERS={address}', 'BUNRAKU_CREDENTIALS={credentials}'],
    timeout     => 0,
  }}
}}
node 'a', 'b' {{ named_instance {{ ['app_1', 'app_2']: }} }}
node 'c' {{ named_instance {{ ['app_1', 'app_3']: }} }}
node 'd' {{ named_instance {{ ['app_1', 'app_4']: }} }}
node 'deploy' {{ Exec <<| |>> }}
"#,
        definitions = definitions.display(),
        programs = programs.display(),
        address = server.address,
        credentials = server.credentials().display(),
    )
}

fn define_apps(site: &Site, log: &Path) -> PathBuf {
    let definitions = site.path("apps");
    for number in 1..=10 {
        let command = match number {
            // Fails, and is not retried.
            4 => format!("echo app_{number} >> {}; exit 3", log.display()),
            _ => format!("echo app_{number} >> {}", log.display()),
        };
        let file = definitions.join(format!("app_{number}.json"));
        write(&file, &json!({ "command": command }).to_string());
    }
    definitions
}

#[test]
fn execs_exported_by_several_hosts_initialise_each_app_once_on_the_deploy_host() {
    let site = Site::new();
    let server = server(&site);
    let log = site.path("inits");
    let definitions = define_apps(&site, &log);
    let programs = site.path("bin");
    std::fs::create_dir_all(&programs).expect("a directory");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bunraku"), programs.join("bunraku"))
        .expect("a link");
    let mut puppet =
        "run_method = \"puppet\"\n[agent.puppet]\nform = \"apply\"\nreleased = true\n".to_owned();
    for name in ["confdir", "vardir", "publicdir", "ssldir"] {
        let place = site.path("deploy.puppet").join(name);
        std::fs::create_dir_all(&place).expect("a directory");
        puppet.push_str(&format!("{name} = {place:?}\n"));
    }
    // The deploy host is compiled when nobody has exported anything yet.
    let mut agents = vec![agent(&site, &server, "deploy", &puppet)];
    let code = site.path("code");
    let manifest = instances(&server, &definitions, &programs);
    write(&code.join("manifests/site.pp"), &manifest);
    deploy(&server, &code);
    until_compiled(&server, "deploy", "Exec", &[]);
    for node in ["a", "b", "c"] {
        agents.push(agent(&site, &server, node, ""));
    }
    let execs = [
        "app_1 a init",
        "app_1 b init",
        "app_1 c init",
        "app_2 a init",
        "app_2 b init",
        "app_3 c init",
    ];
    until_compiled(&server, "deploy", "Exec", &execs);
    release(&server);
    for _ in 0..2 {
        let done = server.operator(&["node", "run", "deploy", "--wait"]);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
        assert_eq!(lines(&log), ["app_1", "app_2", "app_3"]);
    }
    // A host that comes later adds its own app. That init fails: so does every run from then on,
    // without a second attempt, until somebody looks at it.
    agents.push(agent(&site, &server, "d", ""));
    let execs = [
        "app_1 a init",
        "app_1 b init",
        "app_1 c init",
        "app_1 d init",
        "app_2 a init",
        "app_2 b init",
        "app_3 c init",
        "app_4 d init",
    ];
    until_compiled(&server, "deploy", "Exec", &execs);
    release(&server);
    for _ in 0..2 {
        let done = server.operator(&["node", "run", "deploy", "--wait"]);
        assert_ne!(done.status.code(), Some(0), "{}", all_output(&done));
        assert_eq!(lines(&log), ["app_1", "app_2", "app_3", "app_4"]);
    }
}

const BACKEND: &str = "
{{ facts.hostname }} backend:
  file.managed:
    - name: DIRECTORY/{{ facts.hostname }}.conf
    - contents: server {{ facts.hostname }}
    - export: [pool, {{ facts.hostname }}]
";
const BALANCER: &str = "
{{ salt['export.states']('file.managed', tag='pool', mode='0600') }}
summary:
  file.managed:
    - name: DIRECTORY/summary
    - contents: >-
        {% for one in salt['export.collect']('File', tag='pool') %}{{ one.node }}={{ one.name }}
        {% endfor %}{% for row in salt['query.rows']('nodes[certname] { facts.hostname ~ \"^web\" }') %}{{ row.certname }}
        {% endfor %}
";

#[test]
fn states_export_and_collect_and_the_collecting_node_applies_them() {
    let site = Site::new();
    let server = server(&site);
    let directory = site.path("conf");
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut agents = vec![agent(&site, &server, "balancer", "")];
    let code = site.path("code");
    let place = |text: &str| text.replace("DIRECTORY", &directory.display().to_string());
    write(
        &code.join("top.sls"),
        "base:\n  'web*':\n    - backend\n  'balancer':\n    - balancer\n",
    );
    write(&code.join("backend.sls"), &place(BACKEND));
    write(&code.join("balancer.sls"), &place(BALANCER));
    write(&code.join("bunraku.yaml"), "compiler: states\n");
    deploy(&server, &code);
    for node in ["web-1", "web-2"] {
        agents.push(agent(&site, &server, node, ""));
    }
    let files = ["summary", "web-1 backend", "web-2 backend"];
    until_compiled(&server, "balancer", "File", &files);
    until_compiled(&server, "web-1", "File", &[]);
    release(&server);
    let done = server.operator(&["node", "run", "balancer", "--wait"]);
    assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    assert_eq!(lines(&directory.join("web-1.conf")), ["server web-1"]);
    let summary = lines(&directory.join("summary")).join(" ");
    let one = directory.join("web-1.conf");
    assert!(
        summary.contains(&format!("web-1={}", one.display())),
        "{summary}"
    );
    assert!(summary.contains("web-1 web-2"), "{summary}");
}
