//! Clusters whose hosts are found by name: `STRICT_DNS`, `LOGICAL_DNS` and the extension
//! `envoy.clusters.dns`.
//!
//! [`Names`] decides, without I/O, when a name is due and what an answer changes. A [`Resolver`] is a handle
//! of the one task around it, which keeps time, has a bounded number of lookups run and hands on what has
//! changed as [`Change`]s. It never touches an engine: whoever feeds clusters, at start or from a control
//! plane, tells both, the engine first, and applies what comes out of the channel.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tokio::sync::mpsc;
//! # use xds_health::{dns::Resolver, engine::{Ended, Engine}, registry::Change};
//! # async fn feed(engine: Engine, mut from_control_plane: mpsc::Receiver<Change>) -> Result<(), Ended> {
//! let (changes, mut from_dns) = mpsc::channel(64);
//! let resolver = Resolver::start(Arc::clone(engine.stats()), changes);
//! loop {
//!     tokio::select! {
//!         Some(change) = from_control_plane.recv() => {
//!             engine.apply(change.clone()).await?;
//!             resolver.apply(&change).await;
//!         }
//!         Some(change) = from_dns.recv() => engine.apply(change).await?,
//!         else => return Ok(()),
//!     }
//! }
//! # }
//! ```
//!
//! [`Change`]: crate::registry::Change

mod answer;
mod driver;
mod hosts;
mod lookup;
mod servers;
mod state;
mod system;
#[cfg(test)]
mod testing;
mod wait;

pub use answer::{Answer, Family};
pub use driver::Resolver;
pub use state::{Lookup, LookupId, Names, Noted};
