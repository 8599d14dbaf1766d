//! Reports: every event of a run, on disk first, then at a server.
//!
//! A run's events are numbered from 0 and appended to its file in the spool
//! as they happen ([`Recorder`]). [`deliver`] sends them in small batches and
//! removes the file once a server has the last one. The receipt of a batch
//! says which number is wanted next, so nothing is lost or doubled however
//! often a connection, a server or the agent breaks.
//!
//! Order is the number; durations are measured, not subtracted from clock
//! times. So a clock that is set while a run is at work changes neither.

mod deliver;
mod event_file;
mod recorder;
mod spool;

pub use deliver::{NotTaken, ReportsTo};
pub(crate) use deliver::{ToServers, deliver};
pub use recorder::Recorder;
pub(crate) use recorder::shortened;
pub(crate) use spool::Spool;
pub use spool::{SpoolError, SpoolOptions};
