// Groups and helpers that all kernels of products with block-sparse matrices use.
#pragma once

#include "block_sparse.h"
#include "skeleton/lanes.cuh"

namespace fc {
namespace {

constexpr int kUnit = FC_UNIT;
constexpr int kUnits = FC_GROUP_UNITS;   // of outputs, at most
constexpr int kInputs = FC_GROUP_INPUTS; // of inputs, at most, for the gradient of the matrix

FC_INLINE float4 added(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

struct Group {
  const int32_t *inputs, *outputs;
  int input_count, output_count;
  bool leads;  // It is the first group with its outputs.
  FC_INLINE Group(const fc_block_groups &groups, int64_t at) {
    const int32_t *group = groups.groups + FC_GROUP_NUMBERS * at;
    inputs = groups.units + group[0];
    input_count = group[1];
    outputs = groups.units + group[2];
    output_count = group[3];
    leads = group[4] != 0;
  }
};

}  // namespace

constexpr int64_t kFewRows = FC_BLOCK_FEW_ROWS;

// The kernels for few rows, of calls that have been checked.
int few_rows_product(const fc_block_sparse &call, void *stream);
int few_rows_weights(const fc_block_sparse_gradient &call, void *stream);

}  // namespace fc
