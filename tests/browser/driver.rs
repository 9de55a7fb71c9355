//! A small WebDriver client: a headless Chromium by chromedriver.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than anything takes that does happen, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this machine has what is needed; says what is missing.
pub fn is_there() -> bool {
    let missing: Vec<_> = [&["chromium", "--version"], &["chromedriver", "--version"]]
        .into_iter()
        .filter(|[program, argument]| {
            let run = Command::new(program)
                .arg(argument)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            !run.is_ok_and(|status| status.success())
        })
        .map(|[program, _]| *program)
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped: there is no {}", missing.join(" and no "));
    }
    missing.is_empty()
}

/// A browser with one window.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    pub async fn start(javascript: bool) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .map(Result::unwrap)
            .find_map(|line| {
                let (_, port) = line.rsplit_once("successfully on port ")?;
                port.trim_end_matches('.').parse().ok()
            })
            .unwrap();
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
        };
        let directory = format!("--user-data-dir={}", browser._profile.path().display());
        let setting = if javascript { 1 } else { 2 };
        let options = json!({
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--window-size=1240,1000", directory,
            ],
            "prefs": {"profile.managed_default_content_settings.javascript": setting},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": options,
        }}});
        let begun = browser.ask("POST", "/session", &wanted).await;
        begun["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        browser
    }

    pub async fn go(&self, url: &str) {
        self.command("url", json!({"url": url})).await;
    }

    /// What a function's body returns, run in the page.
    pub async fn run(&self, body: &str) -> Value {
        self.command("execute/sync", json!({"script": body, "args": []}))
            .await
    }

    /// Looks until a function's body returns what is true in JavaScript.
    pub async fn until(&self, body: &str) -> Value {
        let began = Instant::now();
        loop {
            let value = self.run(body).await;
            if !matches!(&value, Value::Null | Value::Bool(false)) && value != json!(0) {
                return value;
            }
            if began.elapsed() >= PATIENCE {
                let text = self.run("return document.body.innerText").await;
                panic!("never: {body}\n{text}\n{:?}", self.console().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Errors and warnings on the console.
    pub async fn console(&self) -> Vec<String> {
        let lines = self.command("se/log", json!({"type": "browser"})).await;
        let lines = lines.as_array().unwrap().iter();
        let bad = lines.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        bad.map(|line| line["message"].to_string()).collect()
    }

    /// A command of the browser's own protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.command("goog/cdp/execute", body).await
    }

    async fn command(&self, name: &str, body: Value) -> Value {
        let path = format!("/session/{}/{name}", self.session);
        self.ask("POST", &path, &body).await
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = request(self.address, method, path, &body.to_string());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        let end = loop {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
            if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8(read[..end].to_vec())
            .unwrap()
            .to_ascii_lowercase();
        let length = head.split("content-length:").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        while read.len() < end + length {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        }
        let answer: Value = serde_json::from_slice(&read[end..end + length]).unwrap();
        assert!(
            answer["value"]["error"].is_null(),
            "{path} {body}: {answer}"
        );
        answer["value"].clone()
    }
}

fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser, and is ended then.
        if !self.session.is_empty()
            && let Ok(mut stream) = StdStream::connect(self.address)
        {
            let path = format!("/session/{}", self.session);
            let _ = stream.write_all(request(self.address, "DELETE", &path, "").as_bytes());
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = std::io::Read::read(&mut stream, &mut [0; 64]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
