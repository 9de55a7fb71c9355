//! `/init_dump`: what is still waited for, as `envoy.admin.v3.UnreadyTargetsDumps`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::answer::{self, Refused};
use super::json::Layout;
use super::{Admin, Shared};
use crate::config::json::write_string;

pub(super) async fn page(State(shared): State<Arc<Shared>>) -> Result<Response, Refused> {
    let of = Arc::clone(&shared);
    let text = answer::off_runtime(&shared, move || dump(&of.admin)).await?;
    Ok(answer::json(text))
}

/// One list, of clusters that are not yet initialized; Envoy has one for each of its init managers.
fn dump(admin: &Admin) -> String {
    let mut to = String::new();
    let mut layout = Layout::default();
    let mut clusters = admin.engine.clusters();
    clusters.retain(|cluster| !cluster.snapshot().initialized());
    layout.open(&mut to, '{');
    if !clusters.is_empty() {
        layout.open_key(&mut to, "unready_targets_dumps", '[');
        layout.item(&mut to);
        layout.open(&mut to, '{');
        layout.string(&mut to, "name", "clusters");
        layout.open_key(&mut to, "target_names", '[');
        for cluster in &clusters {
            layout.item(&mut to);
            write_string(&mut to, cluster.name());
        }
        layout.close(&mut to, ']');
        layout.close(&mut to, '}');
        layout.close(&mut to, ']');
    }
    layout.close(&mut to, '}');
    to.push('\n');
    to
}
