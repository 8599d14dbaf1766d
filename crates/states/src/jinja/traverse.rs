//! `a:b:0`: a path into maps and lists.

use minijinja::Value;
use minijinja::value::ValueKind;

/// Returns the value at a path, if it exists.
pub(super) fn traverse(value: &Value, path: &str, delimiter: &str) -> Option<Value> {
    let mut current = value.clone();
    for part in path.split(delimiter) {
        let next = match current.kind() {
            ValueKind::Map => current.get_item(&Value::from(part)).ok()?,
            ValueKind::Seq => {
                let items: Vec<Value> = current.try_iter().ok()?.collect();
                match part.parse::<i64>() {
                    Ok(index) => {
                        let inside = items.iter().find_map(|item| member(item, part));
                        if let Some(inside) = inside {
                            current = inside;
                            continue;
                        }
                        let index = if index < 0 {
                            index + items.len() as i64
                        } else {
                            index
                        };
                        items.get(usize::try_from(index).ok()?)?.clone()
                    }
                    // For a list of maps, the first map with the key answers.
                    Err(_) => items.iter().find_map(|item| member(item, part))?,
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

fn member(map: &Value, key: &str) -> Option<Value> {
    if map.kind() != ValueKind::Map {
        return None;
    }
    let found = map.get_item(&Value::from(key)).ok();
    found.filter(|found| !found.is_undefined())
}
