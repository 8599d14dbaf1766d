//! Variables: nested frames. Lookup stops at the next closed frame.

use std::collections::HashMap;

use crate::value::Value;

#[derive(Default)]
struct Frame {
    variables: HashMap<String, Value>,
    /// The texts of the last `=~` match: `$0`, `$1`.
    matches: Option<Vec<Value>>,
    /// Frames below are not visible from here, except for the top scope.
    closed: bool,
}

/// All frames; the first is the top scope.
pub(crate) struct Scopes {
    frames: Vec<Frame>,
    /// The facts of the current node. They are variables of the top scope while that node is
    /// evaluated.
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
    /// Replaces the facts in the top scope with those of another node.
    pub(crate) fn set_facts(&mut self, facts: HashMap<String, Value>) {
        self.facts = facts;
    }

    /// Returns the facts of the current node.
    pub(crate) fn facts(&self) -> &HashMap<String, Value> {
        &self.facts
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

    /// Returns the value of a variable. `::name` is the top scope's.
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

    /// Sets a variable in this frame. Returns false if the frame already has it.
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

    /// Returns the visible names, for suggestions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let frames = self.frames.iter();
        let set = frames.flat_map(|frame| frame.variables.keys());
        set.chain(self.facts.keys()).map(String::as_str)
    }
}
