//! The Triton emitter: lane programs as text of `@triton.jit` kernels, for accelerators that have no CUDA kernels.
//!
//! The text is Python. It calls `fc`, the functions of `flashcliff/_triton/functions.py` (gates and the like), as
//! emitted CUDA C calls the functions of the skeleton. It names tensors by their positions, so programs of one digest
//! have one text, and it says nothing of sizes: numbers of channels, tiles and stages are constants that a launch
//! gives.
//!
//! # How a row is computed
//! An instance of a kernel sweeps over tiles of `ROWS` rows. A value of lanes is a tensor `[ROWS, BLOCK]`, a
//! parameter `[1, BLOCK]`, a number of a row `[ROWS, 1]`. Storage is of any type, arithmetic is in `f32`. Cuts are
//! not stored: a value that two places need is computed once and stays in registers.
//!
//! | kernels | rows | where sums over a row come from |
//! |---|---|---|
//! | `whole` | a block holds all channels | within the kernel |
//! | `sums_*`, then `lanes_*` | rows of several blocks | `sums_*` adds block after block into memory |
//!
//! `whole` reads tensors once, and all sums that wait for the same sums are one reduction. There is one kernel `sums_*`
//! for each level of sums and width of lanes. Each instance of `lanes_*` has one block.
//!
//! Parameters, and sums over the batch, stay in registers while an instance sweeps. Then it writes its part of each sum, and
//! `fc.add_parts` adds the parts of all instances in their order: no atomics, and the same bits in every run.
//!
//! Derivatives are programs, so nothing here knows of them.

mod kernel;
mod values;

use flashcliff_program::ir::{Program, Width};

use kernel::Emitter;

/// The kernels of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The module of Python: `whole` and the kernels of [`split`](Self::split). Arguments of each are the arguments of the program, its
    /// results (parts of sums in place of sums), the numbers of rows, and the number of rows.
    pub text: String,
    /// The kernels for rows of several blocks, in the order of their launches.
    pub split: Vec<Part>,
    /// How many numbers `split` keeps for each row.
    pub numbers: usize,
    /// For each total of rows the numbers whose sum it is.
    pub totals: Vec<Vec<usize>>,
}

/// A kernel for rows of several blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the function.
    pub name: String,
    /// The lanes that it computes.
    pub width: Width,
    /// Whether each instance has one block; else it has all blocks of its rows.
    pub is_of_block: bool,
}

/// The run-time options of a program, which are constants of its text.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The name of the gate: `fc.gate_` and this name is a function.
    pub gate: &'a str,
    /// The epsilon of a normalisation.
    pub eps: f64,
}

/// The kernels of a program.
///
/// # Panics
/// If the program has saved sums, or calls a derivative of the gate beyond its slope.
pub fn emit(program: &Program, options: &Options<'_>) -> Source {
    assert_eq!(program.saved_row_sums, 0, "Triton kernels save no sums");
    Emitter::new(program, options).source()
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Signature};
    use flashcliff_program::ir::gradient;
    use flashcliff_program::spec::lane_operators;

    use super::*;

    const OPTIONS: Options<'_> = Options {
        gate: "gelu",
        eps: 1e-6,
    };

    /// The program of `norm(w x)`: a parameter, a sum over the row, lanes.
    fn scaled() -> Program {
        let mut p = Program::new("scaled", "o = w x / sum (w x)^2");
        let x = p.input("x", vec!["1".to_owned()])[0];
        let w = p.param("w", 1)[0];
        let product = p.graph.mul(w, x);
        let square = p.graph.mul(product, product);
        let sum = p.row_sum(square);
        let value = p.graph.div(product, sum);
        p.output("o", vec!["1".to_owned()], vec![value]);
        p
    }

    #[test]
    fn a_row_in_one_block_is_read_once() {
        let text = emit(&scaled(), &OPTIONS).text;
        let whole = text.split("\ndef sums_").next().unwrap_or_default();
        assert_eq!(whole.matches("tl.load(a0").count(), 1, "{whole}");
        assert_eq!(whole.matches("tl.sum(").count(), 1, "{whole}");
        // The parameter is read before the sweep.
        let sweep = whole.find("    for tile").unwrap_or_default();
        assert!(
            whole.find("tl.load(a1").is_some_and(|at| at < sweep),
            "{whole}"
        );
    }

    #[test]
    fn longer_rows_have_a_kernel_for_each_level_of_sums() {
        let source = emit(&scaled(), &OPTIONS);
        let names: Vec<&str> = source.split.iter().map(|part| &*part.name).collect();
        assert_eq!(names, ["sums_0_0", "lanes_0"]);
        assert_eq!((source.numbers, source.totals), (1, Vec::new()));
    }

    #[test]
    fn sums_over_the_batch_are_parts_of_instances() {
        let text = emit(&gradient(&scaled()), &OPTIONS).text;
        assert!(text.contains("s1_0 += "), "{text}");
        assert!(
            text.contains("tl.store(b1 + (tl.program_id(0) * 1 + 0) * COUNT0 + c0"),
            "{text}"
        );
        assert!(!text.contains("atomic"));
    }

    #[test]
    fn names_do_not_count() {
        let named = scaled();
        assert_eq!(
            emit(&named, &OPTIONS),
            emit(&named.without_names(), &OPTIONS)
        );
    }

    #[test]
    fn the_text_of_all_operators_is_made_of_known_words() {
        let signatures = [(2, 0, 0), (1, 3, 0), (2, 0, 1)];
        for (p, q, r) in signatures {
            let algebra = Algebra::new(Signature::of(p, q, r));
            for operator in lane_operators(&algebra) {
                for program in [gradient(&operator.program), operator.program] {
                    let source = emit(&program, &OPTIONS);
                    let defined = source.text.matches("\ndef ").count();
                    let reductions = source.text.matches("\ndef add_").count();
                    assert_eq!(
                        defined,
                        1 + source.split.len() + reductions,
                        "{}",
                        program.name
                    );
                }
            }
        }
    }
}
