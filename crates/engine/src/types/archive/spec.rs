//! The parameters of archives.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "archive",
    aliases: &[],
    summary: "The content of a tar or zip archive, unpacked into a directory. Nothing in an archive can reach out of that directory. With `creates`, it is left alone once that exists.",
    name_parameter: "path",
    parameters: &[
        parameter("path", "the directory to unpack into; the title by default"),
        parameter(
            "extract_path",
            "another word for `path`, as Puppet's `archive` has it",
        ),
        parameter("ensure", "`present`"),
        parameter("source", "the archive's address"),
        parameter("checksum", "`sha256:…`, `sha512=…`, or the digits alone"),
        parameter(
            "checksum_type",
            "`sha256` or `sha512`, where the checksum does not say",
        ),
        parameter(
            "format",
            "`tar`, `tar.gz`, `tar.xz`, `tar.bz2`, `tar.zst` or `zip`; from the source's name by default",
        ),
        parameter("user", "who owns what is unpacked"),
        parameter("group", "the group of what is unpacked"),
        parameter(
            "strip_components",
            "leading directories to leave out of each name",
        ),
        parameter("max_size", "bytes that it may unpack to; 16 GiB by default"),
    ],
    states: &[StateFunction {
        function: "archive.extracted",
        implies: &[("ensure", "present")],
        arguments: &[
            argument("name", "path"),
            argument("source_hash", "checksum"),
            argument("archive_format", "format"),
            argument("if_missing", "creates"),
        ],
    }],
    example: r#"[
  {"type": "Exec", "title": "make an archive", "parameters": {
    "command": "mkdir -p @ROOT@/app && echo hello > @ROOT@/app/motd && tar -czf @ROOT@/app.tar.gz -C @ROOT@ app",
    "provider": "shell", "path": "/usr/bin:/bin", "creates": "@ROOT@/app.tar.gz"}},
  {"type": "Archive", "title": "@ROOT@/unpacked", "parameters": {
    "source": "@ROOT@/app.tar.gz", "require": "Exec[make an archive]"}}]"#,
};
