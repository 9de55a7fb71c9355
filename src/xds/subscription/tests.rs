//! Tables: what is handed in, and the messages that come out.

use proptest::prelude::*;

use super::*;

const C: &str = "type.googleapis.com/c";
const E: &str = "type.googleapis.com/e";

fn node() -> Node {
    Node {
        id: "n1".to_owned(),
        ..Node::default()
    }
}

/// A step of a table.
enum Step<'a> {
    Open,
    Close,
    All(&'static str),
    Ask(&'static str, &'a str),
    Drop(&'static str, &'a str),
    /// Type, version, nonce, and what is wrong with it.
    Whole(&'static str, &'a str, &'a str, Option<&'a str>),
    /// Type, nonce, what is given as `name=version` (with `|alias` after the name), what is removed, what is
    /// refused, and what is wrong.
    Part(
        &'static str,
        &'a str,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        Option<&'a str>,
    ),
    /// A response that needs no verdict.
    Unasked(&'static str, &'a str),
    /// All that is to be sent now, as [`show`] tells it.
    Sends(&'a [&'a str]),
}
use Step::*;

/// `e v=1 n=7 [a,b] !why` for state of the world; `e n=7 +[a] -[b] had{a=1} !why` for incremental. A node is
/// told by an `@` in front.
fn show(request: &Request) -> String {
    let (node, url, detail, body) = match request {
        Request::Sotw(r) => (
            r.node.is_some(),
            &r.type_url,
            &r.error_detail,
            format!(
                "v={} n={} [{}]",
                r.version_info,
                r.response_nonce,
                r.resource_names.join(",")
            ),
        ),
        Request::Delta(r) => {
            let had = r
                .initial_resource_versions
                .iter()
                .map(|(name, v)| format!("{name}={v}"));
            (
                r.node.is_some(),
                &r.type_url,
                &r.error_detail,
                format!(
                    "n={} +[{}] -[{}] had{{{}}}",
                    r.response_nonce,
                    r.resource_names_subscribe.join(","),
                    r.resource_names_unsubscribe.join(","),
                    had.collect::<Vec<_>>().join(","),
                ),
            )
        }
    };
    let at = if node { "@" } else { "" };
    let url = url.rsplit('/').next().unwrap();
    let detail = detail.as_ref().map(|status| {
        assert_eq!(status.code, INVALID_ARGUMENT);
        format!(" !{}", status.message)
    });
    format!("{at}{url} {body}{}", detail.unwrap_or_default())
}

fn table(variant: Variant, node_once: bool, steps: &[Step<'_>]) {
    let mut subscriptions = Subscriptions::new(variant, node(), node_once);
    for (index, step) in steps.iter().enumerate() {
        match step {
            Open => subscriptions.handle_stream_opened(),
            Close => subscriptions.handle_stream_closed(),
            All(url) => subscriptions.subscribe_all(url),
            Ask(url, name) => subscriptions.subscribe(url, Arc::from(*name)),
            Drop(url, name) => subscriptions.unsubscribe(url, &Arc::from(*name)),
            Whole(url, version, nonce, wrong) => {
                let response = Response::Sotw(DiscoveryResponse {
                    version_info: (*version).to_owned(),
                    nonce: (*nonce).to_owned(),
                    type_url: (*url).to_owned(),
                    ..DiscoveryResponse::default()
                });
                let (of, answer) = subscriptions.handle_response(response).unwrap();
                assert_eq!((of, answer.whole), (*url, true));
                assert_eq!(subscriptions.poll_request(), None, "step {index}: judging");
                let verdict = Verdict {
                    error: wrong.map(str::to_owned),
                    refused: BTreeSet::new(),
                };
                subscriptions.handle_verdict(of, &answer, verdict);
            }
            Part(url, nonce, given, removed, refused, wrong) => {
                let resources = given.iter().map(|given| {
                    let (names, version) = given.split_once('=').unwrap();
                    let mut names = names.split('|').map(str::to_owned);
                    Resource {
                        name: names.next().unwrap(),
                        aliases: names.collect(),
                        version: version.to_owned(),
                        resource: Some(Any::default()),
                        ..Resource::default()
                    }
                });
                let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
                let response = Response::Delta(DeltaDiscoveryResponse {
                    resources: resources.collect(),
                    removed_resources: owned(removed),
                    nonce: (*nonce).to_owned(),
                    type_url: (*url).to_owned(),
                    ..DeltaDiscoveryResponse::default()
                });
                let (of, answer) = subscriptions.handle_response(response).unwrap();
                let verdict = Verdict {
                    error: wrong.map(str::to_owned),
                    refused: refused.iter().map(|n| (*n).to_owned()).collect(),
                };
                subscriptions.handle_verdict(of, &answer, verdict);
            }
            Unasked(url, nonce) => {
                let (type_url, nonce) = ((*url).to_owned(), (*nonce).to_owned());
                let response = match variant {
                    Variant::Sotw => Response::Sotw(DiscoveryResponse {
                        type_url,
                        nonce,
                        ..DiscoveryResponse::default()
                    }),
                    Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
                        type_url,
                        nonce,
                        ..DeltaDiscoveryResponse::default()
                    }),
                };
                assert_eq!(
                    subscriptions.handle_response(response),
                    None,
                    "step {index}"
                );
            }
            Sends(wanted) => {
                let sent: Vec<_> = std::iter::from_fn(|| subscriptions.poll_request()).collect();
                let sent: Vec<_> = sent.iter().map(show).collect();
                assert_eq!(sent, *wanted, "step {index}");
            }
        }
    }
}

fn sotw(steps: &[Step<'_>]) {
    table(Variant::Sotw, true, steps);
}

fn delta(steps: &[Step<'_>]) {
    table(Variant::Delta, true, steps);
}

#[test]
fn an_answer_is_acknowledged_by_its_version_and_nonce() {
    sotw(&[
        All(C),
        Sends(&[]),
        Open,
        Sends(&["@c v= n= []"]),
        Whole(C, "1", "x", None),
        Sends(&["c v=1 n=x []"]),
        Whole(C, "2", "y", None),
        Sends(&["c v=2 n=y []"]),
        Sends(&[]),
    ]);
}

#[test]
fn a_refused_answer_is_told_with_its_nonce_the_version_before_and_why() {
    sotw(&[
        All(C),
        Open,
        Sends(&["@c v= n= []"]),
        Whole(C, "1", "x", Some("a: name: is odd")),
        Sends(&["c v= n=x [] !a: name: is odd"]),
        Whole(C, "2", "y", None),
        Sends(&["c v=2 n=y []"]),
        Whole(C, "3", "z", Some("b: is odd")),
        Sends(&["c v=2 n=z [] !b: is odd"]),
        // What is asked for next does not repeat the fault.
        Ask(C, "b"),
        Sends(&["c v=2 n=z [*,b]"]),
    ]);
}

#[test]
fn names_are_told_all_together_with_the_last_version_and_nonce() {
    sotw(&[
        Open,
        Ask(E, "b"),
        Ask(E, "a"),
        Sends(&["@e v= n= [a,b]"]),
        Whole(E, "1", "x", None),
        Sends(&["e v=1 n=x [a,b]"]),
        Ask(E, "c"),
        Drop(E, "a"),
        Sends(&["e v=1 n=x [b,c]"]),
        // Asked for already, and dropped already.
        Ask(E, "c"),
        Drop(E, "a"),
        Sends(&[]),
        Drop(E, "b"),
        Drop(E, "c"),
        Sends(&["e v=1 n=x []"]),
        // The server may answer before it has heard: that is not taken, but its nonce counts.
        Unasked(E, "y"),
        Sends(&[]),
        Ask(E, "d"),
        Sends(&["e v=1 n=y [d]"]),
    ]);
}

#[test]
fn a_new_stream_begins_with_the_versions_that_were_taken_and_no_nonce() {
    sotw(&[
        All(C),
        Ask(E, "a"),
        Open,
        Sends(&["@c v= n= []", "e v= n= [a]"]),
        Whole(C, "1", "x", None),
        Sends(&["c v=1 n=x []"]),
        Whole(E, "5", "y", Some("wrong")),
        Close,
        Sends(&[]),
        Ask(E, "b"),
        Open,
        Sends(&["@c v=1 n= []", "e v= n= [a,b]"]),
        Whole(E, "6", "z", None),
        Sends(&["e v=6 n=z [a,b]"]),
        Drop(E, "a"),
        Drop(E, "b"),
        Close,
        Open,
        // No names would be all names.
        Sends(&["@c v=1 n= []"]),
    ]);
}

#[test]
fn what_nobody_asked_for_is_not_answered() {
    sotw(&[
        All(C),
        Open,
        // Nothing was sent yet.
        Unasked(C, "early"),
        Sends(&["@c v= n= []"]),
        Unasked(E, "x"),
        Unasked("", "y"),
        Unasked("type.googleapis.com/other", "z"),
        Sends(&[]),
        Close,
        Unasked(C, "late"),
    ]);
    delta(&[
        All(C),
        Open,
        Unasked(C, "early"),
        Sends(&["@c n= +[] -[] had{}"]),
        Unasked(E, "x"),
        Sends(&[]),
    ]);
}

#[test]
fn the_node_is_told_with_each_request_unless_once_is_enough() {
    let steps = [
        All(C),
        Ask(E, "a"),
        Open,
        Sends(&["@c v= n= []", "@e v= n= [a]"]),
        Whole(C, "1", "x", None),
        Sends(&["@c v=1 n=x []"]),
    ];
    table(Variant::Sotw, false, &steps);
    table(
        Variant::Sotw,
        true,
        &[
            All(C),
            Open,
            Sends(&["@c v= n= []"]),
            Close,
            Open,
            Sends(&["@c v= n= []"]),
        ],
    );
}

#[test]
fn incremental_requests_tell_what_changed() {
    delta(&[
        All(C),
        Open,
        Sends(&["@c n= +[] -[] had{}"]),
        Part(C, "x", &["a=1", "b=1"], &[], &[], None),
        Ask(E, "a"),
        Ask(E, "b"),
        Sends(&["c n=x +[] -[] had{}", "e n= +[a,b] -[] had{}"]),
        Part(E, "y", &["a=7"], &[], &[], None),
        Drop(E, "b"),
        Ask(E, "c"),
        // A reply takes what changed with it.
        Sends(&["e n=y +[c] -[b] had{}"]),
        Drop(E, "c"),
        Ask(E, "c"),
        // Asked for again: it was forgotten in between, so the server must send it again.
        Sends(&["e n= +[c] -[] had{}"]),
        Ask(E, "d"),
        Drop(E, "d"),
        Sends(&["e n= +[] -[d] had{}"]),
    ]);
}

#[test]
fn incremental_replies_are_one_for_each_answer_in_order() {
    delta(&[
        All(C),
        Open,
        Sends(&["@c n= +[] -[] had{}"]),
        Part(C, "x", &["a=1"], &[], &[], None),
        Part(C, "y", &["a=2"], &[], &["a"], Some("a: is odd")),
        Part(C, "z", &[], &["b"], &[], None),
        Sends(&[
            "c n=x +[] -[] had{}",
            "c n=y +[] -[] had{} !a: is odd",
            "c n=z +[] -[] had{}",
        ]),
    ]);
}

#[test]
fn a_new_incremental_stream_begins_with_the_versions_of_all_that_was_taken() {
    delta(&[
        All(C),
        Ask(E, "a"),
        Open,
        Sends(&["@c n= +[] -[] had{}", "e n= +[a] -[] had{}"]),
        Part(
            C,
            "x",
            &["a=1", "b=1", "bad=1"],
            &[],
            &["bad"],
            Some("bad: is odd"),
        ),
        Part(C, "y", &["a=2"], &["b"], &[], None),
        // Given by another name, and one that nobody asked for.
        Part(E, "z", &["real|a=4", "other=4"], &[], &[], None),
        Close,
        Open,
        Sends(&["@c n= +[] -[] had{a=2}", "e n= +[a] -[] had{real=4}"]),
        // The old form stays in force when the new one is refused.
        Part(C, "x", &["a=3"], &[], &["a"], Some("a: is odd")),
        Drop(E, "a"),
        Close,
        Open,
        Sends(&["@c n= +[] -[] had{a=2}"]),
        Ask(E, "a"),
        Sends(&["e n= +[a] -[] had{}"]),
    ]);
}

#[test]
fn all_and_some_by_name_are_asked_for_with_a_star() {
    delta(&[
        All(C),
        Ask(C, "a"),
        Open,
        Sends(&["@c n= +[*,a] -[] had{}"]),
    ]);
    sotw(&[All(C), Ask(C, "a"), Open, Sends(&["@c v= n= [*,a]"])]);
}

#[test]
fn a_resource_of_state_of_the_world_may_be_wrapped() {
    let inner = Any {
        type_url: C.to_owned(),
        value: vec![1],
    };
    let wrapped = Resource {
        name: "a".to_owned(),
        ttl: Some(prost_types::Duration {
            seconds: 3,
            nanos: 0,
        }),
        resource: Some(inner.clone()),
        ..Resource::default()
    };
    let wrapped = Any {
        type_url: crate::proto::type_url::<Resource>(),
        value: wrapped.encode_to_vec(),
    };
    let item = item(wrapped);
    assert_eq!(item.name.as_deref(), Some("a"));
    assert_eq!(item.body, Some(inner));
    assert_eq!(item.ttl, Some(Duration::from_secs(3)));
}

#[test]
fn a_long_detail_is_cut_at_a_line() {
    let line = "cluster: health_checks[0].timeout: value is required\n";
    let cut = cut(line.repeat(100_000));
    assert!(cut.len() <= MAX_ERROR_DETAIL && cut.ends_with("required\n(and more)"));
    assert!(super::cut("é".repeat(MAX_ERROR_DETAIL)).len() <= MAX_ERROR_DETAIL);
}

proptest! {
    #[test]
    fn any_responses_leave_one_reply_each_at_most(
        variant in prop_oneof![Just(Variant::Sotw), Just(Variant::Delta)],
        steps in prop::collection::vec((0..7_u8, "[a-c*]{0,2}", prop::collection::vec(any::<u8>(), 0..40)), 0..60),
    ) {
        let mut subscriptions = Subscriptions::new(variant, node(), true);
        let mut replies = 0_i64;
        for (step, text, bytes) in steps {
            let url = if text.starts_with('a') { C } else { E };
            match step {
                0 => { subscriptions.handle_stream_opened(); replies = 0; }
                1 => subscriptions.handle_stream_closed(),
                2 => subscriptions.subscribe(url, text.as_str().into()),
                3 => subscriptions.unsubscribe(url, &text.as_str().into()),
                4 => subscriptions.subscribe_all(url),
                _ => {
                    let any = Any { type_url: crate::proto::type_url::<Resource>(), value: bytes.clone() };
                    let response = if step == 5 {
                        Response::Sotw(DiscoveryResponse {
                            type_url: url.to_owned(), nonce: text, resources: vec![any],
                            ..DiscoveryResponse::decode(&*bytes).unwrap_or_default()
                        })
                    } else {
                        Response::Delta(DeltaDiscoveryResponse {
                            type_url: url.to_owned(), nonce: text,
                            ..DeltaDiscoveryResponse::decode(&*bytes).unwrap_or_default()
                        })
                    };
                    if let Some((of, answer)) = subscriptions.handle_response(response) {
                        replies += 1;
                        let error = (bytes.len() % 2 == 0).then(|| "odd".to_owned());
                        let verdict = Verdict { error, refused: BTreeSet::new() };
                        subscriptions.handle_verdict(of, &answer, verdict);
                    }
                }
            }
            let errors = std::iter::from_fn(|| subscriptions.poll_request()).filter(|request| match request {
                Request::Sotw(r) => r.error_detail.is_some(),
                Request::Delta(r) => r.error_detail.is_some(),
            });
            replies -= errors.count() as i64;
            prop_assert!(replies >= 0);
        }
    }
}

#[test]
fn replies_that_are_not_taken_weigh() {
    let mut subscriptions = Subscriptions::new(Variant::Delta, node(), true);
    subscriptions.subscribe_all(C);
    subscriptions.handle_stream_opened();
    subscriptions.poll_request().unwrap();
    let mut before = subscriptions.backlog();
    for nonce in ["1", "22", "333"] {
        let response = DeltaDiscoveryResponse {
            nonce: nonce.repeat(100),
            type_url: C.to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        let answer = subscriptions.handle_response(Response::Delta(response));
        let (url, answer) = answer.unwrap();
        subscriptions.handle_verdict(url, &answer, Verdict::default());
        assert!(subscriptions.backlog() > before + 100);
        before = subscriptions.backlog();
    }
    while subscriptions.poll_request().is_some() {}
    assert_eq!(subscriptions.backlog(), 0);
}

#[test]
fn a_resource_under_ever_new_names_is_remembered_once() {
    let mut subscriptions = Subscriptions::new(Variant::Delta, node(), true);
    subscriptions.subscribe(E, "a".into());
    subscriptions.handle_stream_opened();
    subscriptions.poll_request().unwrap();
    for number in 0..100 {
        let resource = Resource {
            name: format!("name-{number}"),
            aliases: vec!["a".to_owned()],
            version: "v".to_owned(),
            resource: Some(Any::default()),
            ..Resource::default()
        };
        let response = DeltaDiscoveryResponse {
            type_url: E.to_owned(),
            resources: vec![resource],
            ..DeltaDiscoveryResponse::default()
        };
        let answer = subscriptions.handle_response(Response::Delta(response));
        let (url, answer) = answer.unwrap();
        subscriptions.handle_verdict(url, &answer, Verdict::default());
    }
    while subscriptions.poll_request().is_some() {}
    subscriptions.handle_stream_opened();
    match subscriptions.poll_request() {
        Some(Request::Delta(request)) => assert_eq!(request.initial_resource_versions.len(), 1),
        other => panic!("{other:?}"),
    }
}
