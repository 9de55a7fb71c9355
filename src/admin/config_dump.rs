//! `/config_dump`: the configuration that is in force, and what was refused of it.
//!
//! `envoy.admin.v3.ConfigDump` by the protobuf JSON mapping, under proto names and without default values.
//! What only Envoy has, such as listeners, is left out. What a health discovery service told, which Envoy does not
//! show, stands last, in a form of our own. Where else it differs: refused clusters are shown with
//! their `error_state`, those without a good form among the warming ones; assignments are shown as they came,
//! with version and time, and not as the hosts that they became; fields that are not known here are not shown,
//! nor is any message of an unknown type, since it may hold secrets.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::Response;
use prost::{Message as _, Name as _};
use prost_types::Timestamp;

use super::answer::{self, Refused};
use super::query::{Filter, Query};
use super::{Admin, Shared};
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::proto::{TYPE_URL_PREFIX, type_url};

mod lists;
mod mask;
mod message;

use lists::{Entry, Failure, List};
use mask::Mask;
use message::Text;

const BOOTSTRAP: &str = "envoy.admin.v3.BootstrapConfigDump";
const CLUSTERS: &str = "envoy.admin.v3.ClustersConfigDump";
const ENDPOINTS: &str = "envoy.admin.v3.EndpointsConfigDump";
/// What Envoy does not show: clusters that a health discovery service told.
const HDS: &str = "xds_health.HdsConfigDump";

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Query,
) -> Result<Response, Refused> {
    let asked = Asked {
        resource: query.get("resource").map(str::to_owned),
        endpoints: query.has("include_eds"),
        names: query.whole("name_regex")?,
        mask: query.get("mask").unwrap_or_default().to_owned(),
    };
    let of = Arc::clone(&shared);
    let body = answer::kept_whole(&shared, move || dump(&of.admin, &asked)).await?;
    Ok(answer::json(body))
}

/// A bootstrap as it was read, and when, for `/config_dump`.
///
/// It is kept serialized, which takes a twentieth of the memory: it is not often asked for.
#[derive(Clone, Debug)]
pub struct BootstrapDump {
    message: Arc<[u8]>,
    loaded: SystemTime,
}

impl BootstrapDump {
    /// Of a bootstrap that was read at `loaded`.
    pub fn new(bootstrap: &Bootstrap, loaded: SystemTime) -> Self {
        Self {
            message: bootstrap.encode_to_vec().into(),
            loaded,
        }
    }
}

/// What of the configuration is asked for.
struct Asked {
    resource: Option<String>,
    endpoints: bool,
    names: Filter,
    /// Of each message, or of each resource if one kind is asked for.
    mask: String,
}

impl Asked {
    fn mask_is_no_good(&self, why: &str) -> Refused {
        Refused::bad_request(format!("FieldMask {} {why}\n", self.mask))
    }
}

fn dump(admin: &Admin, asked: &Asked) -> Result<String, Refused> {
    let (version, lists) = lists::gather(admin, asked);
    let mut text = Text::default();
    text.layout.open(&mut text.to, '{');
    let mask = &Mask::parse(&asked.mask);
    match asked.resource.as_deref() {
        None => {
            text.layout.open_key(&mut text.to, "configs", '[');
            let mut shown = bootstrap(&mut text, admin, mask);
            shown |= whole(&mut text, CLUSTERS, Some(&version), &lists[..3], mask);
            if asked.endpoints {
                shown |= whole(&mut text, ENDPOINTS, None, &lists[3..5], mask);
            }
            if !lists[5].entries.is_empty() {
                shown |= whole(&mut text, HDS, None, &lists[5..], mask);
            }
            text.layout.close(&mut text.to, ']');
            if !shown {
                let why = "could not be successfully applied to any configs.";
                return Err(asked.mask_is_no_good(why));
            }
        }
        Some("bootstrap") => {
            let message =
                "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field\n";
            return Err(Refused::bad_request(message));
        }
        Some(resource) => {
            let list = lists.iter().find(|list| list.field == resource);
            let list = list.filter(|list| asked.endpoints || list.of != ENDPOINTS);
            let Some(list) = list else {
                let message = format!("{resource} not found in config dump\n");
                return Err(Refused::not_found(message));
            };
            if !list.entries.is_empty() {
                if !list.takes(mask) {
                    return Err(asked.mask_is_no_good("could not be successfully used."));
                }
                text.layout.open_key(&mut text.to, "configs", '[');
                let message = format!("{TYPE_URL_PREFIX}{}.{}", list.of, list.message);
                for entry in &list.entries {
                    write_entry(&mut text, Some(&message), list.inner, entry, mask);
                }
                text.layout.close(&mut text.to, ']');
            }
        }
    }
    text.layout.close(&mut text.to, '}');
    text.to.push('\n');
    Ok(text.to)
}

/// The message of the bootstrap; not at all if `mask` names what it has not.
fn bootstrap(text: &mut Text, admin: &Admin, mask: &Mask) -> bool {
    let takes = mask.named().all(|(name, within)| match name {
        "bootstrap" => within.fits_type(&type_url::<Bootstrap>()),
        "last_updated" => within.is_leaf(),
        _ => false,
    });
    let Some(BootstrapDump { message, loaded }) = admin.bootstrap().filter(|_| takes) else {
        return false;
    };
    begin(text, Some(&format!("{TYPE_URL_PREFIX}{BOOTSTRAP}")));
    if let Some(mask) = mask.of("bootstrap") {
        text.layout.key(&mut text.to, "bootstrap");
        text.bytes_as(&Bootstrap::full_name(), &message, mask);
    }
    let loaded = mask.of("last_updated").map(|_| loaded);
    time(text, "last_updated", loaded);
    text.layout.close(&mut text.to, '}');
    true
}

/// A message of lists; not at all if `mask` names what it has not.
fn whole(
    text: &mut Text,
    message: &str,
    version: Option<&str>,
    lists: &[List],
    mask: &Mask,
) -> bool {
    let has = |name| {
        version.is_some() && name == "version_info" || lists.iter().any(|list| list.field == name)
    };
    if !mask
        .named()
        .all(|(name, within)| has(name) && within.is_leaf())
    {
        return false;
    }
    begin(text, Some(&format!("{TYPE_URL_PREFIX}{message}")));
    let version = version.filter(|_| mask.of("version_info").is_some());
    text.layout
        .string_if_any(&mut text.to, "version_info", version.unwrap_or_default());
    for list in lists.iter().filter(|list| !list.entries.is_empty()) {
        let Some(mask) = mask.of(list.field) else {
            continue;
        };
        text.layout.open_key(&mut text.to, list.field, '[');
        for entry in &list.entries {
            write_entry(text, None, list.inner, entry, mask);
        }
        text.layout.close(&mut text.to, ']');
    }
    text.layout.close(&mut text.to, '}');
    true
}

fn write_entry(text: &mut Text, message: Option<&str>, inner: &str, entry: &Entry, mask: &Mask) {
    begin(text, message);
    if mask.of("version_info").is_some() {
        let Text { layout, to } = text;
        layout.string_if_any(to, "version_info", &entry.version);
    }
    if let Some((resource, mask)) = entry.resource.as_ref().zip(mask.of(inner)) {
        text.layout.key(&mut text.to, inner);
        text.any(resource, mask);
    }
    if mask.of("last_updated").is_some() {
        time(text, "last_updated", entry.updated);
    }
    if let Some((error, mask)) = entry.error.as_ref().zip(mask.of("error_state")) {
        write_failure(text, error, mask);
    }
    text.layout.close(&mut text.to, '}');
}

fn write_failure(text: &mut Text, error: &Failure, mask: &Mask) {
    text.layout.open_key(&mut text.to, "error_state", '{');
    if mask.of("failed_configuration").is_some() {
        text.layout.key(&mut text.to, "failed_configuration");
        text.any(&error.configuration, &Mask::WHOLE);
    }
    if mask.of("last_update_attempt").is_some() {
        time(text, "last_update_attempt", Some(error.at));
    }
    let Text { layout, to } = text;
    for (name, value) in [
        ("details", &error.details),
        ("version_info", &error.version),
    ] {
        if mask.of(name).is_some() {
            layout.string_if_any(to, name, value);
        }
    }
    layout.close(to, '}');
}

fn begin(text: &mut Text, message: Option<&str>) {
    let Text { layout, to } = text;
    layout.item(to);
    layout.open(to, '{');
    layout.string_if_any(to, "@type", message.unwrap_or_default());
}

/// In milliseconds, as by Envoy.
fn time(text: &mut Text, name: &str, at: Option<SystemTime>) {
    if let Some(at) = at {
        let mut at = Timestamp::from(at);
        at.nanos -= at.nanos % 1_000_000;
        text.layout.string(&mut text.to, name, &at.to_string());
    }
}
