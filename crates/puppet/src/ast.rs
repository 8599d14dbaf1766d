//! The tree that the parser builds. Everything is an expression, as in Puppet.

use crate::source::Span;

/// An expression and its location.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    pub kind: Kind,
    pub span: Span,
    /// The levels below this one, stored so that chains cannot grow past the limit.
    pub(crate) height: u16,
}

/// The kind of an expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    Undef,
    Default,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    String(String),
    /// Text with embedded expressions.
    Interpolated(Vec<Segment>),
    Regex(String),
    /// The name without the `$`.
    Variable(String),
    /// A bare word: `present`, `lamp::mysql`.
    Name(String),
    /// A capitalised word: `Integer`, `Lamp::Mysql`.
    TypeName(String),
    Array(Vec<Expression>),
    Hash(Vec<(Expression, Expression)>),
    Unary(UnaryOperator, Box<Expression>),
    Binary(BinaryOperator, Box<Expression>, Box<Expression>),
    /// `$a[1]`, `File['x']`.
    Access(Box<Expression>, Vec<Expression>),
    Selector(Box<Expression>, Vec<(Expression, Expression)>),
    Call(Box<Call>),
    If(Box<If>),
    Case(Box<Expression>, Vec<CaseOption>),
    Assign(Assignment, Box<Expression>, Box<Expression>),
    /// Parentheses. The value is that of the last expression.
    Block(Vec<Expression>),
    Resource(Box<Resource>),
    /// `File { mode => '0644' }`
    ResourceDefaults(String, Vec<Attribute>),
    /// `File['x'] { mode => '0644' }`
    ResourceOverride(Box<Expression>, Vec<Attribute>),
    Collector(Box<Collector>),
    Class(Box<Definition>),
    Define(Box<Definition>),
    Application(Box<Definition>),
    Function(Box<Definition>),
    Plan(Box<Definition>),
    TypeAlias(String, Box<Expression>),
    Node(Box<NodeDefinition>),
    Site(Vec<Expression>),
    Mapping(Box<Mapping>),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Segment {
    Text(String),
    Expression(Expression),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOperator {
    Not,
    Negate,
    Splat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    In,
    Match,
    NoMatch,
    /// `->`
    Before,
    /// `~>`
    Notify,
    /// `<-`
    Require,
    /// `<~`
    Subscribe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    Set,
    Append,
    Delete,
}

/// `f(1)`, `include x`, `$a.each |$x| { }`. A method's receiver is the first argument.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub name: String,
    pub name_span: Span,
    /// A called type (`Integer('1')`) instead of a name.
    pub callee: Option<Expression>,
    pub arguments: Vec<Expression>,
    pub lambda: Option<Lambda>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Lambda {
    pub parameters: Vec<Parameter>,
    pub returns: Option<Expression>,
    pub body: Vec<Expression>,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    pub name: String,
    pub type_expression: Option<Expression>,
    pub default: Option<Expression>,
    /// `*$rest`
    pub captures_rest: bool,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub struct If {
    pub condition: Expression,
    pub negated: bool,
    pub then: Vec<Expression>,
    pub otherwise: Vec<Expression>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CaseOption {
    pub values: Vec<Expression>,
    pub body: Vec<Expression>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResourceForm {
    Regular,
    Virtual,
    Exported,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Resource {
    pub form: ResourceForm,
    pub type_name: Expression,
    pub bodies: Vec<ResourceBody>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ResourceBody {
    pub title: Expression,
    pub attributes: Vec<Attribute>,
}

/// `name => value`, `name +> value`, `* => hash`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    pub name: String,
    pub span: Span,
    pub operator: AttributeOperator,
    pub value: Expression,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeOperator {
    Set,
    Add,
    /// `* => $hash`
    Splat,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Collector {
    pub type_name: String,
    pub exported: bool,
    pub query: Option<Expression>,
    pub attributes: Vec<Attribute>,
}

/// A class, define, application, function or plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub name: String,
    pub name_span: Span,
    pub parameters: Vec<Parameter>,
    pub parent: Option<String>,
    pub returns: Option<Expression>,
    pub body: Vec<Expression>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct NodeDefinition {
    pub matches: Vec<Expression>,
    pub parent: Option<Expression>,
    pub body: Vec<Expression>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingKind {
    Produces,
    Consumes,
}

/// `Lamp::Mysql produces Sql { host => $host }`
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    pub kind: MappingKind,
    pub component: String,
    pub capability: String,
    pub attributes: Vec<Attribute>,
}
