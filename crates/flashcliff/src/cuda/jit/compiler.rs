//! Compiles texts to code, or takes the code from the cache.

use std::ffi::CString;
use std::sync::OnceLock;
use std::time::Instant;

use super::cache::{Cache, Code};
use super::nvrtc::{Form, Nvrtc};
use crate::Error;

/// The code to compile to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code of H100 and H200, with the instructions that no other GPU has.
    Sm90a,
    /// Portable code, as builds have it for all other GPUs.
    Portable,
}

impl Target {
    /// The target for GPUs of a compute capability. `special`: whether the kernel knows the instructions of 90a.
    pub(super) fn of(capability: (i32, i32), special: bool) -> Self {
        match capability {
            (9, 0) if special => Self::Sm90a,
            _ => Self::Portable,
        }
    }

    fn architecture(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
            Self::Portable => "compute_80",
        }
    }

    fn form(self) -> Form {
        match self {
            Self::Sm90a => Form::Cubin,
            Self::Portable => Form::Ptx,
        }
    }
}

/// NVRTC with a cache.
#[derive(Debug)]
pub(super) struct Compiler {
    nvrtc: Nvrtc,
    cache: Cache,
}

impl Compiler {
    /// The compiler of the process.
    pub(super) fn get() -> Result<&'static Self, Error> {
        static COMPILER: OnceLock<Compiler> = OnceLock::new();
        if let Some(compiler) = COMPILER.get() {
            return Ok(compiler);
        }
        let compiler = Self {
            nvrtc: Nvrtc::load()?,
            cache: Cache::from_env(),
        };
        Ok(COMPILER.get_or_init(|| compiler))
    }

    /// The code of some kernels of a text. `name` is for messages.
    pub(super) fn code(
        &self,
        name: &str,
        text: &str,
        expressions: &[&str],
        target: Target,
    ) -> Result<Code, Error> {
        let failed = |reason: String| Error::CudaCompilation {
            kernel: name.to_owned(),
            reason,
        };
        let options = [
            "--std=c++17".to_owned(),
            // Functions without an annotation are for both host and device.
            "-default-device".to_owned(),
            format!("--gpu-architecture={}", target.architecture()),
        ];
        let (major, minor) = self.nvrtc.version;
        let ingredients = format!(
            "NVRTC {major}.{minor}\n{}\n{}\n{text}",
            options.join(" "),
            expressions.join("\n")
        );
        if let Some(code) = self.cache.read(&ingredients) {
            return Ok(code);
        }
        log::info!("compiling {name} for {}, once", target.architecture());
        let start = Instant::now();
        let strings = |list: &mut dyn Iterator<Item = &str>| -> Result<Vec<CString>, Error> {
            let strings = list.map(CString::new).collect::<Result<_, _>>();
            strings.map_err(|error| failed(error.to_string()))
        };
        let expressions = strings(&mut expressions.iter().copied())?;
        let options = strings(&mut options.iter().map(String::as_str))?;
        let text = CString::new(text).map_err(|error| failed(error.to_string()))?;
        let compiled = self
            .nvrtc
            .compile(&text, &expressions, &options, target.form());
        let (image, names) = compiled.map_err(failed)?;
        log::info!("compiled {name} in {:.1} s", start.elapsed().as_secs_f64());
        let code = Code { image, names };
        self.cache.write(&ingredients, &code);
        Ok(code)
    }
}
