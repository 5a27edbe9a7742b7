// The host side: chooses the kernel, cuts a call into CTAs, and launches it.
#include <cuda.h>
#include <string.h>

#include "flashcliff.h"
#include "skeleton/gates.cuh"
#include "skeleton/launch.cuh"
#include "skeleton/memory.cuh"
#include "skeleton/registry.h"

namespace fc {
namespace {

// The number of rows in shared memory or on their way, if there is room: enough to cover the latency of the memory.
constexpr int kStages = 2;

// ---- the properties of the GPU ----

struct Device {
  int number;
  int major;
  int multiprocessors;
  int shared_per_block;
  int shared_per_multiprocessor;
  int registers_per_multiprocessor;
  int threads_per_multiprocessor;
};

std::atomic<bool> known_devices[kMaxDevices];
Device devices[kMaxDevices];

cudaError_t query(int number, Device *device) {
  device->number = number;
  const struct {
    cudaDeviceAttr attribute;
    int *value;
  } wanted[] = {
      {cudaDevAttrComputeCapabilityMajor, &device->major},
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_per_block},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &device->shared_per_multiprocessor},
      {cudaDevAttrMaxRegistersPerMultiprocessor, &device->registers_per_multiprocessor},
      {cudaDevAttrMaxThreadsPerMultiProcessor, &device->threads_per_multiprocessor},
  };
  for (const auto &entry : wanted) {
    const cudaError_t error = cudaDeviceGetAttribute(entry.value, entry.attribute, number);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t current_device(Device *device) {
  int number = 0;
  cudaError_t error = cudaGetDevice(&number);
  if (error != cudaSuccess) return error;
  if (number < kMaxDevices && known_devices[number].load(std::memory_order_acquire)) {
    *device = devices[number];
    return cudaSuccess;
  }
  error = query(number, device);
  if (error == cudaSuccess && number < kMaxDevices) {
    // Threads that race here write the same values.
    devices[number] = *device;
    known_devices[number].store(true, std::memory_order_release);
  }
  return error;
}

// The properties of a compiled kernel.
struct Compiled {
  int registers;  // a thread
  bool hopper;    // with bulk copies, clusters and turns
};

// The first call on a device loads the function and lets it use all of the shared memory.
cudaError_t compiled_function(const void *function, const Device &device, std::atomic<int> *cache, Compiled *compiled) {
  const bool cached = device.number < kMaxDevices;
  int known = cached ? cache[device.number].load(std::memory_order_acquire) : 0;
  if (known == 0) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, function);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 device.shared_per_block - int(attributes.sharedSizeBytes));
    if (error != cudaSuccess) return error;
    known = attributes.numRegs > 0 ? attributes.numRegs : 1;
    if (attributes.ptxVersion >= 90) known |= 1 << 16;
    if (cached) cache[device.number].store(known, std::memory_order_release);
  }
  compiled->registers = known & 0xffff;
  compiled->hopper = known >> 16;
  return cudaSuccess;
}

cudaError_t prepare(const fc_kernel *kernel, const Device &device, Compiled compiled[FC_VARIANTS]) {
  for (int i = 0; i < FC_VARIANTS; i++) {
    compiled[i] = compiled[0];
    if (kernel->functions[i] == nullptr) continue;
    const cudaError_t error = compiled_function(kernel->functions[i], device, kernel->compiled[i], &compiled[i]);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// ---- how a call is cut ----

int dtype_bytes(int dtype) { return dtype == FC_F64 ? 8 : (dtype == FC_F32 ? 4 : 2); }

bool aligned(const void *p, int bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// The configuration of a launch of `ctas` CTAs. The attribute must live as long as the result is used.
cudaLaunchConfig_t configure(int64_t ctas, int threads, int shared, int cluster, cudaLaunchAttribute *attribute) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(ctas));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim.x = cluster;
  attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  return config;
}

// The number of clusters that run at once: not every multiprocessor can be part of one. The last answer is kept.
cudaError_t active_clusters(const void *function, int variant, std::atomic<uint64_t> *cache, int cluster, int threads,
                            int shared, int *count) {
  const uint64_t key =
      uint64_t(variant) << 56 | uint64_t(cluster) << 48 | uint64_t(threads) << 32 | uint64_t(shared / 16) << 16;
  const uint64_t known = cache->load(std::memory_order_acquire);
  if ((known & ~uint64_t(0xffff)) == key) {
    *count = int(known & 0xffff);
    return cudaSuccess;
  }
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config = configure(cluster, threads, shared, cluster, &attribute);
  const cudaError_t error = cudaOccupancyMaxActiveClusters(count, function, &config);
  if (error == cudaSuccess) cache->store(key | uint64_t(*count & 0xffff), std::memory_order_release);
  return error;
}

// ---- boxes of tensors ----

using EncodeTiled = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function for tensor maps; null if it has none.
EncodeTiled encode_tiled() {
  static std::atomic<void *> known{nullptr};
  void *function = known.load(std::memory_order_acquire);
  if (function == nullptr) {
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      return nullptr;
    }
    known.store(function, std::memory_order_release);
  }
  return reinterpret_cast<EncodeTiled>(function);
}

// Describes the boxes of the inputs to the copy engine. False if it cannot address them.
bool encode_boxes(const Shape &shape, Arguments *a) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "a tensor map is a CUtensorMap");
  const EncodeTiled encode = encode_tiled();
  if (encode == nullptr || a->batch > 0x7fffffff || a->channels > 0x7fffffff) return false;
  const CUtensorMapDataType types[] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
                                       CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16};
  for (int i = 0; i < shape.inputs; i++) {
    const cuuint32_t components = shape.input_components[i];
    if (components == 0) continue;
    const cuuint64_t sizes[] = {cuuint64_t(a->channels), cuuint64_t(a->batch), components};
    const cuuint64_t strides[] = {cuuint64_t(a->channels) * a->lane_bytes,
                                  cuuint64_t(a->channels) * a->batch * a->lane_bytes};
    const cuuint32_t box[] = {cuuint32_t(a->box_channels), cuuint32_t(a->rows_per_cta), components};
    const cuuint32_t steps[] = {1, 1, 1};
    const CUresult result =
        encode(reinterpret_cast<CUtensorMap *>(&a->maps[i]), types[a->lane_dtype], 3, const_cast<void *>(a->inputs[i]),
               sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return false;
  }
  return true;
}

// A call, cut into CTAs.
struct Cut {
  Arguments a;
  fc_plan plan;
  const void *function;
  int arithmetic_bytes;
  // The largest number of row blocks for any alignment of the tensors.
  int64_t most_row_blocks;
};

// Sets the threads of a CTA and how they share rows.
void cut_rows(const Shape &shape, bool clusters, int most_threads, Arguments *a) {
  const int64_t threads = ceil_div(a->channels, shape.lanes);
  a->slices = a->cluster = a->tiles = a->rows_per_cta = 1;
  if (threads <= 32) {
    a->threads_per_row = 1;
    while (a->threads_per_row < threads) a->threads_per_row *= 2;
  } else if (threads <= most_threads) {
    a->threads_per_row = int(ceil_div(threads, 32) * 32);
  } else if (shape.row_sums == 0 || (clusters && threads <= most_threads * kMaxCluster)) {
    a->slices = int(ceil_div(threads, most_threads));
    a->threads_per_row = int(ceil_div(ceil_div(threads, a->slices), 32) * 32);
    if (shape.row_sums > 0) a->cluster = a->slices;
  } else {
    a->threads_per_row = most_threads;
    a->tiles = int(ceil_div(threads, most_threads));
  }
  if (a->slices == 1 && a->tiles == 1 && a->threads_per_row < most_threads / 2) {
    a->rows_per_cta = most_threads / 2 / a->threads_per_row;
  }
}

// The bytes of shared memory of a CTA with `stages` stages.
int shared_bytes(const fc_kernel *kernel, Arguments a, int stages) {
  a.stages = stages;
  return Layout(kernel->shape, kernel->is_f64 ? 8 : 4, a.threads_per_row * a.rows_per_cta, a).total;
}

bool fits(const fc_kernel *kernel, const fc_call *call) {
  const auto stores = [&](int dtype) { return kernel->is_f64 ? dtype == FC_F64 : dtype == FC_F32 || dtype == FC_BF16 || dtype == FC_F16; };
  return stores(call->lane_dtype) && (kernel->shape.params == 0 || stores(call->param_dtype)) && call->batch >= 0 &&
         call->channels >= 0 && call->scalars >= 0 && (!call->strided || kernel->pointwise || kernel->walks) && call->wide == kernel->wide && (call->column_sums == nullptr || kernel->shape.sums_columns());
}

// Fills in the arguments that do not depend on how rows are cut.
void fill_arguments(const fc_kernel *kernel, const fc_call *call, Arguments *a, bool *bulk) {
  const Shape &shape = kernel->shape;
  *a = {};
  a->batch = call->batch;
  a->channels = call->channels;
  a->eps = call->eps;
  a->inv_channels = 1.0 / double(call->channels);
  a->eps_f32 = float(a->eps);
  a->inv_channels_f32 = float(a->inv_channels);
  a->gate = call->gate;
  a->lane_dtype = call->lane_dtype;
  a->param_dtype = call->param_dtype;
  a->lane_bytes = dtype_bytes(call->lane_dtype);
  a->saved = call->saved;
  const int vector = a->lane_bytes * shape.lanes;
  const int alignment = vector > 16 ? 16 : vector;
  bool whole = call->channels % shape.lanes == 0;
  *bulk = call->channels * a->lane_bytes % 16 == 0;
  a->strided = call->strided;
  for (int i = 0; i < shape.inputs; i++) {
    a->inputs[i] = call->inputs[i];
    a->input_strides[i] = call->input_strides[i];
    whole = whole && aligned(call->inputs[i], alignment);
    *bulk = *bulk && aligned(call->inputs[i], 16);
  }
  for (int i = 0; i < shape.outputs; i++) {
    a->outputs[i] = call->outputs[i];
    a->output_strides[i] = call->output_strides[i];
    whole = whole && aligned(call->outputs[i], alignment);
  }
  for (int i = 0; i < shape.params; i++) a->params[i] = call->params[i];
  bool sums = false;
  for (int i = 0; i < shape.sums; i++) sums = sums || call->sums[i] != nullptr;
  a->sums_columns = call->column_sums == nullptr ? 0 : call->sums_all_components ? 2 : 1;
  a->whole = whole;
  *bulk = *bulk && whole;
  // The pointer only says whether there is something to add up; the launch sets its value.
  a->partial = sums || a->sums_columns ? reinterpret_cast<void *>(1) : nullptr;
}

// Sets the layout of the channels of a CTA in a stage.
void set_boxes(const Shape &shape, int boxes, int channels, Arguments *a) {
  a->boxes = boxes;
  a->box_channels = channels;
  a->stage_bytes = 0;
  for (int i = 0; i < shape.inputs; i++) {
    a->stage_bytes += boxes * box_bytes(shape.input_components[i], a->rows_per_cta, channels, a->lane_bytes);
  }
}

// Encodes the boxes of a call. Without tensors, for the plan of a shape, there is nothing to encode.
bool encode_for(const fc_kernel *kernel, const fc_call *call, Arguments *a) {
  if (call->batch == 0) return false;
  for (int i = FC_MAX_MAPS; i < kernel->shape.inputs; i++) {
    if (kernel->shape.input_components[i] > 0) return false;
  }
  for (int i = 0; i < kernel->shape.inputs; i++) {
    if (call->inputs[i] == nullptr) return true;
  }
  return encode_boxes(kernel->shape, a);
}

int cut_points(const fc_kernel *kernel, Cut *cut) {
  fc_plan &plan = cut->plan;
  plan.threads = plan.threads_per_row = kernel->shape.threads;
  plan.cluster = plan.tiles = 1;
  plan.ctas = ceil_div(cut->a.batch * cut->a.channels, plan.threads);
  cut->most_row_blocks = 0;
  return plan.ctas > 0x7fffffff ? FC_ERROR_TOO_LARGE : 0;
}

// The variant for calls that need the least of the skeleton; the general one if there is none.
int fastest(const fc_kernel *kernel, const Arguments &a) {
  const int bytes = a.lane_bytes == 4 ? 0 : 1;
  if (a.gate == kUsualGate && kernel->functions[3 + bytes] != nullptr) return 3 + bytes;
  return kernel->functions[1 + bytes] != nullptr ? 1 + bytes : 0;
}

int cut_call(const fc_kernel *kernel, const Device &device, const Compiled variants[FC_VARIANTS], const fc_call *call, Cut *cut) {
  if (!fits(kernel, call)) return FC_ERROR_BAD_CALL;
  const Shape &shape = kernel->shape;
  Arguments &a = cut->a;
  bool bulk;
  fill_arguments(kernel, call, &a, &bulk);
  cut->arithmetic_bytes = kernel->is_f64 ? 8 : 4;
  fc_plan &plan = cut->plan;
  plan = {};
  cut->function = kernel->functions[0];
  plan.registers = variants[0].registers;
  if (kernel->pointwise) return cut_points(kernel, cut);

  // Tries half the threads, and so half the shared memory of a row.
  int most_threads = shape.threads;
  for (;; most_threads /= 2) {
    if (most_threads < 32) return FC_ERROR_TOO_LARGE;
    cut_rows(shape, variants[0].hopper, most_threads, &a);
    set_boxes(shape, 1, a.threads_per_row * shape.lanes, &a);
    if (shared_bytes(kernel, a, 1) <= device.shared_per_block) break;
  }
  const int threads = a.threads_per_row * a.rows_per_cta;
  a.fill = a.whole ? kFillVectors : kFillElements;
  if (bulk && variants[0].hopper) {
    // Boxes have at most 256 channels, and whole groups of 16 bytes.
    const int64_t width = a.slices == 1 && a.tiles == 1 ? call->channels : a.threads_per_row * shape.lanes;
    const int boxes = int(ceil_div(width, 256));
    const int step = 16 / a.lane_bytes > shape.lanes ? 16 / a.lane_bytes : shape.lanes;
    Arguments boxed = a;
    set_boxes(shape, boxes, align_up(int(ceil_div(width, boxes)), step), &boxed);
    if (shared_bytes(kernel, boxed, 1) <= device.shared_per_block && encode_for(kernel, call, &boxed)) {
      a = boxed;
      a.fill = kFillBulk;
    }
  }
  const int variant = a.fill == kFillBulk && a.tiles == 1 ? fastest(kernel, a) : 0;
  cut->function = kernel->functions[variant];
  plan.registers = variants[variant].registers;

  // Takes as many CTAs as registers allow, but fewer if otherwise no row could be copied ahead.
  const int warps = int(ceil_div(threads, 32));
  const auto resident_of = [&](int registers) {
    int ctas = device.registers_per_multiprocessor / (align_up(registers, 8) * 32 * warps);
    const int most = device.threads_per_multiprocessor / (32 * warps);
    if (ctas > most) ctas = most;
    return ctas < 1 ? 1 : ctas;
  };
  int resident = resident_of(plan.registers);
  const int64_t blocks = ceil_div(call->batch, a.rows_per_cta);
  const auto row_blocks = [&](int ctas) {
    int64_t count = int64_t(device.multiprocessors) * ctas / a.slices;
    if (count < 1) count = 1;
    return count > blocks ? blocks : count;
  };
  int fewest = variants[0].registers;
  for (int i = 1; i < FC_VARIANTS; i++) fewest = variants[i].registers < fewest ? variants[i].registers : fewest;
  cut->most_row_blocks = row_blocks(resident_of(fewest));
  for (int least = kStages; least >= 1 && a.stages == 0; least--) {
    for (int ctas = resident; ctas >= 1 && a.stages == 0; ctas--) {
      int room = device.shared_per_multiprocessor / ctas - 1024;
      if (room > device.shared_per_block) room = device.shared_per_block;
      if (shared_bytes(kernel, a, least) <= room) {
        a.stages = least;
        resident = ctas;
      }
    }
  }
  plan.threads = threads;
  plan.threads_per_row = a.threads_per_row;
  plan.cluster = a.cluster;
  plan.tiles = a.tiles;
  plan.stages = a.stages;
  plan.shared_bytes = shared_bytes(kernel, a, a.stages);
  a.blocks = blocks;
  a.row_ctas = row_blocks(resident);
  if (a.cluster > 1) {
    int clusters = 0;
    std::atomic<uint64_t> local{0};
    std::atomic<uint64_t> *cache = device.number < kMaxDevices ? &kernel->clusters[device.number] : &local;
    const cudaError_t error =
        active_clusters(cut->function, variant, cache, a.cluster, threads, plan.shared_bytes, &clusters);
    if (error != cudaSuccess) return error;
    if (clusters < 1) return FC_ERROR_TOO_LARGE;
    if (a.row_ctas > clusters) a.row_ctas = clusters;
  }
  plan.ctas = a.row_ctas * a.slices;
  return plan.ctas > 0x7fffffff ? FC_ERROR_TOO_LARGE : 0;
}

int plan_call(const fc_kernel *kernel, const fc_call *call, Cut *result) {
  Device device;
  cudaError_t error = current_device(&device);
  if (error != cudaSuccess) return error;
  Compiled compiled[FC_VARIANTS];
  error = prepare(kernel, device, compiled);
  if (error != cudaSuccess) return error;
  return cut_call(kernel, device, compiled, call, result);
}

size_t partial_bytes(const fc_kernel *kernel, const Cut &cut) {
  if (cut.a.partial == nullptr) return 0;
  const size_t columns = size_t(kernel->shape.all_sums() + (cut.a.sums_columns > 0)) * size_t(cut.a.channels);
  return size_t(cut.most_row_blocks) * columns * cut.arithmetic_bytes;
}

// ---- the addition of partial sums ----

// The partial sums that a kernel adds up. `Partials<1>`, for the sums of a single launch, takes less to launch.
template <int N>
struct Partials {
  fc_partials of[N];
};

constexpr int kColumns = 32;
constexpr int kParts = 16;

// Adds up the row blocks, column by column. Each of kParts rows of threads adds every kParts-th block; then these sums are
// added in order.
template <class T, int N>
__global__ void __launch_bounds__(kColumns *kParts) sum_partials(const __grid_constant__ Partials<N> all) {
  const fc_partials &t = all.of[N == 1 ? 0 : blockIdx.y];
  __shared__ T sums[kParts][kColumns + 1];
  take_turn();
  int total = 0;
  for (int i = 0; i < t.count; i++) total += t.counts[i];
  const int64_t columns = int64_t(total) * t.channels;
  const int64_t column = int64_t(blockIdx.x) * kColumns + threadIdx.x;
  T sum = 0;
  if (column < columns) {
    const T *p = static_cast<const T *>(t.partial) + column;
#pragma unroll 4
    for (int64_t b = threadIdx.y; b < t.blocks; b += kParts) sum += p[b * columns];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int part = 1; part < kParts; part++) sum += sums[part][threadIdx.x];
  int64_t k = column / t.channels;
  const int64_t c = column - k * t.channels;
  for (int i = 0; i < t.count; i++) {
    if (k < t.counts[i]) {
      if (t.sums[i] != nullptr) {
        with_storage<T>(t.dtype, [&](auto *type) {
          using S = typename Element<decltype(type)>::Type;
          static_cast<S *>(t.sums[i])[c * t.counts[i] + k] = Narrow<S, T>::from(sum, t.dtype);
        });
      }
      return;
    }
    k -= t.counts[i];
  }
}

// The columns of the partial sums of a launch.
int64_t columns_of(const fc_partials &t) {
  int64_t counts = 0;
  for (int i = 0; i < t.count; i++) counts += t.counts[i];
  return counts * t.channels;
}

fc_partials partials_of(const fc_kernel *kernel, const fc_call *call, const Cut &cut) {
  fc_partials t = {};
  t.partial = call->workspace;
  t.count = kernel->shape.sums;
  t.channels = call->channels;
  t.blocks = cut.plan.ctas / cut.a.slices;
  t.dtype = call->param_dtype;
  t.is_f64 = kernel->is_f64;
  for (int i = 0; i < t.count; i++) {
    t.sums[i] = call->sums[i];
    t.counts[i] = kernel->shape.sum_counts[i];
  }
  if (cut.a.sums_columns) {
    // They have the layout of a parameter of one element.
    t.sums[t.count] = call->column_sums;
    t.counts[t.count++] = 1;
  }
  return t;
}

// Adds up partial sums of one arithmetic, beside the end of the kernel before, which may have written them.
template <int N>
cudaError_t launch_totals(const Partials<N> &all, int count, cudaStream_t stream) {
  int64_t columns = 0;
  for (int i = 0; i < count; i++) columns = columns_of(all.of[i]) > columns ? columns_of(all.of[i]) : columns;
  if (columns == 0) return cudaSuccess;
  const dim3 grid(unsigned(ceil_div(columns, kColumns)), unsigned(count));
  const dim3 block(kColumns, kParts);
  return launch_in_turn(all.of[0].is_f64 ? sum_partials<double, N> : sum_partials<float, N>, grid, block, 0, stream, all);
}

cudaError_t launch_lanes(const Cut &cut, cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  const fc_plan &plan = cut.plan;
  cudaLaunchConfig_t config = configure(plan.ctas, plan.threads, plan.shared_bytes, plan.cluster, &attribute);
  config.stream = stream;
  void *arguments[] = {const_cast<Arguments *>(&cut.a)};
  return cudaLaunchKernelExC(&config, cut.function, arguments);
}

}  // namespace
}  // namespace fc

#include "walk.cuh"

bool fc::takes_turns() {
  static std::atomic<int> cache[kMaxDevices];
  Device device;
  Compiled compiled;
  if (current_device(&device) != cudaSuccess) return false;
  const void *function = reinterpret_cast<const void *>(&sum_partials<float, 1>);
  return compiled_function(function, device, cache, &compiled) == cudaSuccess && compiled.hopper;
}

extern "C" const fc_kernel *fc_find(uint64_t upper, uint64_t lower, int is_f64) {
  for (const fc::Table *table = fc::tables(); table->kernels != nullptr; table++) {
    for (int i = 0; i < table->count; i++) {
      const fc_kernel *kernel = table->kernels + i;
      if (kernel->digest[0] == upper && kernel->digest[1] == lower && kernel->is_f64 == (is_f64 != 0)) {
        return kernel;
      }
    }
  }
  return nullptr;
}

extern "C" int fc_prepare(const fc_kernel *kernel) {
  if (kernel == nullptr) return FC_ERROR_BAD_CALL;
  fc::Device device;
  const cudaError_t error = fc::current_device(&device);
  if (error != cudaSuccess) return error;
  fc::Compiled compiled[FC_VARIANTS];
  return fc::prepare(kernel, device, compiled);
}

extern "C" int fc_workspace_bytes(const fc_kernel *kernel, const fc_call *call, size_t *bytes) {
  if (kernel == nullptr || call == nullptr || bytes == nullptr) return FC_ERROR_BAD_CALL;
  *bytes = 0;
  if (call->channels == 0 && call->scalars == 0) return 0;
  if (kernel->walks) return fc::walk_workspace_bytes(kernel, call, bytes);
  fc::Cut cut;
  const int error = fc::plan_call(kernel, call, &cut);
  if (error == 0) *bytes = fc::partial_bytes(kernel, cut);
  return error;
}

extern "C" int fc_plan_of(const fc_kernel *kernel, const fc_call *call, fc_plan *plan) {
  if (kernel == nullptr || call == nullptr || plan == nullptr) return FC_ERROR_BAD_CALL;
  *plan = {};
  if (call->channels == 0 && call->scalars == 0) return 0;
  if (kernel->walks) return fc::plan_walk(kernel, call, plan);
  fc::Cut cut;
  const int error = fc::plan_call(kernel, call, &cut);
  if (error == 0) *plan = cut.plan;
  return error;
}

namespace fc {
namespace {

// Runs the lanes of a call. Its partial sums, if there are any, are left in the workspace, which is null without rows.
int launch_call(const fc_kernel *kernel, const fc_call *call, Cut *cut, bool *has_sums, cudaStream_t stream) {
  if (const int error = plan_call(kernel, call, cut)) return error;
  *has_sums = cut->a.partial != nullptr;
  if (*has_sums) {
    if (call->workspace_bytes < partial_bytes(kernel, *cut)) return FC_ERROR_BAD_CALL;
    cut->a.partial = call->workspace;
  }
  return cut->plan.ctas > 0 ? launch_lanes(*cut, stream) : cudaSuccess;
}

}  // namespace
}  // namespace fc

extern "C" int fc_launch(const fc_kernel *kernel, const fc_call *call, void *stream) {
  if (kernel == nullptr || call == nullptr) return FC_ERROR_BAD_CALL;
  // The totals of rows without lanes are zero.
  if (call->channels == 0 && call->scalars == 0 && kernel->shape.totals == 0) return 0;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (kernel->walks) return fc::launch_walk(kernel, call, on);
  fc::Cut cut;
  bool has_sums = false;
  const int error = fc::launch_call(kernel, call, &cut, &has_sums, on);
  if (error != 0 || !has_sums) return error;
  return fc::launch_totals(fc::Partials<1>{{fc::partials_of(kernel, call, cut)}}, 1, on);
}

extern "C" int fc_launch_in_parts(const fc_kernel *kernel, const fc_call *call, fc_partials *left, void *stream) {
  if (kernel == nullptr || call == nullptr || left == nullptr || kernel->walks) return FC_ERROR_BAD_CALL;
  *left = {};
  if (call->channels == 0) return 0;
  fc::Cut cut;
  bool has_sums = false;
  const int error = fc::launch_call(kernel, call, &cut, &has_sums, static_cast<cudaStream_t>(stream));
  if (error == 0 && has_sums) *left = fc::partials_of(kernel, call, cut);
  return error;
}

extern "C" int fc_add_up(const fc_partials *all, int32_t count, void *stream) {
  if (count < 0 || (count > 0 && all == nullptr)) return FC_ERROR_BAD_CALL;
  for (int32_t i = 0; i < count; i++) {
    if (all[i].count < 0 || all[i].count > FC_MAX_PARAMS) return FC_ERROR_BAD_CALL;
  }
  for (int is_f64 = 0; is_f64 < 2; is_f64++) {
    for (int32_t next = 0; next < count;) {
      fc::Partials<FC_MOST_PARTIALS> list = {};
      int taken = 0;
      for (; next < count && taken < FC_MOST_PARTIALS; next++) {
        if ((all[next].is_f64 != 0) == (is_f64 != 0) && fc::columns_of(all[next]) > 0) list.of[taken++] = all[next];
      }
      if (taken == 0) break;
      if (const int error = fc::launch_totals(list, taken, static_cast<cudaStream_t>(stream))) return error;
    }
  }
  return 0;
}

extern "C" const char *fc_error_name(int code) {
  switch (code) {
    case FC_ERROR_BAD_CALL: return "FC_ERROR_BAD_CALL";
    case FC_ERROR_TOO_LARGE: return "FC_ERROR_TOO_LARGE";
    default: return cudaGetErrorName(cudaError_t(code));
  }
}

extern "C" const char *fc_error_string(int code) {
  switch (code) {
    case FC_ERROR_BAD_CALL: return "the call does not fit the kernel";
    case FC_ERROR_TOO_LARGE: return "the shape needs more than the GPU can launch";
    default: return cudaGetErrorString(cudaError_t(code));
  }
}

extern "C" const char *fc_architectures(void) { return FC_ARCHITECTURES; }
