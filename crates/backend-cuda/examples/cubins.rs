//! Compiles every kernel into a folder, `cubins FOLDER ARCHITECTURE..`, where an architecture is a compute capability such
//! as 9.0, with all that models may need there; what is tested, for all that are tested, where none is named. Needs NVRTC and no card.

use gannet_backend_cuda::Architecture;
use gannet_backend_cuda::jit::{self, Extent};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, capabilities)) = arguments.split_first() else {
        eprintln!("usage: cubins FOLDER [COMPUTE CAPABILITY..]");
        return ExitCode::from(2);
    };
    let architectures: Option<Vec<Architecture>> = match capabilities {
        [] => Some(Architecture::TESTED.to_vec()),
        named => named.iter().map(|text| capability(text)).collect(),
    };
    let Some(architectures) = architectures else {
        eprintln!("a compute capability is two numbers, such as 9.0");
        return ExitCode::from(2);
    };
    let extent = if capabilities.is_empty() { Extent::Tested } else { Extent::Carried };
    match jit::compile(Path::new(folder), &architectures, extent) {
        Ok(count) => {
            println!("{count} variants of kernels compiled into {folder}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn capability(text: &str) -> Option<Architecture> {
    let (major, minor) = text.split_once('.')?;
    Some(Architecture::new(major.parse().ok()?, minor.parse().ok()?))
}
