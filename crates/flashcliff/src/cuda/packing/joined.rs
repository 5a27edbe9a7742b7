//! Passes of linear maps of the same rows, in one launch.

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::packed::Left;
use super::{BIAS, MOST_JOINED, NAME, Own, Packed, Packing, WEIGHT, count, join};
use crate::Error;
use crate::cuda::call::address;
use crate::cuda::check::Label;
use crate::cuda::queue::Queue;
use crate::cuda::spans::Spans;
use crate::cuda::tensor::{Tensor, TensorMut};
use crate::operator::Pass;
use crate::operator::linear::cuda::few;

/// A linear map in a forward pass.
#[derive(Debug)]
pub struct JoinedForward<'a, 'o> {
    /// The number of the operator.
    pub operator: usize,
    /// The inputs: the rows, which are the same for all maps, and parameters.
    pub inputs: &'a [Tensor<'a>],
    /// The output.
    pub output: TensorMut<'o>,
}

/// A linear map in a backward pass.
#[derive(Clone, Copy, Debug)]
pub struct JoinedBackward<'a> {
    /// The number of the operator.
    pub operator: usize,
    /// The inputs of the forward pass.
    pub inputs: &'a [Tensor<'a>],
    /// The gradient of the output.
    pub grad_output: Tensor<'a>,
    /// Whether the parts of the gradients of the weight and of the bias are wanted.
    pub wants: [bool; 2],
}

impl Packing {
    /// The maps of a launch, and the launch without tensors.
    fn launch_of(&self, numbers: &[usize]) -> Result<(Vec<&Own>, sys::fc_linear_few), Error> {
        let own = numbers.iter().map(|&number| self.member(number));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let Some(first) = own.first().filter(|_| own.len() <= MOST_JOINED) else {
            return Err(count("joined operators", MOST_JOINED, own.len()));
        };
        let operators: Vec<_> = own.iter().map(|own| own.operator.operator()).collect();
        let alike = own
            .iter()
            .find(|own| !own.joins || (own.dims, own.dtypes) != (first.dims, first.dtypes));
        let joins = alike.is_none() && join(&operators, &first.dims, first.dtypes);
        let linear = first.operator.implementation.linear();
        match (joins, linear) {
            (true, Some(linear)) => {
                let mut call = linear.few(&first.dims, first.dtypes);
                // At most as many as there is room for.
                call.count = own.len() as i32;
                Ok((own, call))
            }
            _ => Err(Error::NotPacked {
                operator: NAME.to_owned(),
                expected: "linear maps that join".to_owned(),
                got: "others".to_owned(),
            }),
        }
    }
}

impl Packed<'_> {
    /// The forward passes of linear maps of the same rows that [`join`](super::join), at most [`MOST_JOINED`] of a
    /// packing that [joins](Packing::joining) them, in one launch. A map has the same numbers whatever others run
    /// with it.
    ///
    /// # Errors
    /// The errors of [`Self::forward`](super::Packed::forward); [`Error::NotPacked`] for operators that do not join.
    pub fn forward_joined(
        &mut self,
        stream: &CudaStream,
        maps: &mut [JoinedForward<'_, '_>],
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let numbers: Vec<usize> = maps.iter().map(|map| map.operator).collect();
        let (members, mut call) = self.packing.launch_of(&numbers)?;
        for (own, map) in members.iter().zip(&*maps) {
            own.check_joined(Pass::Forward, map.inputs)?;
            let checks = own.operator.checks();
            checks.output(&own.dims, own.dtypes, map.output.layout())?;
        }
        self.packing.device.make_current()?;
        let (queue, mut spans) = (Queue::of(stream), Spans::new());
        for (at, (own, map)) in members.iter().zip(maps).enumerate() {
            let rows = own.add(&mut spans, &queue, map.inputs, &mut call.maps[at]);
            check_rows(at, &mut call.x, rows)?;
            let layout = *map.output.layout();
            let label = Label::Tensor(own.operator.operator().output().name);
            let output = spans.write(label, map.output.acquire(&queue), &layout);
            call.maps[at].o = address(output);
        }
        spans.check(NAME)?;
        // SAFETY: everything was checked, and the context made current; the stream is alive and of that context.
        unsafe { few::launch(&call, false, queue.raw()) }
    }

    /// The backward passes of such maps, in one launch: the sum of their gradients of the rows, which may be added to
    /// what is there, and the parts of the gradients of parameters that are wanted, for [`add_up`](Self::add_up).
    ///
    /// # Errors
    /// The errors of [`Self::forward_joined`].
    pub fn backward_joined(
        &mut self,
        stream: &CudaStream,
        maps: &[JoinedBackward<'_>],
        grad_x: Option<(&mut TensorMut<'_>, bool)>,
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let numbers: Vec<usize> = maps.iter().map(|map| map.operator).collect();
        let (members, mut call) = self.packing.launch_of(&numbers)?;
        for (own, map) in members.iter().zip(maps) {
            own.check_joined(Pass::Backward, map.inputs)?;
            let checks = own.operator.checks();
            checks.grad_output(&own.dims, own.dtypes, map.grad_output.layout())?;
            if let Some((grad, _)) = &grad_x {
                let spec = &own.operator.operator().inputs()[0];
                checks.gradient(spec, &own.dims, grad.layout(), own.dtypes.of(spec))?;
            }
        }
        self.packing.device.make_current()?;
        let (queue, mut spans) = (Queue::of(stream), Spans::new());
        let (base, _guard) = self.memory.acquire(&queue);
        for (at, (own, map)) in members.iter().zip(maps).enumerate() {
            let rows = own.add(&mut spans, &queue, map.inputs, &mut call.maps[at]);
            check_rows(at, &mut call.x, rows)?;
            let label = Label::Gradient(own.operator.operator().output().name);
            let grad = &map.grad_output;
            let grad = spans.read(label, grad.acquire(&queue), grad.layout());
            call.maps[at].o = address(grad);
            let [weight, bias] = map.wants;
            let place = |at: Option<u64>, wanted: bool| {
                address(at.filter(|_| wanted).map_or(0, |at| base + at))
            };
            call.maps[at].weight_parts = place(own.places.parts, weight);
            call.maps[at].bias_parts = place(own.places.bias_parts, bias);
        }
        if let Some((grad, adds)) = grad_x {
            let layout = *grad.layout();
            let grad = spans.write(Label::Gradient("x"), grad.acquire(&queue), &layout);
            (call.grad_x, call.adds) = (address(grad), adds.into());
        }
        spans.check(NAME)?;
        // SAFETY: the same holds; parts have their own places in the memory, which is large enough.
        unsafe { few::launch(&call, true, queue.raw()) }?;
        for map in maps.iter().filter(|map| map.wants.contains(&true)) {
            let mut left = Left::default();
            [left.inputs[WEIGHT], left.inputs[BIAS]] = map.wants;
            self.left[map.operator] = left;
        }
        Ok(())
    }
}

impl Own {
    /// Checks that inputs have the sizes and types of the packing.
    fn check_joined(&self, pass: Pass, inputs: &[Tensor<'_>]) -> Result<(), Error> {
        let (dims, dtypes) = self.operator.checks().inputs(inputs)?;
        let member = self.member(pass, 0);
        member.check(self.operator.operator().name(), &dims, dtypes)
    }

    /// Adds the inputs of a map, whose parameters get their addresses. Returns that of the rows.
    fn add<'s>(
        &self,
        spans: &mut Spans<'s>,
        queue: &'s Queue<'_>,
        inputs: &'s [Tensor<'_>],
        map: &mut sys::fc_linear_few_map,
    ) -> u64 {
        let mut addresses = [0; 3];
        let specs = self.operator.operator().inputs();
        for ((address, input), spec) in addresses.iter_mut().zip(inputs).zip(specs) {
            let label = Label::Tensor(spec.name);
            *address = spans.read(label, input.acquire(queue), input.layout());
        }
        if let Some(linear) = self.operator.implementation.linear() {
            *map = linear.few_map();
        }
        let [rows, weight, bias] = addresses;
        (map.weight, map.bias) = (address(weight), address(bias));
        rows
    }
}

/// Notes the address of the rows of the first map, and checks that the addresses of the others are the same.
fn check_rows(at: usize, rows: &mut *const std::ffi::c_void, got: u64) -> Result<(), Error> {
    let known = rows.addr() as u64;
    if at > 0 && known != got {
        return Err(Error::NotPacked {
            operator: NAME.to_owned(),
            expected: format!("rows at {known:#x}"),
            got: format!("rows at {got:#x}"),
        });
    }
    *rows = address(got);
    Ok(())
}
