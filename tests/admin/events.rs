//! `/events`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use xds_health::admin::{self, Admin, Limits};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Cluster, Engine, Options, Origin};
use xds_health::event::{Outcome, Reason};
use xds_health::stats::Stats;

use crate::common::{Step, check, until};
use crate::http::{Stream, get};
use crate::{Served, engine, engine_of, host, script, serve, serve_engine, set, set_checked};

const ODD: &str = "a \"b\\c\".d\n<\u{e9}>";

async fn events(served: &Served, query: &str) -> Vec<Value> {
    let answer = get(served.address, &format!("/events?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/json");
    let json: Value = serde_json::from_str(&answer.body).unwrap();
    json["events"].as_array().unwrap().clone()
}

/// A cluster whose host passes, fails twice and passes from then on.
async fn flapping(engine: &Engine, name: &str) -> Cluster {
    let script = script();
    let fail = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    script.script(7, [Step::pass(), fail.clone(), fail, Step::pass()]);
    let check = check().with_only_interval(Duration::from_millis(1));
    let hosts = vec![Arc::new(host(7))];
    let config = ClusterConfig::new(name, Discovery::Static(hosts)).with_health_check(check);
    set(engine, config, &script, Origin::Static).await
}

#[tokio::test]
async fn events_are_told_as_they_come() {
    let engine = engine();
    let served = serve_engine(&engine).await;
    let mut stream = Stream::open(served.address, "/events", &[]).await;
    assert_eq!(stream.next().await.unwrap().event, "open");
    flapping(&engine, ODD).await;
    let mut told = Vec::new();
    for id in 1..=3 {
        let sent = stream.next().await.unwrap();
        assert_eq!((&*sent.event, sent.id), ("event", Some(id)));
        told.push(serde_json::from_str::<Value>(&sent.data).unwrap());
    }
    let kinds: Vec<_> = told.iter().map(|event| event["event"].clone()).collect();
    assert_eq!(kinds, ["add_healthy", "eject_unhealthy", "add_healthy"]);
    assert_eq!(told[0]["first_check"], true);
    assert_eq!(told[0]["flags_before"], json!(["failed_active_hc"]));
    assert_eq!(told[0]["flags"], json!([]));
    assert!(told[0]["round_trip_ms"].is_number());
    assert_eq!(told[1]["failure_type"], "NETWORK");
    assert_eq!(told[1]["reason"]["kind"], "refused");
    assert_eq!(told[1]["transition"], "changed");
    assert_eq!(told[1]["flags"], json!(["failed_active_hc"]));
    for event in &told {
        assert_eq!(
            (&event["cluster"], &event["address"]),
            (&json!(ODD), &json!("127.0.0.1:7"))
        );
    }
    assert_eq!(events(&served, "last").await, told);
    assert_eq!(events(&served, "last=2").await, told[1..]);
    assert!(events(&served, "last=0").await.is_empty());
    assert!(events(&served, "last=5&cluster=other").await.is_empty());
    assert_eq!(get(served.address, "/events?last=x").await.status, 400);
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_after_what_it_had() {
    let engine = engine();
    let served = serve_engine(&engine).await;
    flapping(&engine, "c1").await;
    while events(&served, "last").await.len() < 3 {
        tokio::task::yield_now().await;
    }
    let after = |id: &'static str| async move {
        let headers = [("last-event-id", id)];
        let mut stream = Stream::open(served.address, "/events", &headers).await;
        assert_eq!(stream.next().await.unwrap().event, "open");
        stream
    };
    assert_eq!(after("1").await.next().await.unwrap().id, Some(2));
    // A number of another life, or none at all: from now on.
    for id in ["99999999999", "x"] {
        let mut stream = after(id).await;
        let next = flapping(&engine, id).await;
        assert!(stream.next().await.unwrap().data.contains(&**next.name()));
    }
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_what_is_lost_is_told() {
    let options = Options::default().with_seed(1).with_events(16);
    let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
    let served = serve_engine(&engine).await;
    let hosts = (0..3_000).map(|i| host(10_000 + i)).collect();
    set_checked(&engine, hosts).await;
    // Nobody looked while the engine kept but a few.
    let kept = events(&served, "last").await;
    assert_eq!(kept.len(), 16);
    assert_eq!(kept[15]["id"], 3_000);
    let mut stream = Stream::open(served.address, "/events", &[("last-event-id", "5")]).await;
    let missed = stream.next_of("missed").await;
    assert_eq!(missed.data, format!("{{\"events\":{}}}", 3_000 - 16 - 5));
    assert_eq!(stream.next().await.unwrap().id, Some(2_985));
}

#[tokio::test]
async fn clients_that_do_not_read_are_dropped_and_streams_are_counted() {
    let engine = engine_of(2);
    let limits = Limits::default().with_stall_timeout(Duration::from_millis(50));
    let served = serve(admin::router(Admin::new(engine.clone())), limits).await;
    let hosts = (0..20_000).map(|i| host(10_000 + i)).collect();
    let checked = set_checked(&engine, hosts).await;
    // Megabytes wait for each of these.
    let mut slow = Vec::new();
    let begin = async |slow: &mut Vec<TcpStream>| {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = format!(
            "GET /hosts?watch HTTP/1.1\r\nhost: {}\r\n\r\n",
            served.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        slow.push(stream);
    };
    for _ in 0..64 {
        begin(&mut slow).await;
    }
    // There is room for one more once they were given up.
    loop {
        let answer = tokio::time::timeout(
            Duration::from_secs(1),
            get(served.address, "/events?last=1"),
        );
        assert_eq!(answer.await.unwrap().status, 200);
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = format!("GET /events HTTP/1.1\r\nhost: {}\r\n\r\n", served.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut head)
            .await
            .unwrap();
        match &head {
            b"HTTP/1.1 200" => break,
            b"HTTP/1.1 503" => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    }
    let _ = until(&checked, |hosts| hosts.len() == 20_000).await;
}

#[tokio::test]
async fn streams_leave_half_of_the_connections_to_others() {
    let limits = Limits::default().with_connections(4);
    let served = serve(admin::router(Admin::new(engine())), limits).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(Stream::open(served.address, "/events", &[]).await);
    }
    assert_eq!(get(served.address, "/events").await.status, 503);
    assert_eq!(get(served.address, "/ready").await.status, 200);
}

#[tokio::test]
async fn streams_end_with_the_server() {
    let engine = engine();
    let served = serve_engine(&engine).await;
    let mut events = Stream::open(served.address, "/events", &[]).await;
    let mut hosts = Stream::open(served.address, "/hosts?watch", &[]).await;
    served.end.send(()).unwrap();
    served.task.await.unwrap();
    while events.next().await.is_some() {}
    while hosts.next().await.is_some() {}
}
