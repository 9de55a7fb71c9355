//! The driver: moves messages between streams, the state and whoever takes changes.
//!
//! One task owns all subscriptions. Its inputs are one closed enum of events and the next deadline; after each
//! it does what the state asks for. Streams are tasks of their own, which end with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::ads::{self, Event, Kind};
use super::dump::Connection;
use super::files::FileError;
use super::rate::Bucket;
use super::sources::{Source, SourceId, Stream};
use super::state::Want;
use super::subscription::{Answer, Request, Response, Subscriptions, Variant, Verdict};
use super::{CLUSTER, Client, ENDPOINTS, clock, files, lock};
use crate::registry::Change;

/// Events that may wait; streams wait when there are more.
const EVENTS: usize = 16;
/// Bytes of replies that may wait for a server; one that says more without taking them loses its stream.
const BACKLOG: usize = 1 << 20;
/// How often the age of the configuration is told.
const TICK: Duration = Duration::from_secs(1);

pub(super) struct Driver {
    client: Client,
    changes: mpsc::Sender<Change>,
    events: mpsc::Sender<(SourceId, Event)>,
    inputs: mpsc::Receiver<(SourceId, Event)>,
    streams: BTreeMap<SourceId, Open>,
    /// Files that are followed, each by a task.
    files: BTreeMap<SourceId, (files::Handle, AbortHandle)>,
    tasks: JoinSet<()>,
    random: fastrand::Rng,
    /// Clusters are waited for until then.
    first_clusters: Option<Instant>,
    taken: Option<Instant>,
    lost: Instant,
}

/// A stream and what is asked for on it.
struct Open {
    stream: Arc<Stream>,
    subscriptions: Subscriptions,
    requests: Option<mpsc::Sender<Request>>,
    /// Ends the stream.
    end: Option<oneshot::Sender<()>>,
    bucket: Option<Bucket>,
    /// When there is a token again for the request that waits.
    refill: Option<Instant>,
    task: AbortHandle,
}

/// Nobody takes changes any more.
struct Ended;

impl Client {
    /// Notes that a source is followed from now on.
    fn follow(&self, id: SourceId, mut connection: Connection) {
        connection.since = Some(clock::time().wall);
        lock(&self.state).connections.insert(id, connection);
    }

    /// Notes how it goes with a source.
    fn note(&self, id: SourceId, what: impl FnOnce(&mut Connection, SystemTime)) {
        let wall = clock::time().wall;
        if let Some(of) = lock(&self.state).connections.get_mut(&id) {
            what(of, wall);
        }
    }
}

impl Driver {
    pub(super) fn new(client: Client, changes: mpsc::Sender<Change>) -> Self {
        let (events, inputs) = mpsc::channel(EVENTS);
        let seed = client.options.seed.unwrap_or_else(|| fastrand::u64(..));
        let now = clock::now();
        let first_clusters = client.cds.and(client.cds_timeout);
        Self {
            first_clusters: first_clusters.and_then(|wait| now.checked_add(wait)),
            client,
            changes,
            events,
            inputs,
            streams: BTreeMap::new(),
            files: BTreeMap::new(),
            tasks: JoinSet::new(),
            random: fastrand::Rng::with_seed(seed),
            taken: None,
            lost: now,
        }
    }

    pub(super) async fn run(mut self) {
        let ads = lock(&self.client.state).sources.ads();
        if let Some(ads) = ads {
            self.stream(ads);
        }
        if let Some(cds) = self.client.cds {
            self.ask_for_clusters(cds);
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if self.act().await.is_err() {
                return;
            }
            let due = self.due();
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // So that tasks that have ended are not kept. What they follow would be followed no more if one
                // panicked.
                Some(ended) = self.tasks.join_next() => {
                    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                        std::panic::resume_unwind(panic);
                    }
                }
                event = self.inputs.recv() => match event {
                    Some((id, event)) => self.handle_event(id, event),
                    None => return,
                },
                () = sleep => self.handle_timeout(),
                _ = tick.tick() => self.tell_age(),
                () = self.changes.closed() => return,
            }
        }
    }

    /// Does what the state asks for: tells changes, asks for endpoints, sends requests.
    async fn act(&mut self) -> Result<(), Ended> {
        let mut changes = Vec::new();
        let mut wants = Vec::new();
        {
            let mut state = lock(&self.client.state);
            changes.extend(std::iter::from_fn(|| state.poll_change()));
            wants.extend(std::iter::from_fn(|| state.poll_want()));
        }
        for want in wants {
            match want {
                Want::Endpoints(source, name) => self.ask_for_endpoints(source, name),
                Want::NoEndpoints(source, name) => self.drop_endpoints(source, &name),
            }
        }
        self.send_requests();
        for change in changes {
            self.changes.send(change).await.map_err(|_| Ended)?;
        }
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        let state = lock(&self.client.state).poll_timeout();
        let refills = self.streams.values().filter_map(|open| open.refill);
        refills.chain(state).chain(self.first_clusters).min()
    }

    fn handle_timeout(&mut self) {
        let time = clock::time();
        lock(&self.client.state).handle_timeout(time);
        if self.first_clusters.is_some_and(|at| at <= time.now) {
            self.end_wait_for_clusters();
            tracing::warn!("no clusters came in time");
            self.client.stats.cds.timed_out();
        }
    }

    fn handle_event(&mut self, id: SourceId, event: Event) {
        match event {
            Event::Opened(requests, end) => {
                let Some(open) = self.streams.get_mut(&id) else {
                    return;
                };
                open.requests = Some(requests);
                open.end = Some(end);
                open.subscriptions.handle_stream_opened();
                self.client.note(id, |of, wall| of.set_open(true, wall));
                let now = clock::now();
                let rate = open.stream.rate;
                open.bucket = rate.map(|(most, rate)| Bucket::new(most, rate, now));
                if open.stream.aggregated {
                    self.client.stats.control_plane.connected_state.set(1);
                }
            }
            Event::Closed(reason) => self.handle_closed(id, &reason),
            Event::Response(response) => self.handle_response(id, response, None),
            Event::TooLong(response, length) => self.handle_response(id, response, Some(length)),
            Event::File(result) => self.handle_file(id, result),
        }
    }

    /// Takes a response, or refuses one of which the `length` is all that is left.
    fn handle_response(&mut self, id: SourceId, response: Response, length: Option<usize>) {
        let Some(open) = self.streams.get_mut(&id) else {
            return;
        };
        if let Some(identifier) = response.control_plane() {
            self.client.stats.control_plane.identifier.set(identifier);
        }
        let type_url = response.type_url().to_owned();
        let Some((type_url, answer)) = open.subscriptions.handle_response(response) else {
            tracing::debug!(type_url, "an answer that nobody asked for");
            return;
        };
        let verdict = match length {
            None => self.judge(id, type_url, &answer),
            Some(length) => self.too_long(id, type_url, &answer.version, length),
        };
        if let Some(open) = self.streams.get_mut(&id) {
            open.subscriptions
                .handle_verdict(type_url, &answer, verdict);
            if open.subscriptions.backlog() > BACKLOG
                && let Some(end) = open.end.take()
            {
                open.subscriptions.handle_stream_closed();
                open.requests = None;
                // It may have ended by itself.
                let _ = end.send(());
            }
        }
    }

    fn too_long(&mut self, id: SourceId, type_url: &str, version: &str, length: usize) -> Verdict {
        if type_url == CLUSTER {
            self.end_wait_for_clusters();
            self.client.stats.cds.rejected();
        }
        let own = self.streams.get(&id);
        let own = own.and_then(|open| open.stream.service.message_bytes);
        let most = own.unwrap_or(self.client.options.limits.message_bytes);
        let reason = format!("the message has {length} bytes, but at most {most} are taken");
        if lock(&self.client.state).may_log(clock::now()) {
            tracing::warn!(type_url, reason, "refused");
        }
        self.client.note(id, |of, wall| {
            of.answered(wall, type_url, version, Some(&reason));
        });
        Verdict {
            error: Some(reason),
            ..Verdict::default()
        }
    }

    fn handle_file(&mut self, id: SourceId, result: Result<Answer, FileError>) {
        let type_url = match self.client.cds {
            Some(cds) if cds == id => CLUSTER,
            _ => ENDPOINTS,
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                self.client.note(id, |of, wall| match &error {
                    FileError::Unreadable(reason) => of.failed(wall, reason),
                    FileError::Refused(reason) => of.answered(wall, type_url, "", Some(reason)),
                });
                if lock(&self.client.state).may_log(clock::now()) {
                    let of = lock(&self.client.state).connections.get(&id).cloned();
                    let path = of.map(|of| of.server);
                    let (FileError::Unreadable(error) | FileError::Refused(error)) = error;
                    tracing::warn!(path = path.as_deref(), error, "a file cannot be taken");
                }
                if self.client.cds == Some(id) {
                    self.end_wait_for_clusters();
                    self.client.stats.cds.failure();
                }
                let mut state = lock(&self.client.state);
                state.handle_failure(id);
                state.file_was_read(id);
                return;
            }
        };
        self.judge(id, type_url, &answer);
        lock(&self.client.state).file_was_read(id);
    }

    /// As with Envoy, whatever is answered ends it, be it refused.
    fn end_wait_for_clusters(&mut self) {
        self.first_clusters = None;
        lock(&self.client.state).end_wait_for_clusters();
    }

    /// Hands an answer to the state.
    fn judge(&mut self, id: SourceId, type_url: &str, answer: &Answer) -> Verdict {
        let time = clock::time();
        let mut state = lock(&self.client.state);
        let verdict = if type_url == CLUSTER {
            let verdict = state.handle_clusters(time, answer);
            self.first_clusters = None;
            let stats = &self.client.stats.cds;
            match verdict.error {
                None => stats.success(time.wall, &answer.version),
                Some(_) => stats.rejected(),
            }
            verdict
        } else {
            state.handle_endpoints(time, id, answer)
        };
        let refused = verdict.error.as_deref();
        if let Some(of) = state.connections.get_mut(&id) {
            of.answered(time.wall, type_url, &answer.version, refused);
        }
        if refused.is_none() {
            self.taken = Some(time.now);
        }
        verdict
    }

    fn handle_closed(&mut self, id: SourceId, reason: &str) {
        let Some(open) = self.streams.get_mut(&id) else {
            return;
        };
        open.requests = None;
        open.end = None;
        open.refill = None;
        open.subscriptions.handle_stream_closed();
        self.client.note(id, |of, wall| of.set_closed(wall, reason));
        if open.stream.aggregated {
            let state = &self.client.stats.control_plane.connected_state;
            if state.value() > 0 {
                self.lost = clock::now();
            }
            state.set(0);
        }
        if self.client.cds == Some(id) {
            self.client.stats.cds.failure();
        }
        lock(&self.client.state).handle_failure(id);
    }

    fn ask_for_clusters(&mut self, cds: SourceId) {
        match self.source(cds).as_deref() {
            Some(Source::Stream(_)) => {
                self.client.stats.cds.attempt();
                if let Some(open) = self.stream(cds) {
                    open.subscriptions.subscribe_all(CLUSTER);
                }
            }
            Some(Source::File(_)) => self.file(cds),
            None => (),
        }
    }

    fn ask_for_endpoints(&mut self, source: SourceId, name: Arc<str>) {
        match self.source(source).as_deref() {
            Some(Source::Stream(_)) => {
                if let Some(open) = self.stream(source) {
                    open.subscriptions.subscribe(ENDPOINTS, name);
                }
            }
            Some(Source::File(_)) => self.file(source),
            None => (),
        }
    }

    fn drop_endpoints(&mut self, source: SourceId, name: &Arc<str>) {
        // Nobody else asks for what is in it.
        if self.source(source).is_none()
            && let Some((_, task)) = self.files.remove(&source)
        {
            task.abort();
            lock(&self.client.state).connections.remove(&source);
        }
        let Some(open) = self.streams.get_mut(&source) else {
            return;
        };
        open.subscriptions.unsubscribe(ENDPOINTS, name);
        if open.subscriptions.is_idle() && !open.stream.aggregated {
            open.task.abort();
            self.streams.remove(&source);
            lock(&self.client.state).connections.remove(&source);
        }
    }

    fn source(&self, id: SourceId) -> Option<Arc<Source>> {
        lock(&self.client.state).sources.get(id).cloned()
    }

    /// The stream of a source, which is opened if it is not.
    fn stream(&mut self, id: SourceId) -> Option<&mut Open> {
        if !self.streams.contains_key(&id) {
            let source = self.source(id)?;
            let Source::Stream(stream) = &*source else {
                return None;
            };
            let kind = match (stream.aggregated, self.client.cds == Some(id)) {
                (true, _) => Kind::Aggregated,
                (false, true) => Kind::Clusters,
                (false, false) => Kind::Endpoints,
            };
            let stream = Arc::clone(stream);
            self.client.follow(
                id,
                Connection {
                    server: Arc::clone(&stream.service.name),
                    service: kind.name(),
                    delta: stream.variant == Variant::Delta,
                    ..Connection::default()
                },
            );
            let node = self.client.node.clone();
            let subscriptions = Subscriptions::new(stream.variant, node, stream.node_once);
            let task = self.tasks.spawn(ads::run(
                id,
                Arc::clone(&stream),
                kind,
                self.client.options.limits.message_bytes,
                self.random.u64(..),
                self.events.clone(),
            ));
            let open = Open {
                stream,
                subscriptions,
                requests: None,
                end: None,
                bucket: None,
                refill: None,
                task,
            };
            self.streams.insert(id, open);
        }
        self.streams.get_mut(&id)
    }

    /// Follows a file, or has it read again.
    fn file(&mut self, id: SourceId) {
        if let Some((handle, _)) = self.files.get(&id) {
            handle.read_again();
            return;
        }
        let Some(source) = self.source(id) else {
            return;
        };
        let Source::File(file) = &*source else {
            return;
        };
        self.client.follow(
            id,
            Connection {
                server: file.path.to_string_lossy().into(),
                service: match self.client.cds == Some(id) {
                    true => Kind::Clusters.name(),
                    false => Kind::Endpoints.name(),
                },
                file: true,
                open: true,
                ..Connection::default()
            },
        );
        let bytes = self.client.options.limits.message_bytes;
        let (handle, followed) = files::follow(id, file.clone(), bytes, self.events.clone());
        let task = self.tasks.spawn(followed);
        self.files.insert(id, (handle, task));
    }

    fn send_requests(&mut self) {
        let stats = &self.client.stats.control_plane;
        let mut waiting = 0;
        for open in self.streams.values_mut() {
            let Some(requests) = &open.requests else {
                continue;
            };
            open.refill = None;
            while open.subscriptions.has_request() {
                // A full queue is looked at again with the next event, a second from now at the latest.
                let Ok(place) = requests.try_reserve() else {
                    break;
                };
                if let Some(bucket) = &mut open.bucket
                    && let Err(at) = bucket.take(clock::now())
                {
                    stats.rate_limit_enforced.inc();
                    open.refill = Some(at);
                    break;
                }
                let Some(request) = open.subscriptions.poll_request() else {
                    break;
                };
                place.send(request);
            }
            waiting += u64::from(open.subscriptions.has_request());
        }
        if stats.pending_requests.value() != waiting || !stats.pending_requests.used() {
            stats.pending_requests.set(waiting);
        }
    }

    fn tell_age(&self) {
        let now = clock::now();
        let since = |at: Instant| now.saturating_duration_since(at).as_secs();
        let stats = &self.client.stats.control_plane;
        stats.config_age.set(self.taken.map_or(0, since));
        let connected = stats.connected_state.value() > 0;
        stats
            .disconnected
            .set(if connected { 0 } else { since(self.lost) });
    }
}
