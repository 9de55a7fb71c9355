//! A checker of one's own: asks a DNS server and looks at what it answers.
//!
//! Each attempt has a random id and a question whose letters are of random case; an answer counts if it has both,
//! the response code that is wanted and enough records. The factory makes the checker known under its type URL,
//! so clusters ask for it as they ask for any other, in YAML or by a control plane.
//!
//! ```text
//! cargo run --example dns_checker                          # four servers of its own, one of which is fine
//! cargo run --example dns_checker -- 9.9.9.9:53 example.com
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use tokio::net::UdpSocket;
use xds_health::checker::{Attempt, AttemptIo, Checker, CheckerFactory, HostChecker, Target};
use xds_health::config::{ClusterConfig, ConfigError, Warnings};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::event::{Failure, FailureType, HealthCheckerType, Outcome, Reason};
use xds_health::registry::Registry;
use xds_health::snapshot::Verdict;
use xds_health::stats::Stats;

/// The configuration: which name to ask for, and what is to come back.
#[derive(Clone, PartialEq, prost::Message)]
struct DnsHealthCheck {
    #[prost(string, tag = "1")]
    name: String,
    /// Response code, 0 being no error.
    #[prost(uint32, tag = "2")]
    rcode: u32,
    /// Records in the answer at least.
    #[prost(uint32, tag = "3")]
    answers: u32,
}

/// Makes checkers of a `DnsHealthCheck`; has the message's descriptors, so that it can be given as text.
struct DnsFactory(Vec<u8>);

impl CheckerFactory for DnsFactory {
    fn message_name(&self) -> &str {
        "example.DnsHealthCheck"
    }

    fn create(&self, value: &[u8]) -> Result<Arc<dyn Checker>, ConfigError> {
        let config = DnsHealthCheck::decode(value)
            .map_err(|error| ConfigError::new("", error.to_string()))?;
        let labels: Vec<&str> = config.name.trim_end_matches('.').split('.').collect();
        if config.name.len() > 253 || labels.iter().any(|l| l.is_empty() || l.len() > 63) {
            return Err(ConfigError::new("name", "value is not a DNS name"));
        }
        Ok(Arc::new(DnsChecker(config)))
    }

    fn descriptor_set(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

#[derive(Clone, Debug)]
struct DnsChecker(DnsHealthCheck);

impl Checker for DnsChecker {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        let address = target.host.checked_at().socket_addr();
        Box::new(DnsHost(self.0.clone(), address))
    }
}

struct DnsHost(DnsHealthCheck, Option<SocketAddr>);

impl HostChecker for DnsHost {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async move {
            // No timeout here: an attempt that takes too long is dropped.
            match self.ask(io).await {
                Ok(outcome) => outcome,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    Outcome::network(Reason::Refused)
                }
                Err(error) => Outcome::network(Reason::Other(error.to_string().into())),
            }
        })
    }
}

impl DnsHost {
    async fn ask(&self, io: &AttemptIo) -> io::Result<Outcome> {
        let Some(address) = self.1 else {
            return Ok(Outcome::network(Reason::Other("no IP address".into())));
        };
        let from: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((from, 0)).await?;
        socket.connect(address).await?;
        let query = query(&self.0.name);
        socket.send(&query).await?;
        io.sent();
        let mut answer = [0; 4096];
        loop {
            let len = socket.recv(&mut answer).await?;
            let Some((rcode, answers)) = read(&query, &answer[..len]) else {
                // Somebody else's, or forged. It is told if nothing better comes.
                io.saw(Reason::Other("an answer to another question".into()));
                continue;
            };
            if rcode == self.0.rcode && answers >= self.0.answers {
                return Ok(Outcome::SUCCESS);
            }
            let text = format!("response code {rcode} with {answers} records");
            let reason = Reason::Other(text.into());
            // The server said so itself, but may be better next time: the threshold is to count.
            return Ok(Outcome::Failure(Failure::new(FailureType::Network, reason)));
        }
    }
}

/// A query for the address records of `name`.
fn query(name: &str) -> Vec<u8> {
    let mut query = Vec::new();
    query.extend(fastrand::u16(..).to_be_bytes());
    // A query, recursion desired; one question.
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        query.extend(u8::try_from(label.len()));
        query.extend(label.bytes().map(|byte| match fastrand::bool() {
            true => byte.to_ascii_uppercase(),
            false => byte.to_ascii_lowercase(),
        }));
    }
    // The root, type A, class IN.
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// The response code and number of records of an answer to `query`, if it is one.
fn read(query: &[u8], answer: &[u8]) -> Option<(u32, u32)> {
    let is_response = answer.get(2)? & 0x80 != 0;
    let same_question = answer.get(12..query.len())? == query.get(12..)?;
    if answer.get(..2)? != query.get(..2)? || !is_response || !same_question {
        return None;
    }
    let count = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    Some((u32::from(answer.get(3)? & 0x0f), u32::from(count)))
}

/// What `protoc` would make of the message's `.proto` file.
fn descriptors() -> Vec<u8> {
    let field = |number, name: &str, kind: Type| FieldDescriptorProto {
        name: Some(name.to_owned()),
        json_name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..Default::default()
    };
    let message = DescriptorProto {
        name: Some("DnsHealthCheck".to_owned()),
        field: vec![
            field(1, "name", Type::String),
            field(2, "rcode", Type::Uint32),
            field(3, "answers", Type::Uint32),
        ],
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("example/dns.proto".to_owned()),
        package: Some("example".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![message],
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (servers, name, asked) = match (args.next(), args.next()) {
        (Some(server), name) => {
            let name = name.unwrap_or_else(|| "example.com".to_owned());
            (vec![server.parse()?], name, true)
        }
        _ => {
            let mut servers = Vec::new();
            for manner in [
                Manner::Fine,
                Manner::NoSuchName,
                Manner::Forged,
                Manner::Silent,
            ] {
                servers.push(serve(manner).await?);
            }
            (servers, "games.example".to_owned(), false)
        }
    };
    let endpoints: Vec<String> = servers
        .iter()
        .map(|server: &SocketAddr| {
            let (ip, port) = (server.ip(), server.port());
            format!("- endpoint: {{address: {{socket_address: {{address: \"{ip}\", port_value: {port}}}}}}}")
        })
        .collect();
    let yaml = format!(
        r#"
name: resolvers
load_assignment:
  cluster_name: resolvers
  endpoints:
  - lb_endpoints:
    {}
health_checks:
- timeout: 2s
  interval: 5s
  unhealthy_threshold: 2
  healthy_threshold: 1
  custom_health_check:
    name: dns
    typed_config:
      "@type": type.googleapis.com/xds.type.v3.TypedStruct
      type_url: type.googleapis.com/example.DnsHealthCheck
      value: {{name: {name}, answers: 1}}
"#,
        endpoints.join("\n    ")
    );
    let registry = Registry::default().with_checker(DnsFactory(descriptors()));
    let config = ClusterConfig::from_yaml(&yaml, &mut Warnings::default())?;
    let engine = Engine::start(Options::default(), Arc::new(Stats::default()))?;
    let cluster = engine
        .set_cluster(registry.build(config)?, Origin::Static)
        .await?;
    let snapshot = cluster.initialized().await?;
    let mut told = Vec::new();
    for server in &servers {
        let view = snapshot.at(*server).ok_or("every server is a host")?;
        let reason = view.reason.as_ref().map(|reason| reason.to_string());
        println!(
            "{server} is {}: {}",
            view.verdict().name(),
            reason.as_deref().unwrap_or("fine")
        );
        told.push((view.verdict(), reason));
    }
    if !asked {
        let verdicts: Vec<Verdict> = told.iter().map(|(verdict, _)| *verdict).collect();
        let (healthy, unhealthy) = (Verdict::Healthy, Verdict::Unhealthy);
        assert_eq!(verdicts, [healthy, unhealthy, unhealthy, unhealthy]);
        assert_eq!(told[1].1.as_deref(), Some("response code 3 with 0 records"));
        assert_eq!(told[2].1.as_deref(), Some("an answer to another question"));
    }
    Ok(())
}

/// How a server of this example answers.
#[derive(Clone, Copy)]
enum Manner {
    Fine,
    NoSuchName,
    /// Of another id, as by someone who cannot see the question.
    Forged,
    Silent,
}

async fn serve(manner: Manner) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = socket.local_addr()?;
    tokio::spawn(async move {
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query).await {
            let mut answer = query[..len].to_vec();
            answer[2] |= 0x80;
            match manner {
                Manner::Silent => continue,
                Manner::NoSuchName => answer[3] |= 3,
                Manner::Forged => answer[0] ^= 0xff,
                Manner::Fine => {
                    answer[7] = 1;
                    // The name of the question, type A, class IN, a minute, four bytes: 192.0.2.1.
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
                }
            }
            if socket.send_to(&answer, from).await.is_err() {
                return;
            }
        }
    });
    Ok(address)
}
