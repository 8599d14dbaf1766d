//! `repositories` in `bunraku.yaml`: more repositories whose files an
//! environment has.
//!
//! Files are merged in order, and the first one of a name counts, as with the
//! remotes of Salt's gitfs. The environment's own repository comes first.

use std::path::{Component, Path, PathBuf};

use bunraku_control::code_problems::problem_at;
use bunraku_states::{Node, read_document};
use bunraku_wire::api::CompileProblem;

/// The file at the root of an environment.
pub(crate) const FILE: &str = "bunraku.yaml";
/// Maximum size of the file in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;
/// Maximum number of additional repositories.
const MOST: usize = 100;
const KNOWN: [&str; 4] = ["url", "ref", "root", "mountpoint"];

/// A repository whose files are added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AdditionalRepository {
    pub(crate) url: String,
    /// If absent, the branch of the same name as the environment's, or the default branch.
    pub(crate) reference: Option<String>,
    /// The directory in the repository that is used.
    pub(crate) root: PathBuf,
    /// The directory in the environment that receives the files.
    pub(crate) mountpoint: PathBuf,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// Reads the repositories. A file that is wrong as a whole names none: the
/// compiler reports it.
pub(crate) fn parse(text: &str) -> Result<Vec<AdditionalRepository>, CompileProblem> {
    let Ok(document) = read_document(FILE, text) else {
        return Ok(Vec::new());
    };
    let Some(repositories) = member(&document, "repositories") else {
        return Ok(Vec::new());
    };
    let usual = match member(&document, "root").and_then(Node::as_text) {
        Some(text) => path(&document, "root", text)?,
        None => PathBuf::new(),
    };
    let items = repositories.as_list().ok_or_else(|| {
        let message = "`repositories` must be a list of maps with `url`".to_owned();
        problem_at(FILE, repositories, message)
    })?;
    if items.len() > MOST {
        let message = format!("there are more than {MOST} repositories");
        return Err(problem_at(FILE, repositories, message));
    }
    items.iter().map(|item| one(item, &usual)).collect()
}

fn one(item: &Node, usual: &Path) -> Result<AdditionalRepository, CompileProblem> {
    let pairs = item.as_map().ok_or_else(|| {
        problem_at(
            FILE,
            item,
            "a repository must be a map with `url`".to_owned(),
        )
    })?;
    for (key, _) in pairs {
        if !KNOWN.contains(&key.key_text().as_str()) {
            let message = format!(
                "`{}` is unknown here; known are {}",
                key.key_text(),
                KNOWN.join(", ")
            );
            return Err(problem_at(FILE, key, message));
        }
    }
    let url = text(item, "url")?.ok_or_else(|| {
        problem_at(
            FILE,
            item,
            "`url` is missing: the address of the repository".to_owned(),
        )
    })?;
    let below = |name: &str| match text(item, name)? {
        None => Ok(None),
        Some(text) => path(item, name, &text).map(Some),
    };
    Ok(AdditionalRepository {
        url,
        reference: text(item, "ref")?,
        root: below("root")?.unwrap_or_default(),
        mountpoint: below("mountpoint")?.unwrap_or_else(|| usual.to_owned()),
        line: item.line as u64,
        column: item.column as u64,
    })
}

fn member<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let found = node.as_map()?.iter();
    let mut found = found.filter(|(key, _)| key.as_text() == Some(name));
    found.next().map(|(_, value)| value)
}

fn text(item: &Node, name: &str) -> Result<Option<String>, CompileProblem> {
    match member(item, name) {
        None => Ok(None),
        Some(node) => match node.as_text() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(problem_at(FILE, node, format!("`{name}` must be text"))),
        },
    }
}

fn path(item: &Node, name: &str, text: &str) -> Result<PathBuf, CompileProblem> {
    let mut path = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::Normal(step) => path.push(step),
            Component::CurDir => {}
            _ => {
                let node = member(item, name).unwrap_or(item);
                let message = format!("`{text}` is not a path below a root");
                return Err(problem_at(FILE, node, message));
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_an_address_and_places() {
        let text = "compiler: states\nroot: states\nrepositories:\n  - url: https://h/a.git\n  - url: https://h/b.git\n    ref: v1\n    root: nginx\n    mountpoint: .\n";
        let found = parse(text).expect("read");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].mountpoint, Path::new("states"));
        assert_eq!(found[0].reference, None);
        assert_eq!(found[1].root, Path::new("nginx"));
        assert_eq!(found[1].mountpoint, Path::new(""));
        assert_eq!((found[1].line, found[1].column), (5, 5));
        assert_eq!(parse("compiler: states\n"), Ok(Vec::new()));
        assert_eq!(parse(": ["), Ok(Vec::new()));
    }

    #[test]
    fn errors_have_their_place() {
        let refused = |text: &str| {
            let problem = parse(text).expect_err("wrong");
            let place = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
            format!("{}:{} {}", place.0, place.1, problem.message)
        };
        assert_eq!(
            refused("repositories: x\n"),
            "1:15 `repositories` must be a list of maps with `url`"
        );
        assert_eq!(
            refused("repositories:\n- urll: x\n"),
            "2:3 `urll` is unknown here; known are url, ref, root, mountpoint"
        );
        assert_eq!(
            refused("repositories:\n- url: x\n  mountpoint: ../y\n"),
            "3:15 `../y` is not a path below a root"
        );
    }
}
