//! Writes the descriptors of `proto/` to a file, as a `FileDescriptorSet`, for tools such as `grpcurl`
//! and `buf`:
//!
//! ```text
//! cargo run --example descriptor_set -- xds-health.binpb
//! ```

use std::{env, fs, io};

use xds_health::proto::DESCRIPTOR_SET;

fn main() -> io::Result<()> {
    let Some(path) = env::args_os().nth(1) else {
        return Err(io::Error::other("usage: descriptor_set FILE"));
    };
    fs::write(path, DESCRIPTOR_SET)
}
