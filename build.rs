//! Compiles `proto/` and nothing else: messages, service stubs, their validation and the descriptor set.

#[path = "build/names.rs"]
mod names;
#[path = "build/options.rs"]
mod options;
#[path = "build/reach.rs"]
mod reach;
#[path = "build/validation.rs"]
mod validation;

use std::path::{Path, PathBuf};
use std::{env, error, fs, io};

use protox::prost_reflect::DescriptorPool;
use protox::prost_reflect::prost_types::FileDescriptorSet;

/// Packages that hold a service, and the feature that builds their stubs.
const SERVICES: [(&str, &str); 6] = [
    ("envoy.service.cluster.v3", "xds"),
    ("envoy.service.discovery.v3", "xds"),
    ("envoy.service.endpoint.v3", "xds"),
    ("envoy.service.event_reporting.v3", "xds"),
    ("envoy.service.health.v3", "hds"),
    ("grpc.health.v1", "xds"),
];

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(proto_files(Path::new("proto"))?)?;
    let set = compiler.file_descriptor_set();
    let pool = compiler.descriptor_pool();
    generate_messages(set, &pool)?;
    fs::write(out.join("validate.rs"), validation::generate(&pool)?)?;

    // The set that is shipped holds the options, which `set` above has lost, and no comments.
    compiler.include_source_info(false);
    fs::write(
        out.join("descriptor_set.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    Ok(())
}

/// Every `.proto` under `dir`, relative to it, in an order that does not depend on the machine.
fn proto_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                walk(&path, found)?;
            } else if path.extension().is_some_and(|ext| ext == "proto") {
                found.push(path);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(dir, &mut found)?;
    found.sort();
    Ok(found)
}

fn generate_messages(
    mut set: FileDescriptorSet,
    pool: &DescriptorPool,
) -> Result<(), Box<dyn error::Error>> {
    for service in pool.services() {
        let package = service.package_name();
        if !SERVICES.iter().any(|(name, _)| *name == package) {
            return Err(format!("no feature is named for the services of {package}").into());
        }
    }
    // Rules are read from the descriptors; no code needs the messages that state them.
    set.file.retain(|file| file.package() != "validate");
    for file in &mut set.file {
        file.message_type.iter_mut().for_each(forget_deprecation);
    }

    let mut config = prost_build::Config::new();
    config
        .btree_map(["."])
        .enable_type_names()
        .include_file("packages.rs");
    let mut builder = tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false);
    for (package, feature) in SERVICES {
        let gate = format!("#[cfg(feature = \"{feature}\")]");
        builder = builder
            .client_mod_attribute(package, &gate)
            .server_mod_attribute(package, &gate);
    }
    builder.compile_fds_with_config(set, config)?;
    Ok(())
}

/// Reading a deprecated field is this crate's business, and would be a warning at each use. The
/// descriptor set still tells.
fn forget_deprecation(message: &mut protox::prost_reflect::prost_types::DescriptorProto) {
    for field in &mut message.field {
        if let Some(options) = &mut field.options {
            options.deprecated = None;
        }
    }
    message.nested_type.iter_mut().for_each(forget_deprecation);
}
