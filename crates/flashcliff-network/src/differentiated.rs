//! A network with its gradients as a second stage: what a node of a host's graph of gradients runs.

use crate::plan::wide;
use crate::{Axis, Error, Keep, Network, Value};

/// A network that computes results, and later gradients from the gradients of the results. The gradients of the results
/// are its last inputs.
#[derive(Clone, Debug)]
pub struct Differentiated {
    network: Network,
    results: Vec<Value>,
    gradients: Vec<Value>,
    /// For each gradient that is wanted whether it is among them.
    found: Vec<bool>,
}

impl Network {
    /// The network with nodes for the gradients of inputs and parameters, of all inputs and then all parameters those that are wanted. The
    /// gradient of each result is one more input, in the type of the result. Gradients that nobody wants have no nodes.
    ///
    /// # Errors
    /// [`Error::Count`] for another number of choices than of inputs and parameters; [`Error::NoGradient`]; [`Error::Independent`].
    pub fn differentiated(
        &self,
        results: &[Value],
        wanted: &[bool],
    ) -> Result<Differentiated, Error> {
        self.differentiated_keeping(results, wanted, Keep::All)
    }

    /// Does the same with a choice of what stays for the gradients.
    ///
    /// # Errors
    /// The errors of [`Self::differentiated`].
    pub fn differentiated_keeping(
        &self,
        results: &[Value],
        wanted: &[bool],
        keep: Keep,
    ) -> Result<Differentiated, Error> {
        let made = self.part(results, wanted, keep)?;
        let ends = self.inputs.iter().chain(&self.parameters).zip(wanted);
        let mut pairs = ends.filter(|(_, own)| **own).zip(&made.found);
        match pairs.find(|(_, found)| !**found) {
            None => Ok(made),
            Some(((&own, _), _)) => Err(Error::Independent {
                value: self.name(own).to_owned(),
            }),
        }
    }

    /// Does the same where results need not depend on all that is wanted. Gradients of gradients often do not: no
    /// force depends on the last bias of an energy.
    ///
    /// # Errors
    /// The errors of [`Self::differentiated`], except for values that no result depends on.
    pub fn differentiated_in_part(
        &self,
        results: &[Value],
        wanted: &[bool],
    ) -> Result<Differentiated, Error> {
        self.part(results, wanted, Keep::All)
    }

    fn part(
        &self,
        results: &[Value],
        wanted: &[bool],
        keep: Keep,
    ) -> Result<Differentiated, Error> {
        let count = self.inputs.len() + self.parameters.len();
        if wanted.len() != count {
            return Err(Error::Count {
                node: "wanted gradients".to_owned(),
                expected: count.to_string(),
                got: wanted.len(),
            });
        }
        // Tokens that are results are wide, whatever kernels take.
        let is_wide = wide(self, results, None)?;
        let mut network = self.clone();
        let mut seeds = Vec::with_capacity(results.len());
        for &result in results {
            let axes: Vec<Axis> = network.shape(result).unwrap_or_default().to_vec();
            let name = "the gradient of the result";
            let seed = match is_wide[result.0] {
                true => network.input(name, &axes),
                false => network.features(name, &axes),
            };
            seeds.push((result, seed));
        }
        let ends = self.inputs.iter().chain(&self.parameters).zip(wanted);
        let by: Vec<Value> = ends.filter(|(_, own)| **own).map(|(&own, _)| own).collect();
        // Gradients are another stage, long after the last block.
        let pairs = network.gradients_sparing(&seeds, &by, keep, false)?;
        let found = |own: &Value| pairs.iter().any(|(by, _)| by == own);
        Ok(Differentiated {
            network,
            results: results.to_vec(),
            found: by.iter().map(found).collect(),
            gradients: pairs.into_iter().map(|(_, gradient)| gradient).collect(),
        })
    }
}

impl Differentiated {
    /// The network with all nodes.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The outputs of both stages, as [`Network::plan_stages`] takes them: the results; the gradients that there are, in order.
    pub fn stages(&self) -> [&[Value]; 2] {
        [&self.results, &self.gradients]
    }

    /// For each gradient that is wanted, in order, whether there is one: whether a result depends on the input or the parameter.
    pub fn found(&self) -> &[bool] {
        &self.found
    }
}
