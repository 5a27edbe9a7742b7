// Adam, AdamW and Lion for many parameters at once.
#include "adam_rules.cuh"

namespace fc {
namespace {

using Starts = StartsOf<FC_ADAM_TENSORS>;

// The tensor of a CTA.
__device__ int tensor_of(const Starts &starts, int count, uint32_t cta) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts.at[middle] <= cta) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    norm(const __grid_constant__ fc_adam_chunk chunk, const __grid_constant__ Starts starts, double *sums) {
  const int index = tensor_of(starts, chunk.count, blockIdx.x);
  const fc_adam_tensor &tensor = chunk.tensors[index];
  const T *gradient = static_cast<const T *>(tensor.gradient);
  const double sum = sum_of_squares(gradient, tensor.count, blockIdx.x - starts.at[index]);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The factor of the learning rate after so many steps.
__device__ double factor(const fc_adam_options &options, int64_t step) {
  if (step < options.warmup) return quotient(double(step + 1), double(options.warmup));
  const int64_t rest = max(options.steps - options.warmup, int64_t(1));
  const double t = min(quotient(double(step - options.warmup), double(rest)), 1.0);
  double wave = 1;
  if (options.schedule == FC_SCHEDULE_COSINE) wave = mul(0.5, add(1.0, cospi(t)));
  if (options.schedule == FC_SCHEDULE_HALF_COSINE) wave = cospi(mul(0.5, t));
  return add(options.floor, mul(sub(1.0, options.floor), wave));
}

struct Prepare {
  fc_adam_options options;
  fc_adam_state *state;
  const double *sums;
  int64_t sum_count;
  const void *loss;
  fc_loss_scale *scale;
  uint32_t *steps;
  int64_t slots;
  fc_adam_coefficients *coefficients;
  int32_t loss_is_f64;
  int32_t first;
};

// The largest norm of adaptive clipping, from the records, the oldest first.
__device__ double adaptive_bound(const fc_adam_state &state) {
  const int64_t count = min(state.recorded, int64_t(FC_CLIP_RECORDS)), first = state.recorded - count;
  if (count == 0) return mul(FC_CLIP_MEAN, FC_CLIP_FIRST);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; i++) sum = add(sum, state.records[(first + i) % FC_CLIP_RECORDS]);
  const double mean = quotient(sum, double(count));
  for (int64_t i = 0; i < count; i++) {
    const double distance = sub(state.records[(first + i) % FC_CLIP_RECORDS], mean);
    squares = add(squares, mul(distance, distance));
  }
  const double deviation = root(quotient(squares, double(count)));
  return add(mul(FC_CLIP_MEAN, mean), mul(FC_CLIP_DEVIATION, deviation));
}

// Changes the scale of a loss after a step whose gradients overflowed, or did not. Products of powers of two are exact.
__device__ void rescale(fc_loss_scale &own, const fc_loss_scale_options &options, bool overflow) {
  if (overflow) {
    own.scale = max(mul(own.scale, options.backoff), options.least);
    own.good = 0;
    own.skipped = add(own.skipped, 1.0);
    return;
  }
  own.good = add(own.good, 1.0);
  if (own.good >= options.interval) {
    own.scale = min(mul(own.scale, options.growth), options.most);
    own.good = 0;
  }
}

// Decides on the step, in the first thread of the only CTA.
__device__ void decide(const Prepare &call, double squares, uint32_t done) {
  fc_adam_state &state = *call.state;
  const fc_adam_options &options = call.options;
  const double scale = call.scale != nullptr ? call.scale->scale : 1.0;
  const double norm = quotient(root(squares), scale);
  double loss = 0;
  if (call.loss != nullptr) {
    loss = call.loss_is_f64 ? *static_cast<const double *>(call.loss) : double(*static_cast<const float *>(call.loss));
  }
  // At the least scale there is nothing to try, so the step is refused.
  const bool can_skip = call.scale != nullptr && scale > options.scaling.least;
  const bool known = !state.halted && isfinite(loss);
  const bool skip = known && !isfinite(norm) && can_skip;
  const bool refuse = !skip && (!known || !isfinite(norm));
  if (call.scale != nullptr && !refuse) rescale(*call.scale, options.scaling, skip);
  if (refuse) {
    if (state.refused_at < 0) state.refused_at = state.calls;
    state.refused++;
    if (options.halt) state.halted = 1;
  }
  state.calls++;
  state.refuse = refuse || skip;
  state.norm = norm;
  double bound = options.clip_norm;
  if (options.adaptive) {
    bound = adaptive_bound(state);
    if (!state.refuse) {
      if (state.recorded == 0) state.records[state.recorded++] = FC_CLIP_FIRST;
      state.records[state.recorded++ % FC_CLIP_RECORDS] = min(norm, bound);
    }
  }
  state.clip = bound > 0 && norm > bound ? quotient(bound, norm) : 1.0;
  state.unscale = quotient(1.0, scale);
  state.rate = mul(state.learning_rate, factor(options, done));
}

__global__ void __launch_bounds__(kThreads)
    prepare(const __grid_constant__ fc_adam_chunk chunk, const __grid_constant__ Prepare call) {
  __shared__ int refuse;
  __shared__ double rate;
  if (call.first) {
    double squares = 0;
    for (int64_t i = threadIdx.x; i < call.sum_count; i += kThreads) squares = add(squares, call.sums[i]);
    squares = sum_over_cta(squares);
    __shared__ uint32_t most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    uint32_t own = 0;
    for (int64_t i = threadIdx.x; i < call.slots; i += kThreads) own = max(own, call.steps[i]);
    // A maximum of whole numbers does not depend on the order.
    atomicMax(&most, own);
    __syncthreads();
    if (threadIdx.x == 0) decide(call, squares, most);
  }
  if (threadIdx.x == 0) {
    refuse = call.state->refuse;
    rate = call.state->rate;
  }
  __syncthreads();
  if (refuse || threadIdx.x >= chunk.count) return;
  const int64_t slot = chunk.tensors[threadIdx.x].slot;
  const uint32_t step = ++call.steps[slot];
  const fc_adam_options &options = call.options;
  const double decay = options.decoupled ? options.weight_decay : 0.0;
  call.coefficients[slot] = coefficients_at(options.rule, options.beta1, options.beta2, decay, rate, step);
}

template <class Rule, typename T>
__global__ void __launch_bounds__(kThreads)
    update(const __grid_constant__ fc_adam_chunk chunk, const __grid_constant__ Starts starts,
           const __grid_constant__ fc_adam_options options, const fc_adam_state *state,
           const fc_adam_coefficients *coefficients) {
  if (state->refuse) return;
  const int index = tensor_of(starts, chunk.count, blockIdx.x);
  const fc_adam_tensor &tensor = chunk.tensors[index];
  const double decay = options.decoupled ? 0.0 : options.weight_decay;
  const Rule own = Rule::of(options.beta1, options.beta2, options.eps, decay, coefficients[tensor.slot], state->unscale,
                            state->clip);
  T *parameter = static_cast<T *>(tensor.parameter);
  T *mean = static_cast<T *>(tensor.mean), *square = static_cast<T *>(tensor.square);
  const T *gradient = static_cast<const T *>(tensor.gradient);
  const int64_t first = int64_t(blockIdx.x - starts.at[index]) * kUpdate;
  const int64_t end = min(tensor.count, first + kUpdate);
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    T p = parameter[i], m = mean[i], v = Rule::kSquares ? square[i] : T(0);
    own.apply(p, gradient[i], m, v);
    mean[i] = m;
    if (Rule::kSquares) square[i] = v;
    parameter[i] = p;
  }
}

bool is_whole(const fc_adam_chunk *chunk) {
  return chunk != nullptr && chunk->count > 0 && chunk->count <= FC_ADAM_TENSORS &&
         (chunk->dtype == FC_F32 || chunk->dtype == FC_F64);
}

// The CTAs of a chunk, with so many elements each.
bool starts_of(const fc_adam_chunk &chunk, int64_t elements, Starts *starts) {
  const auto count = [](const fc_adam_tensor &tensor) { return tensor.count; };
  return starts_of(chunk.tensors, chunk.count, count, elements, starts);
}

template <typename T>
auto update_of(fc_adam_rule rule) {
  return rule == FC_ADAM_RULE_LION ? update<LionRule<T>, T> : update<AdamRule<T>, T>;
}

}  // namespace
}  // namespace fc

extern "C" int64_t fc_adam_sums(const fc_adam_chunk *chunk) {
  fc::Starts starts;
  if (!fc::is_whole(chunk) || !fc::starts_of(*chunk, FC_ADAM_BLOCK, &starts)) return 0;
  return starts.at[chunk->count];
}

extern "C" int fc_adam_norm(const fc_adam_chunk *chunk, double *sums, void *stream) {
  fc::Starts starts;
  if (!fc::is_whole(chunk) || sums == nullptr) return FC_ERROR_BAD_CALL;
  if (!fc::starts_of(*chunk, FC_ADAM_BLOCK, &starts)) return FC_ERROR_TOO_LARGE;
  const uint32_t ctas = starts.at[chunk->count];
  if (ctas == 0) return 0;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (chunk->dtype == FC_F64) {
    fc::norm<double><<<ctas, fc::kThreads, 0, on>>>(*chunk, starts, sums);
  } else {
    fc::norm<float><<<ctas, fc::kThreads, 0, on>>>(*chunk, starts, sums);
  }
  return cudaGetLastError();
}

extern "C" int fc_adam_prepare(const fc_adam_chunk *chunk, const fc_adam_options *options, fc_adam_state *state,
                               const double *sums, int64_t sum_count, const void *loss, fc_dtype loss_dtype,
                               fc_loss_scale *scale, uint32_t *steps, int64_t slots,
                               fc_adam_coefficients *coefficients, int first, void *stream) {
  if (!fc::is_whole(chunk) || options == nullptr || state == nullptr || steps == nullptr || coefficients == nullptr) {
    return FC_ERROR_BAD_CALL;
  }
  if (loss != nullptr && loss_dtype != FC_F32 && loss_dtype != FC_F64) return FC_ERROR_BAD_CALL;
  static_assert(FC_ADAM_TENSORS <= fc::kThreads, "a thread for each parameter");
  const fc::Prepare call = {*options, state, sums,         sum_count,            loss,      scale,
                            steps,    slots, coefficients, loss_dtype == FC_F64, first != 0};
  fc::prepare<<<1, fc::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*chunk, call);
  return cudaGetLastError();
}

extern "C" int fc_adam_update(const fc_adam_chunk *chunk, const fc_adam_options *options, const fc_adam_state *state,
                              const fc_adam_coefficients *coefficients, void *stream) {
  fc::Starts starts;
  if (!fc::is_whole(chunk) || options == nullptr || state == nullptr || coefficients == nullptr) return FC_ERROR_BAD_CALL;
  if (!fc::starts_of(*chunk, fc::kUpdate, &starts)) return FC_ERROR_TOO_LARGE;
  const uint32_t ctas = starts.at[chunk->count];
  if (ctas == 0) return 0;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (chunk->dtype == FC_F64) {
    fc::update_of<double>(options->rule)<<<ctas, fc::kThreads, 0, on>>>(*chunk, starts, *options, state, coefficients);
  } else {
    fc::update_of<float>(options->rule)<<<ctas, fc::kThreads, 0, on>>>(*chunk, starts, *options, state, coefficients);
  }
  return cudaGetLastError();
}
