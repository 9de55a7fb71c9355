//! Calls in place of a stream.

use std::time::Duration;

use crate::server::{Bed, CHECK, Peer, all, cluster, shown, specifier};
use xds_health::hds::Options;
use xds_health::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;

#[tokio::test]
async fn each_report_is_a_call_and_its_answer_the_next_specifier() {
    let bed = Bed::with(Options::default(), Some(Duration::from_millis(100))).await;
    let peer = Peer::new(true).await;
    let text = all(&[cluster("a", CHECK, &[&peer])]);
    let (message, reply) = bed.fetch().await;
    assert!(matches!(
        message.request_type,
        Some(RequestType::HealthCheckRequest(_))
    ));
    reply.send(Ok(specifier(&text))).unwrap();
    loop {
        let (message, reply) = bed.fetch().await;
        let Some(RequestType::EndpointHealthResponse(report)) = message.request_type else {
            panic!("{message:?}");
        };
        if shown(&report) == ["a: HEALTHY"] {
            reply
                .send(Err(tonic::Status::internal("as the test says")))
                .unwrap();
            break;
        }
        reply.send(Ok(specifier(&text))).unwrap();
    }
    let (message, _) = bed.fetch().await;
    assert!(matches!(
        message.request_type,
        Some(RequestType::HealthCheckRequest(_))
    ));
    assert_eq!(bed.stat("hds_delegate.errors"), 1);
}
