//! Shell-style patterns for names.
//!
//! Two dialects share one matcher: wildcards (`*` and `?`), and wildcards with sets as in Python's
//! `fnmatch` and Salt (`[abc]`, `[a-z]`, `[!abc]`). Every other character matches itself; `/` is an
//! ordinary character. A pattern matches a whole name, in time that grows with the product of both
//! lengths.

/// A pattern. Parse it once and match many names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(Vec<Token>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    /// Any characters, or none.
    Star,
    /// Any single character.
    One,
    Char(char),
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Parses a pattern with `*` and `?`.
    pub fn with_wildcards(pattern: &str) -> Self {
        Self(pattern.chars().map(Token::of).collect())
    }

    /// Parses a pattern with `*`, `?` and sets in brackets. A bracket without an end matches
    /// itself.
    pub fn with_sets(pattern: &str) -> Self {
        let pattern: Vec<char> = pattern.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(character) = pattern.get(at) {
            at += 1;
            let set = match character {
                '[' => set(&pattern[at..]),
                _ => None,
            };
            match set {
                Some((token, length)) => {
                    tokens.push(token);
                    at += length;
                }
                None => tokens.push(Token::of(*character)),
            }
        }
        Self(tokens)
    }

    /// Returns whether the pattern matches exactly one name.
    pub fn is_literal(&self) -> bool {
        self.0.iter().all(|token| matches!(token, Token::Char(_)))
    }

    pub fn matches(&self, name: &str) -> bool {
        let mut rest = name.chars();
        let mut at = 0;
        // The place to resume after a mismatch: behind the newest star, one character further. An
        // older star never needs another try.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if let Some(Token::Star) = self.0.get(at) {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (self.0.get(at), ahead.next()) {
                (None, None) => return true,
                (Some(token), Some(character)) if token.contains(character) => {
                    at += 1;
                    rest = ahead;
                }
                _ => {
                    let Some((after, from)) = &mut retry else {
                        return false;
                    };
                    if from.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*after, from.clone());
                }
            }
        }
    }
}

impl Token {
    fn of(character: char) -> Self {
        match character {
            '*' => Self::Star,
            '?' => Self::One,
            other => Self::Char(other),
        }
    }

    fn contains(&self, character: char) -> bool {
        match self {
            Self::Star => false,
            Self::One => true,
            Self::Char(own) => *own == character,
            Self::Set { is_negated, ranges } => {
                let holds = ranges
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&character));
                holds != *is_negated
            }
        }
    }
}

/// Parses the set that follows an opening bracket. Also returns its length in characters.
fn set(rest: &[char]) -> Option<(Token, usize)> {
    let is_negated = rest.first() == Some(&'!');
    let begin = usize::from(is_negated);
    // A closing bracket in first position belongs to the set.
    let mut end = begin + usize::from(rest.get(begin) == Some(&']'));
    while *rest.get(end)? != ']' {
        end += 1;
    }
    let (mut inside, mut ranges) = (&rest[begin..end], Vec::new());
    loop {
        match inside {
            [] => break,
            [from, '-', to, more @ ..] => {
                ranges.push((*from, *to));
                inside = more;
            }
            [one, more @ ..] => {
                ranges.push((*one, *one));
                inside = more;
            }
        }
    }
    Some((Token::Set { is_negated, ranges }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_whole_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("web-*", "web-1", true),
            ("web-*", "xweb-1", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "a.example.org", false),
            ("w?b", "web", true),
            ("w?b", "wb", false),
            ("?", "ä", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("**a", "ba", true),
            ("*.svn", "a/b.svn", true),
            ("web[12]", "web1", false),
            ("web[12]", "web[12]", true),
        ] {
            let glob = Glob::with_wildcards(pattern);
            assert_eq!(glob.matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn sets_are_those_of_python() {
        for (pattern, name, expected) in [
            ("web*", "web1", true),
            ("web?", "web12", false),
            ("web[12]", "web2", true),
            ("web[!12]", "web2", false),
            ("web[!12]", "web3", true),
            ("web[0-9]", "web7", true),
            ("web[b-a]", "weba", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("[!", "[!", true),
            ("a.b", "axb", false),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("a\\*", "a\\b", true),
        ] {
            let glob = Glob::with_sets(pattern);
            assert_eq!(glob.matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_without_wildcards_is_literal() {
        assert!(Glob::with_wildcards("web-1").is_literal());
        assert!(!Glob::with_wildcards("web-?").is_literal());
        assert!(!Glob::with_sets("web-[1]").is_literal());
    }

    #[test]
    fn many_stars_cost_no_exponential_time() {
        let pattern = "a*".repeat(500) + "b";
        assert!(!Glob::with_wildcards(&pattern).matches(&"a".repeat(5_000)));
    }
}
