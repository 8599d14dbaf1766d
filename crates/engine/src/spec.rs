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

/// Parameters that every resource takes: Puppet's metaparameters, and what
/// Salt allows on every state.
pub const EVERYWHERE: &[ParameterSpec] = &[
    parameter("alias", "another title that references may use"),
    parameter("audit", "accepted for Puppet's sake, without effect"),
    parameter("before", "references to what comes after this resource"),
    parameter(
        "check_cmd",
        "commands that must succeed after a change, or the resource fails",
    ),
    parameter(
        "creates",
        "paths; when all of them exist, the resource is left alone",
    ),
    parameter(
        "failhard",
        "true ends the whole run when this resource fails",
    ),
    parameter("loglevel", "accepted for Puppet's sake, without effect"),
    parameter(
        "noop",
        "true: only say what would change; false changes nothing about a noop run",
    ),
    parameter(
        "notify",
        "references to what comes after this resource and is refreshed when it changes",
    ),
    parameter(
        "onlyif",
        "commands; the resource is left alone unless all succeed",
    ),
    parameter(
        "register",
        "the name under which later resources read this one's outputs",
    ),
    parameter("require", "references to what comes before this resource"),
    parameter(
        "retry",
        "attempts, interval, until and splay: try again after a failure",
    ),
    parameter("schedule", "accepted for Puppet's sake, without effect"),
    parameter("stage", "the stage that a class belongs to"),
    parameter(
        "subscribe",
        "references to what comes before this resource and refreshes it when it changes",
    ),
    parameter("tag", "tags, without effect on the run"),
    parameter(
        "unless",
        "commands; the resource is left alone when all succeed",
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
