//! Wrong invocations: what each says, what it suggests, and its exit code.
//!
//! One table, on a server with one node, one environment and one release. Nothing here may change
//! anything, and nothing may exit with 0.

use crate::code::release_to_all;
use crate::support::{Site, all_output, bunraku, ended};

/// A wrong command line, its exit code, and a part of each line that it must print.
type Wrong<'a> = (&'a [&'a str], i32, &'a [&'a str]);

const QUERY: &str = "nodes { facts.kernel = \"Plan9\" }";

const WRONG: &[Wrong<'_>] = &[
    // The usage names what this command needs, and no options that were given.
    (
        &["release", "hold", "production"],
        64,
        &[
            "--reason <REASON>",
            "Usage: bunraku release hold [OPTIONS] --reason <REASON> <ENVIRONMENT>",
        ],
    ),
    // An environment that does not exist.
    (
        &["release", "hold", "prodution", "--reason", "freeze"],
        1,
        &[
            "environment `prodution` does not exist",
            "hint: did you mean `production`?",
        ],
    ),
    (
        &["release", "create", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["release", "diff", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["release", "list", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["release", "resume", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["release", "rollback", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["compile", "--environment", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["catalog", "list", "--environment", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["node", "list", "--environment", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["node", "assign", "web-1", "prodution"],
        1,
        &[
            "environment `prodution` does not exist",
            "did you mean `production`?",
        ],
    ),
    (
        &["environment", "show", "qa"],
        1,
        &[
            "environment `qa` does not exist",
            "bunraku environment list",
        ],
    ),
    // Nodes that do not exist, and queries that match none.
    (
        &["node", "show", "web-11"],
        1,
        &["node `web-11` does not exist", "did you mean `web-1`?"],
    ),
    (
        &["report", "list", "--node", "nope"],
        1,
        &["node `nope` does not exist", "bunraku node list"],
    ),
    (
        &["catalog", "list", "--node", "nope"],
        1,
        &["node `nope` does not exist", "bunraku node list"],
    ),
    (
        &["release", "create", "production", "--query", QUERY],
        1,
        &["the query matches no node", "bunraku node list --query"],
    ),
    (
        &["release", "create", "production", "--nodes", "nope"],
        4,
        &[
            "`nope` has no compiled catalog in `production`",
            "bunraku catalog list",
        ],
    ),
    (
        &["trigger", "fire", "rebuild", "--query", QUERY],
        1,
        &[
            "the query matches no node, so nothing was fired",
            "bunraku node list --query",
        ],
    ),
    // Other things that do not exist.
    (
        &["trigger", "show", "rebiuld"],
        1,
        &[
            "trigger `rebiuld` does not exist",
            "did you mean `rebuild`?",
        ],
    ),
    (
        &["trigger", "show", "nope"],
        1,
        &["trigger `nope` does not exist", "bunraku trigger list"],
    ),
    (
        &["release", "resume", "production"],
        1,
        &["a hold on `production` does not exist", "not paused"],
    ),
    (
        &["release", "show", "production", "99"],
        1,
        &[
            "release 99 of `production` does not exist",
            "bunraku release list production",
        ],
    ),
    // Values that cannot be.
    (
        &["release", "create", "production", "--percent", "150"],
        64,
        &["invalid value '150'", "more than 0 and at most 100"],
    ),
    (
        &["node", "list", "--status", "happy"],
        64,
        &[
            "invalid value 'happy'",
            "possible values: new, idle, running, disabled, lost",
        ],
    ),
    (
        &["node", "list", "--query", "nodes { certnam = \"a\" }"],
        1,
        &["no field `certnam`", "did you mean `certname`?"],
    ),
    // What would be lost silently.
    (
        &["trigger", "define", "rebuild", "--quiet", "5s"],
        4,
        &[
            "is defined already",
            "would remove --query",
            "pass `--replace`",
        ],
    ),
    // Programs that do not exist or cannot run, as shells report them.
    (
        &["lock", "exec", "deploy", "--", "no-such-program"],
        127,
        &["cannot run `no-such-program`: command not found"],
    ),
    (
        &["lock", "exec", "deploy", "--", "/etc/passwd"],
        126,
        &["cannot run `/etc/passwd`: permission denied"],
    ),
];

#[test]
fn wrong_invocations_say_what_is_wrong_and_what_to_do() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    release_to_all(&site, &server, "resources:\n  Notify[hello]: {}\n");
    let trigger = ["trigger", "define", "rebuild", "--query", "nodes {}"];
    ended(&server.operator(&trigger), 0);
    for (arguments, exit, parts) in WRONG {
        // In front: what follows `--` belongs to another program.
        let output = bunraku()
            .arg("--server")
            .arg(server.address.to_string())
            .arg("--credentials")
            .arg(server.credentials())
            .args(*arguments)
            .output()
            .expect("it runs");
        let text = all_output(&output);
        let line = arguments.join(" ");
        assert_eq!(output.status.code(), Some(*exit), "{line}\n{text}");
        for part in *parts {
            assert!(
                text.contains(part),
                "{line}: `{part}` is missing in\n{text}"
            );
        }
    }
    // The first release has nothing to be compared with, and says how to see it.
    let first = all_output(&server.operator(&["release", "diff", "production", "1"]));
    assert!(
        first.contains("these are the first catalogs of 1 node."),
        "{first}"
    );
    assert!(
        first.contains("`bunraku release show production 1`"),
        "{first}"
    );
    let list = server.json(&["release", "list", "production"]);
    assert_eq!(list["releases"].as_array().map(Vec::len), Some(1), "{list}");
    assert!(list["hold"].is_null(), "{list}");
}
