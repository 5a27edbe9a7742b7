// The context that the generated code of path products calls. A thread computes a few neighbouring channels of one row.
#pragma once

#include "../scale.cuh"
#include "../uniforms.cuh"
#include "entry.h"
#include "types.cuh"

// A function from an index to a number, for generated tables.
#define FC_TABLE(name, ...)                                  \
  __host__ __device__ static constexpr int name(int index) { \
    constexpr int numbers[] = {__VA_ARGS__};                 \
    return numbers[index];                                   \
  }

namespace fc {

template <class V, int K>
FC_INLINE void clear(V (&values)[K]) {
#pragma unroll
  for (int k = 0; k < K; k++) values[k] = splat<V>(typename V::Scalar(0));
}

template <class V, int K>
FC_INLINE void add(V (&sums)[K], const V (&terms)[K]) {
#pragma unroll
  for (int k = 0; k < K; k++) sums[k] = sums[k] + terms[k];
}

// Adds the products of components in order.
template <class V, int K>
FC_INLINE void add_products(V (&sum)[1], const V (&left)[K], const V (&right)[K]) {
#pragma unroll
  for (int k = 0; k < K; k++) sum[0] = mul_add(left[k], right[k], sum[0]);
}

// Multiplies all values by a factor. Where it is 0 they become 0, whatever they are.
template <class V, int K>
FC_INLINE void damp_all(const V (&factor)[1], V (&values)[K]) {
#pragma unroll
  for (int k = 0; k < K; k++) values[k] = damp(factor[0], values[k]);
}

// The place of a thread: its row of the block, and its first channel.
struct Place {
  int64_t row, channel;
};

// The compile-time parameters of a kernel.
template <class Scalar, int ChannelCount, int Type, bool AllPaths, bool Scales = false>
struct Variant {
  using T = Scalar;
  static constexpr int kChannels = ChannelCount;  // of a thread
  static constexpr int kType = Type;              // of the tensors
  static constexpr bool kAll = AllPaths;          // every grade and path is there
  static constexpr bool kScales = Scales;         // the block is scaled
  static constexpr int kOperands = Scales ? FC_F16 : Type;  // the type of path products in memory
};

template <class Algebra, class Variant>
struct BlockContext {
  using T = typename Variant::T;
  static constexpr int kChannels = Variant::kChannels;
  static constexpr bool kAll = Variant::kAll;
  using V = Lanes<T, kChannels>;

  const fc_block &a;
  Uniforms<T> u;
  Place own;
  int64_t lane;       // of a blade of x and y
  int64_t blade;      // from blade to blade
  int64_t in;         // the channels
  V x1[1], y1[1], f[1];

  FC_INLINE BlockContext(const fc_block &block, const Place &place)
      : a(block), u(block.gate), own(place), lane((block.first + place.row) * block.in + place.channel),
        blade(block.batch * block.in), in(block.in) {
    // Otherwise the compiler would compute the distances of all blades and paths from these values, and keep them from one
    // place of a loop to the next. Without a loop they need no registers of a thread.
    if constexpr (Variant::kScales || !kAll) asm volatile("" : "+l"(blade), "+l"(in));
    load_x<0, 1>(x1);
    load_y<0, 1>(y1);
    Algebra::gates(*this);
  }

  FC_INLINE int dtype() const { return type_or<Variant::kType>(a.dtype); }
  FC_INLINE int operands() const { return type_or<Variant::kOperands>(a.operands); }

  FC_INLINE bool has(int path) const { return kAll || a.path[path] >= 0; }
  FC_INLINE bool has_left(int grade) const { return kAll || a.left[grade] >= 0; }
  FC_INLINE bool has_right(int grade) const { return kAll || a.right[grade] >= 0; }

  // ---- the operands ----

  // The blades of a grade; zeros if it is absent.
  template <int K>
  FC_INLINE void load_blades(const void *tensor, int place, V *values) const {
    if (!kAll && place < 0) {
#pragma unroll
      for (int k = 0; k < K; k++) values[k] = splat<V>(T(0));
      return;
    }
    with_storage<T, type_bytes(Variant::kType)>(dtype(), [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(tensor) + place * blade + lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += blade) values[k] = load_lanes<S, T, kChannels>(p, dtype());
    });
  }
  template <int Grade, int K>
  FC_INLINE void load_x(V *values) const {
    load_blades<K>(a.x, a.left[Grade], values);
  }
  template <int Grade, int K>
  FC_INLINE void load_y(V *values) const {
    load_blades<K>(a.y, a.right[Grade], values);
  }

  // ---- path products of a grade: [blades, rows, paths, in] ----

  // The number of paths to a grade before `end`. If all paths are there, it is the place of the path `end` too.
  __host__ __device__ static constexpr int paths_before(int end, int grade) {
    int count = 0;
    for (int path = 0; path < end; path++) count += Algebra::output(path) == grade;
    return count;
  }
  template <int Grade>
  FC_INLINE int64_t paths() const {
    constexpr int all = paths_before(Algebra::kPaths, Grade);
    return kAll ? all : a.paths[Grade];
  }
  // The distance from blade to blade.
  template <int Grade>
  FC_INLINE int64_t product_blade() const {
    return a.rows * paths<Grade>() * in;
  }
  template <int Path>
  FC_INLINE int64_t product_lane() const {
    constexpr int grade = Algebra::output(Path), place = paths_before(Path, grade);
    return (own.row * paths<grade>() + (kAll ? place : a.path[Path])) * in + own.channel;
  }
};

// The exponents of the gradient of a row of a scaled block, by grade; 0 for absent grades.
template <class Variant, int Grades>
FC_INLINE void find_grad_scales(const fc_block &a, const Place &place, int (&scales)[Grades]) {
#pragma unroll
  for (int grade = 0; grade < Grades; grade++) {
    scales[grade] = Variant::kAll || a.result[grade] >= 0 ? a.scales.grads[grade * a.rows + place.row] : 0;
  }
}

// Leaves path products unscaled.
struct NoPowers {
  template <int Path, class V>
  FC_INLINE V scaled(const V &values) const {
    return values;
  }
};

// Forms the products of all paths, times powers of two.
template <class Algebra, class Variant, class Powers>
struct FormContext : BlockContext<Algebra, Variant> {
  using Base = BlockContext<Algebra, Variant>;
  using typename Base::T;
  using Base::kChannels;
  using typename Base::V;
  const PathProducts &tensors;
  Powers powers;

  // The operands may belong to another context.
  FC_INLINE FormContext(const Base &operands, const PathProducts &to, const Powers &by) : Base(operands), tensors(to), powers(by) {}

  template <int Path, int K>
  FC_INLINE void store(const V (&values)[K]) const {
    constexpr int grade = Algebra::output(Path);
    with_storage<T, type_bytes(Variant::kOperands)>(this->operands(), [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const int64_t step = this->template product_blade<grade>();
      S *p = static_cast<S *>(tensors.of[grade]) + this->template product_lane<Path>();
#pragma unroll
      for (int k = 0; k < K; k++, p += step) {
        store_lanes<S, T, kChannels>(p, powers.template scaled<Path>(values[k]), this->operands());
      }
    });
  }
};

// Takes the gradients of all path products back.
template <class Algebra, class Variant>
struct PullBackContext : BlockContext<Algebra, Variant> {
  using Base = BlockContext<Algebra, Variant>;
  using typename Base::T;
  using Base::kChannels;
  using Base::kAll;
  using typename Base::V;
  const PathProducts &tensors;
  void *grad_x, *grad_y;
  T unscale[Variant::kScales ? Algebra::kGrades : 1];  // by grade

  FC_INLINE PullBackContext(const fc_block &block, const Place &place, const PathProducts &from, void *to_x, void *to_y)
      : Base(block, place), tensors(from), grad_x(to_x), grad_y(to_y) {
    if constexpr (Variant::kScales) {
      const int all = block.scales.path_grads - *block.scales.weights;
      int scales[Algebra::kGrades];
      find_grad_scales<Variant>(block, place, scales);
#pragma unroll
      for (int grade = 0; grade < Algebra::kGrades; grade++) unscale[grade] = power_of_two(all - scales[grade]);
    }
  }

  template <int Path, int K>
  FC_INLINE void load(V (&values)[K]) const {
    constexpr int grade = Algebra::output(Path);
    const int64_t step = this->template product_blade<grade>();
    with_storage<T, type_bytes(Variant::kOperands)>(this->operands(), [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(tensors.of[grade]) + this->template product_lane<Path>();
#pragma unroll
      for (int k = 0; k < K; k++, p += step) values[k] = load_lanes<S, T, kChannels>(p, this->operands());
    });
    if constexpr (Variant::kScales) {
#pragma unroll
      for (int k = 0; k < K; k++) values[k] = values[k] * unscale[grade];
    }
  }

  template <int K>
  FC_INLINE void store_blades(void *tensor, int place, const V (&values)[K]) const {
    if (tensor == nullptr || (!kAll && place < 0)) return;
    with_storage<T, type_bytes(Variant::kType)>(this->dtype(), [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      S *p = static_cast<S *>(tensor) + place * this->blade + this->lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += this->blade) store_lanes<S, T, kChannels>(p, values[k], this->dtype());
    });
  }
  template <int Grade, int K>
  FC_INLINE void store_x(const V (&values)[K]) const {
    store_blades(grad_x, this->a.left[Grade], values);
  }
  template <int Grade, int K>
  FC_INLINE void store_y(const V (&values)[K]) const {
    store_blades(grad_y, this->a.right[Grade], values);
  }
};

}  // namespace fc
