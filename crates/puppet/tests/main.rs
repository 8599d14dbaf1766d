//! Sites in Puppet's language, good and hostile ones.

mod hostile;
mod order;
mod site;
