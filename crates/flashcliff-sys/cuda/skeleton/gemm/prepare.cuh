// The light passes around the matrix products: gates, operands cut into slabs, the norm and its gradient, sums of partial
// results.
#pragma once

#include "../gates.cuh"
#include "mma.cuh"
#include "problem.cuh"

namespace fc {
namespace gemm {

// Elements in memory, by fc_dtype.
FC_INLINE float read_element(const void *p, int64_t at, int dtype) {
  if (dtype == FC_F32) return static_cast<const float *>(p)[at];
  const uint16_t bits = static_cast<const uint16_t *>(p)[at];
  return dtype == FC_BF16 ? Bf16::low(bits) : F16::low(bits);
}
FC_INLINE void write_element(void *p, int64_t at, float value, int dtype) {
  if (dtype == FC_F32) {
    static_cast<float *>(p)[at] = value;
  } else {
    static_cast<uint16_t *>(p)[at] = dtype == FC_BF16 ? uint16_t(Bf16::pack(value, 0.0f)) : uint16_t(F16::pack(value, 0.0f));
  }
}

constexpr int kThreads = 256;
constexpr int kSquare = 32;

// f[b, n] = scale gate(x_1[b, n]) gate(y_1[b, n]), rows padded with zeros; null scalars are zeros.
__global__ void __launch_bounds__(kThreads)
    gates_kernel(const void *x, const void *y, void *f, int64_t batch, int in, int padded, int gate_kind, float scale, int dtype) {
  const int column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= padded) return;
  for (int64_t row = blockIdx.y; row < batch; row += gridDim.y) {
    float value = 0.0f;
    if (column < in) {
      const int64_t at = row * in + column;
      const Lanes<float, 2> scalars = {
          {x == nullptr ? 0.0f : read_element(x, at, dtype), y == nullptr ? 0.0f : read_element(y, at, dtype)}};
      const Lanes<float, 2> gates = gate(gate_kind, scalars);
      value = gates.v[0] * gates.v[1] * scale;
    }
    write_element(f, row * padded + column, value, dtype);
  }
}

// Matrices [matrix][row][column] to be cut into slabs, by the number of the algebra; place -1: zeros.
struct Source {
  const void *data;
  int64_t rows, columns;
  int dtype;
  int8_t place[kMaxPaths];
};

// How the words of a slab lie.
enum Layout : int {
  // [row][8 words]
  kRowMajor = 0,
  // [row / 8][word % 2][row % 8][4 words]: blocks of 16 bytes by 8 rows (see async.cuh). Words 2t and 2t + 1, which a thread of
  // the left operand holds, are the t-th and the (t + 4)-th.
  kBlocks = 1,
  // [row / 16][lane][4 words]: what a thread holds of a left operand.
  kFragments = 2,
};

// Where the slabs go: k along the columns of the source, or along its rows.
struct Target {
  char *data;  // null: not wanted
  Slabs slabs;
  int64_t rows, k;  // padded
  int dtype;
  Layout layout;
  int round;   // to TF32
};

// What turns the gradient of the output into that before the norm: g = grad_o / r - o (mean of grad_o o) / r.
struct NormGradient {
  const void *output;
  const float2 *scales;  // [grade, row]; null: no norm
  int8_t grade[kMaxBlades];
};

// Writes a square of numbers, of which value(row, k) is one: 16 bytes a thread at a time.
template <class F>
FC_INLINE void write_slabs(const Target &to, int matrix, int64_t row0, int64_t k0, F &&value) {
  if (to.data == nullptr) return;
  const int numbers = to.dtype == FC_F32 ? 1 : 2, per_slab = 8 * numbers;
  for (int i = threadIdx.x; i < 2 * kSquare * (kSquare / per_slab); i += kThreads) {
    // Neighbouring threads write neighbouring pieces, in all layouts.
    const int slab = i / (2 * kSquare), rest = i % (2 * kSquare);
    // The first row and word of the piece.
    int row, word;
    if (to.layout == kFragments) {
      row = rest / 32 * 16 + rest % 32 / 4;
      word = rest % 4 * 2;
    } else if (to.layout == kBlocks) {
      row = rest / 16 * 8 + rest % 8;
      word = rest / 8 % 2;
    } else {
      row = rest / 2;
      word = rest % 2 * 4;
    }
    const int64_t k = k0 + slab * per_slab;
    if (row0 + row >= to.rows || k >= to.k) continue;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
      const int row_of = to.layout == kFragments ? row + w % 2 * 8 : row;
      const int word_of = to.layout == kFragments ? word + w / 2 : (to.layout == kBlocks ? word + 2 * w : word + w);
      const int first = slab * per_slab + word_of * numbers;
      const float one = value(row_of, first);
      if (numbers == 1) {
        words[w] = to.round ? round_tf32(one) : __float_as_uint(one);
      } else {
        const float two = value(row_of, first + 1);
        words[w] = to.dtype == FC_BF16 ? Bf16::pack(one, two) : F16::pack(one, two);
      }
    }
    char *piece = to.data + uint64_t(matrix) * to.slabs.matrix + uint64_t(k / per_slab) * to.slabs.slab +
                  row0 * kSlabBytes + rest * 16;
    *reinterpret_cast<uint4 *>(piece) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__global__ void __launch_bounds__(kThreads)
    slabs_kernel(const __grid_constant__ Source from, const __grid_constant__ NormGradient norm,
                 const __grid_constant__ Target along_columns, const __grid_constant__ Target along_rows) {
  __shared__ float tile[kSquare][kSquare + 1];
  const int64_t row0 = int64_t(blockIdx.x) * kSquare, column0 = int64_t(blockIdx.y) * kSquare;
  const int matrix = blockIdx.z, place = from.place[matrix], lane = threadIdx.x % kSquare;
  for (int i = threadIdx.x / kSquare; i < kSquare; i += kThreads / kSquare) {
    const int64_t row = row0 + i, column = column0 + lane;
    float value = 0.0f;
    if (place >= 0 && row < from.rows && column < from.columns) {
      const int64_t at = (place * from.rows + row) * from.columns + column;
      value = read_element(from.data, at, from.dtype);
      if (norm.scales != nullptr) {
        const float2 scale = norm.scales[norm.grade[matrix] * from.rows + row];
        value = value * scale.x - read_element(norm.output, at, from.dtype) * scale.y;
      }
    }
    tile[i][lane] = value;
  }
  __syncthreads();
  write_slabs(along_columns, matrix, row0, column0, [&](int row, int k) { return tile[row][k]; });
  write_slabs(along_rows, matrix, column0, row0, [&](int row, int k) { return tile[k][row]; });
}

// to[i] = sum over s of parts[s, i], in order.
__global__ void __launch_bounds__(kThreads)
    add_splits_kernel(const float *parts, void *to, int64_t count, int splits, int dtype) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    float sum = 0.0f;
    for (int s = 0; s < splits; s++) sum += parts[s * count + i];
    write_element(to, i, sum, dtype);
  }
}

// Which blades and partial sums belong to a grade.
struct Grades {
  int count;
  int first[6], blades[6];  // of the tensor
  int parts;
  int8_t part_grade[32];    // -1: absent
};

// One warp a row and grade.
FC_INLINE bool warp_row(const Grades &grades, int64_t batch, int64_t &row, int &grade) {
  const int64_t warp = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  row = warp / grades.count;
  grade = int(warp % grades.count);
  return row < batch;
}

FC_INLINE float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

// saved[grade, b] = sum of squares, from partial sums; output = product / sqrt(sum / out + eps).
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const __grid_constant__ Grades grades, const float *sums, int slices, const float *product, void *output,
                float *saved, int64_t batch, int64_t out, float eps, int dtype) {
  int64_t row;
  int grade;
  if (!warp_row(grades, batch, row, grade)) return;
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int part = 0; part < grades.parts; part++) {
    if (grades.part_grade[part] != grade) continue;
    for (int s = lane; s < slices; s += 32) sum += sums[(int64_t(part) * slices + s) * batch + row];
  }
  sum = warp_sum(sum);
  if (lane == 0 && saved != nullptr) saved[grade * batch + row] = sum;
  const float scale = 1.0f / sqrtf(sum / float(out) + eps);
  const bool wide = dtype == FC_F32 && out % 4 == 0 && (reinterpret_cast<uintptr_t>(product) | reinterpret_cast<uintptr_t>(output)) % 16 == 0;
  for (int i = 0; i < grades.blades[grade]; i++) {
    const int64_t at = (int64_t(grades.first[grade] + i) * batch + row) * out;
    if (wide) {
      const float4 *from = reinterpret_cast<const float4 *>(product + at);
      float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(output) + at);
      for (int64_t n = lane; n < out / 4; n += 32) {
        float4 q = from[n];
        q.x *= scale, q.y *= scale, q.z *= scale, q.w *= scale;
        to[n] = q;
      }
    } else {
      for (int64_t n = lane; n < out; n += 32) write_element(output, at + n, product[at + n] * scale, dtype);
    }
  }
}

// scales[grade, b] = (1 / r, mean of grad_o o / r), r the root of the mean square.
__global__ void __launch_bounds__(kThreads)
    norm_gradient_kernel(const __grid_constant__ Grades grades, const void *output, const void *grad_output, const float *saved,
                         float2 *scales, int64_t batch, int64_t out, float eps, int dtype) {
  int64_t row;
  int grade;
  if (!warp_row(grades, batch, row, grade)) return;
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  const bool wide = dtype == FC_F32 && out % 4 == 0 && (reinterpret_cast<uintptr_t>(output) | reinterpret_cast<uintptr_t>(grad_output)) % 16 == 0;
  for (int i = 0; i < grades.blades[grade]; i++) {
    const int64_t at = (int64_t(grades.first[grade] + i) * batch + row) * out;
    if (wide) {
      const float4 *o = reinterpret_cast<const float4 *>(static_cast<const float *>(output) + at);
      const float4 *d = reinterpret_cast<const float4 *>(static_cast<const float *>(grad_output) + at);
      for (int64_t n = lane; n < out / 4; n += 32) {
        const float4 p = o[n], q = d[n];
        sum = fmaf(p.x, q.x, fmaf(p.y, q.y, fmaf(p.z, q.z, fmaf(p.w, q.w, sum))));
      }
    } else {
      for (int64_t n = lane; n < out; n += 32) {
        sum = fmaf(read_element(output, at + n, dtype), read_element(grad_output, at + n, dtype), sum);
      }
    }
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
  const float scale = 1.0f / sqrtf(saved[grade * batch + row] / float(out) + eps);
  scales[grade * batch + row] = make_float2(scale, sum / float(out) * scale);
}

}  // namespace gemm
}  // namespace fc
