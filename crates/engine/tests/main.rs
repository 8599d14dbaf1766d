//! Checks that resource types behave as documented.

mod resources_doc;
