//! Puppet code, compiled by the Puppet that `scripts/setup test` installs.

use std::process::Command;
use std::time::Duration;

use bunraku_compile::compiles::PuppetOptions;
use bunraku_model::Catalog;
use bunraku_model::catalog::CatalogSource;
use bunraku_wire::api::{
    AssignRequest, CompileOutcome, CompileStatus, CompileStatusRequest, DeployState, DeployStatus,
    LastCompile, PuppetComparison, PuppetComparisonRequest,
};
use bunraku_wire::endpoints::CompareWithPuppet;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::repository::{Repository, add, ask, compile, facts};
use crate::support::{TestServer, name};

/// Time limit: Puppet loads slowly, and more so on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) async fn compiled(server: &TestServer, node: &str) -> LastCompile {
    let request = CompileStatusRequest {
        nodes: vec![name(node)],
        wait_seconds: 20,
    };
    let waiting = async {
        loop {
            let asked = server.operator.post("/v1/compiles/status", &request).await;
            let statuses: Vec<CompileStatus> = asked.expect("statuses");
            match &statuses[0].last {
                Some(last) if !statuses[0].waiting => return last.clone(),
                // The server delayed the answer.
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, waiting).await;
    outcome.expect("compiled within minutes")
}

/// Deploys, and waits until the code is in use and every node is compiled.
pub(crate) async fn deployed(server: &TestServer, environment: &str) {
    let number = ask(server, environment, None).await;
    let path = format!("/v1/environments/{environment}/deploys/{number}?wait_seconds=30");
    let waiting = async {
        loop {
            let status: DeployStatus = server.operator.get(&path).await.expect("a status");
            if status.finished {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, waiting).await;
    outcome.expect("deployed within minutes");
}

pub(crate) async fn catalog(server: &TestServer, last: &LastCompile) -> Catalog {
    match &last.outcome {
        CompileOutcome::Compiled { catalog, .. } => {
            let found = server.catalogs().get(*catalog).await;
            found.expect("a catalog")
        }
        other => panic!("a catalog was expected, not {other:?}"),
    }
}

/// Returns `file:line:column message (hint)` of the first problem.
fn problem(last: &LastCompile) -> String {
    match &last.outcome {
        CompileOutcome::Failed { problems, .. } => {
            let one = &problems[0];
            let number = |number: Option<u64>| number.unwrap_or(0);
            format!(
                "{}:{}:{} {} ({})",
                one.file.as_deref().unwrap_or("-"),
                number(one.line),
                number(one.column),
                one.message,
                one.hint.as_deref().unwrap_or("-")
            )
        }
        other => panic!("a failure was expected, not {other:?}"),
    }
}

/// Starts a server whose environment `production` has these files, deployed, and these nodes
/// with these facts.
async fn server_with(
    options: PuppetOptions,
    files: &[(&str, &str)],
    nodes: &[&str],
) -> (TestServer, Repository) {
    let puppet = std::sync::Arc::new(options);
    let server = TestServer::start_with(|options| options.services.compiles.puppet = puppet).await;
    for node in nodes {
        let client = server.node(node).await;
        let known = json!({"os": {"family": "Debian"}, "role": "web"});
        facts(&client, node, &known).await;
    }
    let repository = Repository::new(files);
    add(&server, "production", &repository.url()).await;
    deployed(&server, "production").await;
    (server, repository)
}

const SITE: &str = "node 'web-1' {
  include app
  notice(\"hello ${facts['os']['family']} ${trusted['certname']} ${environment}\")
  warning('this is old')
}
node 'broken' {
  file { '/a':
    ensure => nonsense(),
  }
}
node 'syntax' { include app::broken }
";
const APP: &str = "class app(String $text, Sensitive[String] $password = Sensitive('xyzzy')) {
  file { '/etc/app.conf': source => 'puppet:///modules/app/app.conf' }
  file { '/etc/app.d': ensure => directory, recurse => true, source => 'puppet:///modules/app/tree' }
  file { '/etc/mounted': source => 'puppet:///site/motd' }
  file { '/etc/text': content => $text }
  file { $settings::libdir: ensure => directory, recurse => true, source => 'puppet:///plugins' }
  file { '/etc/secret': content => $password }
  file { '/etc/later': content => Deferred('sprintf', ['later']) }
  notify { 'nested': message => { 'a' => Sensitive('plugh') } }
}
";
const HIERA: &str = "version: 5
hierarchy:
  - name: common
    path: common.yaml
";

#[tokio::test]
async fn an_environment_with_manifests_becomes_static_catalogs_with_notes() {
    let mount = TempDir::new().expect("a directory");
    std::fs::write(mount.path().join("motd"), "mounted").expect("a file");
    let options = PuppetOptions {
        base_modules: Vec::new(),
        mounts: [("site".to_owned(), mount.path().to_owned())].into(),
        ..PuppetOptions::default()
    };
    let files = [
        ("manifests/site.pp", SITE),
        ("modules/app/manifests/init.pp", APP),
        (
            "modules/app/manifests/broken.pp",
            "class app::broken {\n  file { '/a' ensure => file }\n}\n",
        ),
        ("modules/app/files/app.conf", "workers 2\n"),
        ("modules/app/lib/facter/app.rb", "# a fact\n"),
        ("modules/other/lib/facter/other.rb", "# a fact\n"),
        ("modules/app/files/tree/one", "1"),
        ("modules/app/files/tree/below/two", "2"),
        ("hiera.yaml", HIERA),
        ("data/common.yaml", "app::text: from hiera\n"),
    ];
    let (mut server, _repository) =
        server_with(options, &files, &["web-1", "broken", "syntax"]).await;
    let last = compiled(&server, "web-1").await;
    let catalog = catalog(&server, &last).await;

    let notes: Vec<_> = last
        .notes
        .iter()
        .map(|note| (note.level.as_str(), note.message.as_str()))
        .collect();
    assert_eq!(
        notes,
        [
            (
                "notice",
                "Scope(Node[web-1]): hello Debian web-1 production"
            ),
            ("warning", "Scope(Node[web-1]): this is old"),
        ]
    );
    let resource = |reference: &str| {
        let all = catalog.resources.iter();
        let found = all
            .into_iter()
            .find(|one| one.reference().to_string() == reference);
        found.unwrap_or_else(|| panic!("no {reference}"))
    };
    let conf = resource("File[/etc/app.conf]");
    assert_eq!(conf.place().to_string(), "modules/app/manifests/init.pp:2");
    assert_eq!(
        resource("File[/etc/text]").parameters["content"],
        "from hiera"
    );
    assert!(resource("File[/etc/secret]").is_sensitive("content"));
    assert!(resource("Notify[nested]").is_sensitive("message"));
    let later = &resource("File[/etc/later]").parameters["content"];
    assert_eq!(later["__ptype"], "Deferred");

    let file = |address: &str| match &catalog.sources[address] {
        CatalogSource::File(file) => file.content,
        other => panic!("a file was expected, not {other:?}"),
    };
    let content = bunraku_model::ContentId::of;
    assert_eq!(
        file("puppet:///modules/app/app.conf"),
        content(b"workers 2\n")
    );
    assert_eq!(file("puppet:///site/motd"), content(b"mounted"));
    let CatalogSource::Directory { entries } = &catalog.sources["puppet:///plugins"] else {
        panic!("a directory was expected");
    };
    let paths: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert!(
        paths.starts_with(&["facter", "facter/app.rb", "facter/other.rb"]),
        "{paths:?}"
    );
    let CatalogSource::Directory { entries } = &catalog.sources["puppet:///modules/app/tree"]
    else {
        panic!("a directory was expected");
    };
    let paths: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["below", "below/two", "one"]);

    let request = PuppetComparisonRequest {
        node: name("web-1"),
    };
    let compared = server.operator.call_with(CompareWithPuppet, &request).await;
    let compared: PuppetComparison = compared.expect("compared");
    assert!(compared.is_equal(), "{compared:?}");
    assert_eq!(compared.resources, catalog.resources.len());

    let broken = problem(&compiled(&server, "broken").await);
    assert!(broken.starts_with("manifests/site.pp:8:15 "), "{broken}");
    assert!(broken.contains("Unknown function: 'nonsense'"), "{broken}");
    let syntax = problem(&compiled(&server, "syntax").await);
    assert!(
        syntax.starts_with("modules/app/manifests/broken.pp:2:"),
        "{syntax}"
    );
    server.shutdown().await;
}

const HOSTILE: &str = r#"
node 'loops' { $x = inline_template('<% loop { } %>') }
node 'eats' { $x = inline_template('<%= "x" * 3_000_000_000 %>') }
node 'grows' { $x = inline_template('<% a = []; loop { a << ("x" * 1_000_000) } %>') }
node 'runs' { $x = generate('/bin/cat', '/etc/hostname') }
node 'spawns' { $x = inline_template('<%= `id` %>') }
node 'reads' { $x = file('/etc/passwd') }
node 'writes' { $x = inline_template('<% File.write("/tmp/bunraku-was-here", "x") %>') }
node 'calls' { $x = inline_template('<% require "socket"; TCPSocket.new("127.0.0.1", 22) %>') }
node 'threads' { $x = inline_template('<% 5.times { Thread.new { loop { } } } %>') }
node 'ends' { $x = inline_template('<% exit! %>') }
node 'kills' { $x = inline_template('<% Process.kill(:KILL, Process.ppid) %>') }
node 'fine' { notify { 'fine': } }
"#;

#[tokio::test]
async fn hostile_code_ends_as_failed_compiles_and_the_environment_compiles_on() {
    let nodes = [
        ("loops", "the compiler did not answer within 20 s"),
        ("eats", "needs more memory than its limit of 256 MiB"),
        ("grows", "needs more memory than its limit of 256 MiB"),
        (
            "runs",
            "the compile sandbox does not run programs: /bin/cat",
        ),
        ("spawns", "Operation not permitted - id"),
        ("reads", "Permission denied @ rb_sysopen - /etc/passwd"),
        (
            "writes",
            "Permission denied @ rb_sysopen - /tmp/bunraku-was-here",
        ),
        ("calls", "Operation not permitted - socket(2)"),
        ("threads", "The code left 5 threads running"),
        ("ends", "the compiler ended"),
        ("kills", "Operation not permitted"),
    ];
    let settings = "compiler: puppet\ntime_limit: 20\nmemory_limit: 256\nworkers: 1\n";
    let files = [("manifests/site.pp", HOSTILE), ("bunraku.yaml", settings)];
    let names: Vec<&str> = nodes
        .iter()
        .map(|(node, _)| *node)
        .chain(["fine"])
        .collect();
    let (mut server, _repository) = server_with(PuppetOptions::default(), &files, &names).await;
    for (node, expected) in nodes {
        let said = problem(&compiled(&server, node).await);
        assert!(said.contains(expected), "{node}: {said}");
    }
    let reads = problem(&compiled(&server, "reads").await);
    assert!(reads.contains("Code is compiled in a sandbox"), "{reads}");
    // The environment's next compile succeeds, and so does another environment's.
    compile(&server, "fine").await;
    let fine = catalog(&server, &compiled(&server, "fine").await).await;
    assert!(fine.resources.iter().any(|one| one.title == "fine"));
    server.shutdown().await;
}

#[tokio::test]
async fn secrets_in_eyaml_are_read_with_keys_that_only_the_server_has() {
    let keys = TempDir::new().expect("a directory");
    let (private, public) = (
        keys.path().join("private.pem"),
        keys.path().join("public.pem"),
    );
    let eyaml = |arguments: &[&str]| {
        let run = Command::new("eyaml")
            .args(arguments)
            .arg(format!("--pkcs7-private-key={}", private.display()))
            .arg(format!("--pkcs7-public-key={}", public.display()))
            .output()
            .expect("eyaml runs; scripts/setup installs it");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        String::from_utf8(run.stdout).expect("text")
    };
    eyaml(&["createkeys"]);
    let secret = eyaml(&["encrypt", "--output=string", "--string=open sesame"]);
    let hiera = format!(
        "version: 5\nhierarchy:\n  - name: secrets\n    lookup_key: eyaml_lookup_key\n    \
         path: secrets.eyaml\n    options:\n      pkcs7_private_key: {}\n      pkcs7_public_key: {}\n",
        private.display(),
        public.display()
    );
    let data = format!(
        "lookup_options:\n  password: {{convert_to: Sensitive}}\npassword: {}\n",
        secret.trim()
    );
    let site = "node 'web-1' { file { '/etc/password': content => lookup('password') } }";
    let files = [
        ("manifests/site.pp", site),
        ("hiera.yaml", hiera.as_str()),
        ("data/secrets.eyaml", data.as_str()),
    ];
    // Without permission, the keys are as unreadable as everything else.
    let (mut closed, _repository) = server_with(PuppetOptions::default(), &files, &["web-1"]).await;
    let said = problem(&compiled(&closed, "web-1").await);
    assert!(said.contains("Permission denied"), "{said}");
    assert!(!said.contains("open sesame"), "{said}");
    closed.shutdown().await;

    let options = PuppetOptions {
        read_paths: vec![keys.path().to_owned()],
        ..PuppetOptions::default()
    };
    let (mut server, _repository) = server_with(options, &files, &["web-1"]).await;
    let catalog = catalog(&server, &compiled(&server, "web-1").await).await;
    let file = catalog
        .resources
        .iter()
        .find(|one| one.title == "/etc/password");
    let file = file.expect("the file");
    assert_eq!(file.parameters["content"], "open sesame");
    assert!(file.is_sensitive("content"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_classifier_gives_classes_and_parameters() {
    let script = "printf 'classes:\\n  app: {text: given}\\nparameters:\\n  tier: %s\\n' \"$0\"";
    let options = PuppetOptions {
        enc: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..PuppetOptions::default()
    };
    let app = "class app($text) { notify { \"${text} ${tier} ${::tier}\": } }";
    let files = [
        ("environment.conf", "modulepath = site:$basemodulepath\n"),
        ("site/app/manifests/init.pp", app),
    ];
    let (mut server, _repository) = server_with(options, &files, &["web-1"]).await;
    let catalog = catalog(&server, &compiled(&server, "web-1").await).await;
    let titles: Vec<_> = catalog
        .resources
        .iter()
        .map(|one| one.title.as_str())
        .collect();
    assert!(titles.contains(&"given web-1 web-1"), "{titles:?}");
    assert!(catalog.classes.contains(&"app".to_owned()));
    server.shutdown().await;
}

/// Starts a server that answers every request with this body, and returns its address.
async fn web_server(body: &'static str) -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let length = body.len();
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    (address, serving)
}

#[tokio::test]
async fn files_on_the_web_are_refused_or_pinned_from_hosts_that_the_operator_names() {
    let (address, serving) = web_server("from the web").await;
    let site = format!(
        "node 'web-1' {{ file {{ '/a': source => 'http://{address}/a' }} }}
node 'web-2' {{ file {{ '/a': source => 'http://other.example.com/a' }} }}
node 'web-3' {{ file {{ '/a': source => 'http://{address}/a', checksum => 'sha256', checksum_value => 'abc' }} }}"
    );
    let options = PuppetOptions {
        http_hosts: vec![address.clone()],
        ..PuppetOptions::default()
    };
    let nodes = ["web-1", "web-2", "web-3"];
    let files = [("manifests/site.pp", site.as_str())];
    let (mut server, repository) = server_with(options, &files, &nodes).await;
    let said = problem(&compiled(&server, "web-1").await);
    assert!(said.contains("may change: set"), "{said}");
    assert!(said.starts_with("manifests/site.pp:1:"), "{said}");
    catalog(&server, &compiled(&server, "web-3").await).await;

    repository.commit(&[("bunraku.yaml", "compiler: puppet\nhttp_sources: pin\n")]);
    deployed(&server, "production").await;
    let pinned = catalog(&server, &compiled(&server, "web-1").await).await;
    let CatalogSource::File(file) = &pinned.sources[&format!("http://{address}/a")] else {
        panic!("a file was expected");
    };
    assert_eq!(file.content, bunraku_model::ContentId::of(b"from the web"));
    let said = problem(&compiled(&server, "web-2").await);
    assert!(
        said.contains("may not fetch from other.example.com"),
        "{said}"
    );
    serving.abort();
    server.shutdown().await;
}

/// Prints a version, after it tried everything that it must not do.
const VERSION: &str = "#!/bin/sh
echo x > /tmp/bunraku-version-was-here
cat /etc/shadow
cat > \"$2/$3/manifests/more.pp\" < /dev/null
echo \"$1 $3\" \"$(cat VERSION)\"
";

#[tokio::test]
async fn config_version_runs_in_a_sandbox_and_its_result_is_the_version_of_catalogs() {
    let settings = "config_version = 'scripts/version.sh v1 $environmentpath $environment'\n";
    let files = [
        ("manifests/site.pp", "node default { notify { 'a': } }\n"),
        ("environment.conf", settings),
        ("scripts/version.sh", VERSION),
        ("VERSION", "2.7\n"),
    ];
    let (mut server, repository) = server_with(PuppetOptions::default(), &files, &["web-1"]).await;
    let last = compiled(&server, "web-1").await;
    let first = catalog(&server, &last).await;
    assert_eq!(
        first.version,
        Some(json!("v1 production 2.7")),
        "{:?}",
        last.notes
    );
    assert!(!std::path::Path::new("/tmp/bunraku-version-was-here").exists());
    // A program that fails is a warning. The catalog has a version all the same.
    repository.commit(&[
        ("scripts/version.sh", "#!/bin/sh\necho no >&2\nexit 3\n"),
        ("manifests/site.pp", "node default { notify { 'b': } }\n"),
    ]);
    deployed(&server, "production").await;
    let last = compiled(&server, "web-1").await;
    let note = last.notes.first().expect("a note");
    assert_eq!(
        note.message,
        "config_version has no result: it exited with exit code 3: no"
    );
    let second = catalog(&server, &last).await;
    assert_eq!(second.version, Some(json!(second.id().to_string()[..16])));
    server.shutdown().await;
}

/// Code that never ends, and takes all the processors, memory, threads and processes it can get.
const ENDLESS: &str = r#"
node 'loop-1' { $x = inline_template('<% loop { } %>') }
node 'loop-2' { $x = inline_template('<% a = []; loop { begin; a << "x" * 1_000_000; rescue NoMemoryError; a = []; end } %>') }
node 'loop-3' { $x = inline_template('<% loop { begin; Thread.new { loop { } }; rescue ThreadError; sleep 0.1; end } %>') }
node 'loop-4' { $x = inline_template('<% loop { begin; fork; rescue SystemCallError; nil; end } %>') }
"#;

#[tokio::test]
async fn an_environment_that_hangs_does_not_delay_another_one() {
    let puppet = std::sync::Arc::new(PuppetOptions::default());
    let mut server = TestServer::start_with(|options| {
        options.services.compiles.puppet = puppet;
        options.services.compiles.concurrency = 4;
    })
    .await;
    let hanging = ["loop-1", "loop-2", "loop-3", "loop-4"];
    for node in hanging.iter().chain(&["web-1"]) {
        let client = server.node(node).await;
        facts(&client, node, &json!({"role": "web"})).await;
    }
    // Its limit is longer than this test may take.
    let settings = "compiler: puppet\ntime_limit: 3600\nworkers: 4\nmemory_limit: 256\n";
    let hostile = Repository::new(&[("manifests/site.pp", ENDLESS), ("bunraku.yaml", settings)]);
    add(&server, "hostile", &hostile.url()).await;
    let assign = AssignRequest {
        environment: "hostile".parse().expect("a name"),
    };
    for node in hanging {
        let path = format!("/v1/nodes/{node}/environment");
        let assigned = server.operator.put::<_, ()>(&path, &assign).await;
        assigned.expect("assigned");
    }
    let number = ask(&server, "hostile", None).await;
    // The code is in use, and its compiles take all slots.
    let path = format!("/v1/environments/hostile/deploys/{number}?wait_seconds=1");
    let in_use = async {
        loop {
            let status: DeployStatus = server.operator.get(&path).await.expect("a status");
            if matches!(status.deploy.state, DeployState::Deployed { .. }) {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, in_use).await;
    outcome.expect("deployed within minutes");
    let fine = Repository::new(&[("manifests/site.pp", "node default { notify { 'fine': } }\n")]);
    add(&server, "production", &fine.url()).await;
    deployed(&server, "production").await;
    let web = catalog(&server, &compiled(&server, "web-1").await).await;
    assert!(web.resources.iter().any(|one| one.title == "fine"));
    let request = CompileStatusRequest {
        nodes: hanging.map(name).to_vec(),
        wait_seconds: 0,
    };
    let asked = server.operator.post("/v1/compiles/status", &request).await;
    let statuses: Vec<CompileStatus> = asked.expect("statuses");
    let hung = statuses.iter().filter(|one| one.waiting).count();
    assert_eq!(hung, hanging.len(), "{statuses:?}");
    server.shutdown().await;
}
