// The rows of attention: where they lie in memory, and their way to shared memory.
#pragma once

#include <cuda_runtime.h>

#include "attention.h"
#include "skeleton/memory.cuh"

namespace fc {
namespace {

constexpr int kEight = 8;  // rows and columns of a fragment
constexpr int kAligned = FC_ATTENTION_ALIGNED;

// The heads that one CTA counts as rows: all heads if they share one head of keys, else one.
__host__ __device__ inline int folded_heads(const fc_attention &of) { return of.key_heads == 1 ? of.heads : 1; }

// Whether a sequence has enough queries and keys for the kernels of long ones. This is asked of each sequence, so that its results do not
// depend on others.
__host__ __device__ inline bool is_long(int64_t queries, int64_t keys) {
  constexpr int64_t kShortest = 128;
  return queries >= kShortest && keys >= kShortest;
}

// The rows of one sequence. Heads that share keys and values are rows too, one head after another.
struct Span {
  int64_t sequence, first;  // the sequence, and its first row among all rows where there are bounds
  int count;                // of items
  int rows;                 // items of all heads
  int head;                 // the first
  uint32_t magic;           // 2^32 / count, rounded up: divides rows by the items of a head

  FC_INLINE Span(const fc_attention_rows &of, int64_t at, int first_head, int heads) : sequence(at), first(0), head(first_head) {
    count = int(of.longest);
    if (of.bounds != nullptr) {
      first = of.bounds[at];
      count = int(of.bounds[at + 1] - first);
      sequence = 0;
    }
    rows = count * heads;
    magic = heads > 1 && count > 1 ? 0xffffffffu / uint32_t(count) + 1 : 0;
  }
  // The head and the item of a row.
  FC_INLINE int divided(int row, int *item) const {
    if (count == rows) return *item = row, head;
    const int quotient = count == 1 ? row : int(__umulhi(uint32_t(row), magic));
    *item = row - quotient * count;
    return head + quotient;
  }
  template <class S>
  FC_INLINE S *at(const fc_attention_tensor &tensor, int row) const {
    int item;
    const int of_head = divided(row, &item);
    return static_cast<S *>(tensor.features) + sequence * tensor.sequence_stride + (first + item) * tensor.row_stride +
           of_head * tensor.head_stride;
  }
  // The place of a row's sum.
  FC_INLINE float *sum_at(const fc_attention &of, int row) const {
    int item;
    const int of_head = divided(row, &item);
    return of.log_sums + of_head * of.queries.count + (of.queries.bounds == nullptr ? sequence * of.queries.longest : first) + item;
  }
};

// A stride is 4 times an odd number, so that no fragment has two elements in one bank.
struct Rows {
  float *at;
  int width, stride;  // whole eights: the numbers after the features are zeros
};

__host__ __device__ inline int whole_eights(int width) { return (width + kEight - 1) / kEight * kEight; }
__host__ __device__ inline int stride_of(int width) { return whole_eights(width) + 4; }

FC_INLINE Rows rows_at(float *&next, int count, int width) {
  const Rows rows = {next, whole_eights(width), stride_of(width)};
  next += count * rows.stride;
  return rows;
}

// Tensors of the same rows, and their widths. A width of 0 is none.
struct Sources {
  const fc_attention_tensor *tensors[3];
  int widths[3];
};

// Begins to copy rows of tensors to shared memory, and writes zeros after them. A warp has a row at a time, a thread a word of all tensors;
// f32 is copied asynchronously.
template <class S, int Count>
FC_INLINE void fill(const Rows (&to)[Count], const Sources &from, const Span &span, int start, int padded, int dtype) {
  constexpr int kRows = 4;  // loads of 16-bit numbers under way at once
  const int warp = int(threadIdx.x) / 32, warps = int(blockDim.x) / 32, count = min(span.rows - start, padded);
  int words = 0;
  FC_EACH(Count, words += to[i].width / kAligned;)
#pragma unroll 1
  for (int word = int(threadIdx.x) % 32; word < words; word += 32) {
    int which = 0, column = word * kAligned;
#pragma unroll
    for (int i = 1; i < Count; i++) {
      if (which == i - 1 && column >= to[i - 1].width) {
        column -= to[i - 1].width;
        which = i;
      }
    }
    Rows rows = to[0];
    const fc_attention_tensor *tensor = from.tensors[0];
    int width = from.widths[0];
#pragma unroll
    for (int i = 1; i < Count; i++) {
      if (which == i) rows = to[i], tensor = from.tensors[i], width = from.widths[i];
    }
    float *place = rows.at + column;
    const bool inside = column < width;
    if constexpr (sizeof(S) == 4) {
#pragma unroll 4
      for (int row = warp; row < padded; row += warps) {
        if (inside && row < count) {
          copy_async<16>(place + row * rows.stride, span.template at<const S>(*tensor, start + row) + column);
        } else {
          *reinterpret_cast<float4 *>(place + row * rows.stride) = make_float4(0, 0, 0, 0);
        }
      }
    } else {
#pragma unroll 1
      for (int first = warp; first < padded; first += kRows * warps) {
        Lanes<float, kAligned> found[kRows];
#pragma unroll
        for (int i = 0; i < kRows; i++) {
          const int row = min(first + i * warps, count - 1);
          const S *of_row = span.template at<const S>(*tensor, start + row) + min(column, width - kAligned);
          found[i] = load_lanes<S, float, kAligned>(of_row, dtype);
        }
#pragma unroll
        for (int i = 0; i < kRows; i++) {
          const int row = first + i * warps;
          float4 value = make_float4(0, 0, 0, 0);
          if (inside && row < count) value = make_float4(found[i].v[0], found[i].v[1], found[i].v[2], found[i].v[3]);
          if (row < padded) *reinterpret_cast<float4 *>(place + row * rows.stride) = value;
        }
      }
    }
  }
}

// Tiles of rows that come one after another: the next is on its way while one is used, if there is room for two.
template <class S, int Count>
struct Tiles {
  Rows rows[Count];
  Sources from;
  const Span &span;
  int size, buffers, dtype;
  int gap;  // numbers from a buffer to the next

  // Fragments may reach `behind` numbers beyond the last rows of a buffer, where the copies of the next one must not be.
  FC_INLINE Tiles(float *&next, const Sources &sources, const Span &of, int tile, int room, int type, int behind = 0)
      : from(sources), span(of), size(tile), buffers(room), dtype(type) {
    const float *const start = next;
    FC_EACH(Count, rows[i] = rows_at(next, tile, from.widths[i]);)
    gap = room == 1 ? 0 : int(next - start) + behind;
    next += gap;
  }
  // The place of a tile, by its first row.
  FC_INLINE void place(int first, Rows (&here)[Count]) const {
    const int offset = first / size % 2 * gap;
    FC_EACH(Count, here[i] = {rows[i].at + offset, rows[i].width, rows[i].stride};)
  }
  FC_INLINE void begin(int first) const {
    Rows here[Count];
    place(first, here);
    if (first < span.rows) fill<S>(here, from, span, first, size, dtype);
    copy_commit();
  }
  // Calls f with the first row of each tile, and its rows in shared memory. Copies that began before are done then.
  template <class F>
  FC_INLINE void for_each(F &&f) const {
    begin(0);
#pragma unroll 1
    for (int first = 0; first < span.rows; first += size) {
      if (buffers == 2) begin(first + size);
      copy_wait(buffers - 1);
      __syncthreads();
      Rows here[Count];
      place(first, here);
      f(first, here);
      __syncthreads();
      if (buffers == 1) begin(first + size);
    }
  }
};

}  // namespace
}  // namespace fc
