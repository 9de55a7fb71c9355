//! The admin page in a real browser. Skips where there is no chromium with its driver.
#![cfg(feature = "admin")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_docs,
    reason = "a test ends at what it does not expect, and is read by nobody's compiler"
)]

mod common;
#[path = "browser/driver.rs"]
mod driver;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use common::{Events, Scripted, Step};
use driver::Browser;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use xds_health::admin::{self, Admin, Limits};
use xds_health::config::{ClusterConfig, Discovery, HealthCheck};
use xds_health::engine::{Cluster, Engine, Options, Origin};
use xds_health::event::{Mismatch, Outcome, Reason};
use xds_health::host::{Host, Locality};
use xds_health::snapshot::HostView;
use xds_health::stats::Stats;

/// One browser at a time: they want all of a machine.
static TURN: Mutex<()> = Mutex::const_new(());

/// An engine whose hosts do as they are told, with its page.
struct Scene {
    engine: Engine,
    script: Scripted,
    address: SocketAddr,
}

impl Scene {
    async fn new() -> Self {
        let options = Options::default()
            .with_shards(2)
            .with_seed(1)
            .with_journal(10_000);
        let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admin = Admin::new(engine.clone()).with_own_names_only();
        let never = std::future::pending();
        tokio::spawn(admin::serve(
            listener,
            admin::router(admin),
            Limits::default(),
            never,
        ));
        Self {
            engine,
            script: Scripted::default(),
            address,
        }
    }

    fn url(&self, query: &str) -> String {
        format!("http://{}/{query}", self.address)
    }

    async fn add(&self, name: &str, check: HealthCheck, hosts: Vec<Host>) -> Cluster {
        let hosts = hosts.into_iter().map(Arc::new).collect();
        let config = ClusterConfig::new(name, Discovery::Static(hosts)).with_health_check(check);
        let (script, events) = (self.script.clone(), Events::default());
        let cluster = common::run_as(&self.engine, config, script, &events, Origin::Static).await;
        common::until_initialized(&cluster).await;
        cluster
    }

    /// The host of this port fails from now on.
    fn fail(&self, port: u16) {
        let refused = Outcome::network(Reason::Refused);
        self.script
            .script(port, [Step::After(Duration::ZERO, refused)]);
    }
}

/// A check that is made over and over.
fn often() -> HealthCheck {
    common::check().with_only_interval(Duration::from_millis(20))
}

fn host(port: u16) -> Host {
    Host::clone(&common::host(port))
}

fn at(region: &str, zone: &str) -> Arc<Locality> {
    Arc::new(Locality {
        region: region.into(),
        zone: zone.into(),
        sub_zone: "".into(),
    })
}

/// The words of the table of hosts.
const ROWS: &str =
    "return [...document.querySelectorAll('#hosts tbody tr')].map(row => row.innerText)";
/// All was told, and is drawn.
const DRAWN: &str = "return document.documentElement.dataset.all === 'told' && !queued && !rowsDue \
                     && document.querySelectorAll('#hosts tbody tr').length > 0";

fn words(rows: &Value) -> Vec<String> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_page_shows_an_ejection_soon_and_the_host_in_detail() {
    let _turn = TURN.lock().await;
    if !driver::is_there() {
        return;
    }
    let scene = Scene::new().await;
    let cluster = scene
        .add("games", often(), (1..=20).map(host).collect())
        .await;
    let browser = Browser::start(true).await;
    browser.go(&scene.url("")).await;
    browser.until(DRAWN).await;
    let rows = words(&browser.run(ROWS).await);
    assert_eq!(rows.len(), 20);
    assert!(
        rows.iter()
            .all(|row| row.contains("healthy\tgames\t127.0.0.1:")),
        "{rows:?}"
    );

    scene.fail(7);
    common::until(&cluster, |hosts| hosts.iter().any(|host| host.failed())).await;
    let began = Instant::now();
    let first = "return document.querySelector('#hosts tbody tr').innerText.startsWith('unhealthy\\tgames\\t127.0.0.1:7\\t')";
    browser.until(first).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let row = words(&browser.run(ROWS).await).remove(0);
    assert!(row.contains("connection refused"), "{row}");
    browser
        .until("return document.querySelector('#events').innerText.includes('eject unhealthy')")
        .await;
    browser
        .until("return document.querySelector('#clusters tbody tr').innerText.startsWith('games\\t20\\t19\\t0\\t1\\t0\\t')")
        .await;
    // The cell has its colour: the last but the seventh.
    let colours = browser
        .run(
            "const c = clusters.get('games'), h = c.hosts.get('127.0.0.1:7'), d = devicePixelRatio; \
             const x = (h.at % c.columns) * c.size, y = Math.floor(h.at / c.columns) * c.size; \
             const of = c.canvas.getContext('2d').getImageData((x + 1) * d, (y + 1) * d, 1, 1).data; \
             return [of[0], of[1], of[2]]",
        )
        .await;
    assert_eq!(colours, json!([0xc2, 0x41, 0x0c]));

    browser
        .run("document.querySelector('#hosts tbody tr button').click()")
        .await;
    browser.until("return !document.querySelector('#detail').hidden && !!document.querySelector('#detail canvas')").await;
    let detail = browser
        .run("return document.querySelector('#detail').innerText")
        .await;
    let detail = detail.as_str().unwrap();
    for wanted in [
        "127.0.0.1:7\ncluster\ngames\n",
        "connection refused",
        "next attempt",
        "refused\t",
    ] {
        assert!(detail.contains(wanted), "{wanted}: {detail}");
    }
    assert_eq!(browser.console().await, [""; 0]);
}

#[tokio::test]
async fn hosts_are_filtered_by_cluster_locality_and_state() {
    let _turn = TURN.lock().await;
    if !driver::is_there() {
        return;
    }
    let scene = Scene::new().await;
    scene.fail(2);
    let here = |port| host(port).with_locality(at("here", "a"));
    let there = |port| host(port).with_locality(at("there", "b"));
    scene
        .add("games", common::once(""), vec![here(1), here(2), there(3)])
        .await;
    scene
        .add("maps", common::once(""), vec![there(4), host(5)])
        .await;
    let browser = Browser::start(true).await;
    browser.go(&scene.url("")).await;
    browser.until(DRAWN).await;
    for (cluster, locality, state, ports) in [
        ("", "", "", &[2_u16, 1, 3, 4, 5][..]),
        ("games", "", "", &[2, 1, 3]),
        ("map", "", "", &[4, 5]),
        ("", "there", "", &[3, 4]),
        ("", "here/a", "healthy", &[1]),
        ("", "", "unhealthy", &[2]),
        ("maps", "", "unhealthy", &[]),
    ] {
        let set = format!(
            "const f = document.getElementById('filter'); f.cluster.value = '{cluster}'; \
             f.locality.value = '{locality}'; f.state.value = '{state}'; \
             f.dispatchEvent(new Event('input'))"
        );
        browser.run(&set).await;
        browser.until("return !queued && !rowsDue").await;
        let rows = words(&browser.run(ROWS).await);
        let told: Vec<_> = rows
            .iter()
            .map(|row| row.split('\t').nth(2).unwrap().to_owned())
            .collect();
        let wanted: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        assert_eq!(told, wanted, "{cluster} {locality} {state}");
        let cells = "return [...clusters.values()].filter(c => c.map && !c.map.hidden) \
                     .reduce((n, c) => n + c.shown.length, 0)";
        assert_eq!(
            browser.run(cells).await,
            json!(ports.len()),
            "{cluster} {locality} {state}"
        );
    }
    // A tab that nobody sees does not follow.
    for (hidden, live) in [(true, "paused"), (false, "live")] {
        let seen = format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        );
        browser.run(&seen).await;
        let told = format!("return document.getElementById('live').textContent === '{live}'");
        browser.until(&told).await;
    }
    // The choice is in the address, so that it can be told to others.
    browser
        .go(&scene.url("?cluster=games&state=unhealthy"))
        .await;
    browser.until(DRAWN).await;
    assert_eq!(words(&browser.run(ROWS).await).len(), 1);
    assert_eq!(browser.console().await, [""; 0]);
}

/// Makes the pictures of the README: `cargo test --test browser -- --ignored`.
#[tokio::test]
#[ignore = "writes docs/"]
async fn pictures_for_the_readme() {
    let _turn = TURN.lock().await;
    assert!(driver::is_there());
    let scene = Scene::new().await;
    let outcome = |reason| Step::After(Duration::from_millis(3), Outcome::timeout(reason));
    let mismatch = Mismatch::note(None, b"pong 1", b"pong!");
    let mismatch = Reason::Mismatch(Arc::new(mismatch));
    let degraded = Outcome::Success { degraded: true };
    for port in 1_000..2_000 {
        let step = match port {
            1041..1044 | 1388 | 1529 => outcome(Reason::Silent),
            1187 | 1611 => outcome(mismatch.clone()),
            1240 | 1712 => Step::After(Duration::ZERO, Outcome::network(Reason::Refused)),
            1305..1309 | 1650 => Step::After(Duration::from_micros(900), degraded.clone()),
            port => {
                let took = Duration::from_micros(200 + u64::from(port) * 7 % 600);
                Step::After(took, Outcome::SUCCESS)
            }
        };
        scene.script.script(port, [step]);
    }
    let zones = ["a", "b", "c"].map(|zone| at("eu-1", zone));
    let zone = |port: u16| host(port).with_locality(Arc::clone(&zones[usize::from(port) % 3]));
    let mut check = common::check();
    check.interval = Duration::from_millis(500);
    check.no_traffic_interval = check.interval;
    check.no_traffic_healthy_interval = check.interval;
    let (games, maps) = ((1_000..1_480), (1_500..1_548));
    scene
        .add("games", check.clone(), games.map(zone).collect())
        .await;
    scene
        .add("maps", check.clone(), maps.map(zone).collect())
        .await;
    let voice = (1_600..1_760).map(zone).collect();
    let voice = scene.add("voice", check, voice).await;
    let browser = Browser::start(true).await;
    browser.go(&scene.url("")).await;
    browser.until(DRAWN).await;
    let late = host(1_700).address;
    let some = "return (await (await fetch('hosts?cluster=voice&address=127.0.0.1:1700')).json()).hosts[0].attempts.length > 11";
    browser.until(some).await;
    scene.script.script(1_700, [outcome(Reason::Silent)]);
    let failed = |hosts: &[HostView]| {
        let mut hosts = hosts.iter();
        hosts.any(|host| host.host.address == late && host.failed())
    };
    common::until(&voice, failed).await;
    let asked = format!("select(clusters.get('voice').hosts.get('{late}'))");
    browser.run(&asked).await;
    let shown =
        "return !document.querySelector('#detail').hidden && !queued && !rowsDue && !eventsDue";
    browser.until(shown).await;
    browser.run("scrollTo(0, 0)").await;
    for scheme in ["light", "dark"] {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser
            .devtools("Emulation.setEmulatedMedia", features)
            .await;
        browser.until("return !queued && !rowsDue").await;
        let clip = json!({"x": 0, "y": 0, "width": 1240, "height": 960, "scale": 1});
        let asked = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = browser.devtools("Page.captureScreenshot", asked).await;
        let picture = picture["data"].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(picture)
            .unwrap();
        let name = format!("{}/docs/page-{scheme}.png", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(name, bytes).unwrap();
    }
}

const HOSTILE: &str =
    "<img src=x onerror=window.hacked=1>\"'><script>window.hacked=1</script>&amp;\u{202e}{{nonce}}";

async fn hostile() -> Scene {
    let scene = Scene::new().await;
    let odd = Outcome::network(Reason::Other(HOSTILE.into()));
    scene.script.script(1, [Step::After(Duration::ZERO, odd)]);
    let mismatch = Mismatch::note(None, b"pong", b"<script>");
    let wrong = Outcome::timeout(Reason::Mismatch(Arc::new(mismatch)));
    scene.script.script(2, [Step::After(Duration::ZERO, wrong)]);
    let host = |port| {
        host(port)
            .with_locality(at(HOSTILE, HOSTILE))
            .with_hostname(HOSTILE)
    };
    let mut check = common::once(HOSTILE);
    check.always_log_failures = true;
    scene.add(HOSTILE, check, (1..=3).map(host).collect()).await;
    scene
}

#[tokio::test]
async fn hostile_names_are_shown_and_do_not_run() {
    let _turn = TURN.lock().await;
    if !driver::is_there() {
        return;
    }
    let scene = hostile().await;
    let browser = Browser::start(true).await;
    browser
        .go(&scene.url("?cluster=%3Cimg&locality=%22'%3E"))
        .await;
    browser.until(DRAWN).await;
    let rows = words(&browser.run(ROWS).await);
    assert_eq!(rows.len(), 3);
    assert!(rows[0].matches(HOSTILE).count() >= 2, "{rows:?}");
    browser
        .run("document.querySelector('#hosts tbody tr button').click()")
        .await;
    browser
        .until("return !document.querySelector('#detail').hidden")
        .await;
    browser
        .until("return document.querySelectorAll('#events tbody tr').length > 0")
        .await;
    let made = "return document.querySelectorAll('img, main script, iframe').length + (window.hacked || 0)";
    assert_eq!(browser.run(made).await, json!(0));
    assert_eq!(browser.console().await, [""; 0]);
    // Even what would get in, would not run: neither from the page, nor from elsewhere.
    let tried = browser
        .run(
            "const i = new Image(); i.src = 'clusters'; document.body.append(i); \
             try { i.setAttribute('onclick', 'window.hacked = 1'); i.click(); return 'done'; } \
             catch (error) { return error.name; }",
        )
        .await;
    assert_eq!(tried, "TypeError");
    browser.until("return document.images.length === 1").await;
    assert_eq!(browser.run("return window.hacked || 0").await, json!(0));
    assert!(!browser.console().await.is_empty());
}

#[tokio::test]
async fn without_javascript_the_tables_are_there() {
    let _turn = TURN.lock().await;
    if !driver::is_there() {
        return;
    }
    let scene = hostile().await;
    scene
        .add("games", common::once(""), (1000..1250).map(host).collect())
        .await;
    let browser = Browser::start(false).await;
    browser.go(&scene.url("?state=unhealthy")).await;
    let rows = words(&browser.run(ROWS).await);
    assert_eq!(rows.len(), 2);
    assert!(rows[0].matches(HOSTILE).count() >= 2, "{rows:?}");
    let bytes = |row: &String| row.contains("differs at byte 0: 3c 73 63 72 69 70 74 3e");
    assert!(rows.iter().any(bytes), "{rows:?}");
    let made = "return document.querySelectorAll('img, main script').length + (window.hacked || 0)";
    assert_eq!(browser.run(made).await, json!(0));
    let live = browser
        .run("return document.getElementById('live').innerText")
        .await;
    assert!(live.as_str().unwrap().contains("with JavaScript"), "{live}");

    browser.go(&scene.url("?cluster=games")).await;
    assert_eq!(words(&browser.run(ROWS).await).len(), 200);
    let more = browser
        .run("return document.querySelector('#more a').href")
        .await;
    browser.go(more.as_str().unwrap()).await;
    let rows = words(&browser.run(ROWS).await);
    assert_eq!(rows.len(), 50);
    assert!(
        rows.iter().all(|row| row.contains("\tgames\t127.0.0.1:1")),
        "{rows:?}"
    );
    assert_eq!(browser.console().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_hosts_do_not_block_the_page() {
    let _turn = TURN.lock().await;
    if !driver::is_there() {
        return;
    }
    let scene = Scene::new().await;
    let zones = ["a", "b", "c"].map(|zone| at("here", zone));
    let zone = |port: u16| host(port).with_locality(Arc::clone(&zones[usize::from(port) % 3]));
    let cluster = scene
        .add(
            "many",
            common::once(""),
            (10_000..30_000).map(zone).collect(),
        )
        .await;
    let browser = Browser::start(true).await;
    browser.go(&scene.url("")).await;
    browser
        .run(
            "window.long = []; window.frames_ = 0; \
             new PerformanceObserver(list => window.long.push(...list.getEntries().map(e => e.duration))) \
               .observe({type: 'longtask', buffered: true}); \
             const tick = () => { window.frames_++; requestAnimationFrame(tick); }; tick();",
        )
        .await;
    browser.until(DRAWN).await;
    assert_eq!(
        browser
            .run("return clusters.get('many').shown.length")
            .await,
        json!(20_000)
    );
    let loading = browser
        .run("return [window.long.splice(0), window.frames_]")
        .await;

    // A tenth of them fails, a hundred at a time.
    let before = browser.run("return performance.now()").await;
    for begin in (10_000..12_000).step_by(100) {
        for port in begin..begin + 100 {
            cluster.set_unhealthy(&host(port).address).await.unwrap();
        }
        let failed = format!(
            "return clusters.get('many').counts.unhealthy === {}",
            begin - 9_900
        );
        browser.until(&failed).await;
    }
    browser.until(DRAWN).await;
    let changing = browser
        .run(&format!(
            "return [window.long, window.frames_, performance.now() - {before}]"
        ))
        .await;
    eprintln!("long tasks in ms, frames: loading {loading}, 20 changes of 100 hosts {changing}");
    for of in [&loading, &changing] {
        let long = of[0].as_array().unwrap().iter();
        let longest = long.filter_map(Value::as_f64).fold(0.0, f64::max);
        assert!(longest < 1000.0, "blocked for {longest} ms");
    }
    assert_eq!(browser.console().await, [""; 0]);
}
