//! How a run calls the `bunraku` program: which one, for which servers, as
//! whom, and why the run happens.

use super::exec::Run;

/// Given by whoever carries out a catalog. Empty: the program is looked for in
/// the path, and finds its servers and credentials as it does for a person.
#[derive(Clone, Default, Debug)]
pub struct Surroundings {
    /// The program.
    pub program: Option<String>,
    /// What its environment has in addition.
    pub variables: Vec<(String, String)>,
}

impl Surroundings {
    /// Hands on why the run happens, as JSON.
    #[must_use]
    pub fn with_causes(mut self, causes: String) -> Self {
        self.variables.push(("BUNRAKU_CAUSES".to_owned(), causes));
        self
    }

    /// A call of the program, or of another one that a resource names.
    pub(super) fn call(&self, program: Option<&String>, words: &[String]) -> Run {
        let program = program.or(self.program.as_ref());
        let program = program.map_or("bunraku", String::as_str);
        let all = std::iter::once(program).chain(words.iter().map(String::as_str));
        self.variables
            .iter()
            .fold(Run::new(all), |run, (name, value)| {
                run.environment(name, value)
            })
    }
}
