//! Resources from files: `path_config_source`.
//!
//! A file holds a `DiscoveryResponse`. A text of which a field cannot be read spoils the resource that has it; one that
//! cannot be taken apart at all, or is wrong outside of its resources, is refused as a whole. The file is read at first, and again when something is moved to its name, as by
//! Envoy: a change in place is not noticed, since it could be seen half done. With `watched_directory` what is
//! moved into that directory is the sign instead, and with `watch_modify` also what changes there in place; with
//! `poll_interval` the file is compared at each turn.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::ads::Event;
use super::sources::{File, SourceId};
use super::subscription::Answer;
use crate::config::text::Document;
use crate::config::{ConfigError, Format};
use crate::proto::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message;

mod watch;

use watch::Watch;

/// Why a file was not taken.
#[derive(Debug)]
pub(super) enum FileError {
    /// It could not be read.
    Unreadable(String),
    /// What is in it could not be used.
    Refused(String),
}

/// Has a file read again.
#[derive(Debug)]
pub(super) struct Handle(Arc<Notify>);

impl Handle {
    pub(super) fn read_again(&self) {
        self.0.notify_one();
    }
}

/// Follows `file`, of which at most `most` bytes are taken: the handle has it read again, the future is to be run.
pub(super) fn follow(
    id: SourceId,
    file: File,
    most: usize,
    events: mpsc::Sender<(SourceId, Event)>,
) -> (Handle, impl Future<Output = ()> + Send) {
    let again = Arc::new(Notify::new());
    let handle = Handle(Arc::clone(&again));
    (handle, run(id, file, most, again, events))
}

async fn run(
    id: SourceId,
    file: File,
    most: usize,
    again: Arc<Notify>,
    events: mpsc::Sender<(SourceId, Event)>,
) {
    let watch = match Watch::new(&file) {
        Ok(watch) => Some(watch),
        Err(error) => {
            let path = file.path.display();
            tracing::warn!(%path, %error, "a file cannot be watched, so its changes will not be seen");
            None
        }
    };
    let mut last = None;
    let mut force = true;
    loop {
        let path = file.path.clone();
        // A disk that hangs holds up a thread of its own.
        let reading = tokio::task::spawn_blocking(move || super::read::file(&path, most));
        let bytes = match reading.await {
            Ok(bytes) => bytes,
            Err(error) => Err(std::io::Error::other(error)),
        };
        if force || last.as_ref() != bytes.as_ref().ok() {
            let answer = match &bytes {
                Ok(bytes) => parse(&file, bytes).map_err(FileError::Refused),
                Err(error) => Err(FileError::Unreadable(error.to_string())),
            };
            if events.send((id, Event::File(answer))).await.is_err() {
                return;
            }
        }
        if file.poll.is_some() {
            last = bytes.ok();
        }
        let moved = async {
            match &watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let poll = async {
            match file.poll {
                Some(poll) => tokio::time::sleep(poll).await,
                None => std::future::pending().await,
            }
        };
        force = tokio::select! {
            () = again.notified() => true,
            () = moved => true,
            () = poll => false,
            () = events.closed() => return,
        };
    }
}

fn parse(file: &File, bytes: &[u8]) -> Result<Answer, String> {
    let text = || std::str::from_utf8(bytes).map_err(|error| format!("is no text: {error}"));
    let document = match Format::of(&file.path) {
        Format::Binary => {
            let response = DiscoveryResponse::decode(bytes);
            return response
                .map(Answer::from)
                .map_err(|error| error.to_string());
        }
        Format::Json => Document::from_json(text()?),
        Format::Yaml => Document::from_yaml(text()?),
        Format::ProtoText => return Err(Format::not_read().to_string()),
    };
    let document = document.map_err(|error| error.to_string())?;
    let read = document.read::<DiscoveryResponse>();
    let mut answer = Answer::from(read.message);
    let mut whole = Vec::new();
    for fault in read.faults {
        let item = resource(&fault.path).and_then(|index| answer.resources.get_mut(index));
        match item {
            Some(item) => {
                let fault = ConfigError::from(fault).located_in(&document);
                item.fault = Some(match item.fault.take() {
                    Some(before) => before.and(fault),
                    None => fault,
                });
            }
            None => whole.push(fault),
        }
    }
    if let Some(error) = ConfigError::from_faults(whole) {
        return Err(error.located_in(&document).to_string());
    }
    for (index, item) in answer.resources.iter_mut().enumerate() {
        let fault = item.fault.take();
        item.fault = fault.map(|fault| fault.below(&format!("resources[{index}]")));
    }
    Ok(answer)
}

/// Which resource of a response a path leads into.
fn resource(path: &str) -> Option<usize> {
    let (index, _) = path.strip_prefix("resources[")?.split_once(']')?;
    index.parse().ok()
}
