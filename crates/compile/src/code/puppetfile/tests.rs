//! Puppetfiles as people write them, read by us and by r10k itself.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::*;

const USUAL: &str = r#"
# The forge is ignored.
forge 'https://forge.puppet.com'
moduledir 'external'   # a comment
=begin
mod 'commented/out'
=end
mod 'puppetlabs/stdlib', '9.4.1'
mod "puppetlabs-concat", :latest
mod 'puppetlabs/ntp'
mod('puppet/archive', '7.1.0')
mod 'apache',
  :git => 'https://github.com/puppetlabs/puppetlabs-apache',
  :tag => 'v12.0.2'
mod 'profile',
  git:            'git@git.example.com:puppet/profile.git',
  # Follows the control repository.
  branch:         :control_branch,
  default_branch: 'main'
mod 'role', { :git => "https://h/role.git", :ref => 'abc1234', }
mod 'site', :local => true
mod 'hiera_data', :git=>'https://h/data.git', :install_path=>'./data', \
  :commit => '0123456789012345678901234567890123456789'
mod 'puppet/nginx', version: '5.0.0', type: 'forge'
mod 'other', type: 'git', source: 'https://h/other.git', version: 'v1'; mod 'a/b'
"#;

fn described(module: &PuppetfileModule) -> Value {
    let path = module.path.display().to_string();
    let (kind, source, reference) = match &module.source {
        ModuleOrigin::Local => ("local", Value::Null, Value::Null),
        ModuleOrigin::Forge {
            owner,
            name,
            version,
        } => (
            "forge",
            json!(format!("{owner}-{name}")),
            json!(version.as_deref().unwrap_or("latest")),
        ),
        ModuleOrigin::Git { url, reference, .. } => (
            "git",
            json!(url),
            match reference {
                // r10k knows no default branch but this one.
                GitReference::DefaultBranch => json!("master"),
                GitReference::ControlBranch => json!(":control_branch"),
                GitReference::Named(name) => json!(name),
            },
        ),
    };
    json!([module.name, path, kind, source, reference])
}

/// Returns what r10k reads from each text; nothing where it refuses one.
fn read_by_r10k(texts: &[&str]) -> Vec<Value> {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/src/code/puppetfile/oracle.rb");
    let mut ruby = Command::new("ruby")
        .arg(oracle)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ruby runs; scripts/setup installs it and r10k");
    let mut input = ruby.stdin.take().expect("a pipe");
    write!(input, "{}", json!(texts)).expect("written");
    drop(input);
    let output = ruby.wait_with_output().expect("an end");
    let answers = serde_json::from_slice(&output.stdout);
    answers.expect("r10k's answers; scripts/setup installs it")
}

#[test]
fn usual_declarations_are_read_as_r10k_reads_them() {
    let ours: Vec<Value> = parse(USUAL).expect("read").iter().map(described).collect();
    let theirs = read_by_r10k(&[USUAL]).remove(0);
    assert_eq!(json!(ours), theirs);
    assert_eq!(ours.len(), 12);
}

/// Compares a directory of Puppetfiles that are not part of the project:
/// `BUNRAKU_PUPPETFILES=DIR cargo nextest run -E 'test(puppetfiles_of_others)' --run-ignored only`.
#[test]
#[ignore = "needs other people's Puppetfiles, which are not part of the project: CI has none"]
fn puppetfiles_of_others_are_read_as_r10k_reads_them() {
    let directory = std::env::var("BUNRAKU_PUPPETFILES").expect("BUNRAKU_PUPPETFILES");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let texts: Vec<String> = files
        .iter()
        .map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned())
        .collect();
    let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (mut equal, mut refused, mut wrong) = (0, 0, Vec::new());
    for ((file, text), theirs) in files.iter().zip(&texts).zip(read_by_r10k(&borrowed)) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match parse(text) {
            Ok(modules) => {
                let ours: Vec<Value> = modules.iter().map(described).collect();
                if json!(ours) == theirs {
                    equal += 1;
                } else {
                    wrong.push(format!("{name}: ours {}\n  r10k {theirs}", json!(ours)));
                }
            }
            Err(error) => {
                refused += 1;
                let r10k = theirs.as_array().map_or("refuses it too", |_| "reads it");
                println!(
                    "{name}:{}:{}: {} (r10k {r10k})",
                    error.line, error.column, error.message
                );
            }
        }
    }
    println!(
        "{equal} equal, {refused} refused, {} different",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(equal > 0, "no Puppetfile was read");
}

fn refused(text: &str) -> String {
    let error = parse(text).expect_err("wrong");
    format!("{}:{} {}", error.line, error.column, error.message)
}

#[test]
fn what_ruby_would_have_to_run_is_an_error_at_its_place() {
    for (text, expected) in [
        (
            "mod 'a/b', '1.0.0'\nmod 'x', :git => \"https://h/#{name}\"\n",
            "2:29 values inside text (`#{…}`) are not computed: a Puppetfile is read without running Ruby",
        ),
        (
            "branch = 'main'\n",
            "1:1 `branch` is not a declaration or a literal value: a Puppetfile is read without running Ruby",
        ),
        (
            "mod 'x', :git => url\n",
            "1:18 `url` is not a declaration or a literal value: a Puppetfile is read without running Ruby",
        ),
        (
            "mod 'x', :git => 'a' + 'b'\n",
            "1:22 `+` is not a declaration or a literal value: a Puppetfile is read without running Ruby",
        ),
        (
            "if true\n  mod 'a/b'\nend\n",
            "1:1 `if` is not a declaration or a literal value: a Puppetfile is read without running Ruby",
        ),
        (
            "mod 'a/b' if true\n",
            "1:11 `if` is not a declaration or a literal value: a Puppetfile is read without running Ruby",
        ),
        (
            "metadata\n",
            "1:1 `metadata` is not supported: dependencies in metadata.json are not resolved",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn declarations_that_cannot_be_followed_are_errors() {
    for (text, expected) in [
        (
            "mod 'a/b', '>= 1.0.0'\n",
            "1:12 `>= 1.0.0` is not one version",
        ),
        ("mod 'a/b', '1.x'\n", "1:12 `1.x` is not one version"),
        (
            "mod 'b', '1.0.0'\n",
            "1:5 `b` has no owner, which a module from the Forge needs",
        ),
        ("mod 'a-b-c'\n", "1:5 `a-b-c` is not the name of a module"),
        ("mod '../b'\n", "1:5 `../b` is not the name of a module"),
        (
            "moduledir '/etc'\n",
            "1:11 `/etc` is not a path below the environment's root",
        ),
        (
            "mod 'x', :git => 'https://h/x', :install_path => '../..'\n",
            "1:50 `../..` is not a path below the environment's root",
        ),
        (
            "mod 'x', :git => 'https://h/x', :ref => 'a', :tag => 'b'\n",
            "1:41 only one of `ref`, `tag`, `branch` and `commit` can be given",
        ),
        (
            "mod 'x', :svn => 'https://h/x'\n",
            "1:18 modules by `svn` are not supported",
        ),
        (
            "mod 'x', :git => 'https://h/x', :reff => 'a'\n",
            "1:42 the option `reff` is unknown",
        ),
        (
            "mod 'a/x', '1.0.0'\n\nmod 'b/x', '1.0.0'\n",
            "3:1 the module `x` is named twice, first in line 1",
        ),
        ("mod 'a/b\n", "1:5 the text has no end"),
        ("mod ('a/b', '1.0.0'\n", "2:1 `)` is missing here"),
        (
            "mod 'a/b', {\n",
            "2:1 an option such as `:git => '…'` is missing here",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(mod|forge|'a/b'|:git|=>|,|\\{|\\}|\\(|\\)|\"|#|\n| |\\\\|=begin|git:|x){0,40}") {
        let _ = parse(&text);
    }
}
