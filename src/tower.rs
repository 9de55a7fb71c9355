//! The eligible hosts of a cluster as a [`Discover`](::tower::discover::Discover) stream, for tower's balancers.
//!
//! A host enters at its first healthy verdict and leaves at its ejection, so a balancer sees only hosts that pass
//! their checks. Needs the feature `tower`. These types name `tower` 0.5 and `futures-core` 0.3; all else in this
//! crate does not.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tower::discover::Change;
use futures_core::Stream;

use crate::engine::{Cluster, EligibleChange, EligibleChanges};
use crate::host::Host;

type Next = Pin<Box<dyn Future<Output = (EligibleChanges, Option<EligibleChange>)> + Send>>;

/// A stream of [`Change`]s, which is what `Discover` asks for. Keys are the hosts' addresses, services what
/// `make` gives for a host. Hosts without an IP address are passed over. Ends with the cluster or the engine.
pub struct Hosts<F> {
    make: F,
    next: Option<Next>,
}

impl<F> Hosts<F> {
    /// The eligible hosts of `cluster`, each with the service that `make` gives for it.
    pub fn new<S>(cluster: &Cluster, make: F) -> Self
    where
        F: FnMut(&Host, SocketAddr) -> S,
    {
        Self {
            make,
            next: Some(next(cluster.eligible_changes())),
        }
    }
}

fn next(mut changes: EligibleChanges) -> Next {
    Box::pin(async move {
        let change = changes.next().await;
        (changes, change)
    })
}

impl<F, S> Stream for Hosts<F>
where
    F: FnMut(&Host, SocketAddr) -> S + Unpin,
{
    type Item = Result<Change<SocketAddr, S>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(waiting) = &mut self.next else {
                return Poll::Ready(None);
            };
            let (changes, change) = ready!(waiting.as_mut().poll(cx));
            self.next = change.is_some().then(|| next(changes));
            match change {
                Some(EligibleChange::Enters(host)) => {
                    if let Some(address) = host.address.socket_addr() {
                        let service = (self.make)(&host, address);
                        return Poll::Ready(Some(Ok(Change::Insert(address, service))));
                    }
                }
                Some(EligibleChange::Leaves(host)) => {
                    if let Some(address) = host.address.socket_addr() {
                        return Poll::Ready(Some(Ok(Change::Remove(address))));
                    }
                }
                None => (),
            }
        }
    }
}

impl<F> fmt::Debug for Hosts<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").finish_non_exhaustive()
    }
}
