//! State files on disk: the one [`World`] of servers and of `bunraku apply`.
//!
//! A world consists of directories, the meaning of state functions, and answers to templates. The
//! caller provides the last two: this crate does not know the engine, and only a machine's own
//! apply may inspect that machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_model::LockName;
use bunraku_states::{Lookup, Tree, World, WorldError};
use serde_json::{Map, Value, json};

use crate::code::is_below;

/// The directories of state files and of pillar data. A file in an earlier directory hides one of
/// the same name in a later one.
#[derive(Clone, Debug, Default)]
pub struct StateDirectories {
    pub states: Vec<PathBuf>,
    pub pillar: Vec<PathBuf>,
}

/// Looks up the meaning of state functions to the engine.
pub trait FindStateFunctions: Send + Sync {
    fn function(&self, name: &str) -> Lookup;
    fn functions(&self) -> Vec<String>;
}

/// Answers execution functions of templates.
pub trait AnswerTemplates: Send + Sync {
    /// Returns the owners that hold a lock, each once.
    fn lock_holders(&self, lock: &LockName) -> Result<Vec<String>, WorldError>;

    /// Calls an execution function that inspects the machine. A server has none: it compiles for
    /// other machines.
    fn call(&self, _: &dyn World, call: &TemplateCall<'_>) -> Result<Value, WorldError> {
        call.refuse()
    }
}

/// A call of an execution function.
pub struct TemplateCall<'a> {
    pub function: &'a str,
    pub positional: &'a [Value],
    pub named: &'a Map<String, Value>,
}

impl<'a> TemplateCall<'a> {
    /// Returns an argument by position or by name.
    pub fn argument(&self, position: usize, name: &str) -> Option<&'a Value> {
        let positional = self.positional.get(position);
        positional.or_else(|| self.named.get(name))
    }

    /// Returns the answer to a function that does not exist here.
    pub fn refuse(&self) -> Result<Value, WorldError> {
        Err(WorldError::new(format!(
            "`{}` is not available while states are compiled",
            self.function
        )))
    }

    /// Returns a text argument, which must be present.
    pub fn text(&self, position: usize, name: &str) -> Result<&'a str, WorldError> {
        let text = self.argument(position, name).and_then(Value::as_str);
        text.ok_or_else(|| {
            WorldError::new(format!("`{}` needs the argument `{name}`", self.function))
        })
    }
}

/// State files on disk.
pub struct StateWorld {
    pub directories: Arc<StateDirectories>,
    pub functions: Arc<dyn FindStateFunctions>,
    pub answers: Arc<dyn AnswerTemplates>,
}

impl StateDirectories {
    fn of(&self, tree: Tree) -> &[PathBuf] {
        match tree {
            Tree::States => &self.states,
            Tree::Pillar => &self.pillar,
        }
    }
}

impl World for StateWorld {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        // A name must not escape its tree.
        if !is_below(Path::new(path)) {
            return Ok(None);
        }
        for directory in self.directories.of(tree) {
            match std::fs::read_to_string(directory.join(path)) {
                Ok(text) => return Ok(Some(text)),
                Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => {}
                Err(error) => return Err(WorldError::new(format!("cannot read {path}: {error}"))),
            }
        }
        Ok(None)
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        let mut found = Vec::new();
        for root in self.directories.of(tree) {
            add_state_files(root, &mut found)?;
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn function(&self, name: &str) -> Lookup {
        self.functions.function(name)
    }

    fn functions(&self) -> Vec<String> {
        self.functions.functions()
    }

    fn call(
        &self,
        function: &str,
        positional: &[Value],
        named: &Map<String, Value>,
    ) -> Result<Value, WorldError> {
        let call = TemplateCall {
            function,
            positional,
            named,
        };
        if !matches!(function, "lock.holder" | "lock.holders") {
            return self.answers.call(self, &call);
        }
        let lock = LockName::new(call.text(0, "name")?);
        let lock = lock.map_err(|error| WorldError::new(error.to_string()))?;
        let holders = self.answers.lock_holders(&lock)?;
        Ok(match function {
            "lock.holders" => json!(holders),
            _ => json!(holders.first()),
        })
    }
}

/// Adds the paths below a directory that end in `.sls`. Links to directories are not followed.
fn add_state_files(root: &Path, found: &mut Vec<String>) -> Result<(), WorldError> {
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        // A path below the root: the place of a tree on a server is not the reader's business.
        let refused = |error: std::io::Error| {
            let below = directory.strip_prefix(root).unwrap_or(&directory);
            let shown = Path::new(".").join(below);
            WorldError::new(format!("cannot read {}: {error}", shown.display()))
        };
        for entry in std::fs::read_dir(&directory).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sls")
                && let Ok(below) = path.strip_prefix(root)
            {
                found.push(below.to_string_lossy().into_owned());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl FindStateFunctions for Nothing {
        fn function(&self, _: &str) -> Lookup {
            Lookup::UnknownModule
        }

        fn functions(&self) -> Vec<String> {
            Vec::new()
        }
    }

    impl AnswerTemplates for Nothing {
        fn lock_holders(&self, lock: &LockName) -> Result<Vec<String>, WorldError> {
            Ok(match lock.as_str() {
                "db" => vec!["web-1".to_owned(), "web-2".to_owned()],
                _ => Vec::new(),
            })
        }
    }

    fn world(files: &[(&str, &str)], pillar: &[&str]) -> (tempfile::TempDir, StateWorld) {
        let place = tempfile::TempDir::new().expect("a directory");
        for (path, text) in files {
            let file = place.path().join(path);
            std::fs::create_dir_all(file.parent().expect("below")).expect("a directory");
            std::fs::write(file, text).expect("a file");
        }
        let world = StateWorld {
            directories: Arc::new(StateDirectories {
                states: vec![place.path().join("states")],
                pillar: pillar.iter().map(|name| place.path().join(name)).collect(),
            }),
            functions: Arc::new(Nothing),
            answers: Arc::new(Nothing),
        };
        (place, world)
    }

    #[test]
    fn a_name_never_leaves_its_tree() {
        let files = [("states/top.sls", "top"), ("secret.sls", "secret")];
        let (place, world) = world(&files, &[]);
        let absolute = place.path().join("secret.sls");
        for path in ["../secret.sls", "a/../../secret.sls", "", "/"] {
            let found = world.source(Tree::States, path).expect("an answer");
            assert_eq!(found, None, "{path}");
        }
        let found = world.source(Tree::States, &absolute.to_string_lossy());
        assert_eq!(found.expect("an answer"), None);
        let found = world.source(Tree::States, "top.sls").expect("an answer");
        assert_eq!(found.as_deref(), Some("top"));
    }

    #[test]
    fn an_earlier_directory_hides_a_later_one_and_each_name_is_listed_once() {
        let files = [
            ("states/top.sls", ""),
            ("one/web/init.sls", "first"),
            ("two/web/init.sls", "second"),
            ("two/db.sls", "only here"),
            ("two/notes.txt", ""),
        ];
        let (_place, world) = world(&files, &["one", "two"]);
        let read = |path| world.source(Tree::Pillar, path).expect("an answer");
        assert_eq!(read("web/init.sls").as_deref(), Some("first"));
        assert_eq!(read("db.sls").as_deref(), Some("only here"));
        assert_eq!(read("web"), None, "a directory");
        let listed = world.state_files(Tree::Pillar).expect("a list");
        assert_eq!(listed, ["db.sls", "web/init.sls"]);
    }

    #[test]
    fn a_missing_directory_is_named_without_the_place_of_the_tree() {
        let (place, world) = world(&[], &[]);
        let error = world.state_files(Tree::States).expect_err("no directory");
        let place = place.path().to_string_lossy().into_owned();
        assert!(error.to_string().starts_with("cannot read ./: "), "{error}");
        assert!(!error.to_string().contains(&place), "{error}");
    }

    #[test]
    fn templates_read_the_holders_of_a_lock_and_nothing_of_the_machine() {
        let (_place, world) = world(&[("states/top.sls", "")], &[]);
        let call = |function: &str, name: &str| {
            let answer = world.call(function, &[json!(name)], &Map::new());
            answer.map_err(|error| error.to_string())
        };
        assert_eq!(call("lock.holder", "db"), Ok(json!("web-1")));
        assert_eq!(call("lock.holders", "db"), Ok(json!(["web-1", "web-2"])));
        assert_eq!(call("lock.holder", "free"), Ok(Value::Null));
        assert!(call("lock.holder", "no such/name!").is_err());
        assert_eq!(
            call("cmd.run", "id"),
            Err("`cmd.run` is not available while states are compiled".to_owned())
        );
        let named = world.call("lock.holder", &[], &Map::new());
        assert_eq!(
            named.expect_err("no name").to_string(),
            "`lock.holder` needs the argument `name`"
        );
    }
}
