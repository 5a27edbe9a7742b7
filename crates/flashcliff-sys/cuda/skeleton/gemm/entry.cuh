// What the generated code of an algebra gives the launcher.
#pragma once

#include "entry.h"
#include "forward.cuh"
#include "operands.cuh"
#include "weights.cuh"

#define FC_BY_PRECISION(kernel, Algebra)                                            \
  {                                                                                 \
    reinterpret_cast<const void *>(&fc::gemm::kernel<Algebra, fc::gemm::Tf32>),     \
        reinterpret_cast<const void *>(&fc::gemm::kernel<Algebra, fc::gemm::Bf16>), \
        reinterpret_cast<const void *>(&fc::gemm::kernel<Algebra, fc::gemm::F16>)   \
  }

#define FC_FULLY_CONNECTED(name, Algebra)                                                                             \
  {                                                                                                                   \
    name, Algebra::kBlades, Algebra::kGrades, Algebra::kPaths, Algebra::kParts, Algebra::kForwardGroups,              \
        Algebra::kForwardBatchPaths, Algebra::kWeightsGroups, Algebra::kOperandsBlades,     \
        Algebra::kOperandsPaths, &Algebra::grade_of, &Algebra::part_grade, &Algebra::weights_operands,                \
        &Algebra::weights_blades, FC_BY_PRECISION(forward_kernel, Algebra), FC_BY_PRECISION(weights_kernel, Algebra), \
        FC_BY_PRECISION(operands_kernel, Algebra), {}                                                                 \
  }
