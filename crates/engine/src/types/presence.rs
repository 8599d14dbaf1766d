//! `ensure => present` or `absent`, which most types know.

use crate::{Declaration, Refusal};

/// Whether the thing should be there.
pub(crate) fn present(declaration: &Declaration) -> Result<bool, Refusal> {
    Ok(declaration.word("ensure", &["present", "absent"])? != Some("absent"))
}
