//! What happens in directories, by inotify.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use super::File;

/// Tells when a file is to be read again.
pub(super) struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// The name that counts; any if none.
    name: Option<OsString>,
    modify: bool,
}

impl Watch {
    #[expect(
        deprecated,
        reason = "what it warns of cannot be with a descriptor that is owned"
    )]
    /// Watches the directory of `file`, or the one it names for this.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let (directory, name) = match &file.directory {
            Some(directory) => (directory.as_path(), None),
            None => {
                let parent = file.path.parent().filter(|p| !p.as_os_str().is_empty());
                let name = file.path.file_name().map(OsStr::to_owned);
                (parent.unwrap_or_else(|| Path::new(".")), name)
            }
        };
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, directory, wanted)?;
        Ok(Self {
            inotify: AsyncFd::new(fd)?,
            name,
            modify: file.modify,
        })
    }

    /// Waits for a change that counts. Changes that come together are one.
    pub(super) async fn changed(&self) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else {
                // The runtime is shutting down.
                return std::future::pending().await;
            };
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
            let mut counts = false;
            // Ends at the latest when the kernel's queue, which is bounded, has been read.
            while let Ok(event) = reader.next() {
                let kind = event.events();
                if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                    counts = true;
                }
                let name = event
                    .file_name()
                    .map(|name| OsStr::from_bytes(name.to_bytes()));
                let named = self.name.is_none() || name == self.name.as_deref();
                let moved = kind.contains(ReadFlags::MOVED_TO);
                let modified = self.modify && kind.contains(ReadFlags::MODIFY);
                counts |= named && (moved || modified);
            }
            ready.clear_ready();
            if counts {
                return;
            }
        }
    }
}
