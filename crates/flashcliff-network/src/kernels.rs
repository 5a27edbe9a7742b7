//! The names of the kernels of a plan.

/// The names of what a plan launches on a GPU, in order, as `flashcliff::cuda::launches` says them. A plan for the CPU
/// has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    /// The names of each call.
    pub(crate) calls: Vec<Vec<String>>,
    /// The names of what completes the outputs of each stage.
    pub(crate) ends: Vec<Vec<String>>,
}

impl Kernels {
    /// The names of what a call launches: what must be there before it, such as packed weights, and its own kernels.
    /// None for calls of values in one memory, and for calls whose work the launch of another one does.
    pub fn of_call(&self, call: usize) -> &[String] {
        self.calls.get(call).map_or(&[], Vec::as_slice)
    }

    /// The names of what a stage launches after its last call, such as sums of gradients that were left in parts.
    pub fn after(&self, stage: usize) -> &[String] {
        self.ends.get(stage).map_or(&[], Vec::as_slice)
    }
}

/// Names in a line. A number stands in front of names that come several times one after another.
pub(crate) fn in_a_line(names: &[String]) -> String {
    let runs = names.chunk_by(|a, b| a == b);
    let runs = runs.map(|run| match run.len() {
        1 => run[0].clone(),
        count => format!("{count} x {}", run[0]),
    });
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_names_are_counted() {
        let names = ["a", "b", "b", "a"].map(str::to_owned);
        assert_eq!(in_a_line(&names), "a, 2 x b, a");
        assert_eq!(in_a_line(&[]), "");
    }

    #[test]
    fn a_plan_for_the_cpu_has_no_names() {
        let none = Kernels::default();
        assert!(none.of_call(3).is_empty() && none.after(0).is_empty());
    }
}
