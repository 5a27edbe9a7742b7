// How calls of kernels on tensors with strides are cut, and launched. Part of `launch.cu`.
#pragma once

#include "skeleton/walk.h"

namespace fc {
namespace {

// A call, cut into CTAs.
struct WalkCut {
  Walk a;
  int threads;
  int shared_bytes;
  int registers;
  int64_t ctas;
  // Whether the kernel takes its turn.
  bool takes_turns;
  bool has_sums;
};

int sums_of(const Shape &shape, int width) {
  int count = 0;
  for (int i = 0; i < shape.sums; i++) {
    if (int(shape.scalar_sums >> i & 1) == width) count += shape.sum_counts[i];
  }
  return count;
}

void fill_walk(const fc_kernel *kernel, const fc_call *call, Walk *a) {
  const Shape &shape = kernel->shape;
  *a = {};
  for (int i = 0; i < shape.inputs + shape.row_values; i++) {
    a->inputs[i] = call->inputs[i];
    a->input_strides[i] = call->input_strides[i];
  }
  for (int i = 0; i < shape.outputs + shape.totals; i++) {
    a->outputs[i] = call->outputs[i];
    a->output_strides[i] = call->output_strides[i];
  }
  for (int i = 0; i < shape.params; i++) a->params[i] = call->params[i];
  a->saved = call->saved;
  a->batch = call->batch;
  a->channels[0] = call->channels;
  a->channels[1] = call->scalars;
  a->eps = call->eps;
  a->inv_channels = 1.0 / double(call->channels);
  a->eps_f32 = float(a->eps);
  a->inv_channels_f32 = float(a->inv_channels);
  a->gate = call->gate;
  a->lane_dtype = call->lane_dtype;
  a->param_dtype = call->param_dtype;
}

// Whether so many neighbouring channels of all tensors can be read at once.
bool takes_lanes(const fc_kernel *kernel, const Walk &a, int lanes) {
  const Shape &shape = kernel->shape;
  const auto whole = [&](int64_t n) { return n % lanes == 0; };
  const auto fits = [&](const void *p, const fc_strides &strides, int bit) {
    const int bytes = kernel->wide >> bit & 1 ? (kernel->is_f64 ? 8 : 4) : dtype_bytes(a.lane_dtype);
    return aligned(p, lanes * bytes) && whole(strides.component) && whole(strides.batch);
  };
  bool all = whole(a.channels[0]) && whole(a.channels[1]);
  for (int i = 0; i < shape.inputs; i++) all = all && fits(a.inputs[i], a.input_strides[i], i);
  for (int i = 0; i < shape.outputs; i++) all = all && fits(a.outputs[i], a.output_strides[i], FC_FIRST_OUTPUT + i);
  return all;
}

// A GPU has room for several times as many threads.
constexpr int64_t kFewThreads = 1 << 16;

// The components of all lane tensors of a width.
int components_of(const Shape &shape, int width) {
  int count = 0;
  for (int i = 0; i < shape.inputs; i++) count += int(shape.scalar_inputs >> i & 1) == width ? shape.input_components[i] : 0;
  for (int i = 0; i < shape.outputs; i++) count += int(shape.scalar_outputs >> i & 1) == width ? shape.output_components[i] : 0;
  return count;
}

// The threads that share a row: those that leave the fewest of their lanes without a channel; more of them where
// there are few rows. 0 if the row is more tiles than the kernel has.
int threads_of_row(const fc_kernel *kernel, const Walk &a) {
  const int lanes = kernel->shape.lanes;
  const int64_t widest = a.channels[0] > a.channels[1] ? a.channels[0] : a.channels[1];
  int best = 0;
  int64_t least = INT64_MAX;
  for (int threads = 1; threads <= 32 && (threads == 1 || threads / 2 * lanes < widest); threads *= 2) {
    int64_t work = 0;
    bool has_room = true;
    for (int width = 0; width < 2; width++) {
      const int64_t tiles = ceil_div(a.channels[width], threads * lanes);
      has_room = has_room && (kernel->tiles[width] == 0 || tiles <= kernel->tiles[width]);
      work += threads * tiles * components_of(kernel->shape, width);
    }
    if (has_room && (work <= least || a.batch * best < kFewThreads)) {
      least = work;
      best = threads;
    }
  }
  return best;
}

// The most CTAs of a multiprocessor that leave sums over the batch. Each leaves a row of partial sums.
constexpr int64_t kMostSums = 8;

// The CTAs of a kernel that a multiprocessor runs at once.
int64_t resident_walks(const Device &device, const WalkCut &cut) {
  int64_t most = device.threads_per_multiprocessor / cut.threads;
  const int64_t by_registers = device.registers_per_multiprocessor / (align_up(cut.registers, 8) * cut.threads);
  const int64_t by_shared = device.shared_per_multiprocessor / (cut.shared_bytes + 1024);
  if (by_registers < most) most = by_registers;
  if (by_shared < most) most = by_shared;
  if (kMostSums < most) most = kMostSums;
  return most < 1 ? 1 : most;
}

int cut_walk(const fc_kernel *kernel, const fc_call *call, Device *device, WalkCut *cut) {
  if (!fits(kernel, call) || !call->strided) return FC_ERROR_BAD_CALL;
  cudaError_t error = current_device(device);
  if (error != cudaSuccess) return error;
  Compiled compiled[FC_VARIANTS];
  error = prepare(kernel, *device, compiled);
  if (error != cudaSuccess) return error;
  Walk &a = cut->a;
  fill_walk(kernel, call, &a);
  const int lanes = kernel->shape.lanes;
  if (!takes_lanes(kernel, a, lanes)) return FC_ERROR_BAD_CALL;
  cut->has_sums = false;
  for (int i = 0; i < kernel->shape.sums; i++) cut->has_sums = cut->has_sums || call->sums[i] != nullptr;
  cut->registers = compiled[0].registers;
  cut->takes_turns = compiled[0].hopper;
  a.threads_per_row = threads_of_row(kernel, a);
  if (a.threads_per_row == 0) return FC_ERROR_BAD_CALL;
  const int arithmetic_bytes = kernel->is_f64 ? 8 : 4, step = a.threads_per_row * lanes;
  int64_t slots = 0;
  for (int width = 0; width < 2 && cut->has_sums; width++) {
    slots += ceil_div(a.channels[width], step) * sums_of(kernel->shape, width) * lanes;
  }
  cut->threads = kWalkThreads;
  while (slots * cut->threads * arithmetic_bytes > device->shared_per_block) {
    cut->threads /= 2;
    if (cut->threads < 32) return FC_ERROR_TOO_LARGE;
  }
  cut->shared_bytes = int(slots * cut->threads * arithmetic_bytes);
  cut->ctas = ceil_div(a.batch, cut->threads / a.threads_per_row);
  if (cut->has_sums) {
    const int64_t most = device->multiprocessors * resident_walks(*device, *cut);
    if (cut->ctas > most) cut->ctas = most;
  }
  return cut->ctas > 0x7fffffff ? FC_ERROR_TOO_LARGE : 0;
}

int64_t columns_of_walk(const fc_kernel *kernel, const Walk &a, int width) { return sums_of(kernel->shape, width) * a.channels[width]; }

// The bytes of partial sums of so many CTAs.
size_t bytes_of_walk(const fc_kernel *kernel, const Walk &a, int64_t ctas) {
  return size_t(ctas * (columns_of_walk(kernel, a, 0) + columns_of_walk(kernel, a, 1))) * (kernel->is_f64 ? 8 : 4);
}

// The bytes of partial sums, whichever kernel of the program takes the call.
int walk_workspace_bytes(const fc_kernel *kernel, const fc_call *call, size_t *bytes) {
  Device device;
  if (const cudaError_t error = current_device(&device)) return error;
  Walk a = {};
  a.channels[0] = call->channels;
  a.channels[1] = call->scalars;
  const int64_t most = device.multiprocessors * kMostSums, ctas = call->batch < most ? call->batch : most;
  for (int i = 0; i < kernel->shape.sums; i++) {
    if (call->sums[i] != nullptr) *bytes = bytes_of_walk(kernel, a, ctas);
  }
  return 0;
}

int plan_walk(const fc_kernel *kernel, const fc_call *call, fc_plan *plan) {
  WalkCut cut;
  Device device;
  if (const int error = cut_walk(kernel, call, &device, &cut)) return error;
  *plan = {};
  plan->threads = cut.threads;
  plan->threads_per_row = cut.a.threads_per_row;
  plan->cluster = 1;
  plan->tiles = kernel->tiles[0] > 0 ? 1 : kernel->shape.reductions + 1;
  plan->shared_bytes = cut.shared_bytes;
  plan->registers = cut.registers;
  plan->ctas = cut.ctas;
  return 0;
}

// The partial sums of the channels, or of the scalar channels.
fc_partials partials_of_walk(const fc_kernel *kernel, const fc_call *call, const WalkCut &cut, int width) {
  fc_partials t = {};
  t.partial = cut.a.partials[width];
  t.channels = cut.a.channels[width];
  t.blocks = cut.ctas;
  t.dtype = call->param_dtype;
  t.is_f64 = kernel->is_f64;
  for (int i = 0; i < kernel->shape.sums; i++) {
    if (int(kernel->shape.scalar_sums >> i & 1) != width) continue;
    t.sums[t.count] = call->sums[i];
    t.counts[t.count++] = kernel->shape.sum_counts[i];
  }
  return t;
}

int launch_walk(const fc_kernel *kernel, const fc_call *call, cudaStream_t stream) {
  WalkCut cut;
  Device device;
  if (const int error = cut_walk(kernel, call, &device, &cut)) return error;
  if (cut.has_sums) {
    if (call->workspace_bytes < bytes_of_walk(kernel, cut.a, cut.ctas)) return FC_ERROR_BAD_CALL;
    const int64_t elements = cut.ctas * columns_of_walk(kernel, cut.a, 0);
    cut.a.partials[0] = call->workspace;
    cut.a.partials[1] = static_cast<char *>(call->workspace) + elements * (kernel->is_f64 ? 8 : 4);
  }
  if (cut.ctas > 0) {
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config = configure(cut.ctas, cut.threads, cut.shared_bytes, 1, &attribute);
    config.stream = stream;
    if (cut.takes_turns && takes_turns()) {
      attribute = in_turn();
      config.numAttrs = 1;
    }
    void *arguments[] = {&cut.a};
    if (const cudaError_t error = cudaLaunchKernelExC(&config, kernel->functions[0], arguments)) return error;
  }
  if (!cut.has_sums) return 0;
  const Partials<2> all = {{partials_of_walk(kernel, call, cut, 0), partials_of_walk(kernel, call, cut, 1)}};
  return launch_totals(all, 2, stream);
}

}  // namespace
}  // namespace fc
