//! Kernels of one program as one text, for compilers that run in the program that uses them.

use cayley::Algebra;
use flashcliff_program::ir::Program;

use super::planned::Planned;
use super::{AlgebraEmitter, Functions, Shape, arithmetic, plan_of, vanishes_from};
use crate::Error;

/// A kernel within a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The place of the kernel in the list of variants of `flashcliff-sys`.
    pub variant: usize,
    /// The function, as an expression of C++.
    pub expression: String,
}

/// The kernels of a program in one arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single {
    /// The text, which includes files of the skeleton by their paths below its folder.
    pub text: String,
    /// The kernels, the general one first.
    pub kernels: Vec<Kernel>,
    /// The facts for launches.
    pub shape: Shape,
    /// Whether the kernels walk rows: tensors may have strides of their own, and there may be scalar channels.
    pub walks: bool,
}

/// The kernels of path products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockKernels {
    /// The text, which includes files of the skeleton by their paths below its folder.
    pub text: String,
    /// The number of paths of the algebra.
    pub paths: usize,
    /// The channels of a thread of each variant.
    pub channels: [usize; VARIANTS_OF_BLOCKS],
    /// For each variant its kernels. The number of a kernel is its place in `BlockFunctions`.
    pub kernels: [Vec<Kernel>; VARIANTS_OF_BLOCKS],
}

/// The numbers of variants of path products: those of `BlockVariants` in f32, and one in f64.
const VARIANTS_OF_BLOCKS: usize = 7;

/// The namespace of what is emitted for one program.
const NAMESPACE: &str = "program";

/// Emits the kernels of a program for contiguous tensors. Programs that differ in names alone give the same text. The kernels of
/// programs with scalar channels take tensors with strides too.
///
/// # Errors
/// A program that kernels have no room for.
pub fn single(program: &Program, is_f64: bool) -> Result<Single, Error> {
    emitted(program, is_f64, |planned| planned.program.has_scalars())
}

/// Emits the kernels of a program for tensors with strides of their own.
///
/// # Errors
/// A program that kernels have no room for.
pub fn strided(program: &Program, is_f64: bool) -> Result<Single, Error> {
    emitted(program, is_f64, |planned| !planned.is_pointwise())
}

fn emitted(
    program: &Program,
    is_f64: bool,
    walks: impl Fn(&Planned<'_>) -> bool,
) -> Result<Single, Error> {
    let program = program.without_names();
    let plan = plan_of(None, &program)?;
    let mut stages = Functions::default();
    let functions = stages.of("stages", &program, &plan);
    let planned = Planned {
        name: "single".to_owned(),
        program: &program,
        plan: &plan,
        functions: &functions,
        vanishes_from: vanishes_from(None, &program)?,
    };
    let shape = planned.shape(is_f64);
    let walks = walks(&planned);
    let skeleton = match shape.is_pointwise {
        true => "points",
        false if walks => "walk",
        false => "rows",
    };
    let body = match walks {
        true => planned.walk(),
        false => planned.body(),
    };
    let text = format!(
        "#include \"skeleton/{skeleton}.cuh\"\n\nnamespace {NAMESPACE} {{\n{}\n{}\n}}  // namespace {NAMESPACE}\n",
        stages.text(),
        planned.text(&body),
    );
    let key = format!("{NAMESPACE}::{}, {}", planned.name, arithmetic(is_f64));
    let kernels = match shape.is_pointwise {
        true => vec![Kernel {
            variant: 0,
            expression: format!("&fc::points_kernel<{key}>"),
        }],
        false if walks => walkers(&key, &shape, is_f64),
        false => {
            // The bytes of an element and the gate: both of the call, or known.
            let mut known = vec![(0, "fc::kAnyGate")];
            if !is_f64 {
                let bytes = [4, 2];
                known.extend(bytes.map(|bytes| (bytes, "fc::kAnyGate")));
                if is_weighted_product(&program) {
                    known.extend(bytes.map(|bytes| (bytes, "fc::kUsualGate")));
                } else if program.calls_gate() {
                    known.push((4, "fc::kUsualGate"));
                }
            }
            let (lanes, threads) = (shape.lanes, shape.threads);
            let shared = u8::from(shape.params_shared);
            let kernel = |(variant, (bytes, gate))| Kernel {
                variant,
                expression: format!(
                    "&fc::rows_kernel<{key}, {lanes}, {threads}, {shared}, {bytes}, {gate}>"
                ),
            };
            known.into_iter().enumerate().map(kernel).collect()
        }
    };
    Ok(Single {
        text,
        kernels,
        shape,
        walks,
    })
}

/// The most components of lane tensors, of all its channels together, that a thread which walks rows has. With more a multiprocessor has room for few
/// threads, and none to spare while they wait: at 136 norms and gates of 16 blades took 1.35 times as long as at 68.
const MOST_WALKED: usize = 104;

/// The kernels that walk rows: for one channel a thread and any element; for two channels, of 4 and of 2 bytes each, and for four, where a thread
/// has room for them.
fn walkers(key: &str, shape: &Shape, is_f64: bool) -> Vec<Kernel> {
    let components: usize = shape.inputs.iter().chain(&shape.outputs).sum();
    let mut kinds = vec![(1, 0)];
    for lanes in [2, 4] {
        if !is_f64 && shape.lanes >= lanes && lanes * components <= MOST_WALKED {
            kinds.extend([(lanes, 4), (lanes, 2)]);
        }
    }
    let kernel = |(variant, (lanes, bytes))| Kernel {
        variant,
        expression: format!("&fc::walk_kernel<{key}, {lanes}, {bytes}>"),
    };
    kinds.into_iter().enumerate().map(kernel).collect()
}

/// Emits the kernels of the path products of an algebra.
///
/// # Errors
/// A program that kernels have no room for.
pub fn blocks(algebra: &Algebra) -> Result<BlockKernels, Error> {
    let mut emitter = AlgebraEmitter::new(algebra.signature(), "");
    let body = emitter.blocks_struct()?.0;
    let namespace = algebra.signature().name();
    let text = format!(
        "#include \"skeleton/blocks/kernel.cuh\"\n\nnamespace {namespace} {{\n{}\n{body}\n}}  // namespace {namespace}\n",
        emitter.functions.text(),
    );
    let blades = algebra.blade_count();
    let wide = match blades {
        ..=8 => 4,
        9..=16 => 2,
        17.. => 1,
    };
    // The arithmetic, the channels of a thread, the type of the tensors, whether all paths are there, whether blocks are
    // scaled.
    let variants = [
        ("float", 1, "fc::kAnyType", false, false),
        ("float", wide, "FC_F32", true, false),
        ("float", wide, "FC_BF16", true, false),
        ("float", wide, "FC_F16", true, false),
        ("float", 1, "FC_F32", false, true),
        ("float", wide, "FC_F32", true, true),
        ("double", 1, "FC_F64", false, false),
    ];
    let kernels = variants.map(|(scalar, channels, dtype, all, scales)| {
        let is_16_bit = ["FC_BF16", "FC_F16"].contains(&dtype);
        let works = [
            Some("fc::kForms"),
            Some("fc::kPullsBack"),
            (is_16_bit && blades <= 16).then_some("fc::kPullsBack | fc::kForms"),
            scales.then_some("fc::kScalesRows | fc::kForms"),
            scales.then_some("fc::kScalesSums"),
            scales.then_some("fc::kScalesSums | fc::kPullsBack"),
        ];
        let works = works.into_iter().enumerate();
        let kernel = |(variant, work): (usize, Option<&str>)| {
            work.map(|work| Kernel {
                variant,
                expression: format!(
                    "&fc::block_kernel<{namespace}::Blocks, fc::Variant<{scalar}, {channels}, {dtype}, {all}, {scales}>, {work}>"
                ),
            })
        };
        works.filter_map(kernel).collect()
    });
    Ok(BlockKernels {
        text,
        paths: algebra.paths().len(),
        channels: variants.map(|(_, channels, ..)| channels),
        kernels,
    })
}

/// Whether a program is like the product of a layer, in which networks spend most of their time, or like its adjoint: two or three
/// inputs of one size, and one parameter. It then gets kernels of its own for the usual gate.
fn is_weighted_product(program: &Program) -> bool {
    let sizes: Vec<usize> = program
        .inputs
        .iter()
        .map(|input| input.components.len())
        .collect();
    let is_one_size = sizes.iter().all(|size| *size == sizes[0]);
    (2..=3).contains(&sizes.len()) && is_one_size && program.params.len() == 1
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Signature};
    use flashcliff_program::spec;

    use super::*;

    /// The channels of a thread in the kernels of a norm on tensors with strides.
    fn lanes([p, q, r]: [usize; 3], is_f64: bool) -> Vec<usize> {
        let algebra = Algebra::new(Signature::of(p, q, r));
        let mut operators = spec::operators(&algebra).into_iter();
        let norm = operators.find(|operator| operator.program.name == "mv_layer_norm");
        let single = strided(&norm.expect("a norm").program, is_f64).expect("room");
        let kernels = single.kernels.iter().map(|kernel| {
            let mut words = kernel.expression.rsplit(", ").skip(1);
            words
                .next()
                .and_then(|word| word.parse().ok())
                .expect("a number")
        });
        kernels.collect()
    }

    #[test]
    fn threads_that_walk_rows_have_fewer_channels_of_more_blades() {
        assert_eq!(lanes([2, 0, 0], false), [1, 2, 2, 4, 4]);
        assert_eq!(lanes([3, 0, 1], false), [1, 2, 2]);
        assert_eq!(lanes([5, 0, 1], false), [1]);
        assert_eq!(lanes([2, 0, 0], true), [1]);
    }
}
