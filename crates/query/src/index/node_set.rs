//! Sets of nodes, by their slots in the index.

/// A node's position. It is reused for another node after this one is removed.
pub(crate) type Slot = u32;

/// A set as bits, for evaluating queries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    pub(crate) fn insert(&mut self, slot: Slot) {
        let (word, bit) = (slot as usize / 64, slot % 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << bit;
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        let word = self.words.get(slot as usize / 64).copied().unwrap_or(0);
        word & (1 << (slot % 64)) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    pub(crate) fn union(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }
}

/// A stored set. Most have one member, and there are millions of them.
#[derive(Clone, Debug, Default)]
pub(crate) enum Members {
    #[default]
    None,
    One(Slot),
    /// Sorted.
    Few(Vec<Slot>),
    Many(NodeSet),
}

/// Sets with more members than this are stored as bits.
const FEW: usize = 64;

impl Members {
    pub(crate) fn insert(&mut self, slot: Slot) {
        match self {
            Self::None => *self = Self::One(slot),
            Self::One(one) if *one == slot => {}
            Self::One(one) => {
                let (one, slot) = ((*one).min(slot), (*one).max(slot));
                *self = Self::Few(vec![one, slot]);
            }
            Self::Few(few) => {
                if let Err(at) = few.binary_search(&slot) {
                    few.insert(at, slot);
                }
                if few.len() > FEW {
                    let mut many = NodeSet::default();
                    few.iter().for_each(|slot| many.insert(*slot));
                    *self = Self::Many(many);
                }
            }
            Self::Many(many) => many.insert(slot),
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        match self {
            Self::None => {}
            Self::One(one) => {
                if *one == slot {
                    *self = Self::None;
                }
            }
            Self::Few(few) => {
                few.retain(|member| *member != slot);
                if let [one] = few[..] {
                    *self = Self::One(one);
                }
            }
            Self::Many(many) => {
                many.remove(slot);
                if many.len() <= FEW / 2 {
                    *self = Self::Few(many.iter().collect());
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(_) => false,
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => *one == slot,
            Self::Few(few) => few.binary_search(&slot).is_ok(),
            Self::Many(many) => many.contains(slot),
        }
    }

    pub(crate) fn add_to(&self, set: &mut NodeSet) {
        match self {
            Self::None => {}
            Self::One(one) => set.insert(*one),
            Self::Few(few) => few.iter().for_each(|slot| set.insert(*slot)),
            Self::Many(many) => set.union(many),
        }
    }

    #[cfg(test)]
    pub(crate) fn to_set(&self) -> NodeSet {
        let mut set = NodeSet::default();
        self.add_to(&mut set);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    proptest::proptest! {
        #[test]
        fn members_are_what_was_put_in_and_not_taken_out(
            steps in proptest::collection::vec((proptest::bool::weighted(0.7), 0_u32..300), 0..600)
        ) {
            let (mut members, mut wanted) = (Members::None, BTreeSet::new());
            for (add, slot) in steps {
                if add {
                    members.insert(slot);
                    wanted.insert(slot);
                } else {
                    members.remove(slot);
                    wanted.remove(&slot);
                }
                let set = members.to_set();
                proptest::prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), wanted.clone());
                proptest::prop_assert_eq!(set.len(), wanted.len());
                proptest::prop_assert_eq!(members.is_empty(), wanted.is_empty());
                proptest::prop_assert!(wanted.iter().all(|slot| set.contains(*slot)));
            }
        }

        #[test]
        fn sets_join_meet_and_differ(
            left in proptest::collection::btree_set(0_u32..300, 0..100),
            right in proptest::collection::btree_set(0_u32..300, 0..100),
        ) {
            let set = |members: &BTreeSet<u32>| {
                let mut set = NodeSet::default();
                members.iter().for_each(|slot| set.insert(*slot));
                set
            };
            let text = |set: &NodeSet| set.iter().collect::<BTreeSet<_>>();
            let (mut union, mut both, mut first) = (set(&left), set(&left), set(&left));
            union.union(&set(&right));
            both.intersect(&set(&right));
            first.subtract(&set(&right));
            proptest::prop_assert_eq!(text(&union), &left | &right);
            proptest::prop_assert_eq!(text(&both), &left & &right);
            proptest::prop_assert_eq!(text(&first), &left - &right);
        }
    }
}
