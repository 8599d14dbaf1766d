//! `a:b:0`: a path into maps and lists.

use minijinja::Value;
use minijinja::value::ValueKind;

/// Returns the value at a path, if it exists. A key that equals the whole rest of the path wins, as
/// for grains with colons in their names.
pub(super) fn traverse(value: &Value, path: &str, delimiter: &str) -> Option<Value> {
    let whole = value
        .get_item(&Value::from(path))
        .ok()
        .filter(|found| !found.is_undefined());
    if whole.is_some() && value.kind() == ValueKind::Map {
        return whole;
    }
    let mut current = value.clone();
    for part in path.split(delimiter) {
        let next = match current.kind() {
            ValueKind::Map => current.get_item(&Value::from(part)).ok()?,
            ValueKind::Seq => {
                let items: Vec<Value> = current.try_iter().ok()?.collect();
                match part.parse::<i64>() {
                    Ok(index) => {
                        let index = if index < 0 {
                            index + items.len() as i64
                        } else {
                            index
                        };
                        items.get(usize::try_from(index).ok()?)?.clone()
                    }
                    // For a list of maps, the first map with the key answers.
                    Err(_) => items
                        .iter()
                        .filter(|item| item.kind() == ValueKind::Map)
                        .find_map(|item| {
                            item.get_item(&Value::from(part))
                                .ok()
                                .filter(|found| !found.is_undefined())
                        })?,
                }
            }
            _ => return None,
        };
        if next.is_undefined() {
            return None;
        }
        current = next;
    }
    Some(current)
}
