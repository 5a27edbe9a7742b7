//! Limits: the tensors and sums for which the code around kernels has room.

use std::fmt;

use super::Plan;
use crate::ir::Program;

/// The largest numbers of tensors and sums of a program. The code that runs kernels keeps tensors in arrays of these
/// lengths; the generator refuses programs that need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Lane tensors and row values that a program reads, and lane tensors and totals that it writes, each.
    pub tensors: usize,
    /// Cuts of a program.
    pub cuts: usize,
    /// Parameters of a program, and sums over the batch, each.
    pub params: usize,
    /// Tensors, cuts, parameters and sums over the batch of one stage, together.
    pub slots: usize,
    /// The numbers of a row: row sums, with saved ones, row values, and two for each total.
    pub row_sums: usize,
}

impl Limits {
    /// The limits of kernels for CPUs: the arrays of `flashcliff::kernel::lanes`.
    pub const CPU: Self = Self {
        // Third derivatives of products and joins of transformers read 21.
        tensors: 24,
        cuts: 40,
        params: 16,
        slots: 64,
        // Third derivatives of norms have some 20 for each grade, and their adjoints read those that were saved.
        row_sums: 128,
    };

    /// The limits of kernels for CUDA: `FC_MAX_TENSORS` and `FC_MAX_PARAMS` of `flashcliff.h`. Everything else is a
    /// register or a length in the generated code.
    pub const CUDA: Self = Self {
        tensors: Self::CPU.tensors,
        cuts: usize::MAX,
        params: 8,
        slots: usize::MAX,
        row_sums: usize::MAX,
    };

    /// Checks a program and its plan.
    ///
    /// # Errors
    /// The first number that is too large.
    pub fn check(&self, program: &Program, plan: &Plan) -> Result<(), Excess> {
        let slots = plan.stages.iter().map(|stage| {
            let lanes = stage.sources.len() + stage.targets.len();
            lanes + stage.params.len() + stage.sums.len()
        });
        let among = |own: usize, alone: &'static str, with: &'static str| match own {
            0 => alone,
            _ => with,
        };
        let counts = [
            (
                among(plan.row_values, "lane inputs", "lane inputs and row values"),
                program.inputs.len() + plan.row_values,
                self.tensors,
            ),
            (
                among(plan.totals, "lane outputs", "lane outputs and totals"),
                program.outputs.len() + plan.totals,
                self.tensors,
            ),
            ("cuts", plan.cuts.len(), self.cuts),
            ("parameters", program.params.len(), self.params),
            ("sums over the batch", program.sums.len(), self.params),
            (
                "tensors and parameters in one stage",
                slots.max().unwrap_or(0),
                self.slots,
            ),
            (
                among(
                    plan.row_numbers() - plan.row_sums,
                    "row sums",
                    "row sums, row values and totals",
                ),
                plan.row_numbers(),
                self.row_sums,
            ),
        ];
        let found = counts.into_iter().find(|(_, count, limit)| count > limit);
        match found {
            None => Ok(()),
            Some((what, count, limit)) => Err(Excess {
                program: program.name.clone(),
                what,
                count,
                limit,
            }),
        }
    }
}

/// A program that needs more than kernels have room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The name of the program.
    pub program: String,
    /// The tensors or sums that are too many.
    pub what: &'static str,
    /// Their number.
    pub count: usize,
    /// The largest number for which there is room.
    pub limit: usize,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            what,
            count,
            limit,
        } = self;
        write!(
            f,
            "the program `{program}` has {count} {what}, and kernels have room for {limit}"
        )
    }
}

impl std::error::Error for Excess {}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, Signature};

    use super::*;
    use crate::ir::{differentiate, gradient};
    use crate::plan::{plan, plan_for_cpu};
    use crate::spec::{lane_operators, operators};

    /// The excess of a program with as many of each as given.
    fn check(inputs: usize, params: usize, cuts: usize, limits: Limits) -> Result<(), Excess> {
        let mut p = Program::new("much", "");
        let one = || vec!["1".to_owned()];
        let mut total = p.input("x0", one())[0];
        for index in 1..inputs {
            let x = p.input(&format!("x{index}"), one())[0];
            total = p.graph.add(total, x);
        }
        for index in 0..params {
            let w = p.param(&format!("w{index}"), 1)[0];
            total = p.graph.mul(total, w);
        }
        for _ in 0..cuts {
            let square = p.graph.mul(total, total);
            total = p.cut(vec![square])[0];
        }
        p.output("o", one(), vec![total]);
        limits.check(&p, &plan(&p))
    }

    #[test]
    fn what_fits_is_taken_and_one_more_is_refused() {
        let roomy = Limits {
            slots: usize::MAX,
            ..Limits::CPU
        };
        let Limits {
            tensors,
            params,
            cuts,
            ..
        } = roomy;
        assert_eq!(check(tensors, params, cuts, roomy), Ok(()));
        for (inputs, params, cuts, what, limit) in [
            (tensors + 1, 0, 0, "lane inputs", tensors),
            (1, params + 1, 0, "parameters", params),
            (1, 0, cuts + 1, "cuts", cuts),
        ] {
            let excess = check(inputs, params, cuts, roomy).unwrap_err();
            assert_eq!(
                (excess.what, excess.count, excess.limit),
                (what, limit + 1, limit)
            );
            let text = excess.to_string();
            assert!(
                text.contains(&format!("`much` has {} {what}", limit + 1)),
                "{text}"
            );
        }
        // 6 inputs, 6 parameters and the output meet in one stage.
        let narrow = Limits {
            slots: 12,
            ..Limits::CPU
        };
        let excess = check(6, 6, 0, narrow).unwrap_err();
        assert_eq!((excess.count, excess.limit), (13, 12));
        assert_eq!(check(6, 5, 0, narrow), Ok(()));
    }

    #[test]
    fn third_derivatives_fit() -> Result<(), Excess> {
        for (p, q, r) in [(2, 0, 0), (3, 0, 0), (3, 0, 1)] {
            let algebra = Algebra::new(Signature::of(p, q, r));
            for operator in lane_operators(&algebra) {
                let mut program = operator.program;
                for _ in 0..3 {
                    program = gradient(&program);
                    let (on_cpu, planned) = plan_for_cpu(&program);
                    Limits::CPU.check(&on_cpu, &planned)?;
                    Limits::CUDA.check(&program, &plan(&program))?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn every_operator_fits() -> Result<(), Excess> {
        // Only row sums grow with the dimension; 8 dimensions are the largest.
        for (p, q, r) in [
            (0, 0, 0),
            (1, 0, 0),
            (0, 0, 2),
            (3, 0, 0),
            (2, 1, 1),
            (1, 3, 0),
        ] {
            let algebra = Algebra::new(Signature::of(p, q, r));
            let passes = |program: &Program| [program.clone(), differentiate(program)];
            for program in operators(&algebra).iter().flat_map(|o| passes(&o.program)) {
                let (program, plan) = plan_for_cpu(&program);
                Limits::CPU.check(&program, &plan)?;
            }
            let lanes = lane_operators(&algebra);
            for program in lanes.iter().flat_map(|o| passes(&o.program)) {
                Limits::CUDA.check(&program, &plan(&program))?;
            }
        }
        Ok(())
    }
}
