//! Variables: frames that see each other, up to the next closed one.

use std::collections::HashMap;

use crate::value::Value;

#[derive(Default)]
struct Frame {
    variables: HashMap<String, Value>,
    /// Texts that the last `=~` matched: `$0`, `$1`.
    matches: Option<Vec<Value>>,
    /// Nothing below is seen from here, except the top.
    closed: bool,
}

/// All frames; the first is the top scope.
pub(crate) struct Scopes {
    frames: Vec<Frame>,
    /// The facts of the node that is looked at: variables of the top scope, for as long as it is.
    facts: HashMap<String, Value>,
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            frames: vec![Frame::default()],
            facts: HashMap::new(),
        }
    }
}

impl Scopes {
    /// Gives the top scope the facts of a node, instead of those of another one.
    pub(crate) fn set_facts(&mut self, facts: HashMap<String, Value>) {
        self.facts = facts;
    }

    pub(crate) fn push(&mut self, closed: bool) {
        self.frames.push(Frame {
            closed,
            ..Frame::default()
        });
    }

    pub(crate) fn pop(&mut self) {
        if self.frames.len() > 1 {
            self.frames.pop();
        }
    }

    /// The value of a variable. `::name` is the top scope's.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        if let Some(top) = name.strip_prefix("::") {
            return self.top(top);
        }
        for frame in self.frames.iter().rev() {
            if let Some(value) = frame.variables.get(name) {
                return Some(value);
            }
            if frame.closed {
                break;
            }
        }
        self.top(name)
    }

    fn top(&self, name: &str) -> Option<&Value> {
        let set = self.frames[0].variables.get(name);
        set.or_else(|| self.facts.get(name))
    }

    /// Sets a variable here. False if this frame has it already.
    pub(crate) fn set(&mut self, name: &str, value: Value) -> bool {
        let Some(frame) = self.frames.last_mut() else {
            return false;
        };
        if frame.variables.contains_key(name) {
            return false;
        }
        frame.variables.insert(name.to_owned(), value);
        true
    }

    pub(crate) fn set_matches(&mut self, matches: Vec<Value>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.matches = Some(matches);
        }
    }

    pub(crate) fn matched(&self, number: usize) -> Option<&Value> {
        for frame in self.frames.iter().rev() {
            if let Some(matches) = &frame.matches {
                return matches.get(number);
            }
            if frame.closed {
                break;
            }
        }
        None
    }

    /// Names that can be seen, for suggestions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let frames = self.frames.iter();
        let set = frames.flat_map(|frame| frame.variables.keys());
        set.chain(self.facts.keys()).map(String::as_str)
    }
}
