//! Data directories, and the fence file in each.

use std::path::PathBuf;

use bunraku_files::FileError;
use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::order::DatastoreOrder;

const FENCE: &str = "fence.json";
const RETIRED: &str = "retired";

/// The reason why a data directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("the data in {} belongs to another datastore and is not used", .0.display())]
    Fenced(PathBuf),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The owner of a data directory.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Fence {
    generation: String,
    epoch: u64,
    token: String,
}

impl Fence {
    fn of(order: &DatastoreOrder) -> Self {
        Self {
            generation: order.generation.clone(),
            epoch: order.epoch,
            token: order.token.clone(),
        }
    }
}

/// Returns the directory in which etcd writes the data of this order.
pub(crate) fn path(directory: &Directory, order: &DatastoreOrder) -> PathBuf {
    directory.datastores().join(&order.generation).join("data")
}

/// Returns true if this order has run here before.
pub(crate) fn exists(directory: &Directory, order: &DatastoreOrder) -> bool {
    path(directory, order).exists()
}

/// Creates the order's directory, or checks that the existing one belongs to the order.
pub(super) fn open(directory: &Directory, order: &DatastoreOrder) -> Result<PathBuf, DataError> {
    let place = directory.datastores().join(&order.generation);
    bunraku_files::create_private_directory(&place).map_err(FileError::when("create", &place))?;
    let fence = place.join(FENCE);
    match std::fs::read(&fence) {
        Ok(text) => {
            let known: Option<Fence> = serde_json::from_slice(&text).ok();
            if known != Some(Fence::of(order)) {
                return Err(DataError::Fenced(place));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if path(directory, order).exists() {
                return Err(DataError::Fenced(place));
            }
            let text = serde_json::to_vec(&Fence::of(order)).expect("plain data");
            bunraku_files::replace(&fence, &text, 0o600)
                .map_err(FileError::when("write", &fence))?;
        }
        Err(source) => return Err(FileError::when("read", &fence)(source).into()),
    }
    Ok(path(directory, order))
}

/// Sets aside all data that does not belong to this order. The newest retired data
/// is kept for operators; this program never opens it again.
pub(super) fn retire_others(
    directory: &Directory,
    order: Option<&DatastoreOrder>,
) -> Result<(), DataError> {
    let root = directory.datastores();
    let Ok(entries) = std::fs::read_dir(&root) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let keep = order.is_some_and(|order| *order.generation == *name);
        if keep || name == RETIRED {
            continue;
        }
        let aside = root.join(RETIRED);
        let _ = std::fs::remove_dir_all(&aside);
        std::fs::rename(entry.path(), &aside)
            .map_err(FileError::when("set aside", &entry.path()))?;
        tracing::info!(data = %aside.display(), "set aside old data");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::NodeName;

    fn order(generation: &str, epoch: u64) -> DatastoreOrder {
        let name = NodeName::new("a").expect("a name");
        DatastoreOrder::first("c", epoch, &name, "https://a:1", generation.to_owned())
    }

    #[test]
    fn data_of_an_earlier_epoch_is_never_opened() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(place.path());
        let path = open(&directory, &order("g", 1)).expect("a new one");
        std::fs::create_dir_all(path).expect("etcd would make it");
        open(&directory, &order("g", 1)).expect("the same one again");
        let refused = open(&directory, &order("g", 2));
        assert!(matches!(refused, Err(DataError::Fenced(_))), "{refused:?}");
    }

    #[test]
    fn data_without_a_fence_is_never_opened() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(place.path());
        std::fs::create_dir_all(path(&directory, &order("g", 1))).expect("data of somebody");
        let refused = open(&directory, &order("g", 1));
        assert!(matches!(refused, Err(DataError::Fenced(_))), "{refused:?}");
    }

    #[test]
    fn a_new_order_finds_nothing_and_the_old_data_is_put_aside() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::of(place.path());
        let old = open(&directory, &order("old", 1)).expect("a new one");
        std::fs::create_dir_all(&old).expect("etcd would make it");
        retire_others(&directory, Some(&order("new", 1))).expect("it can be put aside");
        assert!(!old.exists());
        assert!(!exists(&directory, &order("new", 1)));
        assert!(directory.datastores().join("retired/data").exists());
    }
}
