//! What this process calls itself before control planes.

use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::config::core::v3::node::UserAgentVersionType;

/// `node` of the bootstrap, with the name of this program where it has none.
pub(crate) fn identify(mut node: Node) -> Node {
    if node.user_agent_name.is_empty() {
        env!("CARGO_PKG_NAME").clone_into(&mut node.user_agent_name);
    }
    if node.user_agent_version_type.is_none() {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        node.user_agent_version_type = Some(UserAgentVersionType::UserAgentVersion(version));
    }
    node
}
