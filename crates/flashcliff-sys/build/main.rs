//! Generates the kernels, compiles them with nvcc and links them, if feature `link` asks for it.

#[cfg(feature = "link")]
mod compile;
#[cfg(feature = "link")]
mod generate;
#[cfg(feature = "link")]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "link")]
    link::run();
}
