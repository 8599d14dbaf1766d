//! `bunraku plan` of a Puppet environment on disk: modules, data files, facts, values, functions in
//! Ruby and queries.

use std::path::Path;

use serde_json::Value;

use crate::support::{Site, all_output, bunraku};

const FILES: &[(&str, &str)] = &[
    (
        "environment.conf",
        "modulepath = site:vendor:$basemodulepath\n",
    ),
    (
        "manifests/site.pp",
        "site {
           loadyaml('/etc/puppetlabs/code/environments/production/applications.yaml').each |$title, $nodes| {
             shop { $title: nodes => {
               Node[$nodes['db']] => Shop::Db[$title],
               Node[$nodes['web']] => Shop::Web[$title],
               Node[$nodes['lb']] => Shop::Lb[$title],
             } }
           }
         }",
    ),
    (
        "applications.yaml",
        "main: { db: n3.example.com, web: n2.example.com, lb: n1.example.com }\n",
    ),
    (
        "site/shop/manifests/init.pp",
        "application shop() {
           shop::db { $name: export => Sql[$name] }
           shop::web { $name: consume => Sql[$name], export => Http[$name] }
           shop::lb { $name: member => Http[$name], require => Http[$name] }
         }
         define shop::db(String $host = $facts['networking']['ip'], $port = 5432, $local = 1) { }
         define shop::web($host, $port, $local = 2) { }
         define shop::lb($member) { }
         Shop::Db produces Sql { }
         Shop::Web consumes Sql { }
         Shop::Web produces Http { address => $::fqdn }",
    ),
    (
        "vendor/capabilities/lib/puppet/type/sql.rb",
        "Puppet::Type.newtype :sql, :is_capability => true do\n  newparam :name\n  newparam(:host)\n  newproperty :port do\n  end\nend\n",
    ),
];

fn environment(site: &Site) -> String {
    let root = site.path("environment");
    write(&root, FILES);
    root.display().to_string()
}

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        let directory = path.parent().expect("it is below the root");
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
}

fn planned(arguments: &[&str]) -> Value {
    let output = bunraku()
        .args(["--json", "plan", "--offline"])
        .args(arguments)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn facts_file(path: &Path) -> String {
    let facts = serde_json::json!([
        { "certname": "n3.example.com", "facts": { "networking": { "ip": "192.0.2.3" } } },
        { "certname": "n2.example.com", "facts": { "fqdn": "web.example.com" } },
        { "certname": "n1.example.com", "facts": {} },
    ]);
    std::fs::write(path, facts.to_string()).expect("a file");
    path.display().to_string()
}

#[test]
fn an_environment_is_planned_from_its_directory() {
    let site = Site::new();
    let root = environment(&site);
    let plan = planned(&["--site", &root]);
    let groups = serde_json::json!([["n3.example.com"], ["n2.example.com"], ["n1.example.com"]]);
    assert_eq!(plan["groups"], groups);
    let warnings = plan["warnings"].to_string();
    assert!(
        warnings.contains("no facts for n1.example.com"),
        "{warnings}"
    );
}

#[test]
fn consumers_receive_the_values_of_producers() {
    let site = Site::new();
    let root = environment(&site);
    let facts = facts_file(&site.path("facts.json"));
    let values = planned(&["--site", &root, "--values", "--facts", &facts]);
    let web = &values[1];
    assert_eq!(web["component"], "Shop::Web[main]");
    assert_eq!(web["nodes"][0], "n2.example.com");
    // `local` is not a parameter of the capability's type.
    let parameters = serde_json::json!({ "host": "192.0.2.3", "port": 5432, "local": 2 });
    assert_eq!(web["parameters"], parameters);
    let lb = &values[2];
    assert_eq!(
        lb["requires"]["Http[main]"]["address"], "web.example.com",
        "{lb}"
    );
}

/// A site whose nodes come from functions in Ruby, of both kinds, and from a query.
const COMPUTED: &[(&str, &str)] = &[
    (
        "manifests/site.pp",
        "site {
           $nodes = shop::placed('n', Shop::Db['main'])
           $webs = puppetdb_query('inventory[certname] { facts.role = \"web\" }').map |$row| { $row['certname'] }
           shop { 'main':
             webs  => $webs,
             nodes => $nodes + Hash($webs.map |$web| { [Node[$web], Shop::Web[$web]] }),
           }
         }",
    ),
    (
        "modules/shop/manifests/init.pp",
        "application shop(Array[String] $webs) {
           shop::db { 'main': export => Sql['main'] }
           $webs.each |$web| { shop::web { $web: consume => Sql['main'] } }
         }
         define shop::db($secret = shop::wrapped('s3cret'), $hash = old_digest('a'), $rank = $facts['rank']) { }
         define shop::web($hash) { }
         Shop::Db produces Sql { hash => $hash }
         Shop::Web consumes Sql { }",
    ),
    (
        "modules/shop/lib/puppet/functions/shop/placed.rb",
        "Puppet::Functions.create_function(:'shop::placed') do
           dispatch(:placed) { param 'String', :prefix; param 'Any', :component }
           def placed(prefix, component)
             { Puppet::Resource.new('Node', \"#{prefix}1.example.com\") => component }
           end
         end
",
    ),
    (
        "modules/shop/lib/puppet/functions/shop/wrapped.rb",
        "Puppet::Functions.create_function(:'shop::wrapped') do
           def wrapped(text)
             Puppet::Pops::Types::PSensitiveType::Sensitive.new(text)
           end
         end
",
    ),
    (
        "modules/shop/lib/puppet/parser/functions/old_digest.rb",
        "Puppet::Parser::Functions.newfunction(:old_digest, type: :rvalue) do |arguments|
           \"#{arguments[0]}-#{lookupvar('facts')['rank']}\"
         end
",
    ),
];

#[test]
fn functions_in_ruby_and_queries_decide_where_components_run() {
    let site = Site::new();
    let root = site.path("computed");
    write(&root, COMPUTED);
    let facts = serde_json::json!([
        { "certname": "n1.example.com", "facts": { "rank": "first" } },
        { "certname": "w1.example.com", "facts": { "role": "web" } },
        { "certname": "w2.example.com", "facts": { "role": "web" } },
    ]);
    let file = site.path("facts.json");
    std::fs::write(&file, facts.to_string()).expect("a file");
    let (root, file) = (root.display().to_string(), file.display().to_string());
    let plan = planned(&["--site", &root, "--facts", &file]);
    let groups = serde_json::json!([["n1.example.com"], ["w1.example.com", "w2.example.com"]]);
    assert_eq!(plan["groups"], groups, "{plan}");
    let values = planned(&["--site", &root, "--values", "--facts", &file]);
    let text = values.to_string();
    assert_eq!(values[1]["parameters"]["hash"], "a-first", "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn a_function_in_ruby_that_fails_or_leaves_the_sandbox_is_an_error_at_its_place() {
    let site = Site::new();
    let root = site.path("failing");
    let outside = site.path("outside");
    let function = format!(
        "Puppet::Functions.create_function(:'shop::placed') do
           def placed(*)
             File.write({:?}, 'x')
           end
         end
",
        outside.display()
    );
    write(&root, COMPUTED);
    write(
        &root,
        &[(
            "modules/shop/lib/puppet/functions/shop/placed.rb",
            &function,
        )],
    );
    let output = bunraku()
        .args(["plan", "--offline", "--site"])
        .arg(&root)
        .output()
        .expect("it runs");
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("`shop::placed` failed"), "{text}");
    assert!(text.contains("sandbox"), "{text}");
    assert!(text.contains("site.pp:2:21"), "{text}");
    assert!(!outside.exists(), "{text}");
}
