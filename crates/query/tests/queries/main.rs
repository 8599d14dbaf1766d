//! Queries as users write them: text in, text out.

mod answers;
mod code;
mod docs;
mod errors;
mod fleet;
mod hostile;
mod rebuilt;
