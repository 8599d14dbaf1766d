//! Checks whether one register per key could have given these answers.
//!
//! The search is the one of Wing and Gong with Lowe's memoization. It looks for an
//! order of all operations that agrees with real time and in which every answer is
//! what a register would return. A set of operations that was tried before with the
//! same value is not tried again, so the effort stays near the number of
//! overlapping operations.
//!
//! An operation with an unknown outcome may take effect at any time after it began,
//! or never. An operation whose value nobody ever saw changes nothing for the
//! others and is left out, which keeps long histories affordable.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::at;
use crate::history::{Call, CallOutcome, History, Micros, Operation, Value};

/// No check has needed more states than this. Beyond it, the check fails loudly and claims nothing.
const MOST_STATES: usize = 5_000_000;

#[derive(Clone, Debug)]
enum Step {
    Read(Value),
    Write(String),
    Swap {
        from: Value,
        to: String,
    },
    /// The answer was that the register has another value.
    Refused {
        from: Value,
    },
}

#[derive(Clone, Debug)]
struct TimedOperation {
    step: Step,
    begun: Micros,
    /// `None` if it may still take effect.
    ended: Option<Micros>,
    client: usize,
}

impl Step {
    fn of(operation: &Operation) -> Option<(&String, Self)> {
        Some(match (&operation.call, operation.outcome) {
            (Call::Read { key, value }, CallOutcome::Done) => (key, Self::Read(value.clone())),
            (Call::Write { key, value }, CallOutcome::Done | CallOutcome::Unknown) => {
                (key, Self::Write(value.clone()))
            }
            (Call::Swap { key, from, to }, CallOutcome::Done | CallOutcome::Unknown) => {
                let (from, to) = (from.clone(), to.clone());
                (key, Self::Swap { from, to })
            }
            (Call::Swap { key, from, .. }, CallOutcome::Refused) => {
                (key, Self::Refused { from: from.clone() })
            }
            _ => return None,
        })
    }

    /// Returns the new value, if a register with this value could give this answer.
    fn apply(&self, value: &Value) -> Option<Value> {
        match self {
            Self::Read(seen) => (seen == value).then(|| value.clone()),
            Self::Write(to) => Some(Some(to.clone())),
            Self::Swap { from, to } => (from == value).then(|| Some(to.clone())),
            Self::Refused { from } => (from != value).then(|| value.clone()),
        }
    }

    fn written(&self) -> Option<&String> {
        match self {
            Self::Write(to) | Self::Swap { to, .. } => Some(to),
            _ => None,
        }
    }

    fn read_value(&self) -> Option<&String> {
        match self {
            Self::Read(value) | Self::Swap { from: value, .. } => value.as_ref(),
            _ => None,
        }
    }
}

pub(super) fn check(history: &History) -> Vec<String> {
    let mut keys: BTreeMap<&String, Vec<TimedOperation>> = BTreeMap::new();
    for operation in &history.operations {
        if let Some((key, step)) = Step::of(operation) {
            keys.entry(key).or_default().push(TimedOperation {
                step,
                begun: operation.begun,
                ended: (operation.outcome != CallOutcome::Unknown).then_some(operation.ended),
                client: operation.client,
            });
        }
    }
    keys.into_iter()
        .filter_map(|(key, steps)| {
            let why = Search::new(without_unseen(steps)).run().err()?;
            Some(format!("register {key}: {why}"))
        })
        .collect()
}

fn without_unseen(mut steps: Vec<TimedOperation>) -> Vec<TimedOperation> {
    let seen: BTreeSet<String> = steps
        .iter()
        .filter_map(|timed| timed.step.read_value().cloned())
        .collect();
    steps.retain(|timed| {
        timed.ended.is_some()
            || timed
                .step
                .written()
                .is_none_or(|value| seen.contains(value))
    });
    steps
}

/// The beginning or the end of an operation, in a linked list. Operations that have
/// been put in order are removed from the list.
#[derive(Clone, Copy)]
struct Mark {
    operation: usize,
    is_end: bool,
    before: usize,
    after: usize,
}

struct Search {
    steps: Vec<TimedOperation>,
    /// The first mark is only the head of the list.
    marks: Vec<Mark>,
    /// The position of the end of each operation, if it has one.
    ends: Vec<Option<usize>>,
    begins: Vec<usize>,
    ordered: Vec<u64>,
    /// The number of operations that ended and are not in order yet.
    open: usize,
    tried: HashSet<(Vec<u64>, Value)>,
}

impl Search {
    fn new(steps: Vec<TimedOperation>) -> Self {
        let mut times: Vec<(Micros, bool, usize)> = Vec::new();
        for (number, timed) in steps.iter().enumerate() {
            times.push((timed.begun, false, number));
            times.extend(timed.ended.map(|ended| (ended, true, number)));
        }
        // At equal times, beginnings come first: then the two operations overlap.
        times.sort_unstable();
        let last = times.len();
        let mut marks = vec![Mark {
            operation: 0,
            is_end: false,
            before: 0,
            after: usize::from(last > 0),
        }];
        let (mut begins, mut ends) = (vec![0; steps.len()], vec![None; steps.len()]);
        for (index, (_, is_end, operation)) in times.into_iter().enumerate() {
            let place = index + 1;
            if is_end {
                ends[operation] = Some(place)
            } else {
                begins[operation] = place
            }
            marks.push(Mark {
                operation,
                is_end,
                before: index,
                after: if place == last { 0 } else { place + 1 },
            });
        }
        Self {
            open: ends.iter().flatten().count(),
            ordered: vec![0; steps.len().div_ceil(64)],
            steps,
            marks,
            ends,
            begins,
            tried: HashSet::new(),
        }
    }

    fn take(&mut self, place: usize) {
        let Mark { before, after, .. } = self.marks[place];
        self.marks[before].after = after;
        if after != 0 {
            self.marks[after].before = before;
        }
    }

    fn put_back(&mut self, place: usize) {
        let Mark { before, after, .. } = self.marks[place];
        self.marks[before].after = place;
        if after != 0 {
            self.marks[after].before = place;
        }
    }

    fn order(&mut self, operation: usize) {
        self.ordered[operation / 64] |= 1 << (operation % 64);
        self.take(self.begins[operation]);
        if let Some(end) = self.ends[operation] {
            self.take(end);
            self.open -= 1;
        }
    }

    fn undo(&mut self, operation: usize) {
        self.ordered[operation / 64] &= !(1 << (operation % 64));
        if let Some(end) = self.ends[operation] {
            self.put_back(end);
            self.open += 1;
        }
        self.put_back(self.begins[operation]);
    }

    fn run(mut self) -> Result<(), String> {
        let mut value: Value = None;
        let mut path: Vec<(usize, Value)> = Vec::new();
        let mut place = self.marks[0].after;
        let mut furthest = (usize::MAX, 0, None);
        while self.open > 0 {
            if self.tried.len() > MOST_STATES {
                return Err("too many possible orders to say".to_owned());
            }
            // The next mark is the end of an operation: the operation cannot be deferred further.
            if place == 0 || self.marks[place].is_end {
                if self.open < furthest.0 {
                    furthest = (self.open, self.marks[place].operation, value.clone());
                }
                let Some((operation, before)) = path.pop() else {
                    return Err(self.explain(furthest.1, &furthest.2));
                };
                self.undo(operation);
                value = before;
                place = self.marks[self.begins[operation]].after;
                continue;
            }
            let operation = self.marks[place].operation;
            match self.next(operation, &value) {
                Some(after) => {
                    self.order(operation);
                    path.push((operation, std::mem::replace(&mut value, after)));
                    place = self.marks[0].after;
                }
                None => place = self.marks[place].after,
            }
        }
        Ok(())
    }

    /// Returns the value after one more operation, unless that was tried before.
    fn next(&mut self, operation: usize, value: &Value) -> Option<Value> {
        let after = self.steps[operation].step.apply(value)?;
        let mut ordered = self.ordered.clone();
        ordered[operation / 64] |= 1 << (operation % 64);
        let new = self.tried.insert((ordered, after.clone()));
        new.then_some(after)
    }

    fn explain(&self, operation: usize, value: &Value) -> String {
        let timed = &self.steps[operation];
        let until = timed.ended.map_or("…".to_owned(), at);
        format!(
            "no order explains what client {} saw between {} and {until}: {:?}, where the value can only be {value:?}",
            timed.client,
            at(timed.begun),
            timed.step
        )
    }
}
