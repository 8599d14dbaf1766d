//! What evaluating asks of the outside. The crate itself reads no file.

/// Sources of definitions that the given files do not hold.
pub trait World {
    /// The file that defines this class, define, application, function or type
    /// (`lamp::mysql`), with its name for messages; nothing if there is none.
    fn autoload(&self, name: &str) -> Result<Option<(String, String)>, WorldError>;
}

/// Why the outside gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorldError(pub String);

/// A world without modules: everything is in the files that were given.
pub struct NoModules;

impl World for NoModules {
    fn autoload(&self, _name: &str) -> Result<Option<(String, String)>, WorldError> {
        Ok(None)
    }
}
