//! `bunraku plan` of a Puppet environment on disk: modules, data files, facts and values.

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
    for (name, text) in FILES {
        let path = root.join(name);
        let directory = path.parent().expect("it is below the root");
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    root.display().to_string()
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
