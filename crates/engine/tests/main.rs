//! What the documentation says of resource types is what they do.

mod resources_doc;
