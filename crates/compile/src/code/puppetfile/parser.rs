//! From the words of a Puppetfile to the modules that it names.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::lexer::{Placed, Token, tokens};
use super::{GitReference, ModuleOrigin, PuppetfileError, PuppetfileModule};

/// The directory of modules unless `moduledir` names another, as for r10k.
const MODULE_DIRECTORY: &str = "modules";
/// Maximum number of modules in one Puppetfile.
const MOST_MODULES: usize = 2_000;

/// A literal value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Text(String),
    Symbol(String),
    Boolean(bool),
    Nil,
}

/// An option such as `:git => 'https://…'`, and its place.
struct ModuleOption {
    name: String,
    value: Value,
    line: u64,
    column: u64,
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    directory: PathBuf,
    modules: Vec<PuppetfileModule>,
}

pub(super) fn parse(text: &str) -> Result<Vec<PuppetfileModule>, PuppetfileError> {
    let mut parser = Parser {
        tokens: tokens(text.trim_start_matches('\u{feff}'))?,
        at: 0,
        directory: PathBuf::from(MODULE_DIRECTORY),
        modules: Vec::new(),
    };
    while parser.statement()? {}
    check_unique(&parser.modules)?;
    Ok(parser.modules)
}

impl Parser {
    fn peek(&self) -> &Placed {
        &self.tokens[self.at]
    }

    fn next(&mut self) -> Placed {
        let placed = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        placed
    }

    fn skip_lines(&mut self) {
        while self.peek().token == Token::NewLine {
            self.at += 1;
        }
    }

    /// Reads one declaration. Returns false at the end.
    fn statement(&mut self) -> Result<bool, PuppetfileError> {
        self.skip_lines();
        let first = self.next();
        match &first.token {
            Token::End => Ok(false),
            Token::Word(word) if word == "mod" => self.module(&first).map(|()| true),
            Token::Word(word) if word == "forge" => {
                // As for r10k, the servers' own setting decides which Forge is used.
                self.one_text("forge")?;
                Ok(true)
            }
            Token::Word(word) if word == "moduledir" => {
                let (text, place) = self.one_text("moduledir")?;
                self.directory = path_below(&text, &place)?;
                Ok(true)
            }
            Token::Word(word) if word == "metadata" => Err(at(
                &first,
                "`metadata` is not supported: dependencies in metadata.json are not resolved",
            )
            .with_hint("name each module with `mod`")),
            _ => Err(ruby(&first)),
        }
    }

    /// Reads the single argument of a declaration.
    fn one_text(&mut self, what: &str) -> Result<(String, Placed), PuppetfileError> {
        let is_closed = self.opens_parenthesis();
        let place = self.next();
        let text = match &place.token {
            Token::Text(text) => text.clone(),
            // `forge :default` and the like.
            Token::Symbol(name) if what == "forge" => name.clone(),
            _ => return Err(at(&place, format!("`{what}` needs a text in quotes"))),
        };
        self.finish(is_closed)?;
        Ok((text, place))
    }

    fn opens_parenthesis(&mut self) -> bool {
        let opens = self.peek().token == Token::Open('(');
        if opens {
            self.next();
        }
        opens
    }

    /// Reads the end of a declaration.
    fn finish(&mut self, is_closed: bool) -> Result<(), PuppetfileError> {
        if is_closed {
            self.skip_lines();
            let close = self.next();
            if close.token != Token::Close(')') {
                return Err(at(&close, "`)` is missing here"));
            }
        }
        let end = self.next();
        match end.token {
            Token::NewLine | Token::End => Ok(()),
            _ => Err(ruby(&end)),
        }
    }

    fn module(&mut self, keyword: &Placed) -> Result<(), PuppetfileError> {
        let is_closed = self.opens_parenthesis();
        self.skip_lines();
        let title = self.next();
        let Token::Text(text) = &title.token else {
            return Err(at(&title, "`mod` needs the name of a module in quotes"));
        };
        let text = text.clone();
        let mut version = None;
        let mut options = Vec::new();
        while self.peek().token == Token::Comma {
            self.next();
            self.skip_lines();
            self.argument(&mut version, &mut options)?;
            if is_closed {
                self.skip_lines();
            }
        }
        self.finish(is_closed)?;
        if self.modules.len() == MOST_MODULES {
            let message = format!("there are more than {MOST_MODULES} modules");
            return Err(at(keyword, message));
        }
        let module = declared(&title, &text, version, options, &self.directory)?;
        self.modules.push(module);
        Ok(())
    }

    /// Reads a version, an option, or options in braces.
    fn argument(
        &mut self,
        version: &mut Option<(Value, Placed)>,
        options: &mut Vec<ModuleOption>,
    ) -> Result<(), PuppetfileError> {
        if self.peek().token == Token::Open('{') {
            self.next();
            loop {
                self.skip_lines();
                if self.peek().token == Token::Close('}') {
                    break;
                }
                let name = self.next();
                options.push(self.option(name)?);
                self.skip_lines();
                if self.peek().token == Token::Comma {
                    self.next();
                }
            }
            self.next();
            return Ok(());
        }
        let first = self.next();
        let is_option = matches!(first.token, Token::Label(_))
            || (matches!(first.token, Token::Symbol(_) | Token::Text(_))
                && self.peek().token == Token::Arrow);
        if is_option {
            options.push(self.option(first)?);
            return Ok(());
        }
        let value = literal(&first)?;
        if version.is_some() || !options.is_empty() {
            return Err(at(&first, "only one version can stand here"));
        }
        *version = Some((value, first));
        Ok(())
    }

    fn option(&mut self, place: Placed) -> Result<ModuleOption, PuppetfileError> {
        let name = match &place.token {
            Token::Label(name) => name.clone(),
            Token::Symbol(name) | Token::Text(name) => {
                let arrow = self.next();
                if arrow.token != Token::Arrow {
                    return Err(at(&arrow, "`=>` is missing here"));
                }
                name.clone()
            }
            _ => {
                return Err(at(
                    &place,
                    "an option such as `:git => '…'` is missing here",
                ));
            }
        };
        self.skip_lines();
        let value = self.next();
        Ok(ModuleOption {
            name,
            value: literal(&value)?,
            line: value.line,
            column: value.column,
        })
    }
}

fn literal(place: &Placed) -> Result<Value, PuppetfileError> {
    Ok(match &place.token {
        Token::Text(text) => Value::Text(text.clone()),
        Token::Symbol(name) => Value::Symbol(name.clone()),
        Token::Word(word) if word == "true" => Value::Boolean(true),
        Token::Word(word) if word == "false" => Value::Boolean(false),
        Token::Word(word) if word == "nil" => Value::Nil,
        _ => return Err(ruby(place)),
    })
}

/// Turns a declaration into a module.
fn declared(
    place: &Placed,
    title: &str,
    version: Option<(Value, Placed)>,
    options: Vec<ModuleOption>,
    directory: &Path,
) -> Result<PuppetfileModule, PuppetfileError> {
    let title = ModuleTitle::parse(title).ok_or_else(|| {
        at(place, format!("`{title}` is not the name of a module"))
            .with_hint("names are `owner/name`, `owner-name` or `name`, of letters, digits and `_`")
    })?;
    let mut options = Options::new(place, options)?;
    let parent = match options.take("install_path") {
        None => directory.to_owned(),
        Some(option) => path_of(&option)?,
    };
    let excludes_spec = options.take("exclude_spec");
    let excludes_spec = excludes_spec.is_some_and(|option| option.value == Value::Boolean(true));
    let version = version.filter(|(value, _)| *value != Value::Nil);
    let source = options.origin(title, version)?;
    options.check_empty()?;
    Ok(PuppetfileModule {
        name: title.name.to_owned(),
        path: parent.join(title.name),
        source,
        excludes_spec,
        line: place.line,
    })
}

/// The options of one module, by name.
struct Options<'a> {
    place: &'a Placed,
    options: BTreeMap<String, ModuleOption>,
}

impl<'a> Options<'a> {
    fn new(place: &'a Placed, all: Vec<ModuleOption>) -> Result<Self, PuppetfileError> {
        let mut options = BTreeMap::new();
        for option in all {
            let (line, column) = (option.line, option.column);
            let name = option.name.clone();
            if options.insert(name.clone(), option).is_some() {
                let message = format!("`{name}` is given twice");
                return Err(PuppetfileError::new(line, column, message));
            }
        }
        Ok(Self { place, options })
    }

    fn take(&mut self, name: &str) -> Option<ModuleOption> {
        let option = self.options.remove(name)?;
        (option.value != Value::Nil).then_some(option)
    }

    fn take_text(&mut self, name: &str) -> Result<Option<String>, PuppetfileError> {
        match self.take(name) {
            None => Ok(None),
            Some(option) => text_of(&option).map(Some),
        }
    }

    fn origin(
        &mut self,
        title: ModuleTitle<'_>,
        version: Option<(Value, Placed)>,
    ) -> Result<ModuleOrigin, PuppetfileError> {
        for unsupported in ["svn", "tarball", "github_tarball", "path"] {
            if let Some(option) = self.take(unsupported) {
                return Err(error_at(
                    &option,
                    format!("modules by `{unsupported}` are not supported"),
                )
                .with_hint("use `:git`, the Forge, or `:local => true`"));
            }
        }
        let kind = match self.take("type") {
            None => None,
            Some(option) => {
                let kind = match &option.value {
                    Value::Text(kind) | Value::Symbol(kind) => kind.clone(),
                    _ => return Err(error_at(&option, "`type` must be a text".to_owned())),
                };
                if !["git", "forge", "local"].contains(&kind.as_str()) {
                    let message = format!("modules of type `{kind}` are not supported");
                    return Err(error_at(&option, message));
                }
                Some(kind)
            }
        };
        let local = self.take("local");
        if local.is_some_and(|option| option.value == Value::Boolean(true))
            || kind.as_deref() == Some("local")
        {
            self.options.clear();
            return Ok(ModuleOrigin::Local);
        }
        let git = self.take_text("git")?;
        let git = match kind.as_deref() {
            Some("git") => git.or(self.take_text("source")?),
            _ => git,
        };
        match git {
            Some(url) => self.git(url, version),
            None if kind.as_deref() == Some("git") => Err(at(
                self.place,
                "`source` is missing: the address of the repository",
            )),
            None => self.forge(title, version),
        }
    }

    fn git(
        &mut self,
        url: String,
        version: Option<(Value, Placed)>,
    ) -> Result<ModuleOrigin, PuppetfileError> {
        if let Some((_, place)) = version {
            let message = "a module from git has no version here";
            return Err(at(&place, message).with_hint("select its commit with `:ref => '…'`"));
        }
        let mut reference = None;
        for name in ["version", "branch", "tag", "commit", "ref"] {
            let Some(option) = self.take(name) else {
                continue;
            };
            if reference.is_some() {
                let message = "only one of `ref`, `tag`, `branch` and `commit` can be given";
                return Err(error_at(&option, message.to_owned()));
            }
            reference = Some(match &option.value {
                Value::Symbol(symbol) if symbol == "control_branch" => GitReference::ControlBranch,
                _ => GitReference::Named(text_of(&option)?),
            });
        }
        let mut fallbacks = Vec::new();
        for name in ["default_branch_override", "default_branch"] {
            fallbacks.extend(self.take_text(name)?);
        }
        Ok(ModuleOrigin::Git {
            url,
            reference: reference.unwrap_or(GitReference::DefaultBranch),
            fallbacks,
        })
    }

    fn forge(
        &mut self,
        title: ModuleTitle<'_>,
        version: Option<(Value, Placed)>,
    ) -> Result<ModuleOrigin, PuppetfileError> {
        let owner = title.owner.ok_or_else(|| {
            let message = format!(
                "`{}` has no owner, which a module from the Forge needs",
                title.text
            );
            at(self.place, message)
                .with_hint("write `owner/name`, or give the module a `:git` address")
        })?;
        let named = self.take("version").map(|option| {
            let place = Placed {
                token: Token::End,
                line: option.line,
                column: option.column,
            };
            (option.value, place)
        });
        let version = match version.or(named) {
            None => None,
            Some((Value::Symbol(word) | Value::Text(word), _)) if word == "latest" => None,
            Some((Value::Text(text), _)) if is_version(&text) => Some(text),
            Some((value, place)) => {
                let shown = match value {
                    Value::Text(text) => text,
                    other => format!("{other:?}"),
                };
                return Err(at(&place, format!("`{shown}` is not one version"))
                    .with_hint("write an exact version such as '1.2.3', or `:latest`"));
            }
        };
        Ok(ModuleOrigin::Forge {
            owner: owner.to_owned(),
            name: title.name.to_owned(),
            version,
        })
    }

    fn check_empty(&self) -> Result<(), PuppetfileError> {
        match self.options.values().next() {
            None => Ok(()),
            Some(option) => Err(error_at(
                option,
                format!("the option `{}` is unknown", option.name),
            )),
        }
    }
}

fn text_of(option: &ModuleOption) -> Result<String, PuppetfileError> {
    match &option.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(error_at(
            option,
            format!("`{}` must be a text", option.name),
        )),
    }
}

fn path_of(option: &ModuleOption) -> Result<PathBuf, PuppetfileError> {
    let text = text_of(option)?;
    let place = Placed {
        token: Token::End,
        line: option.line,
        column: option.column,
    };
    path_below(&text, &place)
}

/// Returns a path below the environment's root, without `.` in it.
fn path_below(text: &str, place: &Placed) -> Result<PathBuf, PuppetfileError> {
    let mut path = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => {
                let message = format!("`{text}` is not a path below the environment's root");
                return Err(at(place, message));
            }
        }
    }
    Ok(path)
}

/// The title of a module: `owner/name`, `owner-name` or `name`.
#[derive(Clone, Copy)]
struct ModuleTitle<'a> {
    text: &'a str,
    owner: Option<&'a str>,
    name: &'a str,
}

impl<'a> ModuleTitle<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let is_word = |text: &str| {
            let mut bytes = text.bytes();
            !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let (owner, name) = match text.split_once(['/', '-']) {
            Some((owner, name)) if is_word(owner) && is_word(name) => (Some(owner), name),
            None if is_word(text) => (None, text),
            _ => return None,
        };
        Some(Self { text, owner, name })
    }
}

/// Accepts one semantic version. It becomes part of an address.
fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    let numbers = text.split(['-', '+']).next().unwrap_or("");
    let parts: Vec<&str> = numbers.split('.').collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        && text.bytes().all(plain)
        && text.len() <= 100
}

fn check_unique(modules: &[PuppetfileModule]) -> Result<(), PuppetfileError> {
    let mut lines = BTreeMap::new();
    for module in modules {
        if let Some(first) = lines.insert(&module.name, module.line) {
            let message = format!(
                "the module `{}` is named twice, first in line {first}",
                module.name
            );
            return Err(PuppetfileError::new(module.line, 1, message));
        }
    }
    Ok(())
}

fn at(place: &Placed, message: impl Into<String>) -> PuppetfileError {
    PuppetfileError::new(place.line, place.column, message)
}

fn error_at(option: &ModuleOption, message: String) -> PuppetfileError {
    PuppetfileError::new(option.line, option.column, message)
}

/// The error for anything that only Ruby could evaluate.
fn ruby(place: &Placed) -> PuppetfileError {
    let what = match &place.token {
        Token::Word(word) => format!("`{word}`"),
        Token::Label(word) => format!("`{word}:`"),
        Token::Symbol(word) => format!("`:{word}`"),
        Token::Text(text) => format!("`'{text}'`"),
        Token::Other(character) | Token::Open(character) | Token::Close(character) => {
            format!("`{character}`")
        }
        Token::Arrow => "`=>`".to_owned(),
        Token::Comma => "`,`".to_owned(),
        Token::NewLine | Token::End => "the end of the line".to_owned(),
    };
    at(
        place,
        format!("{what} is not a declaration or a literal value: a Puppetfile is read without running Ruby"),
    )
    .with_hint("a Puppetfile can have `forge`, `moduledir` and `mod` with literal values")
}
