//! A directory for code, which contains secrets.

use std::path::Path;

/// Creates a directory that only this user can enter, or makes it one.
pub(super) fn private_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn others_cannot_enter_the_directory_of_code() {
        let data = tempfile::tempdir().expect("a directory");
        let directory = data.path().join("code");
        // A directory of an earlier version, and a new one.
        for before in [Some(0o755), None] {
            if let Some(mode) = before {
                std::fs::create_dir_all(&directory).expect("created");
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(&directory, mode).expect("open for all");
            }
            private_directory(&directory).expect("protected");
            let mode = std::fs::metadata(&directory).expect("there").permissions();
            assert_eq!(mode.mode() & 0o777, 0o700);
            std::fs::remove_dir(&directory).expect("removed");
        }
    }
}
