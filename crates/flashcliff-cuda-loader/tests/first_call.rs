//! Tests the first call of a function, with a library that is made here and with none. Linux only, like the kernels.

use std::ffi::{c_char, c_float, c_int};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use flashcliff_cuda_loader::Library;

unsafe extern "C" {
    fn cuInit(flags: u32) -> c_int;
    fn cublasGetStatusString(status: c_int) -> *const c_char;
    fn cublasSgemm_v2(
        handle: *mut c_int,
        a: c_int,
        b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_float,
        x: *const c_float,
        ldx: c_int,
        y: *const c_float,
        ldy: c_int,
        beta: *const c_float,
        z: *mut c_float,
        ldz: c_int,
    ) -> c_int;
    fn curandGenerateNormal(
        generator: *mut c_int,
        out: *mut c_float,
        count: usize,
        mean: c_float,
        deviation: c_float,
    ) -> c_int;
    fn curandGenerateUniform(generator: *mut c_int, out: *mut c_float, count: usize) -> c_int;
    fn ncclCommInitRank(comm: *mut c_int, ranks: c_int, id: Id, rank: c_int) -> c_int;
    fn ncclGetErrorString(status: c_int) -> *const c_char;
    fn ncclGroupStart() -> c_int;
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int;
}

/// The id of a communicator of NCCL, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id {
    internal: [c_char; 128],
}

/// Functions that return all their arguments. One function of cuRAND is missing, and two of NCCL.
const SOURCES: [(&str, &str); 3] = [
    (
        "libcublas.so.13",
        "int cublasSgemm_v2(int *h, int a, int b, int m, int n, int k, const float *alpha, const float *x,
            int ldx, const float *y, int ldy, const float *beta, float *z, int ldz) {
            *h = a + 10 * b + 100 * m + 1000 * n + 10000 * k;
            *z = *alpha + *x + *y + *beta;
            return ldx + 10 * ldy + 100 * ldz;
        }",
    ),
    (
        "libcurand.so.10",
        "int curandGenerateNormal(int *g, float *out, unsigned long count, float mean, float deviation) {
            *g = 5;
            *out = mean + 100 * deviation;
            return count;
        }",
    ),
    (
        "libnccl.so.2",
        "typedef struct { char internal[128]; } ncclUniqueId;
        int ncclCommInitRank(int *comm, int ranks, ncclUniqueId id, int rank) {
            *comm = ranks + 10 * rank;
            int sum = 0;
            for (int i = 0; i < 128; i++) sum += (i + 1) * id.internal[i];
            return sum;
        }",
    ),
];

fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (library, source) in SOURCES {
        let file = folder.join(library).with_extension("c");
        fs::write(&file, source).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"])
            .arg(folder.join(library));
        assert!(cc.arg(&file).status().unwrap().success());
    }
}

// There is only one test, because it sets variables: no other may read them at the same time.
#[test]
fn the_first_call_finds_the_library_or_says_that_there_is_none() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_call");
    make(&root.join("lib64"));
    // SAFETY: no other thread reads or sets variables.
    unsafe { env::set_var("CUDA_HOME", &root) };
    if Library::Cublas.load().is_ok() && !loaded_from(&root) {
        println!("skipped: this machine has the real libraries");
        return;
    }

    let (alpha, x, y, beta) = (0.5, 1.0, 20.0, 300.0);
    for _ in 0..2 {
        let (mut h, mut z) = (0, 0.0);
        // SAFETY: the types agree with the sources above.
        let status = unsafe {
            cublasSgemm_v2(
                &raw mut h,
                1,
                2,
                3,
                4,
                5,
                &raw const alpha,
                &raw const x,
                6,
                &raw const y,
                7,
                &raw const beta,
                &raw mut z,
                8,
            )
        };
        assert_eq!((status, h, z), (876, 54_321, 321.5));
        let (mut g, mut out) = (0, 0.0);
        // SAFETY: the same holds as above.
        let status = unsafe { curandGenerateNormal(&raw mut g, &raw mut out, 77, 0.25, 2.0) };
        assert_eq!((status, g, out), (77, 5, 200.25));
        // SAFETY: no library has the function, so its stand-in takes any arguments and reads nothing.
        let status = unsafe { curandGenerateUniform(&raw mut g, &raw mut out, 1) };
        assert_eq!(status, 101);
        let (mut comm, mut id) = (0, Id { internal: [0; 128] });
        (id.internal[0], id.internal[63], id.internal[127]) = (1, 2, 3);
        // SAFETY: the same holds as above.
        let status = unsafe { ncclCommInitRank(&raw mut comm, 4, id, 3) };
        assert_eq!((status, comm), (1 + 64 * 2 + 128 * 3, 34));
        // SAFETY: the library lacks both functions, so their stand-ins read nothing.
        let (status, text) = unsafe { (ncclGroupStart(), ncclGetErrorString(2)) };
        assert_eq!(status, 2);
        // SAFETY: the text ends with a zero.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        assert!(text.to_str().unwrap().contains("not loaded"));
        // SAFETY: the same holds as above.
        let text = unsafe { std::ffi::CStr::from_ptr(cublasGetStatusString(3)) };
        assert!(text.to_str().unwrap().contains("not loaded"));
    }
    if let Err(tried) = Library::Nvrtc.load() {
        assert!(tried.contains("libnvrtc.so.12"), "{tried}");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the stand-in reads nothing without the library.
        let status = unsafe { nvrtcVersion(&raw mut major, &raw mut minor) };
        assert_eq!((status, major), (11, 0));
    }
    if let Err(tried) = Library::Cuda.load() {
        assert!(tried.contains("libcuda.so.1"), "{tried}");
        // SAFETY: the function takes a number.
        assert_eq!(unsafe { cuInit(0) }, 34);
    }
}

/// Whether a library below a folder is mapped into this process.
fn loaded_from(folder: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(&*folder.to_string_lossy())
}
