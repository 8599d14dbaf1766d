//! The parameters of archives.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "archive",
    aliases: &[],
    summary: "The content of a tar or zip archive, unpacked into a directory. Paths in an archive cannot lead outside that directory. With `creates`, the archive is not unpacked if that path exists.",
    name_parameter: "path",
    parameters: &[
        parameter("path", "the directory to unpack into; the title by default"),
        parameter("extract_path", "alias of `path`, as in Puppet's `archive`"),
        parameter("ensure", "`present`"),
        parameter("source", "the address of the archive"),
        parameter("checksum", "`sha256:…`, `sha512=…`, or only the digits"),
        parameter(
            "checksum_type",
            "`sha256` or `sha512`, if the checksum has no prefix",
        ),
        parameter(
            "format",
            "`tar`, `tar.gz`, `tar.xz`, `tar.bz2`, `tar.zst` or `zip`; derived from the source's name by default",
        ),
        parameter("user", "the owner of the unpacked files"),
        parameter("group", "the group of the unpacked files"),
        parameter(
            "strip_components",
            "number of leading directories to remove from each name",
        ),
        parameter(
            "max_size",
            "maximum size of the unpacked content in bytes; 16 GiB by default",
        ),
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
