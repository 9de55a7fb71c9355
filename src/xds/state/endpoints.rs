//! Assignments as they are asked for, come and go.

use super::*;

impl State {
    /// Makes the endpoints of `cluster` those of `wanted`, if it is of type EDS.
    pub(super) fn watch(&mut self, time: Time, cluster: &Arc<str>, wanted: Option<Key>) {
        let Some(Known {
            good: Some(good), ..
        }) = self.clusters.get_mut(cluster)
        else {
            return;
        };
        if good.eds == wanted {
            return;
        }
        let timeout = match &good.config.discovery {
            Discovery::Eds(eds) => eds.source.initial_fetch_timeout,
            _ => None,
        };
        let before = std::mem::replace(&mut good.eds, wanted.clone());
        if let Some(before) = before {
            self.unwatch(cluster, &before);
        }
        let Some(key) = wanted else {
            return;
        };
        if let Some(stats) = self.eds_stats(cluster)
            && !self.sources.is_file(key.0)
        {
            stats.attempt();
        }
        let is_new = !self.watched.contains_key(&key);
        let watched = self.watched.entry(key.clone()).or_default();
        watched.clusters.insert(Arc::clone(cluster));
        if let Some(hosts) = &watched.hosts {
            self.changes.push_back(Change::Hosts {
                cluster: Arc::clone(cluster),
                hosts: Arc::clone(hosts),
            });
        } else if watched.unavailable {
            let change = Change::HostsUnavailable(Arc::clone(cluster));
            self.changes.push_back(change);
        }
        if is_new {
            let timeout = timeout.and_then(|timeout| duration::read(&timeout).ok());
            let timeout = timeout.unwrap_or(FIRST_FETCH);
            // As with Envoy, 0 is no end at all.
            let at = time.now.checked_add(timeout).filter(|_| !timeout.is_zero());
            watched.first_fetch = at;
            self.set_deadline(None, at, Deadline::FirstFetch(key.clone()));
            self.sources.take(key.0);
            self.wants.push_back(Want::Endpoints(key.0, key.1));
        }
    }

    pub(super) fn unwatch(&mut self, cluster: &Arc<str>, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        watched.clusters.remove(cluster);
        if !watched.clusters.is_empty() {
            return;
        }
        let Some(watched) = self.watched.remove(key) else {
            return;
        };
        self.reweigh(watched.weight(), 0);
        self.sources.release(key.0);
        self.hosts -= watched.hosts.map_or(0, |hosts| hosts.len());
        self.set_deadline(watched.first_fetch, None, Deadline::FirstFetch(key.clone()));
        self.set_deadline(
            watched.expires,
            None,
            Deadline::EndpointsExpire(key.clone()),
        );
        self.set_deadline(watched.stale, None, Deadline::EndpointsStale(key.clone()));
        let (source, name) = key.clone();
        self.wants.push_back(Want::NoEndpoints(source, name));
    }

    /// Takes an answer of assignments from `source`. Those that nobody asked for are passed over.
    pub(crate) fn handle_endpoints(
        &mut self,
        time: Time,
        source: SourceId,
        answer: &Answer,
    ) -> Verdict {
        let mut refusals = Refusals::default();
        let mut seen = HashSet::with_capacity(answer.resources.len());
        let mut told = Vec::new();
        for (index, item) in answer.resources.iter().enumerate() {
            let label = label(item, index);
            let by_name = || self.key_of(source, item);
            let Some(body) = &item.body else {
                if let Some(key) = by_name() {
                    match time_to_live(item) {
                        Ok(ttl) => self.set_endpoints_expiry(time, &key, ttl),
                        Err(error) => {
                            let name = item.name.as_deref();
                            self.refuse(time, &mut refusals, &label, name, &error);
                        }
                    }
                }
                continue;
            };
            let assignment = match decode::<ClusterLoadAssignment>(body) {
                Ok(assignment) => assignment,
                Err(error) => {
                    let error = item.fault.clone().unwrap_or(error);
                    if let Some(key) = by_name() {
                        self.note_refused_endpoints(time, &key, body, answer, &error);
                        self.end_wait_for_hosts(&key);
                    }
                    let name = item.name.as_deref();
                    self.refuse(time, &mut refusals, &label, name, &error);
                    continue;
                }
            };
            let own: Key = (source, assignment.cluster_name.as_str().into());
            let key = match &item.name {
                None => self.watched.contains_key(&own).then_some(own),
                Some(_) => by_name(),
            };
            let Some(key) = key else {
                // Nobody asked for it, unless it is its name that cannot be read.
                if let (Some(fault), "") = (&item.fault, &*assignment.cluster_name) {
                    self.refuse(time, &mut refusals, &label, None, fault);
                }
                continue;
            };
            let version = match &*item.version {
                "" => answer.version.as_str(),
                version => version,
            };
            let taken = match (&item.fault, seen.insert(key.clone())) {
                (Some(fault), _) => Err(fault.clone()),
                (None, true) => self.take_endpoints(time, &key, item, &assignment, version),
                (None, false) => {
                    let reason = "is that of another assignment of this answer";
                    Err(ConfigError::new("cluster_name", reason))
                }
            };
            match taken {
                Ok(changed) => {
                    self.set_endpoints_expiry(time, &key, item.ttl);
                    self.set_stale_after(time, &key, &assignment);
                    self.note_taken(&key, time, version, changed, &mut told);
                }
                Err(error) => {
                    self.note_refused_endpoints(time, &key, body, answer, &error);
                    // As with Envoy: it was answered.
                    self.end_wait_for_hosts(&key);
                    let name = item.name.as_deref();
                    self.refuse(time, &mut refusals, &short(&key.1), name, &error);
                }
            }
        }
        told.sort_unstable_by_key(|(order, _)| std::cmp::Reverse(*order));
        self.changes
            .extend(told.into_iter().map(|(_, change)| change));
        for name in &answer.removed {
            self.endpoints_removed(&(source, name.as_str().into()));
        }
        for (name, reason) in &answer.errors {
            if self.log.allows(time.now) {
                tracing::warn!(
                    service_name = name,
                    reason,
                    "not given by the control plane"
                );
            }
            self.hosts_unavailable(&(source, name.as_str().into()));
        }
        refusals.verdict()
    }

    /// Which assignment that is asked for an item is, by its name or an alias.
    fn key_of(&self, source: SourceId, item: &Item) -> Option<Key> {
        let names = item.name.iter().chain(&item.aliases);
        names
            .map(|name| (source, Arc::from(name.as_str())))
            .find(|key| self.watched.contains_key(key))
    }

    /// Whether the hosts have changed.
    fn take_endpoints(
        &mut self,
        time: Time,
        key: &Key,
        item: &Item,
        assignment: &ClusterLoadAssignment,
        version: &str,
    ) -> Result<bool, ConfigError> {
        let (Some(watched), Some(body)) = (self.watched.get(key), &item.body) else {
            return Ok(false);
        };
        if let Some(name) = &item.name
            && *name != assignment.cluster_name
            && !item.aliases.contains(&assignment.cluster_name)
        {
            let reason = format!(
                "is {:?}, but the resource is named {name:?}",
                assignment.cluster_name
            );
            return Err(ConfigError::new("cluster_name", reason));
        }
        let same = watched
            .body
            .as_ref()
            .is_some_and(|before| before.value == body.value);
        if same && watched.hosts.is_some() {
            let error = self.watched.get_mut(key).and_then(|w| w.error.take());
            self.reweigh(error.map_or(0, |error| error.weight()), 0);
            return Ok(false);
        }
        self.labelled(item, version)?;
        let weight = watched.weight();
        self.limits
            .kept(self.kept.saturating_sub(weight) + body.value.len())?;
        let before = watched.hosts.as_ref().map_or(0, |hosts| hosts.len());
        let groups = assignment.endpoints.iter();
        let count: usize = groups.map(|group| group.lb_endpoints.len()).sum();
        self.limits.hosts(self.hosts - before + count)?;

        let hosts: Arc<[Arc<Host>]> = self.read_hosts(time, key, assignment)?.into();
        self.hosts = self.hosts - before + hosts.len();
        let Some(watched) = self.watched.get_mut(key) else {
            return Ok(false);
        };
        watched.hosts = Some(hosts);
        watched.body = Some(body.clone());
        watched.version = version.into();
        watched.updated = Some(time.wall);
        watched.error = None;
        let first_fetch = watched.first_fetch.take();
        self.reweigh(weight, body.value.len());
        self.set_deadline(first_fetch, None, Deadline::FirstFetch(key.clone()));
        Ok(true)
    }

    /// Clusters with checks are stricter about hosts, so one of these reads for all.
    fn read_hosts(
        &mut self,
        time: Time,
        key: &Key,
        assignment: &ClusterLoadAssignment,
    ) -> Result<Vec<Arc<Host>>, ConfigError> {
        let Some(watched) = self.watched.get(key) else {
            return Ok(Vec::new());
        };
        let configs = watched.clusters.iter().filter_map(|name| {
            let good = self.clusters.get(name)?.good.as_ref()?;
            Some(&good.config)
        });
        let config = configs.max_by_key(|config| !config.health_checks.is_empty());
        let Some(config) = config.cloned() else {
            return Ok(Vec::new());
        };
        let mut warnings = Warnings::default();
        let hosts = config.hosts(assignment, &mut warnings)?;
        self.warn(time, &config.name, &warnings);
        Ok(hosts)
    }

    fn note_taken(
        &self,
        key: &Key,
        time: Time,
        version: &str,
        changed: bool,
        to: &mut Vec<(u64, Change)>,
    ) {
        let Some(watched) = self.watched.get(key) else {
            return;
        };
        for cluster in &watched.clusters {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.success(time.wall, version);
                if !changed {
                    stats.no_rebuild.inc();
                }
            }
            let known = self
                .clusters
                .get(cluster)
                .and_then(|known| known.good.as_ref());
            let (Some(good), Some(hosts), true) = (known, &watched.hosts, changed) else {
                continue;
            };
            let change = Change::Hosts {
                cluster: Arc::clone(cluster),
                hosts: Arc::clone(hosts),
            };
            to.push((good.order, change));
        }
    }

    fn note_refused_endpoints(
        &mut self,
        time: Time,
        key: &Key,
        body: &Any,
        answer: &Answer,
        error: &ConfigError,
    ) {
        if !self.watched.contains_key(key) {
            return;
        }
        let version = if self.limits.version(&answer.version).is_ok() {
            answer.version.as_str()
        } else {
            ""
        };
        let error = self.error_state(body, version.into(), time, error);
        let weight = error.weight();
        if let Some(watched) = self.watched.get_mut(key) {
            let before = watched.error.replace(error).map_or(0, |e| e.weight());
            self.reweigh(before, weight);
        }
        for cluster in self.watched.get(key).into_iter().flat_map(|w| &w.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.rejected();
            }
        }
    }

    /// The server has no such assignment any more. As with Envoy, the hosts stay until their cluster goes, and
    /// the answer counts as one that was taken.
    fn endpoints_removed(&mut self, key: &Key) {
        for cluster in self.watched.get(key).into_iter().flat_map(|w| &w.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.attempt();
                stats.success.inc();
                stats.empty.inc();
            }
        }
        self.hosts_unavailable(key);
    }

    /// The assignment was not given again within its `endpoint_stale_after`: its endpoints go.
    pub(super) fn endpoints_stale(&mut self, key: &Key) {
        for cluster in self.watched.get(key).into_iter().flat_map(|w| &w.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.assignment_stale.inc();
            }
        }
        self.forget_endpoints(key);
    }

    /// The time for which endpoints were given has ended: they go.
    pub(super) fn forget_endpoints(&mut self, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        let (expires, stale) = (watched.expires.take(), watched.stale.take());
        self.set_deadline(expires, None, Deadline::EndpointsExpire(key.clone()));
        self.set_deadline(stale, None, Deadline::EndpointsStale(key.clone()));
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        let weight = watched.body.take().map_or(0, |body| body.value.len());
        self.kept = self.kept.saturating_sub(weight);
        let Some(hosts) = watched.hosts.replace(Arc::default()) else {
            return;
        };
        self.hosts -= hosts.len();
        for cluster in &watched.clusters {
            self.changes.push_back(Change::Hosts {
                cluster: Arc::clone(cluster),
                hosts: Arc::default(),
            });
        }
    }

    pub(super) fn first_fetch_ended(&mut self, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        watched.first_fetch = None;
        for cluster in self.watched.get(key).into_iter().flat_map(|w| &w.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.init_fetch_timeout.inc();
            }
        }
        self.hosts_unavailable(key);
    }

    /// The hosts of an assignment are not to be waited for any longer: an answer has come, though without them.
    fn end_wait_for_hosts(&mut self, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        let first_fetch = watched.first_fetch.take();
        self.set_deadline(first_fetch, None, Deadline::FirstFetch(key.clone()));
        self.hosts_unavailable(key);
    }

    /// A file was read: what is not in it is not to be waited for.
    pub(crate) fn file_was_read(&mut self, source: SourceId) {
        let keys = self.watched.keys().filter(|(of, _)| *of == source);
        let keys: Vec<_> = keys.cloned().collect();
        keys.iter().for_each(|key| self.end_wait_for_hosts(key));
    }

    fn hosts_unavailable(&mut self, key: &Key) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        if watched.hosts.is_some() || std::mem::replace(&mut watched.unavailable, true) {
            return;
        }
        for cluster in &watched.clusters {
            let change = Change::HostsUnavailable(Arc::clone(cluster));
            self.changes.push_back(change);
        }
    }

    /// The stream from `source` has failed.
    pub(crate) fn handle_failure(&self, source: SourceId) {
        let watched = self.watched.iter().filter(|((of, _), _)| *of == source);
        for cluster in watched.flat_map(|(_, watched)| &watched.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.failure();
            }
        }
    }

    fn set_endpoints_expiry(&mut self, time: Time, key: &Key, ttl: Option<Duration>) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        let after = ttl.and_then(|ttl| time.now.checked_add(ttl));
        let before = std::mem::replace(&mut watched.expires, after);
        self.set_deadline(before, after, Deadline::EndpointsExpire(key.clone()));
    }

    /// Endpoints that are to be given again within `policy.endpoint_stale_after` wait for that anew.
    fn set_stale_after(&mut self, time: Time, key: &Key, assignment: &ClusterLoadAssignment) {
        let policy = assignment.policy.as_ref();
        let after = policy.and_then(|policy| policy.endpoint_stale_after);
        let after = after.and_then(|after| duration::read(&after).ok());
        // As with Envoy, less than a millisecond is none.
        let after = after.filter(|after| *after >= Duration::from_millis(1));
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        let at = after.and_then(|after| time.now.checked_add(after));
        let before = std::mem::replace(&mut watched.stale, at);
        self.set_deadline(before, at, Deadline::EndpointsStale(key.clone()));
        if after.is_none() {
            return;
        }
        for cluster in self.watched.get(key).into_iter().flat_map(|w| &w.clusters) {
            if let Some(stats) = self.eds_stats(cluster) {
                stats.assignment_timeout_received.inc();
            }
        }
    }

    fn eds_stats(&self, cluster: &Arc<str>) -> Option<Arc<crate::stats::UpdateStats>> {
        let good = self.clusters.get(cluster)?.good.as_ref()?;
        let stats = self.stats.cluster(cluster, good.config.stat_name());
        Some(Arc::clone(&stats.updates))
    }

    /// The assignments that were told, by the names that they were asked for by.
    pub(crate) fn endpoint_records(&self) -> Vec<Record> {
        let told = self.watched.iter();
        let told = told.filter(|(_, w)| w.body.is_some() || w.error.is_some());
        let record = |((_, name), watched): (&Key, &Watched)| Record {
            name: Arc::clone(name),
            version_info: watched.body.as_ref().map(|_| Arc::clone(&watched.version)),
            resource: watched.body.clone(),
            last_updated: watched.updated,
            error_state: watched.error.clone(),
        };
        let mut records: Vec<_> = told.map(record).collect();
        records.sort_by(|a, b| a.name.cmp(&b.name));
        records
    }
}
