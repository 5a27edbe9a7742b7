//! The programs that operators run, each found by its content.

use flashcliff_kernels::program::Program;
use flashcliff_program::ir::{self, Digest, differentiate};
use flashcliff_program::plan::{Limits, plan_for_cpu};

use crate::kept::Kept;
use crate::{Element, Gate, Tier, algebra, interpreter};

/// A program with the kernels that there are for it. It stays for the life of the process.
pub(crate) struct Known {
    digest: Digest,
    source: ir::Program,
    is_of_items: bool,
    /// Whether kernels of the build may be used.
    with_kernels: bool,
    /// Whether it was made of another program. Then kernels have room for it, but they may have none for its adjoint.
    is_made: bool,
    /// The kernels of the build, or of a crate that compiled the program itself.
    compiled: Option<&'static Program>,
    /// The interpreted form, once something has asked for it.
    interpreted: Kept<Program>,
    /// The adjoint, and the reason why kernels cannot run it, if there is one, once something has asked for it.
    adjoint: Kept<(&'static Self, Option<String>)>,
    /// Whether kernels for CPUs have room for it, once something has asked.
    room: Kept<Result<(), String>>,
    /// Programs that were made of this one, by how.
    made: Kept<(Made, &'static Self)>,
}

/// How a program was made of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The gradient, for a gate.
    Gradient(Gate),
    /// The directional derivative, for a gate, along changes of some arguments.
    Tangent(Gate, Vec<bool>),
    /// The program with those results that are wanted.
    Selecting(Vec<bool>),
    /// The program without the arguments that it does not read.
    Reading,
    /// The program of sums.
    OfSums,
    /// The program whose outputs are added to further arguments.
    Adding,
}

/// All programs of the process.
static KNOWN: Kept<Known> = Kept::new();

impl Known {
    /// The program of some content. Programs that differ in names alone share the kernels of the build.
    ///
    /// `with_kernels`: whether kernels of the build may be used. If not, the program is interpreted.
    pub(crate) fn of(source: ir::Program, with_kernels: bool) -> &'static Self {
        Self::found(source, with_kernels, false)
    }

    fn found(source: ir::Program, with_kernels: bool, is_made: bool) -> &'static Self {
        let digest = source.digest();
        let mut kernels = algebra::kernels().filter(|_| with_kernels);
        let compiled = kernels.find(|program| program.digest == digest.0);
        let is_it = |known: &&Self| {
            (known.digest, known.with_kernels) == (digest, with_kernels)
                && known.compiled.is_some() == compiled.is_some()
                && has_names_of(&known.source, &source)
        };
        let known = KNOWN.iter().find(is_it);
        known.unwrap_or_else(|| {
            KNOWN.add(Self {
                digest,
                is_of_items: source.is_of_items(),
                source,
                with_kernels,
                is_made,
                compiled,
                interpreted: Kept::new(),
                adjoint: Kept::new(),
                room: Kept::new(),
                made: Kept::new(),
            })
        })
    }

    /// The adjoint of the program, which reads the row sums that the program has saved.
    pub(crate) fn adjoint(&self) -> &'static Self {
        self.kept_adjoint().0
    }

    /// Checks that kernels can run the adjoint.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub(crate) fn check_backward(&self) -> Result<(), String> {
        match &self.kept_adjoint().1 {
            None => Ok(()),
            Some(reason) => Err(reason.clone()),
        }
    }

    fn kept_adjoint(&self) -> &'static (&'static Self, Option<String>) {
        let known = self.adjoint.iter().next();
        known.unwrap_or_else(|| {
            let adjoint = Self::found(differentiate(&self.source), self.with_kernels, true);
            let reason = match self.is_made {
                true => adjoint.refusal(),
                false => None,
            };
            self.adjoint.add((adjoint, reason))
        })
    }

    /// Why kernels cannot run the program, if they cannot.
    fn refusal(&self) -> Option<String> {
        if !self.source.is_resolved() {
            return Some(
                "it is a derivative with a gate; run `Operator::gradient` of it".to_owned(),
            );
        }
        self.check_room().err()
    }

    /// Checks that kernels for CPUs have room for the program.
    ///
    /// # Errors
    /// The tensors or sums that are too many.
    pub(crate) fn check_room(&self) -> Result<(), String> {
        if self.compiled.is_some() {
            return Ok(());
        }
        let known = self.room.iter().next();
        let room = known.unwrap_or_else(|| {
            let (program, plan) = plan_for_cpu(&self.source);
            let room = Limits::CPU.check(&program, &plan);
            self.room.add(room.map_err(|excess| excess.to_string()))
        });
        room.clone()
    }

    /// A program that is made of this one, and kept.
    pub(crate) fn made(
        &self,
        how: Made,
        make: impl FnOnce(&ir::Program) -> ir::Program,
    ) -> &'static Self {
        if let Some((_, known)) = self.made.iter().find(|(known, _)| *known == how) {
            return known;
        }
        let made = Self::found(make(&self.source), self.with_kernels, true);
        self.made.add((how, made)).1
    }

    /// The key of the program.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Inputs, parameters, outputs and expressions.
    pub(crate) fn source(&self) -> &ir::Program {
        &self.source
    }

    /// Whether each item is computed on its own.
    pub(crate) fn is_of_items(&self) -> bool {
        self.is_of_items
    }

    /// The number of components of each lane input.
    pub(crate) fn input_components(&self) -> impl Iterator<Item = usize> {
        self.source
            .inputs
            .iter()
            .map(|input| input.components.len())
    }

    /// The number of components of each lane output.
    pub(crate) fn output_components(&self) -> impl Iterator<Item = usize> {
        self.source.outputs.iter().map(|output| output.values.len())
    }

    /// Whether kernels of the build may be used.
    #[cfg(feature = "cuda")]
    pub(crate) fn with_kernels(&self) -> bool {
        self.with_kernels
    }

    /// The plan, compiled or interpreted.
    pub(crate) fn program(&self) -> &Program {
        self.compiled.unwrap_or_else(|| self.interpreted())
    }

    /// The program in a form that runs on a tier, for an element type: as it was compiled, or interpreted.
    pub(crate) fn runnable<T: Element>(&self, tier: Tier) -> &Program {
        let program = self.program();
        let stage = program.plan.stages.first().map(|call| call.stage);
        match stage.is_none_or(|stage| T::tiers(stage).get(tier).is_some()) {
            true => program,
            false => self.interpreted(),
        }
    }

    fn interpreted(&self) -> &Program {
        let made = self.interpreted.iter().next();
        made.unwrap_or_else(|| self.interpreted.add(interpreter::program(self)))
    }
}

/// Whether two programs of one content have the same names, too.
fn has_names_of(one: &ir::Program, other: &ir::Program) -> bool {
    let outputs = |program: &ir::Program| {
        let tensors = program.outputs.iter().map(|output| output.tensor.clone());
        let sums = program.sums.iter().map(|sum| sum.tensor.clone());
        (tensors.collect::<Vec<_>>(), sums.collect::<Vec<_>>())
    };
    (&one.name, &one.formula) == (&other.name, &other.formula)
        && (&one.inputs, &one.params) == (&other.inputs, &other.params)
        && outputs(one) == outputs(other)
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("name", &self.source.name)
            .field("digest", &self.digest)
            .field("is_compiled", &self.compiled.is_some())
            .finish_non_exhaustive()
    }
}
