// The arguments of a kernel at a launch, and the facts that the host knows about a kernel.
#pragma once

#include <cuda_runtime.h>

#include "../types.h"

namespace fc {

constexpr int kMaxStages = 4;
constexpr int kMaxCluster = 8;

// The way in which rows reach shared memory.
enum Fill : int {
  // Every thread copies its own channels, element by element.
  kFillElements = 0,
  // Every thread copies its own channels at once.
  kFillVectors = 1,
  // The copy engine of sm_90 copies the rows of the CTA, all components at once.
  kFillBulk = 2,
};

// A CUtensorMap, by which the copy engine finds a box of a tensor.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

struct Arguments {
  TensorMap maps[FC_MAX_MAPS];
  const void *inputs[FC_MAX_TENSORS];
  void *outputs[FC_MAX_TENSORS];
  const void *params[FC_MAX_PARAMS];
  void *saved;
  // [row blocks, sums over the batch, channels], in the arithmetic type; null if neither these nor column sums are wanted.
  void *partial;
  int64_t batch;
  int64_t channels;
  // Epsilon and 1 / channels in both arithmetics, so that no thread converts them.
  double eps, inv_channels;
  float eps_f32, inv_channels_f32;
  int gate;
  int lane_dtype;
  int param_dtype;
  int lane_bytes;        // of an element
  int whole;             // every thread has all its channels, aligned for vector access
  int threads_per_row;   // of a CTA: a power of two below 32, or whole warps
  int rows_per_cta;
  int64_t blocks;        // of rows_per_cta rows
  int64_t row_ctas;      // CTAs side by side over the rows
  int slices;            // CTAs side by side over the channels of a row
  int cluster;           // the same number if they share row sums, else 1
  int tiles;             // passes over the channels of a row
  int stages;            // rows that are in shared memory or on their way
  int boxes;             // into which the channels of a CTA are cut
  int box_channels;
  int stage_bytes;
  int fill;              // a Fill
  int sums_columns;      // partial sums end with parts of the column sums: 1: of one component, 2: of all
  // Pointwise kernels: lane tensors have their own strides.
  int strided;
  fc_strides input_strides[FC_MAX_TENSORS];
  fc_strides output_strides[FC_MAX_TENSORS];
};

// The fixed facts of a kernel, which the generated code gives the host.
struct Shape : fc_shape {
  static __host__ __device__ constexpr int total(const int32_t *counts, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += counts[i];
    return sum;
  }
  __host__ __device__ constexpr Shape with(int lane_count, int most_threads, int shared) const {
    Shape shape = *this;
    shape.lanes = lane_count;
    shape.threads = most_threads;
    shape.params_shared = shared;
    return shape;
  }
  __host__ __device__ constexpr int all_inputs() const { return total(input_components, inputs); }
  // Static members cannot be indexed in device code, so kernels ask functions for what they would read from a shape.
  __host__ __device__ constexpr int param_count(int param) const { return param_counts[param]; }
  // The place of a parameter's first element among the elements of all parameters; the same for a sum.
  __host__ __device__ constexpr int first_param(int param) const { return total(param_counts, param); }
  __host__ __device__ constexpr int first_sum(int sum) const { return total(sum_counts, sum); }
  __host__ __device__ constexpr int all_params() const { return first_param(params); }
  __host__ __device__ constexpr int all_sums() const { return first_sum(sums); }
  __host__ __device__ constexpr int widest_output() const {
    int most = 0;
    for (int i = 0; i < outputs; i++) most = output_components[i] > most ? output_components[i] : most;
    return most;
  }
  // Whether a kernel can add up columns of its second output, as the adjoint of a product with one parameter does. Their partial sums
  // follow its own.
  __host__ __device__ constexpr bool sums_columns() const { return outputs == 2 && params == 1 && sums == 1; }
  // The number of row sums that threads exchange at once: all of them rounded up to a power of two, at most one for each thread of a warp.
  __host__ __device__ constexpr int reduce_width() const {
    int width = 1;
    while (width < row_sums && width < 32) width *= 2;
    return width;
  }
};

__host__ __device__ constexpr int align_up(int bytes, int to) { return (bytes + to - 1) / to * to; }

// A stage is [input][box][component, row, channels of a box], each box aligned to 128 bytes.
__host__ __device__ constexpr int box_bytes(int components, int rows, int channels, int element_bytes) {
  return align_up(components * rows * channels * element_bytes, 128);
}

// The dynamic shared memory of a CTA: [barriers][reduction][tile sums][parameters][column sums][stages][bounce].
struct Layout {
  int reduction, tile_sums, params, column_sums, stages, bounce, total;

  __host__ __device__ Layout(const Shape &shape, int arithmetic_bytes, int threads, const Arguments &a) {
    const int groups = a.rows_per_cta;
    // One barrier for each stage, and two for the sums that come from other CTAs.
    reduction = (kMaxStages + 2) * 8;
    int values = 0;
    // Two copies of each warp's sums, used in turn, so that one barrier a row is enough.
    if (shape.row_sums > 0 && (a.threads_per_row > 32 || a.cluster > 1)) {
      values = 2 * groups * a.cluster * (a.threads_per_row / 32) * shape.reduce_width();
    }
    tile_sums = reduction + align_up(values * arithmetic_bytes, 16);
    // When tiles are walked, each thread keeps its sums here, and then the totals of its row.
    const int tile_values = a.tiles > 1 ? 2 * shape.row_sums * threads : 0;
    params = tile_sums + align_up(tile_values * arithmetic_bytes, 16);
    const int param_values = shape.params_shared ? shape.all_params() * a.threads_per_row * shape.lanes : 0;
    column_sums = align_up(params + param_values * arithmetic_bytes, 16);
    const int lanes = threads * shape.lanes;
    stages = align_up(column_sums + (a.sums_columns ? lanes * arithmetic_bytes : 0), 128);
    bounce = align_up(stages + a.stages * a.stage_bytes, 128);
    // The bounce buffer takes outputs that cannot be stored as vectors, and sums over the batch on their way to memory.
    const int outputs = a.whole ? 0 : lanes * shape.widest_output() * a.lane_bytes;
    const int sums = lanes * shape.all_sums() * arithmetic_bytes;
    total = bounce + (a.tiles > 1 && sums > outputs ? sums : outputs);
    if (a.tiles == 1 && stages + sums > total) total = stages + sums;
  }
};

}  // namespace fc
