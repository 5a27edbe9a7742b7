// The norm of the fully connected product by the invariant form of each grade, and its gradient. The form need not be the sum
// of all squares.
//
// Each channel has its own measure: q, the squares of its blades with their signs, or sqrt(q^2 + eps^2) if both signs occur. So a thread
// goes through its channels, and through the blades of each. Values that it reads again come from the second-level cache.
#pragma once

#include "norm.cuh"

namespace fc {

// The form of a grade.
template <class T>
struct Form {
  const fc_blades &plus, &minus;
  T eps;

  FC_INLINE bool is_zero() const { return has_none(plus) && has_none(minus); }
  FC_INLINE bool is_smoothed() const { return !has_none(minus); }
  FC_INLINE T sign(int blade) const { return T(has_blade(plus, blade) - has_blade(minus, blade)); }

  // The root of the mean, computed from the sum over channels.
  FC_INLINE T root_of(T sum, T channels) const { return root(sum / channels + (is_smoothed() ? T(0) : eps)); }
};

template <class T, int N, int Threads>
FC_INLINE Form<T> form_of(const GradeRow<N, Threads> &own, const Grades &grades) {
  return {grades.plus[own.grade], grades.minus[own.grade], T(own.a.eps)};
}

// output = product / r, where r is the root of the mean measure over channels.
template <class T, int N, int Type, int Operands, int Threads>
__global__ void __launch_bounds__(norm_threads(Threads))
    invariant_norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const T *product, void *output,
                          T *saved) {
  const GradeRow<N, Threads> own(a, grades);
  if (!own.exists) return;
  using V = Lanes<T, N>;
  const Form<T> form = form_of<T>(own, grades);
  const TwoPowers unscale = TwoPowers(is_scaled<Type, Operands>(a) ? -*a.scales.weights - a.scales.rows[own.of_algebra * a.rows + own.row] : 0);
  const auto read_product = [&](int blade, int64_t channel) {
    return unscale.of(load_lanes<T, T, N>(product + own.in_block(own.first + blade) + channel, a.dtype));
  };
  RowTotals<T> totals = {};
  own.each_channels([&](int64_t channel) {
    V q = splat<V>(T(0));
    for (int blade = 0; blade < own.blades; blade++) {
      const V o = read_product(blade, channel);
      q = mul_add(o * form.sign(blade), o, q);
    }
    if (form.is_smoothed()) q = hypotenuse(q, form.eps);
    FC_EACH(N, totals.sum += q.v[i])
  });
  totals = total_of<Threads / 32>(totals);
  if (own.thread == 0 && saved != nullptr) saved[own.in_saved()] = totals.sum;
  const T scale = form.is_zero() ? T(1) : T(1) / form.root_of(totals.sum, T(a.out));
  own.each_channels([&](int64_t channel) {
    for (int blade = 0; blade < own.blades; blade++) {
      const V o = read_product(blade, channel);
      write<N, T, Type>(output, own.in_call(own.first + blade) + channel, o * scale, a.dtype);
    }
  });
}

// The gradient of the norm: grad_product = (grad_output - k sign output (mean of grad_output output)) / r. The factor k is q
// over its smoothed magnitude, and is 1 unless both signs occur.
template <class T, int N, int Type, int Operands, int Threads>
__global__ void __launch_bounds__(norm_threads(Threads))
    undo_invariant_norm_kernel(const __grid_constant__ fc_block a, const __grid_constant__ Grades grades, const void *output,
                               const void *grad_output, const T *saved, void *grad_product) {
  const GradeRow<N, Threads> own(a, grades);
  if (!own.exists) return;
  using V = Lanes<T, N>;
  const Form<T> form = form_of<T>(own, grades);
  const T measures = saved[own.in_saved()];
  const auto read_row = [&](const void *tensor, int blade, int64_t channel) {
    return read<N, T, Type>(tensor, own.in_call(own.first + blade) + channel, a.dtype);
  };
  const bool scaled = is_scaled<Type, Operands>(a);
  RowTotals<T> totals = {};
  own.each_channels([&](int64_t channel) {
    for (int blade = 0; blade < own.blades; blade++) {
      const V grad = read_row(grad_output, blade, channel), o = read_row(output, blade, channel);
      FC_EACH(N, totals.sum = fused(o.v[i], grad.v[i], totals.sum))
      if constexpr (sizeof(T) == 4) {
        if (scaled) {
          totals.largest[0].add(grad);
          totals.largest[1].add(o);
        }
      }
    }
  });
  totals = total_of<Threads / 32>(totals);
  const T own_root = form.is_zero() ? T(1) : form.root_of(measures, T(a.out));
  const T scale = T(1) / own_root, mean = form.is_zero() ? T(0) : totals.sum / T(a.out);
  const T power = power_of_row(own, totals, scaled, mean, scale);
  own.each_channels([&](int64_t channel) {
    V factor = splat<V>(mean);
    if (form.is_smoothed()) {
      V q = splat<V>(T(0));
      for (int blade = 0; blade < own.blades; blade++) {
        const V o = read_row(output, blade, channel) * own_root;
        q = mul_add(o * form.sign(blade), o, q);
      }
      factor = divide(q, hypotenuse(q, form.eps)) * mean;
    }
    for (int blade = 0; blade < own.blades; blade++) {
      const V grad = read_row(grad_output, blade, channel), o = read_row(output, blade, channel);
      const V undone = (grad - o * (factor * form.sign(blade))) * scale;
      write<N, T, Operands>(grad_product, own.in_block(own.first + blade) + channel, undone * power, a.operands);
    }
  });
}

}  // namespace fc
