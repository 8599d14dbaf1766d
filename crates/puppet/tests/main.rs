//! Sites in Puppet's language, good and hostile ones.

mod hostile;
mod site;
