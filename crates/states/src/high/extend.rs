//! `extend`: changes a declaration from another file.

use super::{ArgumentValue, HighState, IdDeclaration, Item, StateDeclaration};
use crate::problem::Problem;

impl HighState {
    /// Applies all extensions. `strict` also requires the module, as the `_in` forms do.
    pub(super) fn apply_extends(&mut self, strict: bool, problems: &mut Vec<Problem>) {
        for extension in std::mem::take(&mut self.extends) {
            let Some(first) = extension.states.first() else {
                continue;
            };
            let direct = self
                .get(&extension.id)
                .is_some_and(|known| known.state(&first.module).is_some());
            let target = if direct {
                extension.id.clone()
            } else {
                let found = self.find_name(&extension.id, &first.module, strict);
                match found.as_slice() {
                    [one] => one.clone(),
                    _ => {
                        problems.push(self.cannot_extend(&extension));
                        continue;
                    }
                }
            };
            if self.excludes_sls(&extension.sls) {
                continue;
            }
            let Some(declared) = self.get_mut(&target) else {
                continue;
            };
            for state in extension.states {
                match declared
                    .states
                    .iter_mut()
                    .find(|known| known.module == state.module)
                {
                    None => declared.states.push(state),
                    Some(known) => known.extend(state),
                }
            }
        }
    }

    fn cannot_extend(&self, extension: &IdDeclaration) -> Problem {
        let ids = self.ids.iter().map(|declared| declared.id.as_str());
        Problem::new(
            format!("no state `{}` to extend", extension.id),
            extension.spot.location(),
        )
        .hint("include the file that declares it")
        .near(&extension.id, ids)
    }
}

impl StateDeclaration {
    /// Extends the declaration: requisites are added, other arguments and the function are
    /// replaced.
    fn extend(&mut self, by: Self) {
        for item in by.items {
            let mut taken = false;
            for known in &mut self.items {
                match (&item, &mut *known) {
                    (Item::Function(..), Item::Function(..)) => {
                        *known = item.clone();
                        taken = true;
                    }
                    (Item::Arguments(new), Item::Arguments(old)) => {
                        let (Some(first), Some(known_first)) = (new.first(), old.first_mut())
                        else {
                            continue;
                        };
                        if first.name == known_first.name {
                            match (&first.value, &mut known_first.value) {
                                (
                                    ArgumentValue::References(more),
                                    ArgumentValue::References(list),
                                ) if !first.name.contains("_in") && first.name != "use" => {
                                    list.extend(more.iter().cloned());
                                }
                                _ => *old = new.clone(),
                            }
                            taken = true;
                        } else if first.name == "name" && known_first.name == "names" {
                            *old = new.clone();
                        }
                    }
                    _ => {}
                }
            }
            if !taken {
                self.items.push(item);
            }
        }
    }
}
