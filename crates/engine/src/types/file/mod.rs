//! `file`: what is at a path.

use std::path::PathBuf;

use serde_json::json;

use crate::spec::parameter;
use crate::{
    Applied, Change, Declaration, Hands, Provider, Refusal, Relations, ResourceType, Shown, Sight,
    StepError, Thing, TypeSpec,
};

pub(crate) struct File;

static SPEC: TypeSpec = TypeSpec {
    name: "file",
    aliases: &[],
    summary: "A file or a directory.",
    name_parameter: "path",
    parameters: &[
        parameter("path", "where; the title by default"),
        parameter("ensure", "`file` or `directory`"),
        parameter("content", "what is in the file"),
    ],
    states: &[],
    example: r#"[{"type": "File", "title": "@ROOT@/motd", "parameters": {"content": "hello\n"}}]"#,
};

pub(crate) struct Wish {
    path: PathBuf,
    directory: bool,
    content: Vec<u8>,
}

#[derive(PartialEq)]
pub(crate) enum Seen {
    Nothing,
    Directory,
    File(Vec<u8>),
}

impl ResourceType for File {
    type Desired = Wish;
    type Observed = Seen;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        let ensure = declaration.word("ensure", &["file", "directory", "present"])?;
        Ok(Wish {
            path: declaration.name()?.into(),
            directory: ensure == Some("directory"),
            content: declaration.bytes("content")?.unwrap_or_default(),
        })
    }

    fn changes(&self, desired: &Wish, observed: &Seen) -> Vec<Change> {
        match (desired.directory, observed) {
            (true, Seen::Directory) => Vec::new(),
            (true, _) => vec![Change::new("ensure", Shown::Absent, json!("directory"))],
            (false, Seen::File(content)) if *content == desired.content => Vec::new(),
            (false, _) => vec![Change::new(
                "content",
                Shown::Absent,
                json!(desired.content.len()),
            )],
        }
    }

    fn relations(&self, desired: &Wish, relations: &mut Relations) {
        relations.provides(Thing::Path(desired.path.clone()));
        relations.needs_path_above(&desired.path);
    }
}

impl Provider for File {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        let path = sight.path(&desired.path);
        if path.is_dir() {
            return Ok(Seen::Directory);
        }
        Ok(std::fs::read(path).map_or(Seen::Nothing, Seen::File))
    }

    fn apply(
        &self,
        desired: &Wish,
        _: &Seen,
        _: &[Change],
        hands: &Hands<'_>,
    ) -> Result<Applied, StepError> {
        let path = hands.path(&desired.path);
        let done = if desired.directory {
            std::fs::create_dir(&path)
        } else {
            std::fs::write(&path, &desired.content)
        };
        done.map_err(|error| {
            StepError::because(format!("cannot write {}", path.display()), error)
        })?;
        Ok(Applied::default())
    }
}
