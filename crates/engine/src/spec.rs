//! What a type is called and which parameters it takes, in both worlds.
//!
//! Each type has one [`TypeSpec`]; together they are the one table that maps
//! Puppet's and Salt's names onto our types, from which unknown names are
//! refused and `docs/resources.md` is generated.

/// The description of a resource type.
#[derive(Debug)]
pub struct TypeSpec {
    /// Our name, which is Puppet's name in lower case where Puppet has one.
    pub name: &'static str,
    /// Other names that mean this type (`cmd` for `exec`).
    pub aliases: &'static [&'static str],
    /// One sentence for the docs.
    pub summary: &'static str,
    /// The parameter that the title stands for when it is not given.
    pub name_parameter: &'static str,
    pub parameters: &'static [ParameterSpec],
    /// The state functions that map onto this type.
    pub states: &'static [StateFunction],
    /// A JSON list of resources that the docs show and a test runs.
    /// `@ROOT@` stands for a directory of the reader's own.
    pub example: &'static str,
}

/// One parameter.
#[derive(Debug)]
pub struct ParameterSpec {
    pub name: &'static str,
    /// What it does, and its values and default, in one sentence.
    pub doc: &'static str,
}

/// How one Salt state function is said with our type.
#[derive(Debug)]
pub struct StateFunction {
    /// `file.managed`.
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

/// A shorthand for the tables.
pub(crate) const fn parameter(name: &'static str, doc: &'static str) -> ParameterSpec {
    ParameterSpec { name, doc }
}

/// A shorthand for the tables.
pub(crate) const fn argument(salt: &'static str, ours: &'static str) -> Argument {
    Argument { salt, ours }
}

/// A shorthand for the tables.
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

/// Parameters that every resource takes: Puppet's metaparameters, and what
/// Salt allows on every state.
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
        "accepted for compatibility with Puppet; no effect",
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
    /// Whether the type itself takes this parameter.
    pub fn takes(&self, name: &str) -> bool {
        name == "name" || self.parameters.iter().any(|known| known.name == name)
    }

    /// The name of the type as Puppet writes it.
    pub fn capitalised(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        first.to_uppercase() + rest
    }
}
