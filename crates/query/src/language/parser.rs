//! Parses tokens into a query, by recursive descent. Each level of nesting is counted.

use serde_json::Value;

use super::entity::Entity;
use super::error::QueryError;
use super::lexer::{SpannedToken, Token, lex};
use super::syntax::{
    Column, Comparison, Condition, Literal, Name, Operator, Order, OrderBy, Path, Query, Span, Step,
};

/// Maximum length of a text in bytes. Longer texts are refused.
const LONGEST: usize = 64 << 10;
/// Maximum nesting depth. Deeper nesting is refused, because the stack is limited.
pub(super) const DEEPEST: usize = 64;

pub(super) fn parse(text: &str) -> Result<Query, QueryError> {
    if text.len() > LONGEST {
        let message = format!("a query can have at most {LONGEST} bytes");
        return Err(QueryError::new(message, 0..0));
    }
    let mut parser = Parser {
        tokens: lex(text)?,
        at: 0,
        depth: 0,
    };
    let query = parser.query()?;
    match parser.peek() {
        Token::End => Ok(query),
        Token::Word(word) if ["order", "limit", "offset", "group"].contains(&word.as_str()) => {
            Err(parser.unexpected("the end of the query").hint(
                "write `order by`, `limit`, `offset` and `group by` inside the braces, at the end",
            ))
        }
        _ => Err(parser.unexpected("the end of the query")),
    }
}

/// Reads a field alone, such as `facts.os.family`.
pub(super) fn parse_path(text: &str) -> Result<Path, QueryError> {
    if text.len() > LONGEST {
        return Err(QueryError::new("the field has too many parts", 0..0));
    }
    let mut parser = Parser {
        tokens: lex(text)?,
        at: 0,
        depth: 0,
    };
    let path = parser.path()?;
    match parser.peek() {
        Token::End => Ok(path),
        _ => Err(parser.unexpected("the end of the field")),
    }
}

struct Parser {
    tokens: Vec<SpannedToken>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn peek_second(&self) -> &Token {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + 1).min(last)].token
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span.clone()
    }

    /// Returns the end of the previous token.
    fn before(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].span.end
    }

    fn next(&mut self) -> SpannedToken {
        let spanned = self.tokens[self.at].clone();
        // Never move past the end token.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        spanned
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    fn need_symbol(&mut self, symbol: &str) -> Result<(), QueryError> {
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{symbol}`")))
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn unexpected(&self, wanted: &str) -> QueryError {
        let found = match self.peek() {
            Token::Word(word) => format!("`{word}`"),
            Token::Text(_) => "a string".to_owned(),
            Token::Integer(_) | Token::Float(_) => "a number".to_owned(),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        };
        QueryError::new(format!("expected {wanted}, found {found}"), self.span())
    }

    /// Counts a level of nesting around `work`.
    fn nested<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if self.depth == DEEPEST {
            let message = format!("this is nested more than {DEEPEST} levels deep");
            return Err(QueryError::new(message, self.span()));
        }
        self.depth += 1;
        let outcome = work(self);
        self.depth -= 1;
        outcome
    }

    fn query(&mut self) -> Result<Query, QueryError> {
        self.nested(|parser| {
            let mut query = Query::of(parser.name("an entity")?);
            if parser.take_symbol("[") {
                query.columns = parser.columns()?;
            }
            if parser.take_symbol("{") {
                parser.block(&mut query)?;
            }
            Ok(query)
        })
    }

    fn name(&mut self, wanted: &str) -> Result<Name, QueryError> {
        match self.peek() {
            Token::Word(_) => {
                let SpannedToken { token, span } = self.next();
                let Token::Word(text) = token else {
                    unreachable!("it was looked at")
                };
                Ok(Name { text, span })
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn columns(&mut self) -> Result<Vec<Column>, QueryError> {
        let mut columns = Vec::new();
        loop {
            columns.push(self.column()?);
            if !self.take_symbol(",") {
                self.need_symbol("]")?;
                return Ok(columns);
            }
        }
    }

    fn column(&mut self) -> Result<Column, QueryError> {
        let start = self.span().start;
        Ok(match self.function()? {
            Some((name, of)) => Column::Function {
                name,
                of,
                span: start..self.before(),
            },
            None => Column::Field(self.path()?),
        })
    }

    /// Parses a function such as `count()` or `max(end_time)`, if one comes next.
    fn function(&mut self) -> Result<Option<(Name, Option<Path>)>, QueryError> {
        if !matches!(self.peek_second(), Token::Symbol("(")) {
            return Ok(None);
        }
        let name = self.name("a function")?;
        self.need_symbol("(")?;
        let of = if self.is_symbol(")") {
            None
        } else {
            Some(self.path()?)
        };
        self.need_symbol(")")?;
        Ok(Some((name, of)))
    }

    /// Parses the content between the braces.
    fn block(&mut self, query: &mut Query) -> Result<(), QueryError> {
        let paging = ["group", "order", "limit", "offset"];
        let is_paging = |parser: &Self| match parser.peek() {
            Token::Word(word) if paging.contains(&word.as_str()) => {
                matches!(parser.peek_second(), Token::Word(by) if by == "by")
                    || matches!(parser.peek_second(), Token::Integer(_))
            }
            _ => false,
        };
        if !self.is_symbol("}") && !is_paging(self) {
            query.condition = Some(self.any_of()?);
        }
        while is_paging(self) {
            self.paging(query)?;
        }
        if self.take_symbol("}") {
            Ok(())
        } else {
            Err(self.unexpected("`and`, `or` or `}`"))
        }
    }

    fn paging(&mut self, query: &mut Query) -> Result<(), QueryError> {
        let word = self.name("`order by`, `limit`, `offset` or `group by`")?;
        let twice = || QueryError::new(format!("`{}` is used twice", word.text), word.span.clone());
        match word.text.as_str() {
            "limit" if query.limit.is_none() => query.limit = Some(self.count()?),
            "offset" if query.offset.is_none() => query.offset = Some(self.count()?),
            "group" if query.group_by.is_empty() => {
                self.next();
                query.group_by = self.list(Self::path)?;
            }
            "order" if query.order_by.is_empty() => {
                self.next();
                query.order_by = self.list(Self::order)?;
            }
            _ => return Err(twice()),
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        let mut items = vec![item(self)?];
        while self.take_symbol(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn count(&mut self) -> Result<usize, QueryError> {
        match self.peek() {
            Token::Integer(number) if *number >= 0 => {
                let number = *number as usize;
                self.next();
                Ok(number)
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    fn order(&mut self) -> Result<Order, QueryError> {
        let by = match self.function()? {
            Some((name, of)) => OrderBy::Function { name, of },
            None => OrderBy::Field(self.path()?),
        };
        let descending = self.take_word("desc");
        if !descending {
            self.take_word("asc");
        }
        Ok(Order { by, descending })
    }

    fn any_of(&mut self) -> Result<Condition, QueryError> {
        let mut parts = vec![self.all_of()?];
        while self.take_word("or") {
            parts.push(self.all_of()?);
        }
        Ok(one_or(parts, Condition::Or))
    }

    fn all_of(&mut self) -> Result<Condition, QueryError> {
        let mut parts = vec![self.single()?];
        while self.take_word("and") {
            parts.push(self.single()?);
        }
        Ok(one_or(parts, Condition::And))
    }

    fn single(&mut self) -> Result<Condition, QueryError> {
        self.nested(|parser| {
            if parser.take_word("not") || parser.take_symbol("!") {
                return Ok(Condition::Not(Box::new(parser.single()?)));
            }
            if parser.take_symbol("(") {
                let inside = parser.any_of()?;
                parser.need_symbol(")")?;
                return Ok(inside);
            }
            parser.condition()
        })
    }

    fn condition(&mut self) -> Result<Condition, QueryError> {
        let start = self.span().start;
        if self.take_symbol("[") {
            let paths = self.list(Self::path)?;
            self.need_symbol("]")?;
            if !self.take_word("in") {
                return Err(self.unexpected("`in`"));
            }
            return self.in_query(paths, start);
        }
        if matches!(self.peek_second(), Token::Symbol("{" | "["))
            && let Token::Word(word) = self.peek()
            && Entity::named(word).is_some()
        {
            return Ok(Condition::Having(Box::new(self.query()?)));
        }
        let path = self.path()?;
        self.rest_of_condition(path, start)
    }

    fn rest_of_condition(&mut self, path: Path, start: usize) -> Result<Condition, QueryError> {
        if self.take_word("is") {
            let negated = self.take_word("not");
            return if self.take_word("null") {
                Ok(Condition::IsNull { path, negated })
            } else {
                Err(self.unexpected("`null` or `not null`"))
            };
        }
        if self.take_word("in") {
            return if self.is_symbol("[") {
                Ok(Condition::InList {
                    path,
                    values: self.literals()?,
                })
            } else {
                self.in_query(vec![path], start)
            };
        }
        if self.take_symbol("~>") {
            let patterns = self.literals()?;
            let span = start..self.before();
            return Ok(Condition::PathMatches {
                path,
                patterns,
                span,
            });
        }
        let operator = self.operator()?;
        let value = self.literal()?;
        Ok(Condition::Compare {
            path,
            operator,
            value,
        })
    }

    fn in_query(&mut self, paths: Vec<Path>, start: usize) -> Result<Condition, QueryError> {
        let query = Box::new(self.query()?);
        let span = start..self.before();
        Ok(Condition::InQuery { paths, query, span })
    }

    fn operator(&mut self) -> Result<Operator, QueryError> {
        let operator = match self.peek() {
            Token::Symbol(symbol) => Operator::of(symbol),
            _ => None,
        };
        let Some(operator) = operator else {
            let wanted = "a comparison (`=`, `!=`, `<`, `<=`, `>`, `>=`, `~`, `!~`, `in`, `is`)";
            return Err(self.unexpected(wanted));
        };
        self.next();
        let is_equal = operator == Operator::Compare(Comparison::Equal);
        if is_equal && (self.is_symbol("=") || self.is_symbol("~")) {
            let error = self.unexpected("a value");
            return Err(error.hint("use `=` for equality and `~` for regular expressions"));
        }
        Ok(operator)
    }

    fn literals(&mut self) -> Result<Vec<Literal>, QueryError> {
        self.need_symbol("[")?;
        if self.take_symbol("]") {
            return Ok(Vec::new());
        }
        let values = self.list(Self::literal)?;
        self.need_symbol("]")?;
        Ok(values)
    }

    fn literal(&mut self) -> Result<Literal, QueryError> {
        let value = match self.peek() {
            Token::Text(text) => Value::from(text.as_str()),
            Token::Integer(number) => Value::from(*number),
            Token::Float(number) => Value::from(*number),
            Token::Word(word) => match word.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => {
                    let error = QueryError::new("nothing is equal to `null`", self.span());
                    return Err(error.hint("write `is null` or `is not null`"));
                }
                other => {
                    let error = self.unexpected("a value");
                    return Err(error.hint(format!("put strings in quotes: \"{other}\"")));
                }
            },
            _ => return Err(self.unexpected("a value")),
        };
        let span = self.next().span;
        Ok(Literal { value, span })
    }

    fn path(&mut self) -> Result<Path, QueryError> {
        let head = self.name("a field")?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(".") {
                steps.push(self.step()?);
            } else if self.is_symbol("[") && matches!(self.peek_second(), Token::Integer(_)) {
                self.next();
                steps.push(self.step()?);
                self.need_symbol("]")?;
            } else {
                let span = head.span.start..self.before();
                return Ok(Path { head, steps, span });
            }
        }
    }

    fn step(&mut self) -> Result<Step, QueryError> {
        let step = match self.peek() {
            Token::Word(word) => Step::Name(word.clone()),
            Token::Text(text) => Step::Name(text.clone()),
            Token::Integer(number) if *number >= 0 => Step::Name(number.to_string()),
            Token::Symbol("*") => Step::Any,
            _ => {
                let error = self.unexpected("a name after the dot");
                return Err(
                    error.hint("quote names with other characters: facts.mountpoints.\"/\"")
                );
            }
        };
        self.next();
        Ok(step)
    }
}

fn one_or(mut parts: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}
