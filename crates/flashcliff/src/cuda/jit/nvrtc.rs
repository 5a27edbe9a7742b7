//! The functions of NVRTC that are used, found in the library at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::Error;
use crate::cuda::library;

const NVRTC: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// The library that NVRTC itself loads by name, and does not find in folders that the loader does not know. It is there already if
/// it was loaded before.
const BUILTINS: &[&str] = &[
    "libnvrtc-builtins.so.13.4",
    "libnvrtc-builtins.so.13.3",
    "libnvrtc-builtins.so.13.2",
    "libnvrtc-builtins.so.13.1",
    "libnvrtc-builtins.so.13.0",
    "libnvrtc-builtins.so.12.9",
    "libnvrtc-builtins.so.12.8",
];

type Program = *mut c_void;
/// An `nvrtcResult`; 0 is success.
type Status = c_int;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        #[derive(Clone, Copy, Debug)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn of(library: &'static Library) -> Result<Self, Error> {
                let missing = |error: libloading::Error| not_loaded(error.to_string());
                Ok(Self {
                    // SAFETY: the types match nvrtc.h, the same in versions 12 and 13; the library stays loaded.
                    $($field: *unsafe { library.get($symbol) }.map_err(missing)?,)*
                })
            }
        }
    };
}

functions! {
    version = b"nvrtcVersion\0": fn(*mut c_int, *mut c_int) -> Status;
    explain = b"nvrtcGetErrorString\0": fn(Status) -> *const c_char;
    create = b"nvrtcCreateProgram\0":
        fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
    destroy = b"nvrtcDestroyProgram\0": fn(*mut Program) -> Status;
    add_name = b"nvrtcAddNameExpression\0": fn(Program, *const c_char) -> Status;
    compile = b"nvrtcCompileProgram\0": fn(Program, c_int, *const *const c_char) -> Status;
    lowered_name = b"nvrtcGetLoweredName\0": fn(Program, *const c_char, *mut *const c_char) -> Status;
    cubin_size = b"nvrtcGetCUBINSize\0": fn(Program, *mut usize) -> Status;
    cubin = b"nvrtcGetCUBIN\0": fn(Program, *mut c_char) -> Status;
    ptx_size = b"nvrtcGetPTXSize\0": fn(Program, *mut usize) -> Status;
    ptx = b"nvrtcGetPTX\0": fn(Program, *mut c_char) -> Status;
    log_size = b"nvrtcGetProgramLogSize\0": fn(Program, *mut usize) -> Status;
    log = b"nvrtcGetProgramLog\0": fn(Program, *mut c_char) -> Status;
}

/// NVRTC, loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nvrtc {
    functions: Functions,
    /// Major and minor version.
    pub(super) version: (i32, i32),
}

/// The form of the code that a compilation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Machine code.
    Cubin,
    /// Portable code, which the driver compiles. It ends in a zero byte.
    Ptx,
}

impl Nvrtc {
    /// Loads the library.
    pub(super) fn load() -> Result<Self, Error> {
        static LOADED: OnceLock<Result<(Option<Library>, Library), String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let builtins = library::load_library(BUILTINS).ok();
            library::load_library(NVRTC).map(|library| (builtins, library))
        });
        let (_, library) = loaded.as_ref().map_err(|tried| not_loaded(tried.clone()))?;
        let functions = Functions::of(library)?;
        let mut version = (0, 0);
        // SAFETY: both pointers are valid.
        let status = unsafe { (functions.version)(&raw mut version.0, &raw mut version.1) };
        match status {
            0 => Ok(Self { functions, version }),
            _ => Err(not_loaded("it has no version".to_owned())),
        }
    }

    /// Compiles a text to code, with the names that some expressions have in it. An error is the log of the compiler.
    pub(super) fn compile(
        &self,
        text: &CStr,
        expressions: &[CString],
        options: &[CString],
        form: Form,
    ) -> Result<(Vec<u8>, Vec<CString>), String> {
        let functions = &self.functions;
        let program = Owned::new(functions, text)?;
        for expression in expressions {
            // SAFETY: the program and the string are valid.
            self.done(unsafe { (functions.add_name)(program.handle, expression.as_ptr()) })?;
        }
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: the strings live during the call.
        let status = unsafe { (functions.compile)(program.handle, count, options.as_ptr()) };
        if let Err(reason) = self.done(status) {
            let log = self.read(&program, functions.log_size, functions.log);
            let log = log.unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            return Err(format!("{reason}\n{}", log.trim_end_matches('\0')));
        }
        let mut names = Vec::new();
        for expression in expressions {
            let mut name = ptr::null();
            // SAFETY: the program is compiled, and the string is one of those added before.
            self.done(unsafe {
                (functions.lowered_name)(program.handle, expression.as_ptr(), &raw mut name)
            })?;
            // SAFETY: the string lives as long as the program.
            names.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        let code = match form {
            Form::Cubin => self.read(&program, functions.cubin_size, functions.cubin),
            Form::Ptx => self.read(&program, functions.ptx_size, functions.ptx),
        };
        Ok((code?, names))
    }

    fn read(
        &self,
        program: &Owned<'_>,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        read: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program and the pointer are valid.
        self.done(unsafe { size(program.handle, &raw mut bytes) })?;
        let mut text = vec![0_u8; bytes];
        // SAFETY: there is room for as many bytes as the library says.
        self.done(unsafe { read(program.handle, text.as_mut_ptr().cast()) })?;
        Ok(text)
    }

    fn done(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number, and returns a static string.
        let text = unsafe { CStr::from_ptr((self.functions.explain)(status)) };
        Err(text.to_string_lossy().into_owned())
    }
}

/// A program of the library, which is freed when it is dropped.
struct Owned<'a> {
    functions: &'a Functions,
    handle: Program,
}

impl<'a> Owned<'a> {
    fn new(functions: &'a Functions, text: &CStr) -> Result<Self, String> {
        let mut handle = ptr::null_mut();
        let (no_names, no_headers) = (ptr::null(), ptr::null());
        // SAFETY: the strings are valid, and there are no headers.
        let status = unsafe {
            (functions.create)(
                &raw mut handle,
                text.as_ptr(),
                c"flashcliff.cu".as_ptr(),
                0,
                no_headers,
                no_names,
            )
        };
        match status {
            0 => Ok(Self { functions, handle }),
            _ => Err(format!("nvrtcCreateProgram returned {status}")),
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is valid, and not used any more.
        let _ = unsafe { (self.functions.destroy)(&raw mut self.handle) };
    }
}

fn not_loaded(tried: String) -> Error {
    Error::CudaLibrary {
        library: "NVRTC",
        tried,
    }
}
