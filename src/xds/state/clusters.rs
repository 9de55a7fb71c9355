//! Clusters as they come, change and go.

use super::*;
use crate::config::Errors;

impl State {
    /// Takes an answer of clusters.
    pub(crate) fn handle_clusters(&mut self, time: Time, answer: &Answer) -> Verdict {
        let mut refusals = Refusals::default();
        let mut seen = HashSet::with_capacity(answer.resources.len());
        let mut unnamed = false;
        let version: Arc<str> = answer.version.as_str().into();
        for (index, item) in answer.resources.iter().enumerate() {
            let label = label(item, index);
            let Some(body) = &item.body else {
                let name = item.name.as_deref().unwrap_or_default();
                if let Some((name, _)) = self.clusters.get_key_value(name) {
                    let name = Arc::clone(name);
                    match time_to_live(item) {
                        Ok(ttl) => self.set_cluster_expiry(time, &name, ttl),
                        Err(error) => {
                            let key = item.name.as_deref();
                            self.refuse(time, &mut refusals, &label, key, &error);
                        }
                    }
                    seen.insert(name);
                }
                continue;
            };
            let cluster = match decode::<Cluster>(body) {
                Ok(cluster) => cluster,
                Err(error) => {
                    unnamed = true;
                    let key = item.name.as_deref();
                    let error = item.fault.as_ref().unwrap_or(&error);
                    self.refuse(time, &mut refusals, &label, key, error);
                    continue;
                }
            };
            let (name, key) = (cluster.name.as_str(), item.name.as_deref());
            let shown = short(name);
            let label = if name.is_empty() { &*label } else { &*shown };
            if let Err(error) = self.limits.name(name) {
                // Its name is no use, so it may be any of those that seem to be missing.
                unnamed = true;
                self.refuse(time, &mut refusals, label, key, &error.at("name"));
                continue;
            }
            // A name that could not be read may be any, too.
            let lost = name.is_empty() && item.fault.is_some();
            unnamed |= lost;
            if !lost && !seen.insert(Arc::from(name)) {
                let error = ConfigError::new("name", "is that of another cluster of this answer");
                self.refuse(time, &mut refusals, label, key, &error);
                continue;
            }
            let version = match &*item.version {
                "" => Arc::clone(&version),
                own => own.into(),
            };
            let labelled = self.labelled(item, &version);
            let labelled = labelled.and_then(|()| self.rename(answer, item, name));
            if let Err(error) = labelled {
                self.refuse(time, &mut refusals, label, key, &error);
                continue;
            }
            let taken = match &item.fault {
                Some(fault) => Err(fault.clone()),
                None => self.take_cluster(time, &cluster, body, &version),
            };
            match taken {
                Ok(()) => self.set_cluster_expiry(time, &Arc::from(name), item.ttl),
                Err(error) => {
                    self.refuse(time, &mut refusals, label, key, &error);
                    self.note_refused(time, name, body, version, &error);
                    if !self.clusters.contains_key(name)
                        && let Some(key) = self.names.remove(name)
                    {
                        self.renamed.remove(&key);
                    }
                }
            }
        }
        // A resource that could not be read may be any of those that seem to be missing.
        if answer.whole && !unnamed {
            let gone = self
                .clusters
                .iter()
                .filter(|(name, known)| !known.is_static() && !seen.contains(*name));
            let gone: Vec<_> = gone.map(|(name, _)| Arc::clone(name)).collect();
            gone.iter().for_each(|name| self.remove_cluster(name));
        }
        for name in &answer.removed {
            let own = self.renamed.get(name).cloned();
            let own = own.unwrap_or_else(|| name.as_str().into());
            // Given and removed by one answer, it was given.
            if !seen.contains(&own) {
                self.remove_cluster(&own);
            }
        }
        for (name, reason) in &answer.errors {
            if self.log.allows(time.now) {
                tracing::warn!(cluster = name, reason, "not given by the control plane");
            }
        }
        self.sources.sweep();
        // As with Envoy, an answer that was refused ends the wait too.
        self.end_wait_for_clusters();
        let verdict = refusals.verdict();
        if verdict.error.is_none() {
            self.version = version;
        }
        verdict
    }

    fn take_cluster(
        &mut self,
        time: Time,
        message: &Cluster,
        body: &Any,
        version: &Arc<str>,
    ) -> Result<(), ConfigError> {
        let room = self.clusters.len() < self.limits.clusters;
        match self.clusters.get_mut(message.name.as_str()) {
            // As with Envoy, what the bootstrap says holds.
            Some(known) if known.is_static() => return Ok(()),
            Some(Known {
                good: Some(good),
                error,
                ..
            }) if good
                .body
                .as_ref()
                .is_some_and(|before| before.value == body.value) =>
            {
                let weight = error.take().map_or(0, |error| error.weight());
                self.reweigh(weight, 0);
                return Ok(());
            }
            None if !room => {
                let reason = format!("at most {} clusters are taken", self.limits.clusters);
                return Err(ConfigError::new("", reason));
            }
            Some(_) | None => (),
        }
        let known = self.clusters.get(message.name.as_str());
        let (weight, hosts) = known.map_or((0, 0), |k| (k.weight(), k.static_hosts()));
        self.limits
            .kept(self.kept.saturating_sub(weight) + body.value.len())?;
        let (update, eds) = self.build(time, message, self.hosts.saturating_sub(hosts))?;
        let config = Arc::clone(&update.config);
        let name = Arc::clone(&config.name);
        let before = self
            .clusters
            .get_mut(&name)
            .and_then(|known| known.good.take());
        let (old_eds, order) = match before {
            Some(before) => {
                if before.config != config {
                    self.changes.push_back(Change::Cluster(update));
                }
                (before.eds, before.order)
            }
            None => {
                self.changes.push_back(Change::Cluster(update));
                (None, self.next_order())
            }
        };
        let expires = self.clusters.get(&name).and_then(|known| known.expires);
        let good = Good {
            config,
            body: Some(body.clone()),
            version: Arc::clone(version),
            updated: time.wall,
            eds: old_eds,
            order,
        };
        let known = Known {
            good: Some(good),
            error: None,
            expires,
        };
        self.reweigh(weight, known.weight());
        self.hosts = self.hosts.saturating_sub(hosts) + known.static_hosts();
        self.clusters.insert(Arc::clone(&name), known);
        self.watch(time, &name, eds);
        Ok(())
    }

    /// A cluster with its checkers, and where its endpoints are asked for. All others have so many `hosts`.
    fn build(
        &mut self,
        time: Time,
        message: &Cluster,
        hosts: usize,
    ) -> Result<(Update, Option<Key>), ConfigError> {
        let mut warnings = Warnings::default();
        let config = match ClusterConfig::from_message(message, &mut warnings) {
            Ok(config) => config,
            Err(error) => {
                return Err(match self.registry.faults_of(message) {
                    Some(more) => error.and(more),
                    None => error,
                });
            }
        };
        self.warn(time, &message.name, &warnings);
        let config = config
            .with_default_bind(self.bind.as_ref())
            .with_default_dns_resolver(self.dns_resolver.as_ref());
        let config = Arc::new(config);
        let built = self.registry.build(Arc::clone(&config));
        let eds = self.eds_key(&config);
        let hosts = match &config.discovery {
            Discovery::Static(own) => self.limits.hosts(hosts + own.len()),
            Discovery::Eds(_) => Ok(()),
            _ => config.require_built_in(),
        };
        let mut errors = Errors::default();
        let built = errors.note(built);
        let eds = errors.note(eds);
        errors.note(hosts);
        errors
            .finish(built.zip(eds))?
            .ok_or_else(|| ConfigError::new("", "cannot be used"))
    }

    /// Where the endpoints of a cluster are asked for; none if it is not of type EDS.
    pub(super) fn eds_key(&mut self, config: &ClusterConfig) -> Result<Option<Key>, ConfigError> {
        let Discovery::Eds(eds) = &config.discovery else {
            return Ok(None);
        };
        let named = self.limits.name(&eds.service_name);
        let named = named.map_err(|error| error.at("eds_cluster_config.service_name"));
        // Beside those of the bootstrap.
        let most = self.limits.sources.saturating_add(2);
        if self.sources.len() >= most {
            self.sources.sweep();
        }
        let source = self.sources.of(&eds.source).and_then(|source| {
            // What was refused goes with the next sweep.
            if self.sources.len() > most && !self.sources.is_used(source) {
                let most = self.limits.sources;
                let reason = format!("at most {most} sources are asked for endpoints");
                return Err(ConfigError::new("", reason));
            }
            Ok(source)
        });
        let source = source.map_err(|error| error.at("eds_cluster_config.eds_config"));
        match (named, source) {
            (Ok(()), Ok(source)) => Ok(Some((source, Arc::clone(&eds.service_name)))),
            (Err(first), Err(second)) => Err(first.and(second)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    fn note_refused(
        &mut self,
        time: Time,
        name: &str,
        body: &Any,
        version: Arc<str>,
        error: &ConfigError,
    ) {
        let error = self.error_state(body, version, time, error);
        let weight = error.weight();
        if let Some(known) = self.clusters.get_mut(name) {
            let before = known.error.replace(error).map_or(0, |e| e.weight());
            self.reweigh(before, weight);
        } else if !name.is_empty() && self.clusters.len() < self.limits.clusters {
            let known = Known {
                good: None,
                error: Some(error),
                expires: None,
            };
            self.clusters.insert(name.into(), known);
            self.reweigh(0, weight);
        }
    }

    /// Notes under which name the server knows a cluster. It can be known under one other than its own: each
    /// further one would have to be remembered as well.
    fn rename(&mut self, answer: &Answer, item: &Item, name: &str) -> Result<(), ConfigError> {
        let Some(key) = item
            .name
            .as_ref()
            .filter(|key| !answer.whole && *key != name)
        else {
            return Ok(());
        };
        match self.names.get(name) {
            Some(before) if before == key => return Ok(()),
            Some(before) if !answer.removed.contains(before) => {
                let reason = format!("is given as the resource {before:?} already");
                return Err(ConfigError::new("name", reason));
            }
            _ => (),
        }
        let name: Arc<str> = name.into();
        if let Some(before) = self.names.insert(Arc::clone(&name), key.clone()) {
            self.renamed.remove(&before);
        }
        self.renamed.insert(key.clone(), name);
        Ok(())
    }

    fn set_cluster_expiry(&mut self, time: Time, name: &Arc<str>, ttl: Option<Duration>) {
        let Some(known) = self.clusters.get_mut(name) else {
            return;
        };
        if known.is_static() {
            return;
        }
        let after = ttl.and_then(|ttl| time.now.checked_add(ttl));
        let before = std::mem::replace(&mut known.expires, after);
        self.set_deadline(before, after, Deadline::ClusterExpires(Arc::clone(name)));
    }

    pub(super) fn remove_cluster(&mut self, name: &Arc<str>) {
        if self.clusters.get(name).is_none_or(Known::is_static) {
            return;
        }
        let Some(known) = self.clusters.remove(name) else {
            return;
        };
        self.reweigh(known.weight(), 0);
        self.hosts -= known.static_hosts();
        if let Some(key) = self.names.remove(name) {
            self.renamed.remove(&key);
        }
        self.set_deadline(
            known.expires,
            None,
            Deadline::ClusterExpires(Arc::clone(name)),
        );
        if let Some(good) = known.good {
            if let Some(key) = &good.eds {
                self.unwatch(name, key);
            }
            self.changes
                .push_back(Change::RemoveCluster(Arc::clone(name)));
        }
    }

    /// The clusters that were told by the control plane, and the version of the last answer that was taken
    /// as a whole.
    pub(crate) fn cluster_records(&self) -> (Arc<str>, Vec<Record>) {
        let dynamic = self.clusters.iter().filter(|(_, known)| !known.is_static());
        let record = |(name, known): (&Arc<str>, &Known)| Record {
            name: Arc::clone(name),
            version_info: known.good.as_ref().map(|good| Arc::clone(&good.version)),
            resource: known.good.as_ref().and_then(|good| good.body.clone()),
            last_updated: known.good.as_ref().map(|good| good.updated),
            error_state: known.error.clone(),
        };
        (Arc::clone(&self.version), dynamic.map(record).collect())
    }
}

impl Known {
    pub(super) fn is_static(&self) -> bool {
        self.good.as_ref().is_some_and(|good| good.body.is_none())
    }
}
