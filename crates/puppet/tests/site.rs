//! Sites as users write them: text in, text out.

use bunraku_puppet::{Limits, NoModules, Site, evaluate_site};
use expect_test::{Expect, expect, expect_file};

/// The example's application, as one file.
pub(crate) const LAMP: &str = concat!(
    include_str!("../../../examples/site/modules/lamp/manifests/init.pp"),
    include_str!("../../../examples/site/modules/lamp/manifests/mysql.pp"),
    include_str!("../../../examples/site/modules/lamp/manifests/webapp.pp"),
);

/// The example's site.
pub(crate) const SITE: &str = include_str!("../../../examples/site/manifests/site.pp");

fn describe(site: &Site) -> String {
    let mut text = String::new();
    for application in &site.applications {
        text.push_str(&format!("{}\n", application.reference));
        for component in &application.components {
            let nodes: Vec<_> = component
                .nodes
                .iter()
                .map(|node| node.name.as_str())
                .collect();
            text.push_str(&format!(
                "  {} on {}\n",
                component.reference,
                nodes.join(", ")
            ));
            for produced in &component.produces {
                text.push_str(&format!("    produces {}\n", produced.name));
            }
            for consumed in &component.consumes {
                text.push_str(&format!("    consumes {}\n", consumed.name));
            }
            for (name, value) in &component.parameters {
                text.push_str(&format!("    {name} = {value}\n"));
            }
        }
    }
    for note in &site.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn evaluated(files: &[(&str, &str)]) -> String {
    let files: Vec<(String, String)> = files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    match evaluate_site(&files, &NoModules, &Limits::default()) {
        Ok(site) => describe(&site),
        Err(error) => format!("error: {error}\n"),
    }
}

fn check(site: &str, expected: Expect) {
    expected.assert_eq(&evaluated(&[("site.pp", site)]));
}

#[test]
fn the_seeds_site_is_evaluated_as_it_is_written() {
    let text = evaluated(&[("lamp.pp", LAMP), ("site.pp", SITE)]);
    expect_file!["snapshots/example_site.txt"].assert_eq(&text);
}

#[test]
fn an_unknown_application_is_named_with_its_place() {
    let text = evaluated(&[
        ("lamp.pp", LAMP),
        ("site.pp", "site {\n  lam { 'a': }\n}\n"),
    ]);
    expect![[r#"
        error: no application `lam`
         --> site.pp:2:3
        2 |   lam { 'a': }
          |   ^^^^^^^^^

        hint: did you mean `lamp`?
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_missing_parameter_shows_where_it_is_declared() {
    let text = evaluated(&[
        ("lamp.pp", LAMP),
        ("site.pp", "site { lamp { 'a': db_user => 'u' } }"),
    ]);
    expect![[r#"
        error: `Lamp[a]` needs a value for `db_password`
         --> site.pp:1:8
        1 | site { lamp { 'a': db_user => 'u' } }
          |        ^^^^^^^^^^
         ::: lamp.pp:4:3
        4 |   String $db_password,
          |   ------------------- it has no default
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_value_of_the_wrong_type_is_refused_at_the_value() {
    let site =
        "site {\n  lamp { 'a': db_user => 'u', db_password => 'p', web_instances => 'three' }\n}";
    let text = evaluated(&[("lamp.pp", LAMP), ("site.pp", site)]);
    expect![[r#"
        error: `$web_instances` of `Lamp[a]` must be Integer[1], not the String 'three'
         --> site.pp:2:68
        2 |   lamp { 'a': db_user => 'u', db_password => 'p', web_instances => 'three' }
          |                                                                    ^^^^^^^
         ::: lamp.pp:5:3
        5 |   Integer[1] $web_instances = 1,
          |   ----------------------------- declared here
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_component_that_the_application_lacks_is_refused_in_nodes() {
    let site = "site {
  lamp { 'a': db_user => 'u', db_password => 'p',
    nodes => { Node['n1'] => Lamp::Mysql['b'] } }
}";
    let text = evaluated(&[("lamp.pp", LAMP), ("site.pp", site)]);
    expect![[r#"
        error: `nodes` refers to `Lamp::Mysql[b]`, but `Lamp[a]` has no such component
         --> site.pp:3:14
        3 |     nodes => { Node['n1'] => Lamp::Mysql['b'] } }
          |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

        hint: did you mean `Lamp::Mysql[a]`?
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_component_may_be_declared_once_only() {
    check(
        "application one() { thing { 'a': } thing { 'a': } }\nsite { one { 'x': } }",
        expect![[r#"
            error: `Thing[a]` is declared twice
             --> site.pp:1:36
            1 | application one() { thing { 'a': } thing { 'a': } }
              |                                    ^^^^^^^^^^^ second declaration
             ::: site.pp:1:21
            1 | application one() { thing { 'a': } thing { 'a': } }
              |                     ----------- first declared here
        "#]],
    );
}

#[test]
fn code_can_choose_count_and_calculate() {
    check(
        r#"
$sizes = { 'small' => 1, 'large' => 2 }
application farm(Enum['small', 'large'] $size = 'small', Hash $extra = {}) {
  $count = $size ? { 'large' => $::sizes['large'] * 2, default => $::sizes[$size] }
  $names = Integer[1, $count].map |$n| { sprintf('web-%02d', $n) }
  $names.filter |$n| { $n =~ /0[13]/ }.each |$index, $n| {
    if $index > 0 and $n != 'web-01' {
      web { "${name}.${n}": last => true, all => $names.join(','), total => $names.size }
    } elsif $extra.empty {
      web { "${name}.${n}": first => "no ${extra['x']} extra" }
    } else {
      fail("unexpected: ${extra}")
    }
  }
  case $size {
    'small': { web { "small-${name}": } }
    /^lar/: { web { "big-${0}": } }
    default: { fail('never') }
  }
}
site {
  farm { 'one': size => 'large' }
  ['two', 'three'].each |String $t| { farm { $t: } }
}
"#,
        expect![[r#"
            Farm[one]
              Web[one.web-01] on 
                first = no  extra
              Web[one.web-03] on 
                last = true
                all = web-01,web-02,web-03,web-04
                total = 4
              Web[big-lar] on 
            Farm[two]
              Web[two.web-01] on 
                first = no  extra
              Web[small-two] on 
            Farm[three]
              Web[three.web-01] on 
                first = no  extra
              Web[small-three] on 
            note: `Web` is not defined in the given files
              --> site.pp:10:7
            10 |       web { "${name}.${n}": first => "no ${extra['x']} extra" }
               |       ^^^^^^^^^^^^^^^^^^^^

            hint: its parameters are not checked
            note: `Web` is not defined in the given files
             --> site.pp:8:7
            8 |       web { "${name}.${n}": last => true, all => $names.join(','), total => $names.size }
              |       ^^^^^^^^^^^^^^^^^^^^

            hint: its parameters are not checked
            note: `Web` is not defined in the given files
              --> site.pp:17:15
            17 |     /^lar/: { web { "big-${0}": } }
               |               ^^^^^^^^^^^^^^^^

            hint: its parameters are not checked
            note: `Web` is not defined in the given files
              --> site.pp:16:16
            16 |     'small': { web { "small-${name}": } }
               |                ^^^^^^^^^^^^^^^^^^^^^

            hint: its parameters are not checked
        "#]],
    );
}

#[test]
fn capabilities_pass_along_a_chain_whatever_the_order_in_the_file() {
    check(
        r#"
define c($url) { }
C consumes B { url => "${addr}/c" }
define b($host, $addr = "${host}:80") { }
B consumes A { host => $name }
B produces B { addr => $addr }
define a() { }
A produces A { }
application chain() {
  c { $name: consume => B[$name] }
  b { $name: consume => A["${name}-a"], export => B[$name] }
  a { $name: export => A["${name}-a"] }
}
site { chain { 'x': nodes => { Node['n'] => [C['x'], B['x'], A['x']] } } }
"#,
        expect![[r#"
            Chain[x]
              C[x] on n
                consumes B[x]
                url = x-a:80/c
              B[x] on n
                produces B[x]
                consumes A[x-a]
                host = x-a
                addr = x-a:80
              A[x] on n
                produces A[x-a]
        "#]],
    );
}

#[test]
fn secrets_are_not_shown() {
    check(
        "application one(Sensitive[String] $p) { thing { 'a': p => $p, q => \"${p}\" } }
site { one { 'x': p => Sensitive('hunter2') } }",
        expect![[r#"
            One[x]
              Thing[a] on 
                p = Sensitive [value redacted]
                q = Sensitive [value redacted]
            note: `Thing` is not defined in the given files
             --> site.pp:1:41
            1 | application one(Sensitive[String] $p) { thing { 'a': p => $p, q => "${p}" } }
              |                                         ^^^^^^^^^^^

            hint: its parameters are not checked
        "#]],
    );
}

#[test]
fn syntax_errors_point_at_their_place() {
    check(
        "site {\n  lamp { 'a'\n    x => 1 }\n}",
        expect![[r#"
            error: expected `:` after the title of this resource, found `x`
             --> site.pp:3:5
            3 |     x => 1 }
              |     ^ expected `:` after the title of this resource
        "#]],
    );
    check(
        "$a = \"never ${closed",
        expect![[r#"
            error: `${` is never closed
             --> site.pp:1:13
            1 | $a = "never ${closed
              |             ^^

            hint: add `}`
        "#]],
    );
    check(
        "site {\n  each([1]) |$x| { \n",
        expect![[r#"
            error: expected `}` at the end of this lambda, found the end
             --> site.pp:3:1
            3 | 
              | ^ expected `}` at the end of this lambda
             ::: site.pp:2:18
            2 |   each([1]) |$x| {
              |                  - opened here
        "#]],
    );
}
