//! The names and parameters of a type, in Puppet and Salt.
//!
//! Each type has one [`TypeSpec`]. Together they are the single table that maps
//! Puppet's and Salt's names to our types. Unknown names are refused from it, and
//! `docs/resources.md` is generated from it.

/// The description of a resource type.
#[derive(Debug)]
pub struct TypeSpec {
    /// Our name, which is Puppet's name in lower case if Puppet has the type.
    pub name: &'static str,
    /// Other names of this type (`cmd` for `exec`).
    pub aliases: &'static [&'static str],
    /// One sentence for the docs.
    pub summary: &'static str,
    /// The parameter whose default is the title.
    pub name_parameter: &'static str,
    pub parameters: &'static [ParameterSpec],
    /// The state functions that map to this type.
    pub states: &'static [StateFunction],
    /// A JSON list of resources that the docs show and a test runs. `@ROOT@` stands for
    /// a directory of the reader.
    pub example: &'static str,
}

/// One parameter.
#[derive(Debug)]
pub struct ParameterSpec {
    pub name: &'static str,
    /// Its effect, values and default, in one sentence.
    pub doc: &'static str,
}

/// The mapping of one Salt state function to our type.
#[derive(Debug)]
pub struct StateFunction {
    /// The name, such as `file.managed`.
    pub function: &'static str,
    /// Parameters that the function implies.
    pub implies: &'static [(&'static str, &'static str)],
    /// Arguments whose name differs from ours. All others keep their name.
    pub arguments: &'static [Argument],
}

/// Salt's argument and our parameter for it.
#[derive(Debug)]
pub struct Argument {
    pub salt: &'static str,
    pub ours: &'static str,
}

/// Creates a [`ParameterSpec`]. A shorthand for the tables.
pub(crate) const fn parameter(name: &'static str, doc: &'static str) -> ParameterSpec {
    ParameterSpec { name, doc }
}

/// Creates an [`Argument`]. A shorthand for the tables.
pub(crate) const fn argument(salt: &'static str, ours: &'static str) -> Argument {
    Argument { salt, ours }
}

/// Creates a [`StateFunction`]. A shorthand for the tables.
pub(crate) const fn function(
    function: &'static str,
    implies: &'static [(&'static str, &'static str)],
    arguments: &'static [Argument],
) -> StateFunction {
    StateFunction {
        function,
        implies,
        arguments,
    }
}

/// Parameters that every resource takes: Puppet's metaparameters, and those that Salt
/// allows on every state.
pub const EVERYWHERE: &[ParameterSpec] = &[
    parameter("alias", "another title for references"),
    parameter("audit", "accepted for compatibility with Puppet; no effect"),
    parameter("before", "resources that come after this one"),
    parameter(
        "check_cmd",
        "commands that must succeed after a change; otherwise the resource fails",
    ),
    parameter(
        "creates",
        "paths; if all of them exist, the resource is not applied",
    ),
    parameter(
        "failhard",
        "true: stop the whole run if this resource fails",
    ),
    parameter(
        "loglevel",
        "accepted for compatibility with Puppet; no effect",
    ),
    parameter(
        "noop",
        "true: only show what would change; false has no effect on a noop run",
    ),
    parameter(
        "notify",
        "resources that come after this one and are refreshed if it changes",
    ),
    parameter(
        "onlyif",
        "commands; the resource is applied only if all succeed",
    ),
    parameter(
        "register",
        "the name under which later resources can read the outputs of this one",
    ),
    parameter("require", "resources that come before this one"),
    parameter(
        "retry",
        "retry after a failure: attempts, interval, backoff, max_interval, splay and until",
    ),
    parameter(
        "schedule",
        "a `schedule` of the catalog, or one of Puppet's own: when the resource is applied",
    ),
    parameter("stage", "the stage of a class"),
    parameter(
        "subscribe",
        "resources that come before this one and refresh it if they change",
    ),
    parameter("tag", "tags for `--tags`"),
    parameter(
        "unless",
        "commands; the resource is not applied if all succeed",
    ),
];

impl TypeSpec {
    /// Returns true if the type itself takes this parameter.
    pub fn takes(&self, name: &str) -> bool {
        name == "name" || self.parameters.iter().any(|known| known.name == name)
    }

    /// Returns the name of the type as Puppet writes it.
    pub fn capitalised(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        first.to_uppercase() + rest
    }
}
