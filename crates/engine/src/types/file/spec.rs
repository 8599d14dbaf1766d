//! The names and parameters of `file`.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "file",
    aliases: &[],
    summary: "A file, a directory, a symbolic link, or nothing, at a path.",
    name_parameter: "path",
    parameters: &[
        parameter("append", "lines to add at the end where they are missing"),
        parameter(
            "backup",
            "false: keep no copy of what is replaced; true by default",
        ),
        parameter("block", "the text between `block_start` and `block_end`"),
        parameter("block_end", "the line that ends the managed block"),
        parameter("block_start", "the line that begins the managed block"),
        parameter(
            "checksum",
            "accepted for Puppet's sake: content is compared itself",
        ),
        parameter("checksum_value", "the SHA-256 that `source` must have"),
        parameter("content", "what is in the file"),
        parameter("context", "a map of variables for the template"),
        parameter("create", "false: edit the file only if it exists"),
        parameter(
            "dir_mode",
            "the mode of directories made by `makedirs` and `recurse`",
        ),
        parameter(
            "ensure",
            "`present`, `file`, `directory`, `link`, `absent`, or a path to link to",
        ),
        parameter(
            "file_mode",
            "the mode of files made by `recurse`; `mode` by default",
        ),
        parameter("force", "true: also replace or remove directories"),
        parameter("group", "name or number of the group"),
        parameter(
            "ignore",
            "names (with `*` and `?`) that `recurse` and `purge` pass by",
        ),
        parameter("line", "a line that should be there"),
        parameter("line_after", "a pattern; a new line goes behind its match"),
        parameter("line_before", "a pattern; a new line goes before its match"),
        parameter("line_ensure", "`present` or `absent`"),
        parameter("line_match", "a pattern; the line replaces what it matches"),
        parameter(
            "links",
            "`manage` or `follow`; a link as the last part of the path is followed only with `follow`",
        ),
        parameter("makedirs", "true: make missing directories above"),
        parameter(
            "mode",
            "`0644` or `u=rw,go=r`; Puppet's directories get the search bit where they have the read bit",
        ),
        parameter("owner", "name or number of the owner"),
        parameter("path", "where; the title by default"),
        parameter(
            "pattern",
            "a regular expression to replace with `replacement`",
        ),
        parameter(
            "prepend",
            "lines to add at the beginning where they are missing",
        ),
        parameter("provider", "accepted for Puppet's sake, without effect"),
        parameter(
            "purge",
            "true: remove what is in the directory and not managed",
        ),
        parameter(
            "recurse",
            "true: own, or copy from `source`, everything below",
        ),
        parameter("recurselimit", "how many levels down `recurse` goes"),
        parameter("replace", "false: leave an existing file's content alone"),
        parameter(
            "replacement",
            "what matches of `pattern` become; `\\1` or `$1` is the first group",
        ),
        parameter(
            "selinux_ignore_defaults",
            "accepted for Puppet's sake, without effect",
        ),
        parameter("show_diff", "false: show no diff"),
        parameter(
            "source",
            "addresses of the content: the first that exists is taken",
        ),
        parameter(
            "source_permissions",
            "accepted for Puppet's sake: permissions are never copied",
        ),
        parameter(
            "sourceselect",
            "accepted for Puppet's sake: the first source counts",
        ),
        parameter(
            "staging_location",
            "accepted for Puppet's sake: files are staged beside their place",
        ),
        parameter("target", "where a link leads"),
        parameter("template", "`jinja`: the content or source is a template"),
        parameter(
            "validate_cmd",
            "a command that must accept the new file, as `%` (or at its end), before it lands",
        ),
        parameter(
            "validate_replacement",
            "the text in `validate_cmd` that stands for the file; `%` by default",
        ),
    ],
    states: &[
        StateFunction {
            function: "file.managed",
            implies: &[("ensure", "file")],
            arguments: MANAGED,
        },
        StateFunction {
            function: "file.directory",
            implies: &[("ensure", "directory")],
            arguments: DIRECTORY,
        },
        StateFunction {
            function: "file.recurse",
            implies: &[("ensure", "directory"), ("recurse", "true")],
            arguments: DIRECTORY,
        },
        StateFunction {
            function: "file.symlink",
            implies: &[("ensure", "link")],
            arguments: COMMON,
        },
        StateFunction {
            function: "file.absent",
            implies: &[("ensure", "absent"), ("force", "true")],
            arguments: COMMON,
        },
        StateFunction {
            function: "file.append",
            implies: &[],
            arguments: &[argument("name", "path"), argument("text", "append")],
        },
        StateFunction {
            function: "file.prepend",
            implies: &[],
            arguments: &[argument("name", "path"), argument("text", "prepend")],
        },
        StateFunction {
            function: "file.replace",
            implies: &[],
            arguments: &[
                argument("name", "path"),
                argument("repl", "replacement"),
                argument("show_changes", "show_diff"),
            ],
        },
        StateFunction {
            function: "file.blockreplace",
            implies: &[],
            arguments: &[
                argument("name", "path"),
                argument("marker_start", "block_start"),
                argument("marker_end", "block_end"),
                argument("content", "block"),
                argument("show_changes", "show_diff"),
            ],
        },
        StateFunction {
            function: "file.line",
            implies: &[],
            arguments: &[
                argument("name", "path"),
                argument("content", "line"),
                argument("match", "line_match"),
                argument("after", "line_after"),
                argument("before", "line_before"),
                argument("show_changes", "show_diff"),
            ],
        },
    ],
    example: r#"[
  {"type": "File", "title": "@ROOT@/app", "parameters": {"ensure": "directory", "mode": "0750"}},
  {"type": "File", "title": "@ROOT@/app/greeting", "parameters": {
    "content": "hello {{ name }}\n", "template": "jinja", "context": {"name": "world"},
    "mode": "0640", "validate_cmd": "/bin/grep -q hello %"}},
  {"type": "File", "title": "@ROOT@/app/settings", "parameters": {
    "append": ["colour = blue"], "line": "size = 3", "line_match": "^size ="}},
  {"type": "File", "title": "@ROOT@/app/current", "parameters": {"ensure": "link", "target": "greeting"}}
]"#,
};

const COMMON: &[Argument] = &[argument("name", "path"), argument("user", "owner")];

const MANAGED: &[Argument] = &[
    argument("name", "path"),
    argument("user", "owner"),
    argument("contents", "content"),
    argument("source_hash", "checksum_value"),
    argument("check_cmd", "validate_cmd"),
    argument("show_changes", "show_diff"),
];

const DIRECTORY: &[Argument] = &[
    argument("name", "path"),
    argument("user", "owner"),
    argument("clean", "purge"),
];
