// The host side of the fully connected product: workspaces, tiles, launches.
#include "fully_connected.h"

#include <cuda_runtime.h>
#include <string.h>

#include "skeleton/gemm/entry.h"
#include "skeleton/gemm/prepare.cuh"
#include "skeleton/gemm/tiles.cuh"

namespace fc {
namespace gemm {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
int element_bytes(fc_dtype dtype) { return dtype == FC_F32 ? 4 : 2; }

// ---- the GPU ----

struct Gpu {
  int number;
  int multiprocessors;
  int shared_bytes;  // of a CTA
};

cudaError_t current_gpu(Gpu *gpu) {
  cudaError_t error = cudaGetDevice(&gpu->number);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&gpu->multiprocessors, cudaDevAttrMultiProcessorCount, gpu->number);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&gpu->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu->number);
}

// ---- checks ----

int check(const fc_product_call &call) {
  if (call.batch < 0 || call.in < 0 || call.out < 0) return FC_ERROR_BAD_CALL;
  const fc_dtype wanted = call.precision == FC_PRECISION_BF16 ? FC_BF16
                          : call.precision == FC_PRECISION_F16 ? FC_F16
                                                               : FC_F32;
  if (call.lane_dtype != wanted) return FC_ERROR_BAD_CALL;
  if (call.param_dtype != call.lane_dtype && call.param_dtype != FC_F32) return FC_ERROR_BAD_CALL;
  // Tiles and rows are counted in 32 bits.
  const int64_t most = int64_t(1) << 30;
  if (call.batch > most || call.in > most || call.out > most) return FC_ERROR_TOO_LARGE;
  // So are the bytes of a prepared matrix, padded by at most 128 rows and two slabs.
  const double sides[] = {double(call.in + 128) * double(call.out + 128), double(call.batch + 128) * double(call.out + 128)};
  for (const double side : sides) {
    if (side * 4 > 4294967295.0) return FC_ERROR_TOO_LARGE;
  }
  return 0;
}

int count_places(const int8_t *places, int count) {
  int most = 0;
  for (int i = 0; i < count; i++) most = places[i] + 1 > most ? places[i] + 1 : most;
  return most;
}

// ---- the workspace ----

struct Space {
  size_t bytes = 0;
  size_t add(int64_t size) {
    const size_t at = bytes;
    bytes += size_t(round_up(size, 256));
    return at;
  }
};

// Sizes that all passes share.
struct Sizes {
  int64_t batch, in, out;
  int bytes;             // of an operand's element
  int blades, paths;     // of the result, of the weights
  int slices;

  Sizes(const fc_product &product, const fc_product_call &call) : batch(call.batch), in(call.in), out(call.out) {
    bytes = element_bytes(call.lane_dtype);
    blades = count_places(call.result, product.blades);
    paths = count_places(call.path, product.paths);
    slices = int(ceil_div(out, kWarpColumns));
  }

  // Channels and elements of the batch are counted in pairs of slabs.
  int64_t padded(int64_t k) const { return round_up(k, kSlabs * kSlabBytes / bytes); }
  int64_t slab_bytes(int64_t rows) const { return round_up(rows, kRowPadding) * kSlabBytes; }
  int64_t matrix_bytes(int64_t rows, int64_t k) const { return padded(k) * bytes / kSlabBytes * slab_bytes(rows); }
  Slabs slabs(const void *data, int64_t rows, int64_t k) const {
    return {static_cast<const char *>(data), uint32_t(slab_bytes(rows)), uint32_t(matrix_bytes(rows, k))};
  }
};

struct ForwardSpace : Space {
  size_t gates = 0, weights = 0, sums = 0, product = 0;
  ForwardSpace(const fc_product &kernels, const fc_product_call &call, const Sizes &s) {
    if (call.gate != FC_GATE_NONE) gates = add(s.batch * s.padded(s.in) * s.bytes);
    weights = add(kernels.paths * s.matrix_bytes(s.out, s.in));
    if (!call.norm) return;
    sums = add(int64_t(kernels.parts) * s.slices * s.batch * 4);
    // A 16-bit output would be rounded before the norm.
    if (s.bytes == 2) product = add(s.blades * s.batch * s.out * 4);
  }
};

int weight_splits(const fc_product &kernels, const Sizes &s) {
  const int64_t tiles = ceil_div(s.in, 64) * ceil_div(s.out, 128) * kernels.weights_groups;
  const int64_t pairs = s.padded(s.batch) * s.bytes / (kSlabs * kSlabBytes);
  // Of the shape alone, so that sums are the same on every GPU; a few hundred CTAs fill the large ones.
  int64_t splits = ceil_div(400, tiles > 0 ? tiles : 1);
  const int64_t most = pairs / 8 > 1 ? pairs / 8 : 1;
  if (splits > most) splits = most;
  return int(splits < 1 ? 1 : splits);
}

struct BackwardSpace : Space {
  size_t gates = 0, scales = 0, gradient = 0, transposed = 0, partial = 0, weights = 0;
  bool of_operands, of_weights, has_partial;
  int splits;
  BackwardSpace(const fc_product &kernels, const fc_product_call &call, const Sizes &s) {
    of_operands = call.grad_x != nullptr || call.grad_y != nullptr;
    of_weights = call.grad_w != nullptr;
    splits = weight_splits(kernels, s);
    has_partial = of_weights && (splits > 1 || call.param_dtype != FC_F32);
    if (call.norm) scales = add(int64_t(kernels.grades) * s.batch * 8);
    if (of_operands) {
      gradient = add(kernels.blades * s.matrix_bytes(s.batch, s.out));
      weights = add(kernels.paths * s.matrix_bytes(s.in, s.out));
    }
    if (!of_weights) return;
    if (call.gate != FC_GATE_NONE) gates = add(s.batch * s.padded(s.in) * s.bytes);
    transposed = add(kernels.blades * s.matrix_bytes(s.out, s.batch));
    if (has_partial) partial = add(int64_t(splits) * s.paths * s.in * s.out * 4);
  }
};

// What the products are multiplied by, apart from the gates.
float scale_of(fc_precision precision) { return precision == FC_PRECISION_TF32 ? Tf32::kScale : 1.0f; }

// ---- launches ----

template <class... Parameters, class... Given>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, void *stream, Given... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

// Zeros, if there is a tensor.
int zero(void *tensor, int64_t bytes, void *stream) {
  if (tensor == nullptr || bytes == 0) return 0;
  return cudaMemsetAsync(tensor, 0, size_t(bytes), static_cast<cudaStream_t>(stream));
}

dim3 walk(int64_t elements) {
  const int64_t blocks = ceil_div(elements, kThreads), most = 1 << 16;
  return dim3(unsigned(blocks < 1 ? 1 : (blocks < most ? blocks : most)));
}

int launch_problem(const void *kernel, const Problem &problem, int64_t ctas, int64_t shared, void *stream) {
  if (ctas > 0x7fffffff) return FC_ERROR_TOO_LARGE;
  if (ctas == 0) return 0;
  void *arguments[] = {const_cast<Problem *>(&problem)};
  const int threads = problem.warp_rows * kColumnWarps * 32;
  return cudaLaunchKernel(kernel, dim3(unsigned(ctas)), dim3(threads), arguments, size_t(shared),
                          static_cast<cudaStream_t>(stream));
}

// Lets the kernels of a precision use all of the shared memory; says whether they were compiled for sm_90a.
int prepare(const fc_product &kernels, int precision, const Gpu &gpu, bool *async) {
  const bool cached = gpu.number < fc_product::kDevices;
  int known = cached ? kernels.ready[precision][gpu.number].load(std::memory_order_acquire) : 0;
  if (known == 0) {
    cudaFuncAttributes attributes;
    for (const void *kernel : {kernels.forward[precision], kernels.weights[precision], kernels.operands[precision]}) {
      cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
      if (error != cudaSuccess) return error;
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   gpu.shared_bytes - int(attributes.sharedSizeBytes));
      if (error != cudaSuccess) return error;
    }
    known = attributes.ptxVersion == 90 ? 2 : 1;
    if (cached) kernels.ready[precision][gpu.number].store(known, std::memory_order_release);
  }
  *async = known == 2;
  return 0;
}

// Whether the places of blades are their numbers.
bool all_there(const int8_t *places, int blades) {
  for (int i = 0; i < blades; i++) {
    if (places[i] != i) return false;
  }
  return true;
}

Lane lane_of(const void *data, const Sizes &s, bool complete) {
  Lane lane;
  lane.data = static_cast<const char *>(data);
  lane.row = lane.bytes = s.in * s.bytes;
  lane.blade = s.batch * lane.row;
  lane.whole = complete && (reinterpret_cast<uintptr_t>(data) | uintptr_t(lane.bytes)) % 16 == 0;
  return lane;
}

Problem problem_of(const fc_product &kernels, const fc_product_call &call, const Sizes &s) {
  Problem p = {};
  p.x = lane_of(call.x, s, all_there(call.left, kernels.blades));
  p.y = lane_of(call.y, s, all_there(call.right, kernels.blades));
  p.batch = s.batch;
  p.in = s.in;
  p.out = s.out;
  p.gate = call.gate;
  p.scale = scale_of(call.precision);
  p.splits = 1;
  for (int i = 0; i < kMaxBlades; i++) {
    p.has_left[i] = call.left[i] >= 0;
    p.has_right[i] = call.right[i] >= 0;
    p.left[i] = p.has_left[i] ? call.left[i] : 0;
    p.right[i] = p.has_right[i] ? call.right[i] : 0;
  }
  memcpy(p.output, call.result, sizeof(p.output));
  memcpy(p.path, call.path, sizeof(p.path));
  return p;
}

Grades grades_of(const fc_product &kernels, const fc_product_call &call) {
  Grades grades = {};
  int index[16];
  for (int grade = 0; grade < kernels.grades; grade++) {
    index[grade] = -1;
    int first = -1, count = 0;
    for (int blade = 0; blade < kernels.blades; blade++) {
      if (kernels.grade_of(blade) != grade || call.result[blade] < 0) continue;
      if (first < 0) first = call.result[blade];
      count++;
    }
    if (count == 0) continue;
    index[grade] = grades.count;
    grades.first[grades.count] = first;
    grades.blades[grades.count++] = count;
  }
  grades.parts = kernels.parts;
  for (int part = 0; part < kernels.parts; part++) grades.part_grade[part] = int8_t(index[kernels.part_grade(part)]);
  return grades;
}

template <class T>
T *at(const fc_product_call &call, size_t offset) {
  return reinterpret_cast<T *>(static_cast<char *>(call.workspace) + offset);
}

const void *scalar(const void *tensor, const int8_t *places) { return places[0] == 0 ? tensor : nullptr; }

int form_gates(const fc_product_call &call, const Sizes &s, void *f, Problem *p, void *stream) {
  const int padded = int(s.padded(s.in));
  p->f.data = static_cast<const char *>(f);
  p->f.row = padded * s.bytes;
  const dim3 grid(unsigned(ceil_div(padded, kThreads)), unsigned(s.batch < 4096 ? s.batch : 4096));
  return launch(gates_kernel, grid, stream, scalar(call.x, call.left), scalar(call.y, call.right), f, s.batch, int(s.in),
                padded, int(call.gate), p->scale, int(call.lane_dtype));
}

Target target_of(const fc_product_call &call, const Sizes &s, void *data, int64_t rows, int64_t k, Layout layout) {
  Target target = {};
  target.data = static_cast<char *>(data);
  target.slabs = s.slabs(data, rows, k);
  target.rows = round_up(rows, kRowPadding);
  target.k = s.padded(k);
  target.dtype = call.lane_dtype;
  target.layout = layout;
  target.round = call.precision == FC_PRECISION_TF32;
  return target;
}

int cut(const Source &source, const NormGradient &norm, const Target &along_columns, const Target &along_rows, int matrices,
        void *stream) {
  const int64_t rows = round_up(source.rows, kRowPadding), columns = round_up(source.columns, kRowPadding);
  if (columns / kSquare > 65535) return FC_ERROR_TOO_LARGE;
  return launch(slabs_kernel, dim3(unsigned(rows / kSquare), unsigned(columns / kSquare), unsigned(matrices)), stream, source,
                norm, along_columns, along_rows);
}

Source weights_source(const fc_product_call &call, const Sizes &s) {
  Source source = {call.w, s.in, s.out, int(call.param_dtype), {}};
  memcpy(source.place, call.path, sizeof(source.place));
  return source;
}

struct Tiling {
  int warp_rows, operand_slots, weight_slots;
};

// ---- forward ----

int64_t forward_shared(const fc_product &k, const Tiling &t) {
  const int64_t rows = t.warp_rows * kWarpRows, columns = kColumnWarps * kWarpColumns;
  const int64_t ring = t.operand_slots * (2 * k.blades + 1) * rows * kSlabs * kSlabBytes +
                       t.weight_slots * k.forward_batch_paths * columns * kSlabBytes;
  const int64_t results = int64_t(t.warp_rows) * kColumnWarps * kResultBytes;
  return ring > results ? ring : results;
}

int forward(const fc_product &kernels, const fc_product_call &call, void *stream) {
  const Sizes s(kernels, call);
  const ForwardSpace space(kernels, call, s);
  if (call.workspace_bytes < space.bytes) return FC_ERROR_BAD_CALL;
  if (s.batch == 0) return 0;
  const Grades grades = grades_of(kernels, call);
  if (s.in == 0 || s.out == 0 || s.paths == 0) {
    const int error = zero(call.output, s.blades * s.batch * s.out * s.bytes, stream);
    return error != 0 || !call.norm ? error : zero(call.saved, grades.count * s.batch * 4, stream);
  }
  Gpu gpu;
  bool async = false;
  int error = current_gpu(&gpu);
  if (error == 0) error = prepare(kernels, call.precision, gpu, &async);
  if (error != 0) return error;
  async = async && kernels.blades <= kAsyncForwardBlades;

  Problem p = problem_of(kernels, call, s);
  if (call.gate != FC_GATE_NONE) error = form_gates(call, s, at<void>(call, space.gates), &p, stream);
  if (error != 0) return error;
  void *weights = at<void>(call, space.weights);
  error = cut(weights_source(call, s), NormGradient(), Target(), target_of(call, s, weights, s.out, s.in, async ? kBlocks : kRowMajor),
              kernels.paths, stream);
  if (error != 0) return error;

  p.w = s.slabs(weights, s.out, s.in);
  const bool wide = call.norm && s.bytes == 2;
  float *product = wide ? at<float>(call, space.product) : static_cast<float *>(call.output);
  p.result = product;
  p.result_narrow = s.bytes == 2 && !wide;
  p.sums = call.norm ? at<float>(call, space.sums) : nullptr;
  p.slices = s.slices;
  static const Tiling all[] = {{4, 2, 2}, {4, 1, 2}, {4, 1, 1}, {2, 2, 2}, {2, 1, 2}, {2, 1, 1}, {1, 2, 2}, {1, 1, 2}, {1, 1, 1}};
  const Tiling *tiling = nullptr;
  for (const Tiling &t : all) {
    if (async && t.warp_rows != 4) break;
    if (forward_shared(kernels, t) > gpu.shared_bytes) continue;
    // Smaller tiles where there are too few, but not with less overlap.
    if (tiling != nullptr && t.operand_slots * t.weight_slots < tiling->operand_slots * tiling->weight_slots) continue;
    tiling = &t;
    const int64_t ctas = ceil_div(s.batch, t.warp_rows * kWarpRows) * ceil_div(s.out, kColumnWarps * kWarpColumns);
    if (async || ctas * kernels.forward_groups >= gpu.multiprocessors) break;
  }
  if (tiling == nullptr) return FC_ERROR_TOO_LARGE;
  p.warp_rows = tiling->warp_rows;
  p.operand_slots = tiling->operand_slots;
  p.weight_slots = tiling->weight_slots;
  p.row_tiles = int(ceil_div(s.batch, p.warp_rows * kWarpRows));
  p.column_tiles = int(ceil_div(s.out, kColumnWarps * kWarpColumns));
  error = launch_problem(kernels.forward[call.precision], p, int64_t(p.row_tiles) * p.column_tiles * kernels.forward_groups,
                         forward_shared(kernels, *tiling), stream);
  if (error != 0 || !call.norm) return error;
  return launch(norm_kernel, dim3(unsigned(ceil_div(s.batch * grades.count, kThreads / 32))), stream, grades, p.sums, s.slices,
                product, call.output, static_cast<float *>(call.saved), s.batch, s.out, float(call.eps),
                int(call.lane_dtype));
}

// ---- backward ----

int64_t weights_shared(const fc_product &k, const Tiling &t, int bytes) {
  const int64_t columns = kColumnWarps * kWarpColumns;
  int64_t most = 0;
  for (int group = 0; group < k.weights_groups; group++) {
    const int64_t block = (kSlabs * kSlabBytes / bytes) * (kWarpRows * bytes + 16);
    const int64_t slot = (k.weights_operands(group) + 1) * t.warp_rows * block + k.weights_blades(group) * kSlabs * columns * kSlabBytes;
    most = slot > most ? slot : most;
  }
  const int64_t results = int64_t(t.warp_rows) * kColumnWarps * kResultBytes;
  return most * t.operand_slots > results ? most * t.operand_slots : results;
}

int64_t operands_shared(const fc_product &k, const Tiling &t) {
  const int64_t rows = t.warp_rows * kWarpRows, columns = kColumnWarps * kOperandColumns;
  const int64_t sums = int64_t(2) * k.blades * (kOperandColumns / 8) * 16 * 32 * t.warp_rows * kColumnWarps;
  return sums + t.operand_slots * (k.operands_blades * rows + k.operands_paths * columns) * kSlabs * kSlabBytes;
}

int weight_gradient(const fc_product &kernels, const fc_product_call &call, const Sizes &s, const BackwardSpace &space,
                    const Gpu &gpu, bool async, void *stream) {
  Problem p = problem_of(kernels, call, s);
  int error = 0;
  if (call.gate != FC_GATE_NONE) error = form_gates(call, s, at<void>(call, space.gates), &p, stream);
  if (error != 0) return error;
  p.g = s.slabs(at<void>(call, space.transposed), s.out, s.batch);
  p.result = space.has_partial ? at<void>(call, space.partial) : call.grad_w;
  p.splits = space.splits;
  p.slices = s.paths;
  static const Tiling all[] = {{4, 4, 0}, {4, 2, 0}, {2, 2, 0}, {4, 1, 0}, {1, 2, 0}, {2, 1, 0}, {1, 1, 0}};
  const Tiling *tiling = nullptr;
  for (const Tiling &t : all) {
    if (async && t.warp_rows != 4) continue;
    if (weights_shared(kernels, t, s.bytes) > gpu.shared_bytes) continue;
    tiling = &t;
    break;
  }
  if (tiling == nullptr) return FC_ERROR_TOO_LARGE;
  p.warp_rows = tiling->warp_rows;
  p.operand_slots = tiling->operand_slots;
  p.row_tiles = int(ceil_div(s.in, p.warp_rows * kWarpRows));
  p.column_tiles = int(ceil_div(s.out, kColumnWarps * kWarpColumns));
  const int64_t ctas = int64_t(p.row_tiles) * p.column_tiles * kernels.weights_groups * p.splits;
  error = launch_problem(kernels.weights[call.precision], p, ctas, weights_shared(kernels, *tiling, s.bytes), stream);
  if (error != 0 || !space.has_partial) return error;
  const int64_t count = s.paths * s.in * s.out;
  return launch(add_splits_kernel, walk(count), stream, at<float>(call, space.partial), call.grad_w, count, p.splits,
                int(call.param_dtype));
}

int operand_gradients(const fc_product &kernels, const fc_product_call &call, const Sizes &s, const BackwardSpace &space,
                      const Gpu &gpu, void *stream) {
  Problem p = problem_of(kernels, call, s);
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.y) |
                              reinterpret_cast<uintptr_t>(call.grad_x) | reinterpret_cast<uintptr_t>(call.grad_y);
  p.x.whole = p.y.whole = (addresses | uintptr_t(p.x.bytes)) % 16 == 0;
  void *weights = at<void>(call, space.weights);
  const int error = cut(weights_source(call, s), NormGradient(), target_of(call, s, weights, s.in, s.out, kRowMajor), Target(),
                        kernels.paths, stream);
  if (error != 0) return error;
  p.g = s.slabs(at<void>(call, space.gradient), s.batch, s.out);
  p.w = s.slabs(weights, s.in, s.out);
  p.grad_x = call.grad_x;
  p.grad_y = call.grad_y;
  static const Tiling all[] = {{4, 4, 0}, {4, 2, 0}, {2, 4, 0}, {2, 2, 0}, {1, 4, 0}, {1, 2, 0}};
  const Tiling *tiling = nullptr;
  for (const Tiling &t : all) {
    if (operands_shared(kernels, t) > gpu.shared_bytes) continue;
    tiling = &t;
    break;
  }
  if (tiling == nullptr) return FC_ERROR_TOO_LARGE;
  p.warp_rows = tiling->warp_rows;
  p.operand_slots = tiling->operand_slots;
  p.row_tiles = int(ceil_div(s.batch, p.warp_rows * kWarpRows));
  p.column_tiles = int(ceil_div(s.in, kColumnWarps * kOperandColumns));
  return launch_problem(kernels.operands[call.precision], p, int64_t(p.row_tiles) * p.column_tiles,
                        operands_shared(kernels, *tiling), stream);
}

int zero_gradients(const fc_product &kernels, const fc_product_call &call, const Sizes &s, void *stream) {
  const struct {
    void *grad;
    int64_t bytes;
  } grads[] = {
      {call.grad_x, count_places(call.left, kernels.blades) * s.batch * s.in * s.bytes},
      {call.grad_y, count_places(call.right, kernels.blades) * s.batch * s.in * s.bytes},
      {call.grad_w, s.paths * s.in * s.out * element_bytes(call.param_dtype)},
  };
  for (const auto &grad : grads) {
    const int error = zero(grad.grad, grad.bytes, stream);
    if (error != 0) return error;
  }
  return 0;
}

int backward(const fc_product &kernels, const fc_product_call &call, void *stream) {
  const Sizes s(kernels, call);
  const BackwardSpace space(kernels, call, s);
  if (call.workspace_bytes < space.bytes) return FC_ERROR_BAD_CALL;
  if (!space.of_operands && !space.of_weights) return 0;
  if (s.batch == 0 || s.in == 0 || s.out == 0 || s.paths == 0) return zero_gradients(kernels, call, s, stream);
  Gpu gpu;
  bool async = false;
  int error = current_gpu(&gpu);
  if (error == 0) error = prepare(kernels, call.precision, gpu, &async);
  if (error != 0) return error;
  async = async && kernels.blades <= kAsyncWeightsBlades;

  const Grades grades = grades_of(kernels, call);
  NormGradient norm = {};
  if (call.norm) {
    float2 *scales = at<float2>(call, space.scales);
    error = launch(norm_gradient_kernel, dim3(unsigned(ceil_div(s.batch * grades.count, kThreads / 32))), stream, grades,
                   call.output, call.grad_output, static_cast<const float *>(call.saved), scales, s.batch, s.out,
                   float(call.eps), int(call.lane_dtype));
    if (error != 0) return error;
    norm.output = call.output;
    norm.scales = scales;
    for (int blade = 0; blade < kernels.blades; blade++) {
      for (int grade = 0; grade < grades.count; grade++) {
        if (call.result[blade] >= grades.first[grade]) norm.grade[blade] = int8_t(grade);
      }
    }
  }
  Source source = {call.grad_output, s.batch, s.out, int(call.lane_dtype), {}};
  memcpy(source.place, call.result, sizeof(call.result));
  Target gradient = {}, transposed = {};
  if (space.of_operands) gradient = target_of(call, s, at<void>(call, space.gradient), s.batch, s.out, kFragments);
  if (space.of_weights) transposed = target_of(call, s, at<void>(call, space.transposed), s.out, s.batch, async ? kBlocks : kRowMajor);
  error = cut(source, norm, gradient, transposed, kernels.blades, stream);
  if (error == 0 && space.of_weights) error = weight_gradient(kernels, call, s, space, gpu, async, stream);
  if (error == 0 && space.of_operands) error = operand_gradients(kernels, call, s, space, gpu, stream);
  return error;
}

}  // namespace
}  // namespace gemm
}  // namespace fc

extern "C" const fc_product *fc_product_find(const char *algebra) {
  for (const fc_product *const *entry = fc::products(); *entry != nullptr; entry++) {
    if (strcmp((*entry)->name, algebra) == 0) return *entry;
  }
  return nullptr;
}

extern "C" int fc_product_prepare(const fc_product *product, fc_precision precision) {
  fc::gemm::Gpu gpu;
  bool async = false;
  const int error = fc::gemm::current_gpu(&gpu);
  return error != 0 ? error : fc::gemm::prepare(*product, precision, gpu, &async);
}

extern "C" int fc_product_workspace(const fc_product *product, const fc_product_call *call, fc_pass pass, size_t *bytes) {
  const int error = fc::gemm::check(*call);
  if (error != 0) return error;
  const fc::gemm::Sizes sizes(*product, *call);
  *bytes = pass == FC_FORWARD ? fc::gemm::ForwardSpace(*product, *call, sizes).bytes
                              : fc::gemm::BackwardSpace(*product, *call, sizes).bytes;
  return 0;
}

extern "C" int fc_product_forward(const fc_product *product, const fc_product_call *call, void *stream) {
  const int error = fc::gemm::check(*call);
  return error != 0 ? error : fc::gemm::forward(*product, *call, stream);
}

extern "C" int fc_product_backward(const fc_product *product, const fc_product_call *call, void *stream) {
  const int error = fc::gemm::check(*call);
  return error != 0 ? error : fc::gemm::backward(*product, *call, stream);
}
