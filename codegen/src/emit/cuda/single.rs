//! Kernels of one program as one text, for compilers that run in the program that uses them.

use cayley::Algebra;
use flashcliff_program::ir::Program;

use super::planned::Planned;
use super::walker::Walker;
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
    /// The most tiles of the channels and of the scalar channels of a row, of kernels on tensors with strides and with
    /// scalar channels; 0 if there may be any number.
    pub tiles: Option<[usize; 2]>,
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

/// The number of variants of path products: the variants of `BlockVariants` in f32, and one in f64.
const VARIANTS_OF_BLOCKS: usize = 7;

/// The namespace of what is emitted for one program.
const NAMESPACE: &str = "program";

/// Emits the kernels of a program without scalar channels and numbers of rows for contiguous tensors. Programs that
/// differ in names alone give the same text. If lanes do not depend on each other, the kernels take tensors with
/// strides too.
///
/// # Errors
/// A program that kernels have no room for.
pub fn single(program: &Program, is_f64: bool) -> Result<Single, Error> {
    emitted(program, is_f64, |planned, key, shape| {
        let skeleton = if shape.is_pointwise { "points" } else { "rows" };
        let kernels = match shape.is_pointwise {
            true => vec![Kernel {
                variant: 0,
                expression: format!("&fc::points_kernel<{key}>"),
            }],
            false => rows(planned, key, shape, is_f64),
        };
        (skeleton, planned.body(), kernels, None)
    })
}

/// Emits a kernel of a program with scalar channels and numbers of rows, for rows of tensors with their own strides.
///
/// # Errors
/// A program that kernels have no room for.
pub fn strided(program: &Program, walker: Walker) -> Result<Single, Error> {
    let mut single = emitted(program, walker.is_f64(), |planned, key, _| {
        let kernel = Kernel {
            variant: 0,
            expression: walker.expression(key),
        };
        let tiles = Some(walker.tiles());
        (walker.skeleton(), planned.walk(), vec![kernel], tiles)
    })?;
    single.shape.lanes = walker.lanes;
    Ok(single)
}

/// Joins the functions of a program with its struct. `kernels` gives the file of the skeleton, the contents of the
/// struct, kernels, and tiles.
pub(super) fn emitted(
    program: &Program,
    is_f64: bool,
    kernels: impl Fn(
        &Planned<'_>,
        &str,
        &Shape,
    ) -> (&'static str, String, Vec<Kernel>, Option<[usize; 2]>),
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
    let key = format!("{NAMESPACE}::{}, {}", planned.name, arithmetic(is_f64));
    let (skeleton, body, kernels, tiles) = kernels(&planned, &key, &shape);
    let text = format!(
        "#include \"skeleton/{skeleton}.cuh\"\n\nnamespace {NAMESPACE} {{\n{}\n{}\n}}  // namespace {NAMESPACE}\n",
        stages.text(),
        planned.text(&body),
    );
    Ok(Single {
        text,
        kernels,
        shape,
        tiles,
    })
}

/// The kernels on rows of contiguous tensors: of any elements and gates, and of those that are known.
fn rows(planned: &Planned<'_>, key: &str, shape: &Shape, is_f64: bool) -> Vec<Kernel> {
    // The bytes of an element and the gate: both of the call, or known.
    let mut known = vec![(0, "fc::kAnyGate")];
    if !is_f64 {
        let bytes = [4, 2];
        known.extend(bytes.map(|bytes| (bytes, "fc::kAnyGate")));
        if is_weighted_product(planned.program) {
            known.extend(bytes.map(|bytes| (bytes, "fc::kUsualGate")));
        } else if planned.program.calls_gate() {
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

/// Whether a program is like the product of a layer, in which networks spend most of their time, or like its adjoint: two or three inputs
/// of one size, and one parameter. It then gets its own kernels for the usual gate.
fn is_weighted_product(program: &Program) -> bool {
    let sizes: Vec<usize> = program
        .inputs
        .iter()
        .map(|input| input.components.len())
        .collect();
    let is_one_size = sizes.iter().all(|size| *size == sizes[0]);
    (2..=3).contains(&sizes.len()) && is_one_size && program.params.len() == 1
}
