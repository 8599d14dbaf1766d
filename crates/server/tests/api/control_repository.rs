//! Control repositories as people have them: Puppetfiles, submodules, and more
//! repositories than one.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bunraku_model::ContentId;
use bunraku_wire::api::{CompileProblem, DeployState, DeployStatus, DeployedModule};
use serde_json::{Value, json};

use crate::repository::{Repository, add, ask, deploy, finished, node, site, site_repository};
use crate::support::TestServer;

/// Returns a control repository with these files besides a site.
fn control(files: &[(&str, &str)]) -> Repository {
    let repository = site_repository("one");
    repository.commit(files);
    repository
}

/// Returns a repository with a module that has one file.
fn module(content: &str) -> Repository {
    Repository::new(&[
        ("files/motd", content),
        ("manifests/init.pp", "class motd {}\n"),
    ])
}

fn code_id(status: &DeployStatus) -> String {
    match &status.deploy.state {
        DeployState::Deployed { code_id, .. } | DeployState::Unchanged { code_id } => {
            code_id.0.clone()
        }
        other => panic!("a deploy was expected, not {other:?}"),
    }
}

fn problem(status: &DeployStatus) -> CompileProblem {
    match &status.deploy.state {
        DeployState::Failed { problem, .. } => problem.clone(),
        other => panic!("a failed deploy was expected, not {other:?}"),
    }
}

/// Returns the place of a file of deployed code.
fn placed(server: &TestServer, status: &DeployStatus, path: &str) -> PathBuf {
    let trees = server
        .options()
        .services
        .data_dir
        .join("code/trees/production");
    trees.join(code_id(status)).join(path)
}

fn text(server: &TestServer, status: &DeployStatus, path: &str) -> String {
    let place = placed(server, status, path);
    std::fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

fn pin<'a>(status: &'a DeployStatus, name: &str) -> &'a DeployedModule {
    let found = status.modules.iter().find(|module| module.name == name);
    found.unwrap_or_else(|| panic!("{name} is not among {:?}", status.modules))
}

#[tokio::test]
async fn modules_of_a_puppetfile_are_pinned_and_follow_their_branches_only_with_a_deploy() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let (tagged, moving, fixed) = (module("tagged"), module("moving"), module("fixed"));
    let commit = fixed.git(&["rev-parse", "HEAD"]);
    fixed.commit(&[("files/motd", "later")]);
    tagged.git(&["tag", "v1"]);
    tagged.commit(&[("files/motd", "later")]);
    // A link that leads nowhere is in the tests of many modules.
    std::os::unix::fs::symlink("/etc/passwd", moving.path().join("out")).expect("a link");
    moving.commit(&[("spec/x_spec.rb", "describe")]);
    let puppetfile = format!(
        "forge 'https://forge.example.com'\n\
         mod 'tagged', git: '{}', tag: 'v1'\n\
         mod 'moving', git: '{}', branch: :control_branch, default_branch: 'main',\n  exclude_spec: true\n\
         mod 'fixed', :git => '{}', :commit => '{commit}', :install_path => 'site'\n\
         mod 'own', :local => true\n",
        tagged.url(),
        moving.url(),
        fixed.url(),
    );
    let repository = control(&[
        ("Puppetfile", &puppetfile),
        ("modules/own/files/motd", "own"),
        ("modules/tagged/files/old", "replaced by the module"),
    ]);
    add(&server, "production", &repository.url()).await;
    let first = deploy(&server, "production").await;
    assert_eq!(first.progress.compiled, 1, "{:?}", first.deploy.state);
    assert_eq!(text(&server, &first, "modules/tagged/files/motd"), "tagged");
    assert_eq!(text(&server, &first, "modules/moving/files/motd"), "moving");
    assert_eq!(text(&server, &first, "site/fixed/files/motd"), "fixed");
    assert_eq!(text(&server, &first, "modules/own/files/motd"), "own");
    for left_out in [
        "modules/tagged/files/old",
        "modules/moving/spec",
        "modules/moving/out",
    ] {
        assert!(!placed(&server, &first, left_out).exists(), "{left_out}");
    }
    assert_eq!(pin(&first, "fixed").version, commit);
    assert_eq!(pin(&first, "tagged").reference.as_deref(), Some("v1"));
    assert_eq!(
        pin(&first, "moving").version,
        moving.git(&["rev-parse", "HEAD"])
    );
    let main = repository.git(&["rev-parse", "HEAD"]);
    assert!(code_id(&first).starts_with(&format!("{main}-")));

    // The branch of a module moves: the same commit of the control repository is other code.
    let moved = moving.commit(&[("files/motd", "moved")]);
    let second = deploy(&server, "production").await;
    assert_ne!(code_id(&second), code_id(&first));
    assert_eq!(pin(&second, "moving").version, moved);
    assert_eq!(text(&server, &second, "modules/moving/files/motd"), "moved");

    // The id of code brings back exactly its modules, even without their repositories.
    drop((tagged, moving, fixed));
    let number = ask(&server, "production", Some(&code_id(&first))).await;
    let back = finished(&server, "production", number).await;
    assert_eq!(code_id(&back), code_id(&first));
    assert_eq!(back.modules, first.modules);
    let detail: Value = server
        .operator
        .get("/v1/environments/production")
        .await
        .expect("an environment");
    assert_eq!(detail["modules"], json!(first.modules));
    server.shutdown().await;
}

#[tokio::test]
async fn a_module_that_cannot_be_had_fails_the_deploy_at_its_line_and_changes_nothing() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let good = module("good");
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    let before = deploy(&server, "production").await;
    let url = good.url();
    for (puppetfile, line, expected) in [
        (
            format!("mod 'good', git: '{url}'\nmod 'bad', git: '{url}', tag: 'v9'\n"),
            2,
            "cannot fetch the module `bad`: `v9` is not in",
        ),
        (
            format!("mod 'good', git: '{url}'\n\nmod 'bad', git: '{url}-missing'\n"),
            3,
            "cannot fetch the module `bad`: git failed",
        ),
        (
            "mod 'bad', git: 'git://h/x'\n".to_owned(),
            1,
            "`git://h/x` is not the address of a repository",
        ),
        (
            "mod 'bad', git: '--upload-pack=touch /tmp/x'\n".to_owned(),
            1,
            "is not the address of a repository",
        ),
        (
            format!("mod 'bad', git: '{url}', ref: '--all'\n"),
            1,
            "`--all` cannot be a commit, a tag or a branch",
        ),
        (
            "x = 1\nmod \"a/#{x}\"\n".to_owned(),
            2,
            "a Puppetfile is read without running Ruby",
        ),
    ] {
        repository.commit(&[("Puppetfile", &puppetfile)]);
        let failed = problem(&deploy(&server, "production").await);
        assert_eq!(failed.file.as_deref(), Some("Puppetfile"), "{failed:?}");
        assert_eq!(failed.line, Some(line), "{failed:?}");
        assert!(failed.message.contains(expected), "{failed:?}");
    }
    let detail: Value = server
        .operator
        .get("/v1/environments/production")
        .await
        .expect("an environment");
    assert_eq!(detail["deployed"]["code_id"], json!(code_id(&before)));
    server.shutdown().await;
}

/// A Forge on loopback, with what it was asked for.
struct ForgeServer {
    url: String,
    answers: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ForgeServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!(
            "http://{}/mirror",
            listener.local_addr().expect("an address")
        );
        let answers: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, log) = (Arc::clone(&answers), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let head = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or("").to_owned();
                let token = head.lines().find(|line| line.starts_with("Authorization:"));
                let shown = token.map_or(path.clone(), |token| format!("{path} {token}"));
                log.lock().expect("a lock").push(shown);
                let body = known.lock().expect("a lock").get(&path).cloned();
                let status = match body {
                    Some(_) => "200 OK",
                    None => "404 Not Found",
                };
                let body = body.unwrap_or_default();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&body);
            }
        });
        Self {
            url,
            answers,
            asked,
        }
    }

    fn answer(&self, path: &str, body: impl Into<Vec<u8>>) {
        let path = format!("/mirror{path}");
        self.answers
            .lock()
            .expect("a lock")
            .insert(path, body.into());
    }

    fn release(&self, version: &str, hash: &Value, archive: &[u8]) -> Value {
        let file = format!("/v3/files/acme-motd-{version}.tar.gz");
        self.answer(&file, archive);
        let mut release = json!({"version": version, "file_uri": file});
        release
            .as_object_mut()
            .expect("an object")
            .extend(hash.as_object().cloned().unwrap_or_default());
        self.answer(
            &format!("/v3/releases/acme-motd-{version}"),
            release.to_string(),
        );
        release
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().expect("a lock").len()
    }
}

/// An archive as the Forge has it, with these paths below its directory.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(packed);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        // As bytes: the paths of a hostile archive do not pass the usual checks.
        let name = format!("acme-motd-1.0.0/{path}");
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive
            .append(&header, content.as_bytes())
            .expect("appended");
    }
    archive
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .expect("packed")
}

#[tokio::test]
async fn a_private_forge_gets_its_token_and_no_other_host_does() {
    let (forge, elsewhere) = (ForgeServer::start(), ForgeServer::start());
    let address = forge.url.clone();
    let directory = tempfile::TempDir::new().expect("a directory");
    let file = directory.path().join("token");
    let mut server = TestServer::start_with(|options| {
        options.services.code.forge = address;
        options.services.code.forge_token_file = Some(file.clone());
    })
    .await;
    let repository = Repository::new(&[
        ("manifests/site.pp", "include motd\n"),
        ("Puppetfile", "mod 'acme/motd', '1.0.0'\n"),
    ]);
    add(&server, "production", &repository.url()).await;
    let good = archive(&[
        ("manifests/init.pp", "class motd { }"),
        ("metadata.json", "{}"),
    ]);
    let hash = json!({"file_sha256": ContentId::of(&good).to_string()});
    forge.release("1.0.0", &hash, &good);
    // Without its token, nothing is asked.
    let failed = deploy(&server, "production").await;
    assert!(
        format!("{failed:?}").contains("cannot read the token"),
        "{failed:?}"
    );
    assert_eq!(forge.times_asked(), 0);
    std::fs::write(&file, "s3cret-1\n").expect("a file");
    let done = deploy(&server, "production").await;
    code_id(&done);
    let asked = forge.asked.lock().expect("a lock").clone();
    assert_eq!(asked.len(), 2);
    assert!(
        asked
            .iter()
            .all(|one| one.ends_with(" Authorization: Bearer s3cret-1")),
        "{asked:?}"
    );
    // A new token is used at once. The archive is on another host, which gets none.
    std::fs::write(&file, "s3cret-2").expect("a file");
    forge.release("2.0.0", &hash, &good);
    let archive_elsewhere = "/v3/files/acme-motd-2.0.0.tar.gz";
    elsewhere.answer(archive_elsewhere, good.clone());
    let mut release =
        json!({"version": "2.0.0", "file_uri": format!("{}{archive_elsewhere}", elsewhere.url)});
    let members = release.as_object_mut().expect("an object");
    members.extend(hash.as_object().cloned().unwrap_or_default());
    forge.answer("/v3/releases/acme-motd-2.0.0", release.to_string());
    repository.commit(&[("Puppetfile", "mod 'acme/motd', '2.0.0'\n")]);
    let done = deploy(&server, "production").await;
    code_id(&done);
    let asked = forge.asked.lock().expect("a lock").clone();
    assert!(
        asked[2].ends_with(" Authorization: Bearer s3cret-2"),
        "{asked:?}"
    );
    let other = elsewhere.asked.lock().expect("a lock").clone();
    assert_eq!(other, [format!("/mirror{archive_elsewhere}")]);
    server.shutdown().await;
}

#[tokio::test]
async fn releases_come_from_the_servers_forge_and_only_with_the_right_hash() {
    let forge = ForgeServer::start();
    let address = forge.url.clone();
    let mut server = TestServer::start_with(|options| options.services.code.forge = address).await;
    let repository = control(&[(
        "Puppetfile",
        "forge 'https://forge.example.com'\nmod 'acme/motd', '1.0.0'\n",
    )]);
    add(&server, "production", &repository.url()).await;
    let failed = problem(&deploy(&server, "production").await);
    assert!(
        failed.message.contains("has no acme-motd 1.0.0"),
        "{failed:?}"
    );
    assert_eq!(
        (failed.file.as_deref(), failed.line),
        (Some("Puppetfile"), Some(2))
    );

    let good = archive(&[("files/motd", "from the forge"), ("metadata.json", "{}")]);
    let sha256 = ContentId::of(&good).to_string();
    for hash in [
        json!({"file_sha256": "0".repeat(64)}),
        json!({"file_md5": "0".repeat(32)}),
        json!({}),
    ] {
        forge.release("1.0.0", &hash, &good);
        let failed = problem(&deploy(&server, "production").await);
        assert!(failed.message.contains("hash"), "{failed:?}");
    }
    forge.release("1.0.0", &json!({"file_sha256": sha256}), &good);
    let first = deploy(&server, "production").await;
    assert_eq!(
        text(&server, &first, "modules/motd/files/motd"),
        "from the forge"
    );
    assert_eq!(pin(&first, "motd").version, "1.0.0");
    assert_eq!(pin(&first, "motd").sha256.as_deref(), Some(sha256.as_str()));

    // A release that is here is not asked for again.
    let asked = forge.times_asked();
    repository.commit(&[("README", "new")]);
    let second = deploy(&server, "production").await;
    assert_ne!(code_id(&second), code_id(&first));
    assert_eq!(forge.times_asked(), asked);

    // The newest release is, and MD5 is enough for a mirror that has nothing else.
    let newer = archive(&[("files/motd", "newer")]);
    let md5 = "file_md5";
    let sum = std::process::Command::new("md5sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            child.stdin.take().expect("a pipe").write_all(&newer)?;
            child.wait_with_output()
        })
        .expect("md5sum runs");
    let sum = String::from_utf8_lossy(&sum.stdout)[..32].to_owned();
    let release = forge.release("2.0.0", &json!({md5: sum}), &newer);
    forge.answer(
        "/v3/modules/acme-motd",
        json!({"current_release": release}).to_string(),
    );
    repository.commit(&[("Puppetfile", "mod 'acme/motd', :latest\n")]);
    let third = deploy(&server, "production").await;
    assert_eq!(text(&server, &third, "modules/motd/files/motd"), "newer");
    assert_eq!(pin(&third, "motd").version, "2.0.0");

    let hostile = archive(&[("../../../../escaped", "x")]);
    let hash = json!({"file_sha256": ContentId::of(&hostile).to_string()});
    forge.release("3.0.0", &hash, &hostile);
    repository.commit(&[("Puppetfile", "mod 'acme/motd', '3.0.0'\n")]);
    let failed = problem(&deploy(&server, "production").await);
    assert!(
        failed.message.contains("is not a valid file name"),
        "{failed:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn submodules_and_their_own_are_part_of_the_code() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let inner = Repository::new(&[("file", "inner")]);
    let outer = Repository::new(&[("file", "outer")]);
    outer.git(&["submodule", "--quiet", "add", &inner.url(), "deep/inner"]);
    outer.commit(&[]);
    let pinned = outer.git(&["rev-parse", "HEAD"]);
    let repository = site_repository("one");
    repository.git(&["submodule", "--quiet", "add", &outer.url(), "modules/outer"]);
    repository.commit(&[]);
    outer.commit(&[("file", "later")]);
    add(&server, "production", &repository.url()).await;
    let status = deploy(&server, "production").await;
    assert_eq!(status.progress.compiled, 1, "{:?}", status.deploy.state);
    assert_eq!(text(&server, &status, "modules/outer/file"), "outer");
    assert_eq!(
        text(&server, &status, "modules/outer/deep/inner/file"),
        "inner"
    );
    assert_eq!(code_id(&status), repository.git(&["rev-parse", "HEAD"]));
    assert_eq!(pinned.len(), 40);

    drop(outer);
    repository.commit(&[("README", "new")]);
    // The commit of the submodule is in the mirror already.
    let again = deploy(&server, "production").await;
    assert_eq!(text(&server, &again, "modules/outer/file"), "outer");
    let gitmodules = "[submodule \"x\"]\n\tpath = modules/outer\n\turl = ext::sh -c id\n";
    repository.commit(&[(".gitmodules", gitmodules)]);
    let failed = problem(&deploy(&server, "production").await);
    assert_eq!(failed.file.as_deref(), Some(".gitmodules"), "{failed:?}");
    assert!(failed.message.contains("is not the address"), "{failed:?}");
    repository.commit(&[(".gitmodules", "# empty\n")]);
    let failed = problem(&deploy(&server, "production").await);
    assert!(
        failed.message.contains("`modules/outer` is a submodule"),
        "{failed:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn states_come_from_several_repositories_and_the_first_file_counts() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let first = Repository::new(&[
        (
            "nginx/init.sls",
            "/etc/nginx:\n  file.managed:\n    - contents: first\n",
        ),
        ("motd.sls", "never: used\n"),
    ]);
    let second = Repository::new(&[
        ("formula/nginx/init.sls", "never: used\n"),
        (
            "formula/redis.sls",
            "/etc/redis:\n  file.managed:\n    - contents: second\n",
        ),
        ("README", "not used"),
    ]);
    second.git(&["tag", "v2"]);
    second.commit(&[("formula/redis.sls", "never: used\n")]);
    let settings = format!(
        "compiler: states\nroot: states\nrepositories:\n  - url: {}\n  - url: {}\n    ref: v2\n    root: formula\n",
        first.url(),
        second.url()
    );
    let repository = Repository::new(&[
        ("bunraku.yaml", &settings),
        ("states/top.sls", "base:\n  '*': [motd, nginx, redis]\n"),
        (
            "states/motd.sls",
            "/etc/motd:\n  file.managed:\n    - contents: own\n",
        ),
    ]);
    add(&server, "production", &repository.url()).await;
    let status = deploy(&server, "production").await;
    assert_eq!(
        status.progress.compiled, 1,
        "{:?} {:?}",
        status.deploy.state, status.failures
    );
    assert!(text(&server, &status, "states/motd.sls").contains("own"));
    assert!(text(&server, &status, "states/nginx/init.sls").contains("first"));
    assert!(text(&server, &status, "states/redis.sls").contains("second"));
    assert!(!placed(&server, &status, "states/README").exists());
    let versions: Vec<&str> = (status.modules.iter())
        .map(|module| module.version.as_str())
        .collect();
    let expected = [
        first.git(&["rev-parse", "HEAD"]),
        second.git(&["rev-parse", "v2"]),
    ];
    assert_eq!(versions, expected);

    // A push to a repository of somebody else arrives with the next deploy.
    first.commit(&[(
        "nginx/init.sls",
        "/etc/nginx:\n  file.managed:\n    - contents: next\n",
    )]);
    let next = deploy(&server, "production").await;
    assert!(text(&server, &next, "states/nginx/init.sls").contains("next"));
    let bad = settings.replace("ref: v2", "ref: v3");
    repository.commit(&[("bunraku.yaml", &bad)]);
    let failed = problem(&deploy(&server, "production").await);
    assert_eq!(
        (failed.file.as_deref(), failed.line),
        (Some("bunraku.yaml"), Some(5))
    );
    assert!(failed.message.contains("`v3` is not in"), "{failed:?}");
    server.shutdown().await;
}

/// Environments on two servers deploy the same repositories at once.
#[tokio::test]
async fn deploys_of_several_environments_at_once_share_their_modules() {
    let mut server = TestServer::start().await;
    let shared = module("shared");
    let puppetfile = format!("mod 'shared', git: '{}'\n", shared.url());
    let files = site("one");
    let mut files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    files.push(("Puppetfile", &puppetfile));
    let repository = Repository::new(&files);
    let names: Vec<String> = (0..6).map(|number| format!("branch_{number}")).collect();
    let mut numbers = Vec::new();
    for name in &names {
        add(&server, name, &repository.url()).await;
        numbers.push(ask(&server, name, None).await);
    }
    let mut codes = Vec::new();
    for (name, number) in names.iter().zip(numbers) {
        codes.push(code_id(&finished(&server, name, number).await));
    }
    codes.dedup();
    assert_eq!(codes.len(), 1, "the same commits are the same code");
    server.shutdown().await;
}
