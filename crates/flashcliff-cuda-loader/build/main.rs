//! Writes the assembly of the functions in `symbols`, and the stand-ins that `-lcuda` and the like find at link time.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use build_support::{Environment, Toolkit};

/// The libraries that cudarc asks the linker for, in the order of `Library::ALL`. The functions of each
/// are those that cudarc declares for CUDA 13.0.
const LIBRARIES: [&str; 6] = ["cuda", "cublas", "cublasLt", "curand", "nvrtc", "nccl"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=symbols");
    if env::var_os("CARGO_FEATURE_LINK").is_none() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let lines = match architecture.as_str() {
        "x86_64" => include_str!("x86_64.s"),
        "aarch64" => include_str!("aarch64.s"),
        other => return Err(format!("expected x86_64 or aarch64, got {other}").into()),
    };
    let mut assembly = lines.to_owned();
    for (library, name) in LIBRARIES.iter().enumerate() {
        let list = fs::read_to_string(Path::new("symbols").join(name).with_extension("txt"))?;
        for symbol in list.lines() {
            writeln!(
                assembly,
                "flashcliff_cuda_function {symbol}, {symbol}, {library}"
            )?;
        }
    }
    fs::write(out.join("functions.s"), assembly)?;
    stand_ins(&out)
}

/// Makes empty archives where the linker looks for the libraries. Their functions are defined in this crate.
fn stand_ins(out: &Path) -> Result<(), Box<dyn Error>> {
    let folder = out.join("stand-ins");
    fs::create_dir_all(&folder)?;
    for name in LIBRARIES {
        fs::write(folder.join(format!("lib{name}.a")), "!<arch>\n")?;
    }
    // candle asks for the shared runtime; the static one needs no library at run time.
    let environment = Environment::of_build_script();
    for variable in Toolkit::VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Ok(toolkit) = Toolkit::find(&environment) {
        let runtime = folder.join("libcudart.a");
        match fs::remove_file(&runtime) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::copy(toolkit.libraries.join("libcudart_static.a"), &runtime)?,
        };
        println!("cargo::rerun-if-changed={}", toolkit.nvcc.display());
    }
    println!("cargo::rustc-link-search=native={}", folder.display());
    Ok(())
}
