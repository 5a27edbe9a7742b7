// What a launch of the fully connected product tells its kernels.
#pragma once

#include <stdint.h>

namespace fc {
namespace gemm {

constexpr int kMaxBlades = 32;
constexpr int kMaxPaths = 64;
// What a warp computes: rows, and columns in the forward pass and for the weights, and for the operands.
constexpr int kWarpRows = 16;
constexpr int kWarpColumns = 64;
constexpr int kOperandColumns = 16;
// Warps of a CTA side by side over the columns.
constexpr int kColumnWarps = 2;

// Operands of matrix products that are prepared for them are cut along k into slabs of 8 words:
// [matrix][k slab][row][8 words], rows and slabs padded with zeros. A tile of a slab is one piece of memory.
constexpr int kSlabBytes = 32;
constexpr int kRowPadding = 128;
// Slabs that are brought to shared memory at a time, of what is not prepared.
constexpr int kSlabs = 2;

// Algebras of at most so many blades use the asynchronous products of sm_90a: these need four warps over the rows, for which
// the operands of more blades leave no room in shared memory.
constexpr int kAsyncForwardBlades = 16;
constexpr int kAsyncWeightsBlades = 8;

struct Slabs {
  const char *data;
  uint32_t slab;    // bytes from slab to slab
  uint32_t matrix;  // bytes from matrix to matrix
};

// In shared memory, 16 rows of a slab.
constexpr int kBlockBytes = kWarpRows * kSlabBytes;

// A tensor [blades][batch][channels] as the caller has it.
struct Lane {
  const char *data;
  int64_t row;    // bytes from row to row
  int64_t blade;  // bytes from blade to blade
  int64_t bytes;  // of a row
  int whole;      // rows begin and end at multiples of 16 bytes, and all blades are there
};

struct Problem {
  Lane x, y;
  Lane f;           // gate(x_1) gate(y_1), [batch][in]; null: no gates
  Slabs w;          // forward: [paths][out][in]; operands: [paths][in][out]
  Slabs g;          // gradient before the norm: operands: [blades][batch][out]; weights: [blades][out][batch]
  int64_t batch, in, out;
  void *result;     // forward: [blades][batch][out]; weights: [splits][paths][in][out], f32
  int result_narrow;       // forward: the result has the type of the operands, else f32
  void *grad_x, *grad_y;   // of the type of the operands; null: not wanted
  float *sums;      // forward: [parts][column slices][batch], sums of squares; null: no norm
  int slices;       // forward: of the columns; weights: paths of the result
  int gate;
  float scale;      // of the products, where there are no gates
  int warp_rows;    // warps of a CTA over the rows
  int operand_slots, weight_slots;  // of the rings in shared memory: powers of two
  int row_tiles, column_tiles;
  int splits;       // weights: the batch is cut into so many parts
  int8_t left[kMaxBlades], right[kMaxBlades];  // places in x and y; absent blades have no path, and any place
  int8_t output[kMaxBlades], path[kMaxPaths];  // places in the result; -1: absent
  int8_t has_left[kMaxBlades], has_right[kMaxBlades];
};

}  // namespace gemm
}  // namespace fc
