//! The declaration of a `file`, parsed and checked.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::edit::{self, Edit};
use super::mode::FileMode;
use crate::{Declaration, Refusal, Relations, SystemObject};

pub(crate) struct DesiredFile {
    pub(super) path: PathBuf,
    pub(super) ensure: Ensure,
    pub(super) content: Content,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
    pub(super) mode: Option<FileMode>,
    pub(super) directory_mode: Option<FileMode>,
    pub(super) file_mode: Option<FileMode>,
    pub(super) replace: bool,
    pub(super) force: bool,
    pub(super) backup: bool,
    pub(super) makedirs: bool,
    pub(super) create: bool,
    pub(super) show_diff: ShowDiff,
    pub(super) follow: bool,
    pub(super) validate: Option<Validate>,
    pub(super) tree: Option<Tree>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ensure {
    /// Manage an existing object. Create a file if content is declared.
    Unspecified,
    /// Any object. Create a file if nothing exists.
    Present,
    File,
    Directory,
    Link(PathBuf),
    Absent,
}

/// The source of the content.
pub(super) enum Content {
    Unmanaged,
    Bytes(Vec<u8>),
    Source {
        addresses: Vec<String>,
        checksum: Option<String>,
    },
    Template {
        of: Template,
        context: Map<String, Value>,
    },
    Edits(Vec<Edit>),
}

pub(super) enum Template {
    Text(String),
    Source(Vec<String>),
}

/// A command that must accept a file before it is put in place.
pub(super) struct Validate {
    pub(super) command: String,
    pub(super) placeholder: String,
}

/// The settings for everything below a directory.
pub(super) struct Tree {
    pub(super) recurse: bool,
    pub(super) limit: usize,
    pub(super) purge: bool,
    /// Puppet purges directories only with `force`.
    pub(super) purge_directories: bool,
    pub(super) ignore: Vec<String>,
}

/// Whether a diff of the content is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShowDiff {
    Always,
    /// If everyone on the machine may read the file, before and after: reports must not show more
    /// than the file itself.
    IfReadable,
    Never,
}

impl DesiredFile {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        for name in [
            "checksum",
            "provider",
            "selinux_ignore_defaults",
            "source_permissions",
            "sourceselect",
            "staging_location",
        ] {
            declaration.text(name)?;
        }
        let path = absolute(declaration)?;
        let ensure = ensure(declaration)?;
        let content = content(declaration)?;
        let tree = tree(declaration)?;
        if matches!(ensure, Ensure::Directory)
            && !matches!(content, Content::Unmanaged | Content::Source { .. })
        {
            return Err(Refusal::other("a directory has no content"));
        }
        if tree
            .as_ref()
            .is_some_and(|tree| tree.purge && !tree.recurse)
            && !declaration.is_state()
        {
            return Err(Refusal::other("`purge` needs `recurse`"));
        }
        let mode = FileMode::read(declaration, "mode")?;
        let puppets = |mode: &FileMode| {
            if declaration.is_state() {
                mode.clone()
            } else {
                mode.searchable()
            }
        };
        let directory_mode =
            FileMode::read(declaration, "dir_mode")?.or_else(|| mode.as_ref().map(puppets));
        let secret = [
            "content",
            "context",
            "block",
            "line",
            "append",
            "prepend",
            "replacement",
        ];
        let secret = secret.iter().any(|name| declaration.is_sensitive(name));
        Ok(Self {
            path,
            ensure,
            content,
            owner: declaration.text("owner")?,
            group: declaration.text("group")?,
            file_mode: FileMode::read(declaration, "file_mode")?.or_else(|| mode.clone()),
            mode,
            directory_mode,
            replace: declaration.boolean("replace")?.unwrap_or(true),
            force: declaration.boolean("force")?.unwrap_or(false),
            backup: declaration.value("backup") != Some(&Value::Bool(false)),
            makedirs: declaration.boolean("makedirs")?.unwrap_or(false),
            create: declaration.boolean("create")?.unwrap_or(true),
            show_diff: match declaration.boolean("show_diff")? {
                _ if secret => ShowDiff::Never,
                Some(false) => ShowDiff::Never,
                Some(true) => ShowDiff::Always,
                None => ShowDiff::IfReadable,
            },
            follow: declaration.word("links", &["follow", "manage"])? == Some("follow"),
            validate: validate(declaration)?,
            tree,
        })
    }

    pub(super) fn relations(&self, relations: &mut Relations) {
        relations.provides(SystemObject::Path(self.path.clone()));
        relations.needs_path_above(&self.path);
        if let Some(owner) = &self.owner {
            relations.needs(SystemObject::User(owner.clone()), "its owner");
        }
        if let Some(group) = &self.group {
            relations.needs(SystemObject::Group(group.clone()), "its group");
        }
        for service in crate::types::service::readers(&self.path) {
            relations.genius_serves(SystemObject::Service(service), "its configuration");
        }
        if let Ensure::Link(target) = &self.ensure {
            let target = self.path.parent().unwrap_or(Path::new("/")).join(target);
            relations.genius_needs(SystemObject::Path(target), "where it leads");
        }
        if let Content::Source { addresses, .. } = &self.content {
            for address in addresses.iter().filter(|address| address.starts_with('/')) {
                relations.genius_needs(SystemObject::Path(address.into()), "its source");
            }
        }
    }
}

/// Returns the path without `.`, double or trailing slashes. `..` is refused: its
/// meaning depends on links.
fn absolute(declaration: &Declaration) -> Result<PathBuf, Refusal> {
    let text = declaration.name()?;
    let path = Path::new(&text);
    let climbs = path
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    if !path.is_absolute() || climbs || text.contains('\0') {
        return Err(Refusal::other(format!(
            "`{text}` is not an absolute path without `..`"
        )));
    }
    Ok(path.components().collect())
}

fn ensure(declaration: &Declaration) -> Result<Ensure, Refusal> {
    let target = declaration.text("target")?;
    let word = match declaration.value("ensure") {
        Some(Value::Bool(false)) => Some("absent".to_owned()),
        Some(Value::Bool(true)) => Some("present".to_owned()),
        _ => declaration.text("ensure")?,
    };
    Ok(match (word.as_deref(), target) {
        (None, Some(target)) => Ensure::Link(target.into()),
        (None, None) => Ensure::Unspecified,
        (Some("present"), _) => Ensure::Present,
        (Some("file"), _) => Ensure::File,
        (Some("directory"), _) => Ensure::Directory,
        (Some("absent"), _) => Ensure::Absent,
        (Some("link"), Some(target)) => Ensure::Link(target.into()),
        (Some("link"), None) => return Err(Refusal::Missing("target")),
        (Some(path), None) if path.starts_with(['/', '.']) => Ensure::Link(path.into()),
        (Some(_), _) => {
            return Err(
                declaration.refuse("ensure", "present, file, directory, link, absent or a path")
            );
        }
    })
}

fn content(declaration: &Declaration) -> Result<Content, Refusal> {
    let edits = edit::read(declaration)?;
    let bytes = declaration.bytes("content")?;
    let source = declaration.texts("source")?;
    let given = usize::from(bytes.is_some())
        + usize::from(source.is_some())
        + usize::from(!edits.is_empty());
    if given > 1 {
        return Err(Refusal::other(
            "`content`, `source` and edits exclude each other",
        ));
    }
    let template = declaration.word("template", &["jinja"])?.is_some();
    let context = match declaration.value("context") {
        None => Map::new(),
        Some(Value::Object(context)) => context.clone(),
        Some(_) => return Err(declaration.refuse("context", "a map")),
    };
    Ok(match (bytes, source, template) {
        _ if !edits.is_empty() => Content::Edits(edits),
        (Some(bytes), _, true) => {
            let text = String::from_utf8(bytes)
                .map_err(|_| declaration.refuse("content", "a string, because it is a template"))?;
            Content::Template {
                of: Template::Text(text),
                context,
            }
        }
        (_, Some(addresses), true) => Content::Template {
            of: Template::Source(addresses),
            context,
        },
        (Some(bytes), _, false) => Content::Bytes(bytes),
        (_, Some(addresses), false) => Content::Source {
            addresses,
            checksum: checksum(declaration)?,
        },
        (None, None, _) => Content::Unmanaged,
    })
}

/// Reads a bare SHA-256, or `sha256=…` or `{sha256}…`.
fn checksum(declaration: &Declaration) -> Result<Option<String>, Refusal> {
    let Some(text) = declaration.text("checksum_value")? else {
        return Ok(None);
    };
    let digits = text
        .trim_start_matches("{sha256}")
        .trim_start_matches("sha256=")
        .to_lowercase();
    if digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(Some(digits))
    } else {
        Err(declaration.refuse("checksum_value", "a SHA-256 in hexadecimal"))
    }
}

fn validate(declaration: &Declaration) -> Result<Option<Validate>, Refusal> {
    let Some(mut command) = declaration.text("validate_cmd")? else {
        return Ok(None);
    };
    let placeholder = declaration
        .text("validate_replacement")?
        .unwrap_or_else(|| "%".to_owned());
    if !command.contains(&placeholder) {
        command.push(' ');
        command.push_str(&placeholder);
    }
    Ok(Some(Validate {
        command,
        placeholder,
    }))
}

fn tree(declaration: &Declaration) -> Result<Option<Tree>, Refusal> {
    let recurse = match declaration.value("recurse") {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        // Salt: `recurse: [user, group, mode]`; Puppet: `remote` and `inf`.
        Some(Value::Array(_)) => true,
        Some(Value::String(word)) => matches!(word.as_str(), "true" | "remote" | "inf" | "yes"),
        Some(_) => return Err(declaration.refuse("recurse", "true or false")),
    };
    let purge = declaration.boolean("purge")?.unwrap_or(false);
    if !recurse && !purge {
        return Ok(None);
    }
    let limit = match declaration.integer("recurselimit")? {
        None => usize::MAX,
        Some(limit) => {
            usize::try_from(limit).map_err(|_| declaration.refuse("recurselimit", "a number"))?
        }
    };
    Ok(Some(Tree {
        recurse,
        limit,
        purge,
        purge_directories: declaration.is_state() || declaration.boolean("force")?.unwrap_or(false),
        ignore: declaration.texts("ignore")?.unwrap_or_default(),
    }))
}
