//! Files that a configuration names, which may come from a control plane: read whole, but never without an end.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file of at most `most` bytes. What is no file, such as a pipe or a device, is refused: it could hold
/// up whoever reads it, or go on for ever.
pub(super) fn file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // A pipe without a writer would be waited for.
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let reason = format!("has more than {most} bytes");
        return Err(io::Error::other(reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| file(path, 8).unwrap_err().to_string();
        assert_eq!(refused("/dev/zero".as_ref()), "is no regular file");
        assert_eq!(refused(dir.path()), "is no regular file");
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(refused(&pipe), "is no regular file");
        let path = dir.path().join("file");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(file(&path, 8).unwrap(), b"12345678");
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(refused(&path), "has more than 8 bytes");
    }
}
