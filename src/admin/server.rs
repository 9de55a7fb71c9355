//! `/ready` and `/server_info`, and the `server.` stats.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use prost_types::value::Kind;

use super::json::Layout;
use super::{ServerState, Shared, VERSION, answer};
use crate::config::json::write_string;
use crate::proto::envoy::config::core::v3::node::UserAgentVersionType;
use crate::proto::envoy::config::core::v3::{Locality, Node};
use crate::stats::{Gauge, Listing, Sample, Section};

pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let state = shared.state();
    let status = match state {
        ServerState::Live => StatusCode::OK,
        ServerState::Draining | ServerState::PreInitializing => StatusCode::SERVICE_UNAVAILABLE,
    };
    answer::text(status, format!("{}\n", state.name()))
}

/// `envoy.admin.v3.ServerInfo`, with default values like Envoy and without what this server has not. It
/// cannot be restarted hot, so both uptimes are one.
pub(super) async fn info(State(shared): State<Arc<Shared>>) -> Response {
    let mut to = String::new();
    let mut layout = Layout::default();
    let uptime = format!("{}s", shared.admin.engine.uptime().as_secs());
    layout.open(&mut to, '{');
    layout.string(&mut to, "version", VERSION);
    layout.string(&mut to, "state", shared.state().name());
    layout.string(&mut to, "uptime_current_epoch", &uptime);
    layout.string(&mut to, "uptime_all_epochs", &uptime);
    layout.string(&mut to, "hot_restart_version", "disabled");
    if let Some(node) = &shared.admin.node {
        write_node(&mut layout, &mut to, node);
    }
    layout.close(&mut to, '}');
    to.push('\n');
    answer::json(to)
}

impl Shared {
    /// The stats of one section, those of the server among them, ordered by name.
    pub(super) fn stats(&self, section: Section) -> Listing {
        let mut own = Vec::new();
        for (name, value) in [
            ("server.live", u64::from(!self.draining.load(Relaxed))),
            ("server.state", self.state() as u64),
            ("server.uptime", self.admin.engine.uptime().as_secs()),
        ] {
            let gauge = Gauge::default();
            gauge.set(value);
            own.push(Sample::gauge(name.to_owned(), &gauge));
        }
        self.admin.engine.stats().listing(section, own)
    }
}

fn write_node(layout: &mut Layout, to: &mut String, node: &Node) {
    layout.open_key(to, "node", '{');
    layout.string(to, "id", &node.id);
    layout.string(to, "cluster", &node.cluster);
    if let Some(metadata) = &node.metadata {
        layout.key(to, "metadata");
        write_struct(layout, to, metadata);
    }
    if let Some(locality) = &node.locality {
        write_locality(layout, to, locality);
    }
    layout.string(to, "user_agent_name", &node.user_agent_name);
    match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => {
            layout.string(to, "user_agent_version", version);
        }
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
            let version = build.version.unwrap_or_default();
            layout.open_key(to, "user_agent_build_version", '{');
            layout.open_key(to, "version", '{');
            layout.number(to, "major_number", version.major_number);
            layout.number(to, "minor_number", version.minor_number);
            layout.number(to, "patch", version.patch);
            layout.close(to, '}');
            layout.close(to, '}');
        }
        None => (),
    }
    layout.open_key(to, "extensions", '[');
    for extension in &node.extensions {
        layout.item(to);
        layout.open(to, '{');
        layout.string(to, "name", &extension.name);
        layout.string(to, "category", &extension.category);
        write_strings(layout, to, "type_urls", &extension.type_urls);
        layout.close(to, '}');
    }
    layout.close(to, ']');
    write_strings(layout, to, "client_features", &node.client_features);
    layout.close(to, '}');
}

fn write_locality(layout: &mut Layout, to: &mut String, locality: &Locality) {
    layout.open_key(to, "locality", '{');
    layout.string(to, "region", &locality.region);
    layout.string(to, "zone", &locality.zone);
    layout.string(to, "sub_zone", &locality.sub_zone);
    layout.close(to, '}');
}

fn write_strings(layout: &mut Layout, to: &mut String, name: &str, values: &[String]) {
    layout.open_key(to, name, '[');
    for value in values {
        layout.item(to);
        write_string(to, value);
    }
    layout.close(to, ']');
}

fn write_struct(layout: &mut Layout, to: &mut String, fields: &prost_types::Struct) {
    layout.open(to, '{');
    for (name, value) in &fields.fields {
        layout.item(to);
        write_string(to, name);
        to.push_str(": ");
        write_value(layout, to, value);
    }
    layout.close(to, '}');
}

/// Deep values do not end the stack: what was read from a message or a file is at most 100 levels deep.
fn write_value(layout: &mut Layout, to: &mut String, value: &prost_types::Value) {
    match &value.kind {
        Some(Kind::NumberValue(number)) if number.is_finite() => to.push_str(&number.to_string()),
        None | Some(Kind::NullValue(_) | Kind::NumberValue(_)) => to.push_str("null"),
        Some(Kind::StringValue(text)) => write_string(to, text),
        Some(Kind::BoolValue(value)) => to.push_str(&value.to_string()),
        Some(Kind::StructValue(fields)) => write_struct(layout, to, fields),
        Some(Kind::ListValue(list)) => {
            layout.open(to, '[');
            for value in &list.values {
                layout.item(to);
                write_value(layout, to, value);
            }
            layout.close(to, ']');
        }
    }
}
