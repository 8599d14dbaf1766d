//! Values and paths of facts, stored once with a use count.

use std::collections::HashMap;
use std::sync::Arc;

use crate::scalar::Scalar;

/// Items by number; freed numbers are reused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn add(&mut self, entry: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = Some(entry);
                number
            }
            None => {
                self.entries.push(Some(entry));
                u32::try_from(self.entries.len() - 1).expect("memory ends before the numbers do")
            }
        }
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let entry = self.entries.get_mut(number as usize)?.take();
        if entry.is_some() {
            self.free.push(number);
        }
        entry
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.entries.iter().enumerate();
        numbered.filter_map(|(number, entry)| Some((number as u32, entry.as_ref()?)))
    }
}

pub(crate) type ValueId = u32;
pub(crate) type PathId = u32;

/// Every value of every fact, stored once.
#[derive(Default, Debug)]
pub(super) struct Values {
    slab: Slab<(Scalar, u32)>,
    known: HashMap<Scalar, ValueId>,
}

impl Values {
    pub(super) fn take(&mut self, value: Scalar) -> ValueId {
        if let Some(number) = self.known.get(&value) {
            let (_, uses) = self.slab.get_mut(*number).expect("what is known is there");
            *uses += 1;
            return *number;
        }
        let number = self.slab.add((value.clone(), 1));
        self.known.insert(value, number);
        number
    }

    pub(super) fn release(&mut self, number: ValueId) {
        let Some((_, uses)) = self.slab.get_mut(number) else {
            return;
        };
        *uses -= 1;
        if *uses == 0
            && let Some((value, _)) = self.slab.remove(number)
        {
            self.known.remove(&value);
        }
    }

    pub(super) fn get(&self, number: ValueId) -> &Scalar {
        &self.slab.get(number).expect("it is in use").0
    }

    pub(super) fn find(&self, value: &Scalar) -> Option<ValueId> {
        self.known.get(value).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

/// One step of a path into facts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Segment {
    Key(Arc<str>),
    Place(u32),
}

#[derive(Debug)]
struct PathEntry {
    parent: Option<PathId>,
    segment: Segment,
    children: HashMap<Segment, PathId>,
    /// Number of facts that end here.
    uses: u32,
}

/// Every path of every fact, stored once, as a tree.
#[derive(Default, Debug)]
pub(super) struct Paths {
    slab: Slab<PathEntry>,
    roots: HashMap<Segment, PathId>,
}

impl Paths {
    /// Returns the path below `parent`, and creates it if needed.
    pub(super) fn child(&mut self, parent: Option<PathId>, segment: Segment) -> PathId {
        if let Some(known) = self.children(parent).get(&segment) {
            return *known;
        }
        let number = self.slab.add(PathEntry {
            parent,
            segment: segment.clone(),
            children: HashMap::new(),
            uses: 0,
        });
        match parent {
            None => self.roots.insert(segment, number),
            Some(parent) => {
                let parent = self.slab.get_mut(parent).expect("a parent is there");
                parent.children.insert(segment, number)
            }
        };
        number
    }

    pub(super) fn children(&self, parent: Option<PathId>) -> &HashMap<Segment, PathId> {
        match parent {
            None => &self.roots,
            Some(parent) => &self.slab.get(parent).expect("a parent is there").children,
        }
    }

    pub(super) fn take(&mut self, number: PathId) {
        self.slab.get_mut(number).expect("it was just made").uses += 1;
    }

    /// Removes one use, and all paths up to the root that are now unused.
    pub(super) fn release(&mut self, number: PathId) {
        if let Some(entry) = self.slab.get_mut(number) {
            entry.uses -= 1;
        }
        let mut next = Some(number);
        while let Some(number) = next {
            let unused = self
                .slab
                .get(number)
                .is_some_and(|entry| entry.uses == 0 && entry.children.is_empty());
            if !unused {
                return;
            }
            let entry = self.slab.remove(number).expect("it was just looked at");
            match entry.parent {
                None => self.roots.remove(&entry.segment),
                Some(parent) => {
                    let parent = self.slab.get_mut(parent).expect("a parent is there");
                    parent.children.remove(&entry.segment)
                }
            };
            next = entry.parent;
        }
    }

    pub(super) fn is_at_or_below(&self, number: PathId, top: PathId) -> bool {
        let mut next = Some(number);
        while let Some(number) = next {
            if number == top {
                return true;
            }
            next = self.slab.get(number).and_then(|entry| entry.parent);
        }
        false
    }

    /// Returns the segments from the top down.
    pub(super) fn segments(&self, number: PathId) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut next = Some(number);
        while let Some(number) = next {
            let entry = self.slab.get(number).expect("it is in use");
            segments.push(entry.segment.clone());
            next = entry.parent;
        }
        segments.reverse();
        segments
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}
