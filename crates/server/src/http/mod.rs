//! The services over HTTP: access control, routes, connections.

mod accept;
mod access;
mod audit;
mod byte_range;
mod caller;
mod command_stream;
mod endpoint;
mod guarded_body;
mod gzip;
mod health;
mod hidden_secrets;
mod node_rates;
mod old_data;
mod permit;
mod ping_body;
mod reply;
mod router;
mod routes;
mod unread;

pub use accept::AcceptOptions;
pub(crate) use accept::{Serving, serve};
pub use command_stream::{CommandStream, ConnectedAgent};
pub use node_rates::{NodeRates, RateOptions};
pub use router::RouterOptions;
pub(crate) use router::{health_router, router};
