//! File modes in octal and symbolic form: `0644`, `u+rwX,go=r`.

use crate::{Declaration, Refusal};

/// A mode, exact or relative to the current one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FileMode {
    Exact(u32),
    Symbolic(Vec<Clause>),
}

/// A clause such as `go-w`: the users, the operator, and the permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clause {
    who: u32,
    how: char,
    what: u32,
    /// `X`: execute, for directories and for files that already have an execute bit.
    conditional: bool,
}

impl FileMode {
    pub(crate) fn read(declaration: &Declaration, name: &str) -> Result<Option<Self>, Refusal> {
        let Some(text) = declaration.text(name)? else {
            return Ok(None);
        };
        let mode = Self::parse(&text);
        mode.map(Some)
            .ok_or_else(|| declaration.refuse(name, "an octal mode or one such as `u=rw,go=r`"))
    }

    fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777)?;
            return Some(Self::Exact(mode));
        }
        let clauses: Option<Vec<Clause>> = text.split(',').map(clause).collect();
        clauses
            .filter(|clauses| !clauses.is_empty())
            .map(Self::Symbolic)
    }

    /// Returns the new mode of something with the mode `from`.
    pub(crate) fn applied_to(&self, from: u32, directory: bool) -> u32 {
        match self {
            Self::Exact(mode) => *mode,
            Self::Symbolic(clauses) => clauses.iter().fold(from & 0o7777, |mode, clause| {
                let execute = if clause.conditional && (directory || mode & 0o111 != 0) {
                    0o111
                } else {
                    0
                };
                let what = (clause.what | execute) & clause.who;
                match clause.how {
                    '+' => mode | what,
                    '-' => mode & !what,
                    _ => mode & !clause.who | what,
                }
            }),
        }
    }

    /// Returns the mode for directories. In Puppet, read permission on a directory
    /// implies search permission.
    pub(crate) fn searchable(&self) -> Self {
        match self {
            Self::Exact(mode) => Self::Exact(mode | (mode & 0o444) >> 2),
            symbolic => symbolic.clone(),
        }
    }
}

fn clause(text: &str) -> Option<Clause> {
    let position = text.find(['+', '-', '='])?;
    let mut who = 0;
    for letter in text[..position].chars() {
        who |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let (mut what, mut conditional) = (0, false);
    for letter in text[position + 1..].chars() {
        what |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                conditional = true;
                0
            }
            _ => return None,
        };
    }
    // The sticky bit has no owner: `u+t` and `+t` both set it.
    let sticky = if what & 0o1000 != 0 { 0o1000 } else { 0 };
    let everyone = if position == 0 { 0o7777 } else { who };
    Some(Clause {
        who: everyone | sticky,
        how: text.as_bytes()[position] as char,
        what,
        conditional,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_chmod_reads_them() {
        for (text, from, directory, expected) in [
            ("644", 0o600, false, 0o644),
            ("0755", 0, false, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o755, false, 0o700),
            ("u=rw,go=r", 0o777, false, 0o644),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o644, true, 0o755),
            ("a+X", 0o744, false, 0o755),
            ("u+s", 0o755, false, 0o4755),
            ("+t", 0o777, true, 0o1777),
        ] {
            let mode = FileMode::parse(text).expect(text);
            assert_eq!(
                mode.applied_to(from, directory),
                expected,
                "{text} on {from:o}"
            );
        }
        for text in ["", "9", "77777", "u", "z+x", "u+y", "rw"] {
            assert_eq!(FileMode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_directory_of_puppet_can_be_searched_by_all_who_may_read_it() {
        assert_eq!(FileMode::Exact(0o644).searchable(), FileMode::Exact(0o755));
        assert_eq!(FileMode::Exact(0o600).searchable(), FileMode::Exact(0o700));
    }
}
