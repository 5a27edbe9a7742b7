//! The matrix of linear layers that share an input, and the parameters that it is made of.
//!
//! Each element of the matrix is one parameter times a number, or constant: an entry of the matrix of a map belongs
//! to no other map. So the matrix is gathered from all parameters, and the gradient of a parameter is the sum of a
//! few elements of that of the matrix.

use flashcliff::Dtype;
use flashcliff::cuda::matrix::MatrixProduct;

use crate::Error;
use crate::tokens::linear::{KINDS, Kind, Linear};
use crate::tokens::{Channels, Geometry};

/// Where the matrix and the bias lie: `[inputs, outputs]`, and `[outputs]` after it where kernels read a bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// The element of the bias.
    pub(super) bias: usize,
    /// All elements.
    pub(super) len: usize,
}

impl Layout {
    pub(super) fn of(step: &Linear, dtype: Dtype) -> Self {
        let [inputs, outputs] =
            [step.input, step.output()].map(|channels| step.geometry.width(channels));
        let aligned = MatrixProduct::BIAS_ALIGNMENT / dtype.bytes();
        let bias = (inputs * outputs).next_multiple_of(aligned);
        Self {
            inputs,
            outputs,
            bias,
            len: bias + outputs,
        }
    }

    /// The first of the weights of a chain, after the matrix and the bias.
    pub(super) fn packed(&self) -> usize {
        self.len.next_multiple_of(MatrixProduct::BIAS_ALIGNMENT)
    }

    /// The place of an element, whose row may be that of the bias.
    fn place(&self, row: usize, column: usize) -> usize {
        match row == self.inputs {
            true => self.bias + column,
            false => row * self.outputs + column,
        }
    }
}

/// An element of the matrix that a parameter is in.
struct Element {
    place: usize,
    /// The position among all parameters, by kind.
    parameter: usize,
    scale: f64,
}

/// An entry of the matrix of a map.
struct Entry {
    map: usize,
    to: usize,
    from: usize,
    value: f64,
}

/// For each element its parameter and a factor; `None` for a parameter stands for the number 1.
pub(super) fn sources(step: &Linear, layout: Layout) -> Result<Vec<(Option<usize>, f64)>, Error> {
    let mut sources = vec![(None, 0.0); layout.len];
    for_each_element(step, layout, |element| {
        sources[element.place] = (Some(element.parameter), element.scale);
    })?;
    if step.keeps_scalars && !step.without.kept_scalars {
        let blades = step.geometry.blades();
        let from = blades * step.input.multivectors;
        let to = blades * step.made().multivectors;
        for scalar in 0..step.input.scalars {
            sources[layout.place(from + scalar, to + scalar)] = (None, 1.0);
        }
    }
    Ok(sources)
}

/// For each parameter its elements, and their factors.
pub(super) fn places(step: &Linear, layout: Layout) -> Result<Vec<Vec<(usize, f64)>>, Error> {
    let mut places = vec![Vec::new(); step.lens().iter().sum()];
    for_each_element(step, layout, |element| {
        places[element.parameter].push((element.place, element.scale));
    })?;
    Ok(places)
}

/// The columns that have a bias, as runs.
pub(super) fn biased(step: &Linear) -> Vec<(usize, usize)> {
    let made = step.made();
    let of_blade = |blade: &usize| (blade * made.multivectors, (blade + 1) * made.multivectors);
    let blades = step.blades_of(Kind::BladeBias).iter();
    let first_scalar = step.geometry.blades() * made.multivectors;
    let of_scalars = (made.scalars > 0).then_some((first_scalar, first_scalar + made.scalars));
    blades.map(of_blade).chain(of_scalars).collect()
}

/// A layer among those that share the input.
struct Layer<'a> {
    step: &'a Linear,
    layout: Layout,
    entries: &'a [Entry],
    /// The channels of the layers in front of it.
    first: Channels,
}

impl Layer<'_> {
    /// The place of an output and an input of a parameter; `None` for a weight, which has several.
    fn place(&self, kind: Kind, output: usize, input: usize) -> Option<usize> {
        let Self { step, layout, .. } = self;
        let (multivectors, made) = (step.input.multivectors, step.made().multivectors);
        let blades = step.geometry.blades();
        let own = step.blades_of(kind);
        // A channel and a blade, of which blades are innermost.
        let row_of = |input: usize| own[input % own.len()] * multivectors + input / own.len();
        let column_of = |output: usize| {
            own[output % own.len()] * made + self.first.multivectors + output / own.len()
        };
        let of_scalar = blades * multivectors + input;
        let to_scalar = blades * made + self.first.scalars + output;
        Some(match kind {
            Kind::Weight => return None,
            Kind::ScalarsToBlades => layout.place(of_scalar, column_of(output)),
            Kind::BladeBias => layout.place(layout.inputs, column_of(output)),
            Kind::BladesToScalars => layout.place(row_of(input), to_scalar),
            Kind::ScalarBias => layout.place(layout.inputs, to_scalar),
            Kind::ScalarsToScalars => layout.place(of_scalar, to_scalar),
        })
    }

    /// Calls a function with the elements that the parameters of a kind are in. The parameters begin at a position.
    fn for_each(
        &self,
        (kind, shape): (Kind, &[usize]),
        parameter: usize,
        work: &mut dyn FnMut(Element),
    ) {
        let inputs: usize = shape[1..].iter().product();
        for at in 0..shape[0] * inputs {
            let (output, input) = (at / inputs, at % inputs);
            let parameter = parameter + at;
            match self.place(kind, output, input) {
                None => self.weight(output, input, parameter, work),
                Some(place) => work(Element {
                    place,
                    parameter,
                    scale: 1.0,
                }),
            }
        }
    }

    /// The elements of a weight of a map.
    fn weight(&self, output: usize, input: usize, parameter: usize, work: &mut dyn FnMut(Element)) {
        let Self { step, layout, .. } = self;
        let (multivectors, made) = (step.input.multivectors, step.made().multivectors);
        let (channel, map) = (input / step.core.maps(), input % step.core.maps());
        for entry in self.entries.iter().filter(|entry| entry.map == map) {
            let row = entry.from * multivectors + channel;
            let column = entry.to * made + self.first.multivectors + output;
            work(Element {
                place: layout.place(row, column),
                parameter,
                scale: entry.value,
            });
        }
    }
}

/// Calls a function with each element that a parameter is in. Biases that a derivative leaves out are in none.
fn for_each_element(
    step: &Linear,
    layout: Layout,
    mut work: impl FnMut(Element),
) -> Result<(), Error> {
    let entries = entries(&step.geometry)?;
    let mut next = first_of_kinds(step);
    let mut first = Channels::default();
    for &channels in &step.layers {
        let layer = Layer {
            step,
            layout,
            entries: &entries,
            first,
        };
        for (kind, shape) in step.of_layer(channels) {
            let own = &mut next[kind as usize];
            let is_bias = matches!(kind, Kind::BladeBias | Kind::ScalarBias);
            if !(is_bias && step.without.biases) {
                layer.for_each((kind, &shape), *own, &mut work);
            }
            *own += shape.iter().product::<usize>();
        }
        first = first.and(channels);
    }
    Ok(())
}

/// The position of the first parameter of each kind.
fn first_of_kinds(step: &Linear) -> [usize; KINDS.len()] {
    let mut end = 0;
    step.lens().map(|len| {
        end += len;
        end - len
    })
}

/// The entries of all maps, each as a layer takes it.
fn entries(geometry: &Geometry) -> Result<Vec<Entry>, Error> {
    let mut all = Vec::new();
    for (map, matrix) in geometry.maps()?.iter().enumerate() {
        let scale = geometry.scale_of(matrix);
        all.extend(matrix.entries.iter().map(|entry| Entry {
            map,
            to: entry.output,
            from: entry.input,
            value: f64::from(entry.sign) * scale,
        }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Step;
    use crate::{Axis, Cpu, Network, Scales, Slices};

    const ROWS: usize = 3;

    /// Numbers that repeat late.
    fn numbers(count: usize, seed: usize) -> Vec<f64> {
        let number = |at: usize| ((at * 37 + seed * 101) % 211) as f64 / 97.0 - 1.0;
        (0..count).map(number).collect()
    }

    fn steps() -> Vec<Linear> {
        let layers = vec![
            Channels::new(2, 3),
            Channels::new(1, 0),
            Channels::new(2, 1),
        ];
        let mut steps = Vec::new();
        for geometry in [Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap()] {
            for input in [Channels::new(3, 2), Channels::new(2, 0)] {
                steps.push(Linear::new(geometry, input, layers.clone()).unwrap());
            }
            let input = Channels::new(2, 3);
            steps.push(Linear::beside_scalars(geometry, input, &[1, 2]).unwrap());
        }
        let derivatives = steps.iter().flat_map(|step| {
            let along = step.along_tokens();
            [along.along_parameters(), along, step.along_parameters()]
        });
        let derivatives: Vec<Linear> = derivatives.collect();
        steps.extend(derivatives);
        steps
    }

    /// The result of a step on the CPU.
    fn on_cpu(step: &Linear, x: &[f64], parameters: &[f64]) -> Vec<f64> {
        let (mut network, blades) = (Network::new(), step.geometry.blades());
        let channels = step.input;
        let x_value = network.input("x", &[Axis::Rows, Axis::Token { blades, channels }]);
        let own = network.parameter("own", &[parameters.len()]);
        let step = Step::Linear(step.clone());
        let y = network.step(step, &[x_value, own]).unwrap();
        let plan = network.plan(&[y], ROWS, [Dtype::F64; 2]).unwrap();
        let len = plan.tensor(y).unwrap().0.iter().product();
        let mut outputs = [vec![f64::NAN; len]];
        let sources = Slices {
            inputs: &[x],
            parameters: &[parameters],
        };
        let (mut cpu, scales) = (Cpu::new(&plan).unwrap(), Scales::default());
        cpu.run(&plan, &sources, &mut outputs, scales, &mut |_| {})
            .unwrap();
        let [output] = outputs;
        output
    }

    #[test]
    fn a_product_with_the_matrix_is_the_step() {
        for step in steps() {
            let layout = Layout::of(&step, Dtype::F64);
            let Layout {
                inputs,
                outputs,
                bias,
                len,
            } = layout;
            assert!((bias * 8).is_multiple_of(MatrixProduct::BIAS_ALIGNMENT));
            let parameters = numbers(step.lens().iter().sum(), 1);
            let x = numbers(ROWS * inputs, 2);
            let sources = sources(&step, layout).unwrap();
            assert_eq!(sources.len(), len);
            let of = |&(source, factor): &(Option<usize>, f64)| {
                factor * source.map_or(1.0, |source| parameters[source])
            };
            let matrix: Vec<f64> = sources.iter().map(of).collect();
            let expected = on_cpu(&step, &x, &parameters);
            for (at, expected) in expected.iter().enumerate() {
                let (row, column) = (at / outputs, at % outputs);
                let products =
                    (0..inputs).map(|i| x[row * inputs + i] * matrix[i * outputs + column]);
                let got = products.sum::<f64>() + matrix[bias + column];
                assert!(
                    (got - expected).abs() < 1e-12,
                    "{step:?}, {at}: {expected}, {got}"
                );
            }
        }
    }

    #[test]
    fn each_parameter_knows_its_elements() {
        for step in steps() {
            let layout = Layout::of(&step, Dtype::F32);
            let (sources, places) = (
                sources(&step, layout).unwrap(),
                places(&step, layout).unwrap(),
            );
            let mut found = 0;
            for (parameter, own) in places.iter().enumerate() {
                assert!(
                    !own.is_empty() || step.without.biases,
                    "parameter {parameter} of {step:?}"
                );
                for &(place, factor) in own {
                    assert_eq!(sources[place], (Some(parameter), factor));
                    found += 1;
                }
            }
            let all = sources.iter().filter(|(source, _)| source.is_some());
            assert_eq!(found, all.count());
            if step.without.biases {
                continue;
            }
            // The bias of a blade is one of its columns.
            let biased = biased(&step);
            let has_bias = |column: usize| sources[layout.bias + column].0.is_some();
            for column in 0..layout.outputs {
                let is_biased = biased
                    .iter()
                    .any(|&(start, end)| (start..end).contains(&column));
                assert_eq!(has_bias(column), is_biased, "column {column} of {step:?}");
            }
        }
    }
}
