//! The names and parameters of `file`.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "file",
    aliases: &[],
    summary: "A file, a directory, a symbolic link, or the absence of any of these.",
    name_parameter: "path",
    parameters: &[
        parameter("append", "lines to add at the end where they are missing"),
        parameter(
            "backup",
            "false: keep no backup of replaced files; true by default",
        ),
        parameter("block", "the text between `block_start` and `block_end`"),
        parameter("block_end", "the line that ends the managed block"),
        parameter("block_start", "the line that starts the managed block"),
        parameter(
            "checksum",
            "accepted for compatibility with Puppet: the content itself is compared",
        ),
        parameter("checksum_value", "the SHA-256 that `source` must have"),
        parameter("content", "the content of the file"),
        parameter("context", "a map of variables for the template"),
        parameter("create", "false: edit the file only if it exists"),
        parameter(
            "dir_mode",
            "the mode of directories created by `makedirs` and `recurse`",
        ),
        parameter(
            "ensure",
            "`present`, `file`, `directory`, `link`, `absent`, or a path to link to",
        ),
        parameter(
            "file_mode",
            "the mode of files created by `recurse`; `mode` by default",
        ),
        parameter("force", "true: allow replacing and removing directories"),
        parameter("group", "name or id of the group"),
        parameter(
            "ignore",
            "names (with `*` and `?`) that `recurse` and `purge` ignore",
        ),
        parameter("line", "a line that the file should contain"),
        parameter(
            "line_after",
            "a pattern; a new line is inserted after its match",
        ),
        parameter(
            "line_before",
            "a pattern; a new line is inserted before its match",
        ),
        parameter("line_ensure", "`present` or `absent`"),
        parameter(
            "line_match",
            "a pattern; the line replaces the matching line",
        ),
        parameter(
            "links",
            "`manage` or `follow`; a link at the end of the path is followed only with `follow`",
        ),
        parameter("makedirs", "true: create missing parent directories"),
        parameter(
            "mode",
            "`0644` or `u=rw,go=r`; in Puppet catalogs, directories get the search bit wherever they have the read bit",
        ),
        parameter("owner", "name or id of the owner"),
        parameter("path", "the path; the title by default"),
        parameter(
            "pattern",
            "a regular expression to replace with `replacement`",
        ),
        parameter(
            "prepend",
            "lines to add at the beginning where they are missing",
        ),
        parameter(
            "provider",
            "accepted for compatibility with Puppet; no effect",
        ),
        parameter("purge", "true: remove unmanaged files from the directory"),
        parameter(
            "recurse",
            "true: manage everything below, or copy it from `source`",
        ),
        parameter("recurselimit", "maximum depth of `recurse`"),
        parameter("replace", "false: keep the content of an existing file"),
        parameter(
            "replacement",
            "the replacement for matches of `pattern`; `\\1` or `$1` is the first group",
        ),
        parameter(
            "selinux_ignore_defaults",
            "accepted for compatibility with Puppet; no effect",
        ),
        parameter(
            "show_diff",
            "true: show the diff; false: show none; default: only if everyone may read the file, before and after",
        ),
        parameter(
            "source",
            "addresses of the content; the first one that exists is used",
        ),
        parameter(
            "source_permissions",
            "accepted for compatibility with Puppet: permissions are never copied",
        ),
        parameter(
            "sourceselect",
            "accepted for compatibility with Puppet: the first source is used",
        ),
        parameter(
            "staging_location",
            "accepted for compatibility with Puppet: files are staged next to their destination",
        ),
        parameter("target", "the target of a link"),
        parameter("template", "`jinja`: the content or source is a template"),
        parameter(
            "validate_cmd",
            "a command that must accept the new file, which replaces `%` or is appended, before it is put in place",
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
