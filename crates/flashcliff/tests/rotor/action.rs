//! Layers of versors against plain loops, and their gradients against differences.

use flashcliff::rotor::{Action, ActionGradients, Parity, RotorMap};
use flashcliff::{GradeSet, Tensor, TensorMut, threads};

use super::Result;
use super::case::{Case, close, dot, numbers, slope};

struct Layer {
    action: Action,
    /// The blades of versors and of multivectors.
    own: Vec<usize>,
    kept: Vec<usize>,
    batch: usize,
    out: usize,
    input: usize,
}

impl Layer {
    fn new(case: &Case, parity: Parity, grades: Option<&[usize]>) -> Result<Self> {
        let set = grades.map(GradeSet::of);
        let kept = (0..case.bits.len()).filter(|&blade| {
            let grade = case.bits[blade].count_ones() as usize;
            grades.is_none_or(|grades| grades.contains(&grade))
        });
        Ok(Self {
            action: Action::new(case.algebra, parity, set)?,
            own: match parity {
                Parity::Even => case.even.clone(),
                Parity::Odd => case.odd.clone(),
            },
            kept: kept.collect(),
            batch: 5,
            out: 3,
            input: 2,
        })
    }

    fn shapes(&self) -> [Vec<usize>; 4] {
        [
            vec![self.kept.len(), self.batch, self.input],
            vec![self.own.len(), self.out, self.input],
            vec![self.out, self.input],
            vec![self.kept.len(), self.batch, self.out],
        ]
    }

    fn random(&self) -> [Vec<f64>; 3] {
        let [x, versors, weight, _] = self.shapes();
        let len = |shape: Vec<usize>| shape.iter().product();
        [
            numbers(1, len(x)),
            numbers(2, len(versors)),
            numbers(3, len(weight)),
        ]
    }

    fn forward(&self, [x, versors, weight]: &[Vec<f64>; 3]) -> Result<Vec<f64>> {
        let [of_x, of_versors, of_weight, of_out] = self.shapes();
        let mut workspace = vec![f64::NAN; self.action.workspace_len(self.out, self.input)?];
        let mut out = vec![f64::NAN; of_out.iter().product()];
        self.action.forward(
            Tensor::new(x, &of_x)?,
            Tensor::new(versors, &of_versors)?,
            Tensor::new(weight, &of_weight)?,
            &mut workspace,
            TensorMut::new(&mut out, &of_out)?,
        )?;
        Ok(out)
    }

    fn backward(&self, inputs: &[Vec<f64>; 3], grad: &[f64]) -> Result<[Vec<f64>; 3]> {
        let [of_x, of_versors, of_weight, of_out] = self.shapes();
        let mut workspace = vec![f64::NAN; self.action.workspace_len(self.out, self.input)?];
        let mut grads = inputs.each_ref().map(|x| vec![f64::NAN; x.len()]);
        let [x, versors, weight] = &mut grads;
        self.action.backward(
            Tensor::new(&inputs[0], &of_x)?,
            Tensor::new(&inputs[1], &of_versors)?,
            Tensor::new(&inputs[2], &of_weight)?,
            Tensor::new(grad, &of_out)?,
            &mut workspace,
            ActionGradients {
                x: Some(TensorMut::new(x, &of_x)?),
                versors: Some(TensorMut::new(versors, &of_versors)?),
                weight: Some(TensorMut::new(weight, &of_weight)?),
            },
        )?;
        Ok(grads)
    }

    /// The layer by its formula.
    fn plain(&self, case: &Case, [x, versors, weight]: &[Vec<f64>; 3]) -> Vec<f64> {
        let mut result = vec![0.0; self.kept.len() * self.batch * self.out];
        let items = self.out * self.input;
        for m in 0..self.out {
            for n in 0..self.input {
                let item = m * self.input + n;
                let of = |sign: &dyn Fn(u32) -> f64| -> Vec<f64> {
                    let blades = self.own.iter().enumerate();
                    let parts = blades.map(|(i, &blade)| {
                        sign(case.bits[blade].count_ones()) * versors[i * items + item]
                    });
                    case.whole(&self.own, &parts.collect::<Vec<_>>())
                };
                let versor = of(&|_| 1.0);
                let reverse = of(&|grade| if grade % 4 > 1 { -1.0 } else { 1.0 });
                for b in 0..self.batch {
                    let at = |blade: usize| (blade * self.batch + b) * self.input + n;
                    let own: Vec<f64> = (0..self.kept.len()).map(|i| x[at(i)]).collect();
                    let moved = case.multiply(&versor, &case.whole(&self.kept, &own));
                    let moved = case.multiply(&moved, &reverse);
                    for (i, &blade) in self.kept.iter().enumerate() {
                        result[(i * self.batch + b) * self.out + m] += weight[item] * moved[blade];
                    }
                }
            }
        }
        result
    }
}

fn layers() -> Result<Vec<(Case, Layer)>> {
    let mut layers = Vec::new();
    for signature in [(1, 0, 0), (2, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)] {
        for parity in [Parity::Even, Parity::Odd] {
            for grades in [None, Some(&[1][..]), Some(&[0, 1])] {
                let case = Case::new(signature)?;
                let layer = Layer::new(&case, parity, grades)?;
                layers.push((case, layer));
            }
        }
    }
    Ok(layers)
}

/// Also for multivectors that are no versors.
#[test]
fn the_layer_is_its_formula() -> Result {
    for (case, layer) in layers()? {
        let inputs = layer.random();
        close(
            &layer.forward(&inputs)?,
            &layer.plain(&case, &inputs),
            1e-13,
        );
    }
    Ok(())
}

#[test]
fn gradients_are_differences() -> Result {
    for (case, layer) in layers()? {
        if case.bits.len() > 16 && layer.kept.len() > 8 {
            continue;
        }
        let inputs = layer.random();
        let grad = numbers(4, layer.forward(&inputs)?.len());
        let got = layer.backward(&inputs, &grad)?;
        for (which, got) in got.iter().enumerate() {
            for index in (0..got.len()).step_by(3) {
                let wanted = slope(|step| {
                    let mut inputs = inputs.clone();
                    inputs[which][index] += step;
                    Ok(dot(&layer.forward(&inputs)?, &grad))
                })?;
                let error = (got[index] - wanted).abs();
                assert!(error < 1e-9 * (1.0 + wanted.abs()), "{which}: {error}");
            }
        }
    }
    Ok(())
}

/// Two layers of one rotor each are the layer of the product of the rotors.
#[test]
fn layers_compose_as_rotors_do() -> Result {
    let case = Case::new((3, 0, 1))?;
    let mut layer = Layer::new(&case, Parity::Even, None)?;
    (layer.out, layer.input) = (1, 1);
    let [first, second] = [1, 2].map(|seed| case.random(0.8, seed));
    let first = case.map(RotorMap::Exp, &first)?;
    let second = case.map(RotorMap::Exp, &second)?;
    let x = numbers(1, 16 * layer.batch);
    let one = layer.forward(&[x.clone(), first.clone(), vec![1.0]])?;
    let two = layer.forward(&[one, second.clone(), vec![1.0]])?;
    let product = case.product(&second, &first);
    close(&two, &layer.forward(&[x, product, vec![1.0]])?, 1e-13);
    Ok(())
}

#[test]
fn results_do_not_depend_on_threads_and_may_be_empty() -> Result {
    let case = Case::new((3, 0, 0))?;
    let mut layer = Layer::new(&case, Parity::Even, None)?;
    (layer.batch, layer.out, layer.input) = (4096, 24, 32);
    let inputs = layer.random();
    let one = threads::at_most(1, || layer.forward(&inputs))?;
    assert_eq!(one, threads::at_most(2, || layer.forward(&inputs))?);
    let [x, versors, weight] = layer.backward(&inputs, &one)?;
    let [a, b, c] = threads::at_most(1, || layer.backward(&inputs, &one))?;
    assert_eq!((a, b, c), (x, versors, weight));
    for (batch, out, input) in [(0, 3, 2), (4, 0, 2), (4, 3, 0)] {
        (layer.batch, layer.out, layer.input) = (batch, out, input);
        let inputs = layer.random();
        let got = layer.forward(&inputs)?;
        assert!(got.iter().all(|&x| x == 0.0));
        let grads = layer.backward(&inputs, &got)?;
        assert!(
            grads.iter().flatten().all(|&x| x == 0.0),
            "{batch} {out} {input}"
        );
    }
    Ok(())
}

#[test]
fn errors_say_what_was_expected() -> Result {
    let six = Case::new((5, 0, 0))?;
    let error = Action::new(six.algebra, Parity::Even, Some(GradeSet::of(&[6]))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected a grade from 0 to 5, found 6"),
        "{error}"
    );
    let error = Action::new(six.algebra, Parity::Even, Some(GradeSet::EMPTY)).unwrap_err();
    assert!(
        error.to_string().contains("expected at least one grade"),
        "{error}"
    );
    let case = Case::new((3, 0, 0))?;
    let layer = Action::new(case.algebra, Parity::Even, None)?;
    let zeros = [0.0; 64];
    let (mut space, mut out) = ([0.0; 64], [0.0; 16]);
    let mut run = |versors: &[usize], weight: &[usize], space_len: usize| {
        let of = |shape: &[usize]| Tensor::new(&zeros[..shape.iter().product()], shape).unwrap();
        let out = TensorMut::new(&mut out, &[8, 1, 2]).unwrap();
        let space = &mut space[..space_len];
        let done = layer.forward(of(&[8, 1, 2]), of(versors), of(weight), space, out);
        done.unwrap_err().to_string()
    };
    assert_eq!(
        run(&[4, 2, 3], &[2, 2], 64),
        "action: tensor `versors` must be [4, out, in = 2], got [4, 2, 3]"
    );
    assert_eq!(
        run(&[4, 2, 2], &[2, 3], 64),
        "action: tensor `weight` must be [2, 2], got [2, 3]"
    );
    assert_eq!(
        run(&[4, 2, 2], &[2, 2], 64),
        "action: the workspace buffer must hold at least 80 elements, got 64"
    );
    Ok(())
}
