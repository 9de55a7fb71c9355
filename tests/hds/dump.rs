//! What a server told, on the admin port.

use serde_json::Value;
use tokio::net::TcpListener;
use xds_health::admin::{self, Admin, Limits};

use crate::http::get;
use crate::server::{Bed, CHECK, Peer, all, cluster};

#[tokio::test]
async fn clusters_in_force_and_refused_ones_are_shown() {
    let bed = Bed::new().await;
    let peer = Peer::new(true).await;
    let mut stream = bed.stream().await;
    stream.request().await;
    let bad = CHECK.replace("text: \"70\"", "text: zz");
    stream
        .send(&all(&[
            cluster("good", CHECK, &[&peer]),
            cluster("bad", &bad, &[&peer]),
        ]))
        .await;
    stream.until(&["good: HEALTHY"]).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let admin = Admin::new(bed.engine.clone()).with_hds_dump(bed.dump.clone());
    let never = std::future::pending();
    tokio::spawn(admin::serve(
        listener,
        admin::router(admin),
        Limits::default(),
        never,
    ));

    let told: Value = serde_json::from_str(&get(address, "/config_dump").await.body).unwrap();
    let configs = told["configs"].as_array().unwrap();
    let of_hds = configs.last().unwrap();
    let message = "type.googleapis.com/xds_health.HdsConfigDump";
    assert_eq!(of_hds["@type"], message);
    let [bad, good] = of_hds["cluster_health_checks"]
        .as_array()
        .unwrap()
        .as_slice()
    else {
        panic!("{of_hds}");
    };
    assert_eq!(good["cluster_health_check"]["cluster_name"], "good");
    assert!(good["last_updated"].is_string() && good["error_state"].is_null());
    assert!(bad["cluster_health_check"].is_null());
    let details = bad["error_state"]["details"].as_str().unwrap();
    assert!(details.contains("typed_config.send.text"), "{details}");

    let planes = get(address, "/control_planes").await.body;
    let planes: Value = serde_json::from_str(&planes).unwrap();
    let plane = &planes["control_planes"][0];
    assert_eq!(
        (&plane["service"], &plane["open"]),
        (&"HDS".into(), &true.into())
    );
    let details = plane["last_nack"]["details"].as_str().unwrap();
    assert!(details.contains("typed_config.send.text"), "{details}");

    let clusters = get(address, "/clusters").await.body;
    assert!(
        clusters.contains("good::added_via_api::true\n"),
        "{clusters}"
    );
}
