// What the generated code of path products calls. A thread computes one lane, a (row, channel) pair, as in ../points.cuh:
// neighbours read and write neighbouring channels.
#pragma once

#include "../gemm/fragment.cuh"
#include "../uniforms.cuh"
#include "entry.h"

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

template <class Algebra, class Scalar>
struct BlockContext {
  using T = Scalar;
  using V = Lanes<T, 1>;

  const fc_block &a;
  Uniforms<T> u;
  int64_t row, channel;
  int64_t lane;       // of a blade of x and y
  int64_t blade;      // from blade to blade
  V x1[1], y1[1], f[1];

  FC_INLINE BlockContext(const fc_block &block, int64_t own)
      : a(block), u(block.gate), row(own / block.in), channel(own % block.in), lane(block.first * block.in + own),
        blade(block.batch * block.in) {
    load_x<0, 1>(x1);
    load_y<0, 1>(y1);
    Algebra::gates(*this);
  }

  FC_INLINE bool has(int path) const { return a.path[path] >= 0; }
  FC_INLINE bool has_left(int grade) const { return a.left[grade] >= 0; }
  FC_INLINE bool has_right(int grade) const { return a.right[grade] >= 0; }

  // ---- the operands ----

  // The blades of a grade; zeros if it is absent.
  template <int K>
  FC_INLINE void load_blades(const void *tensor, int place, V *values) const {
    if (place < 0) {
#pragma unroll
      for (int k = 0; k < K; k++) values[k] = splat<V>(T(0));
      return;
    }
    with_storage<T>(a.dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      const S *p = static_cast<const S *>(tensor) + place * blade + lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += blade) values[k] = load_lanes<S, T, 1>(p, a.dtype);
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

  // ---- path products: [blades, rows, paths, in] ----

  // From blade to blade.
  FC_INLINE int64_t product_blade(int grade) const { return a.rows * a.paths[grade] * a.in; }
  template <int Path>
  FC_INLINE int64_t product_lane() const {
    return (row * a.paths[Algebra::output(Path)] + a.path[Path]) * a.in + channel;
  }
};

// Forms the products of the paths to a grade.
template <class Algebra, class T>
struct FormContext : BlockContext<Algebra, T> {
  using Base = BlockContext<Algebra, T>;
  using typename Base::V;
  void *products;

  FC_INLINE FormContext(const fc_block &block, int64_t own, void *to) : Base(block, own), products(to) {}

  template <int Path, int K>
  FC_INLINE void store(const V (&values)[K]) const {
    const int64_t step = this->product_blade(Algebra::output(Path)), at = this->template product_lane<Path>();
    with_storage<T>(this->a.dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      S *p = static_cast<S *>(products) + at;
#pragma unroll
      for (int k = 0; k < K; k++, p += step) store_lanes<S, T, 1>(p, values[k], this->a.dtype);
    });
  }
};

// Takes the gradients of all path products back.
template <class Algebra, class T>
struct PullBackContext : BlockContext<Algebra, T> {
  using Base = BlockContext<Algebra, T>;
  using typename Base::V;
  const PullBack &tensors;

  FC_INLINE PullBackContext(const fc_block &block, int64_t own, const PullBack &given) : Base(block, own), tensors(given) {}

  template <int Path, int K>
  FC_INLINE void load(V (&values)[K]) const {
    constexpr int grade = Algebra::output(Path);
    const int64_t step = this->product_blade(grade);
    const T *p = static_cast<const T *>(tensors.products[grade]) + this->template product_lane<Path>();
#pragma unroll
    for (int k = 0; k < K; k++, p += step) values[k].v[0] = *p;
  }

  template <int K>
  FC_INLINE void store_blades(void *tensor, int place, const V (&values)[K]) const {
    if (tensor == nullptr || place < 0) return;
    with_storage<T>(this->a.dtype, [&](auto *type) {
      using S = typename Element<decltype(type)>::Type;
      S *p = static_cast<S *>(tensor) + place * this->blade + this->lane;
#pragma unroll
      for (int k = 0; k < K; k++, p += this->blade) store_lanes<S, T, 1>(p, values[k], this->a.dtype);
    });
  }
  template <int Grade, int K>
  FC_INLINE void store_x(const V (&values)[K]) const {
    store_blades(tensors.grad_x, this->a.left[Grade], values);
  }
  template <int Grade, int K>
  FC_INLINE void store_y(const V (&values)[K]) const {
    store_blades(tensors.grad_y, this->a.right[Grade], values);
  }
};

}  // namespace fc
