//! The part of `protoc` that `prost-build` asks for, on top of `protox`.
//!
//! Lance's build scripts run `protoc -o OUT -I DIR… FILE…`. This program answers
//! that one call, so that nobody has to install the C++ compiler of protobuf
//! before they can build a Rust crate.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use prost::Message;
use protox::Compiler;

/// One call, as `prost-build` spells it.
#[derive(Default)]
struct Call {
    output: Option<PathBuf>,
    includes: Vec<PathBuf>,
    files: Vec<PathBuf>,
    imports: bool,
    source_info: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Call, Box<dyn Error>> {
    let mut call = Call::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-o" => call.output = Some(args.next().ok_or("-o needs a path")?.into()),
            "-I" => call
                .includes
                .push(args.next().ok_or("-I needs a path")?.into()),
            "--include_imports" => call.imports = true,
            "--include_source_info" => call.source_info = true,
            // Proto3 `optional` left its trial long ago; the switch changes nothing.
            "--experimental_allow_proto3_optional" => {}
            other if other.starts_with('-') => {
                return Err(format!("memwal-protoc does not know the option {other}").into());
            }
            file => call.files.push(file.into()),
        }
    }
    Ok(call)
}

fn run() -> Result<(), Box<dyn Error>> {
    let call = parse(std::env::args().skip(1))?;
    let output = call.output.ok_or("-o is missing")?;
    let descriptors = Compiler::new(&call.includes)?
        .include_imports(call.imports)
        .include_source_info(call.source_info)
        .open_files(&call.files)?
        .encode_file_descriptor_set();
    std::fs::write(output, descriptors)?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memwal-protoc: {error}");
            ExitCode::FAILURE
        }
    }
}
