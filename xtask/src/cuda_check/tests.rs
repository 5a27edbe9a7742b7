//! Tests the way from the text of cuobjdump to the verdict.

use super::*;

/// The output of cuobjdump for a library of two kernels, shortened.
const TEXT: &str = "
member /build/out/libflashcliff_cuda.a:422b-sgp.o:

Fatbin ptx code:
================
arch = sm_80
code version = [9,0]
host = linux
compile_size = 64bit
compressed
ptxasOptions =

Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit
compressed

Resource usage:
 Common:
  GLOBAL:0 CONSTANT[3]:24
 Function _Z12lanes_kernelIN5cl3005heavyEfEvPKT0_PS2_i:
  REG:24 STACK:256 SHARED:0 LOCAL:8 CONSTANT[0]:372 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _Z12lanes_kernelIN5cl30015sgp_rms_forwardEfEvPKT0_PS2_i:
  REG:30 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:372 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_80

Resource usage:
 Function _Z12lanes_kernelIN5cl30015sgp_rms_forwardEfEvPKT0_PS2_i:
  REG:10 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:372 TEXTURE:0 SURFACE:0 SAMPLER:0
";

const HEAVY: &str = "lanes_kernel<cl300::heavy, float>";
const FORWARD: &str = "lanes_kernel<cl300::sgp_rms_forward, float>";

fn key(name: &str, architecture: &str) -> Key {
    (name.to_owned(), architecture.to_owned())
}

#[test]
fn all_kernels_are_read() -> Result<(), Error> {
    let dump = resources::parse(TEXT)?;
    assert_eq!(dump.portable.iter().collect::<Vec<_>>(), ["ptx80"]);
    let kernels = by_name(&dump.kernels);
    let keys: Vec<&Key> = kernels.keys().collect();
    assert_eq!(
        keys,
        [
            &key(HEAVY, "90a"),
            &key(FORWARD, "80"),
            &key(FORWARD, "90a")
        ]
    );
    assert_eq!(kernels[&key(FORWARD, "90a")].registers, 30);
    assert_eq!(kernels[&key(FORWARD, "80")].registers, 10);
    let stacks = stacks(&kernels);
    assert_eq!(stacks, BTreeMap::from([(key(HEAVY, "90a"), 264)]));
    Ok(())
}

#[test]
fn of_a_kernel_in_several_files_the_worst_counts() {
    let kernel = |registers, local_bytes| Resources {
        symbol: "kernel".to_owned(),
        architecture: "80".to_owned(),
        registers,
        local_bytes,
    };
    let kernels = by_name(&[kernel(10, 8), kernel(20, 0)]);
    assert_eq!(
        kernels,
        BTreeMap::from([(key("kernel", "80"), kernel(20, 8))])
    );
}

#[test]
fn names_are_readable_or_left_alone() {
    let name = "_Z12lanes_kernelIN5cl30015sgp_rms_forwardEfEvPKT0_PS2_i";
    assert_eq!(resources::readable(name), FORWARD);
    assert_eq!(resources::readable("_Z9with_callPfi"), "with_call");
    assert_eq!(resources::readable("plain"), "plain");
}

#[test]
fn text_that_breaks_off_is_an_error() {
    let cases = [
        (TEXT.replace("REG:24", "REG:many"), "REG"),
        (TEXT.replace("LOCAL:8", "LOCUS:8"), "LOCAL"),
        (TEXT.replace("arch = sm_90a", ""), "architecture"),
        (TEXT.replace("sm_90a", "compute_90a"), "sm_"),
        (TEXT.replace("Fatbin ptx code:", ""), "Fatbin"),
        (TEXT[..TEXT.find("  REG:24").unwrap_or(0)].to_owned(), "REG"),
    ];
    for (text, what) in cases {
        let error = resources::parse(&text).unwrap_err();
        assert!(matches!(error, Error::Dump { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// The names of the default architectures.
fn all() -> Vec<&'static str> {
    DEFAULT_ARCHITECTURES.iter().map(|a| a.name()).collect()
}

#[test]
fn architectures_must_be_the_default_ones() -> Result<(), Error> {
    let dump = resources::parse(TEXT)?;
    let expected = [
        "  no kernel for architecture 100",
        "  no kernel for architecture 120",
    ];
    assert_eq!(missing_architectures(&dump, &all()), expected);
    let plain = resources::parse(&TEXT.replacen("sm_90a", "sm_90", 1))?;
    let violations = missing_architectures(&plain, &all());
    assert!(!violations.iter().any(|v| v.contains("for 90,")));
    let dump = resources::parse(&TEXT.replace("sm_90a", "sm_86"))?;
    let violations = missing_architectures(&dump, &all());
    assert!(violations.contains(&"  kernels for 86, which was not asked for".to_owned()));
    Ok(())
}

#[test]
fn all_algebras_are_built_unless_some_are_named() {
    let features = |algebras: &[&str]| {
        let algebras = algebras.iter().copied().map(str::to_owned).collect();
        Part {
            algebras,
            ..Part::default()
        }
        .features()
    };
    assert_eq!(features(&[]), "flashcliff/jit,flashcliff/all-algebras");
    assert_eq!(
        features(&["cl200", "cl300"]),
        "flashcliff/jit,flashcliff/cl200,flashcliff/cl300"
    );
}

#[test]
fn the_library_is_where_the_build_script_ran() -> Result<(), Error> {
    let artifact =
        r#"{"reason":"compiler-artifact","package_id":"path+file:///w/flashcliff-sys#0.1.0"}"#;
    let other =
        r#"{"reason":"build-script-executed","package_id":"registry+x#libc@0.2.0","out_dir":"/l"}"#;
    let ours = r#"{"reason":"build-script-executed","package_id":"path+file:///w/flashcliff-sys#0.1.0","out_dir":"/o"}"#;
    let path = library(&[artifact, other, ours].join("\n"))?;
    assert_eq!(path, Path::new("/o").join(LIBRARY));
    assert!(matches!(
        library(&[artifact, other].join("\n")),
        Err(Error::Tool { .. })
    ));
    assert!(matches!(library("no JSON"), Err(Error::Json(_))));
    Ok(())
}

#[test]
fn the_summary_names_the_kernel_with_the_most_registers() -> Result<(), Error> {
    let dump = resources::parse(TEXT)?;
    let summary = summary(&dump, &by_name(&dump.kernels));
    let expected = format!(
        "2 kernels, portable code for ptx80\
         \n  80: at most 10 registers ({FORWARD}), 0 with local memory\
         \n  90a: at most 30 registers ({FORWARD}), 1 with local memory"
    );
    assert_eq!(summary, expected);
    Ok(())
}
