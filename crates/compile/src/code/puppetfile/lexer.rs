//! The words of a Puppetfile: the part of Ruby that declarations use.
//!
//! Nothing is evaluated. Text that Ruby would compute, such as `"#{x}"`, is an
//! error at its place.

use super::PuppetfileError;

/// A word of a Puppetfile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A name without quotes, such as `mod`.
    Word(String),
    Text(String),
    /// `:name`.
    Symbol(String),
    /// `name:` before a value.
    Label(String),
    Arrow,
    Comma,
    Open(char),
    Close(char),
    NewLine,
    /// A character that only Ruby code has.
    Other(char),
    End,
}

/// A token and its place.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) line: u64,
    pub(super) column: u64,
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u64,
    column: u64,
}

/// Splits a Puppetfile into tokens. The last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, PuppetfileError> {
    let mut lexer = Lexer {
        rest: text.chars().peekable(),
        line: 1,
        column: 1,
    };
    let mut tokens = Vec::new();
    loop {
        let placed = lexer.next()?;
        let is_end = placed.token == Token::End;
        tokens.push(placed);
        if is_end {
            return Ok(tokens);
        }
    }
}

impl Lexer<'_> {
    fn advance(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(character)
    }

    fn skip_line(&mut self) {
        while self.rest.peek().is_some_and(|character| *character != '\n') {
            self.advance();
        }
    }

    /// Skips blanks, comments, `\` before a line end, and `=begin` … `=end`.
    fn skip_blanks(&mut self) -> Result<(), PuppetfileError> {
        loop {
            match self.rest.peek().copied() {
                Some('#') => self.skip_line(),
                Some(' ' | '\t' | '\r') => {
                    self.advance();
                }
                Some('\\') => {
                    let (line, column) = (self.line, self.column);
                    self.advance();
                    if self.rest.peek() == Some(&'\r') {
                        self.advance();
                    }
                    if self.advance() != Some('\n') {
                        return Err(PuppetfileError::new(line, column, "`\\` must end its line"));
                    }
                }
                Some('=') if self.column == 1 && self.begins_with("=begin") => {
                    while self.rest.peek().is_some() && !self.begins_with("=end") {
                        self.skip_line();
                        self.advance();
                    }
                    self.skip_line();
                }
                _ => return Ok(()),
            }
        }
    }

    fn begins_with(&self, word: &str) -> bool {
        let mut ahead = self.rest.clone();
        word.chars()
            .all(|character| ahead.next() == Some(character))
    }

    fn next(&mut self) -> Result<Placed, PuppetfileError> {
        self.skip_blanks()?;
        let (line, column) = (self.line, self.column);
        let token = self.token()?;
        Ok(Placed {
            token,
            line,
            column,
        })
    }

    fn token(&mut self) -> Result<Token, PuppetfileError> {
        let Some(first) = self.rest.peek().copied() else {
            return Ok(Token::End);
        };
        if first.is_ascii_alphanumeric() || first == '_' {
            let word = self.word();
            if self.begins_with(":") && !self.begins_with("::") {
                self.advance();
                return Ok(Token::Label(word));
            }
            return Ok(Token::Word(word));
        }
        if matches!(first, '\'' | '"') {
            let text = self.quoted()?;
            if self.begins_with(":") && !self.begins_with("::") {
                self.advance();
                return Ok(Token::Label(text));
            }
            return Ok(Token::Text(text));
        }
        self.advance();
        Ok(match first {
            '\n' | ';' => Token::NewLine,
            ',' => Token::Comma,
            '(' | '{' | '[' => Token::Open(first),
            ')' | '}' | ']' => Token::Close(first),
            '=' if self.begins_with(">") => {
                self.advance();
                Token::Arrow
            }
            ':' => match self.rest.peek().copied() {
                Some('\'' | '"') => Token::Symbol(self.quoted()?),
                Some(next) if next.is_ascii_alphabetic() || next == '_' => {
                    Token::Symbol(self.word())
                }
                _ => Token::Other(first),
            },
            other => Token::Other(other),
        })
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(character) = self.rest.peek().copied() {
            if !character.is_ascii_alphanumeric() && character != '_' {
                break;
            }
            word.push(character);
            self.advance();
        }
        word
    }

    fn quoted(&mut self) -> Result<String, PuppetfileError> {
        let (line, column) = (self.line, self.column);
        let quote = self.advance().unwrap_or('\'');
        let mut text = String::new();
        loop {
            let at = (self.line, self.column);
            match self.advance() {
                None => {
                    return Err(PuppetfileError::new(line, column, "the text has no end"));
                }
                Some(character) if character == quote => return Ok(text),
                Some('#') if quote == '"' && matches!(self.rest.peek(), Some('{' | '$' | '@')) => {
                    return Err(PuppetfileError::new(
                        at.0,
                        at.1,
                        "values inside text (`#{…}`) are not computed: a Puppetfile is read without running Ruby",
                    )
                    .with_hint("write the whole value"));
                }
                Some('\\') => text.push_str(&self.escaped(quote)),
                Some(character) => text.push(character),
            }
        }
    }

    /// Reads the character after a backslash as Ruby does.
    fn escaped(&mut self, quote: char) -> String {
        match (quote, self.advance()) {
            (_, None) => String::new(),
            ('\'', Some(character @ ('\'' | '\\'))) => character.to_string(),
            ('\'', Some(character)) => format!("\\{character}"),
            (_, Some('n')) => "\n".to_owned(),
            (_, Some('t')) => "\t".to_owned(),
            (_, Some(character)) => character.to_string(),
        }
    }
}
