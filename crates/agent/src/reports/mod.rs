//! Reports: every event of a run, first on disk, then on a server.
//!
//! A run's events are numbered from 0 and appended to its file in the spool as they happen
//! ([`Recorder`]). [`deliver`] sends them in small batches and removes the file once a server has
//! the last one. The receipt of a batch says which number the server expects next. So nothing is
//! lost or duplicated, however often a connection, a server or the agent fails.
//!
//! The number defines the order. Durations are measured, not computed from clock times. So setting
//! the clock during a run changes neither.

mod deliver;
mod event_file;
mod recorder;
mod spool;

pub use deliver::{DeliveryError, ReportsTo};
pub(crate) use deliver::{ReportDelivery, deliver};
pub use recorder::Recorder;
pub(crate) use recorder::shortened;
pub(crate) use spool::Spool;
pub use spool::{SpoolError, SpoolOptions};
