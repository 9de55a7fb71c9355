//! Configurations are accepted and refused as Envoy 1.40 accepts and refuses them.
//!
//! `data/validate_cases.yaml` holds what Envoy said of health checks, one change of them at a time,
//! `data/validate_bootstraps.yaml` what it said of whole files; `data/validate_differences.yaml` tells where this crate
//! says otherwise, and why. The test fails if that list lacks a case, or has one too many.
#![cfg(all(feature = "dns", feature = "xds"))]
#![expect(clippy::unwrap_used, reason = "the data files are part of this test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use xds_health::config::text::Document;
use xds_health::config::{Bootstrap, ConfigError, Warnings};
use xds_health::proto::descriptor_pool;
use xds_health::registry::Registry;
use xds_health::xds::Client;

#[test]
fn verdicts_are_envoys_but_for_the_listed_differences() {
    let mut listed = BTreeMap::new();
    for group in list(include_str!("data/validate_differences.yaml")) {
        let reason = text(&group, "reason").unwrap();
        let Some(Kind::ListValue(ids)) = group.fields["cases"].kind.clone() else {
            panic!("the cases of {reason:?} are no list");
        };
        for id in ids.values {
            let Some(Kind::StringValue(id)) = id.kind else {
                panic!("{id:?} is no case");
            };
            assert_eq!(listed.insert(id, reason.clone()), None, "listed twice");
        }
    }

    let mut cases = list(include_str!("data/validate_cases.yaml"));
    cases.extend(list(include_str!("data/validate_bootstraps.yaml")));
    assert!(cases.len() > 350, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let id = text(case, "id").unwrap();
        let envoy = text(case, "envoy_verdict").unwrap();
        let whole = text(case, "text");
        let ours = judge(
            &whole.unwrap_or_else(|| bootstrap(case)),
            text(case, "format").as_deref(),
        );
        let differs = (envoy == "accept") != ours.is_ok();
        match (differs, listed.remove(&id)) {
            (true, None) => wrong.push(format!(
                "{id}: Envoy says {envoy} ({}), but here: {ours:?}",
                text(case, "envoy_error").unwrap_or_default()
            )),
            (false, Some(reason)) => wrong.push(format!("{id}: no longer differs: {reason}")),
            (true, Some(_)) | (false, None) => (),
        }
    }
    wrong.extend(
        listed
            .keys()
            .map(|id| format!("{id}: there is no such case")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a daemon would say: the configuration read, its checkers and event sinks made, and its sources found.
fn judge(text: &str, format: Option<&str>) -> Result<(), ConfigError> {
    let bootstrap = match format {
        Some("json") => Bootstrap::from_json(text, &mut Warnings::default())?,
        _ => Bootstrap::from_yaml(text, &mut Warnings::default())?,
    };
    Client::new(&bootstrap, Registry::default(), Arc::default())?;
    for cluster in &bootstrap.clusters {
        cluster.require_built_in()?;
        Registry::default().build(Arc::clone(cluster))?;
    }
    Ok(())
}

/// The configuration that a case is about: one cluster, with the case's checks.
fn bootstrap(case: &Struct) -> String {
    let endpoint = text(case, "endpoint").unwrap_or_else(|| {
        "address: {socket_address: {address: 127.0.0.1, port_value: 10990}}".to_owned()
    });
    let text = [
        "static_resources:\n  clusters:\n  - name: c\n    type: STATIC\n    connect_timeout: 1s\n",
        &indent(&text(case, "cluster").unwrap_or_default(), 4),
        "    load_assignment:\n      cluster_name: c\n      endpoints:\n      - lb_endpoints:\n",
        "        - endpoint:\n",
        &indent(&endpoint, 12),
        "    health_checks:\n",
        &indent(&text(case, "health_checks").unwrap(), 4),
    ];
    let text = expand(&text.concat(), "@@HEXZERO:", |bytes| "00".repeat(bytes));
    expand(&text, "@@B64ZERO:", |bytes| {
        let padding = "=".repeat((3 - bytes % 3) % 3);
        "A".repeat((bytes * 4).div_ceil(3)) + &padding
    })
}

fn indent(text: &str, by: usize) -> String {
    let lines = text.trim_end_matches('\n').lines();
    lines.map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// Writes out every `{macro_name}N@@`: that many zero bytes.
fn expand(text: &str, macro_name: &str, zeros: impl Fn(usize) -> String) -> String {
    let mut parts = text.split(macro_name);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (bytes, rest) = part.split_once("@@").unwrap();
        out += &zeros(bytes.parse().unwrap());
        out += rest;
    }
    out
}

/// The mappings of a YAML list.
fn list(yaml: &str) -> Vec<Struct> {
    let descriptor = descriptor_pool()
        .get_message_by_name("google.protobuf.Struct")
        .unwrap();
    let read = Document::from_yaml(&format!("list:\n{yaml}"))
        .unwrap()
        .read_as(&descriptor);
    assert_eq!(read.faults, []);
    let message: Struct = read.message.transcode_to().unwrap();
    let Some(Kind::ListValue(list)) = message.fields["list"].kind.clone() else {
        panic!("no list");
    };
    let items = list.values.into_iter().map(|item| match item.kind {
        Some(Kind::StructValue(item)) => item,
        other => panic!("{other:?}"),
    });
    items.collect()
}

fn text(case: &Struct, name: &str) -> Option<String> {
    match case.fields.get(name)? {
        Value {
            kind: Some(Kind::StringValue(text)),
        } => Some(text.clone()),
        other => panic!("{name} is {other:?}"),
    }
}
