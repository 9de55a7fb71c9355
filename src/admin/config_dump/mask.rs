//! What of a dump is asked for by `mask`, a `google.protobuf.FieldMask` as text.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _};

use super::message::message_of;

/// Which fields of a message are shown.
///
/// As by Envoy, a path has proto names, and only its last one may be that of a repeated field.
#[derive(Debug, Default)]
pub(super) struct Mask {
    /// All of them, whatever else is named.
    whole: bool,
    named: BTreeMap<String, Self>,
}

impl Mask {
    /// Of all there is.
    pub(super) const WHOLE: Self = Self {
        whole: true,
        named: BTreeMap::new(),
    };

    /// Reads paths with commas between them. Without any, all is shown.
    pub(super) fn parse(text: &str) -> Self {
        let mut mask = Self::default();
        for path in text.split(',').filter(|path| !path.is_empty()) {
            let mut at = &mut mask;
            for name in path.split('.') {
                at = at.named.entry(name.to_owned()).or_default();
            }
            at.whole = true;
        }
        mask.whole = mask.named.is_empty();
        mask
    }

    /// Whether all is shown.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// What is shown of a field, if anything.
    pub(super) fn of(&self, field: &str) -> Option<&Self> {
        if self.whole {
            return Some(self);
        }
        self.named.get(field)
    }

    /// Each field that is named, with what is named within it.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.named.iter().map(|(name, mask)| (&**name, mask))
    }

    /// Whether nothing is named within.
    pub(super) fn is_leaf(&self) -> bool {
        self.named.is_empty()
    }

    /// Whether a message has all the fields that are named.
    pub(super) fn fits(&self, message: &MessageDescriptor) -> bool {
        self.named().all(|(name, within)| {
            let field = message.get_field_by_name(name);
            field.is_some_and(|field| match field.kind() {
                _ if within.is_leaf() => true,
                Kind::Message(inner) => !field.is_list() && !field.is_map() && within.fits(&inner),
                _ => false,
            })
        })
    }

    /// The same of a message that is known by its type URL.
    pub(super) fn fits_type(&self, type_url: &str) -> bool {
        message_of(type_url).is_some_and(|message| self.fits(&message))
    }

    /// Takes from a message what is not shown.
    pub(super) fn trim(&self, message: &mut DynamicMessage) {
        if self.whole {
            return;
        }
        for field in message.descriptor().fields() {
            match self.of(field.name()) {
                None => message.clear_field(&field),
                Some(within) if !within.whole && message.has_field(&field) => {
                    if let Some(inner) = message.get_field_mut(&field).as_message_mut() {
                        within.trim(inner);
                    }
                }
                Some(_) => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::Document;
    use crate::proto::descriptor_pool;

    fn cluster() -> MessageDescriptor {
        let name = "envoy.config.cluster.v3.Cluster";
        descriptor_pool().get_message_by_name(name).unwrap()
    }

    #[test]
    fn paths_lead_to_fields_and_pass_no_list() {
        for path in [
            "name",
            "name,type",
            ",name,",
            "health_checks",
            "connect_timeout.seconds",
            "load_assignment.endpoints",
            "load_assignment,load_assignment.cluster_name",
        ] {
            assert!(Mask::parse(path).fits(&cluster()), "{path}");
        }
        for path in [
            "nope",
            "name,nope",
            "name.nope",
            "connectTimeout",
            " name",
            "name.",
            ".name",
            "load_assignment..endpoints",
            "load_assignment,load_assignment.nope",
            "load_assignment.endpoints.priority",
            "load_assignment.named_endpoints.key",
        ] {
            assert!(!Mask::parse(path).fits(&cluster()), "{path}");
        }
    }

    #[test]
    fn what_is_not_named_goes() {
        let text = "name: c\nconnect_timeout: 1s\nload_assignment: {cluster_name: c, endpoints: [{priority: 1}]}";
        let read = Document::from_yaml(text).unwrap().read_as(&cluster());
        let trimmed = |mask: &str| {
            let mut message = read.message.clone();
            Mask::parse(mask).trim(&mut message);
            let names = message.fields().map(|(field, _)| field.name().to_owned());
            let mut names: Vec<_> = names.collect();
            names.sort();
            let assignment = message.get_field_by_name("load_assignment").unwrap();
            let within = assignment.as_message().unwrap().fields().count();
            (names.join(" "), within)
        };
        let all = ("connect_timeout load_assignment name".to_owned(), 2);
        assert_eq!(trimmed(""), all);
        assert_eq!(trimmed(","), all);
        assert_eq!(trimmed("name,type"), ("name".to_owned(), 0));
        let assignment = "load_assignment".to_owned();
        assert_eq!(trimmed("load_assignment"), (assignment.clone(), 2));
        assert_eq!(
            trimmed("load_assignment.endpoints"),
            (assignment.clone(), 1)
        );
        let both = "load_assignment.endpoints,load_assignment";
        assert_eq!(trimmed(both), (assignment, 2));
    }
}
