// Functions of jets in rows, compiled for each number of directions when they are first used. A jet along n directions is a polynomial
// in n numbers whose squares are 0: component `s` belongs to the product of the numbers of a set of directions, the bits of `s`. `T` is
// float or double, and `N` the number of components. The last component of a result is its derivative along all directions; the
// gradient by component `s` is component `N - 1 - s` of the gradient of jets.

template <class T, int N>
struct Jet {
  T at[N];
};

template <class T, int N>
__device__ Jet<T, N> operator+(Jet<T, N> a, Jet<T, N> b) {
#pragma unroll
  for (int set = 0; set < N; set++) a.at[set] += b.at[set];
  return a;
}

template <class T, int N>
__device__ Jet<T, N> operator-(Jet<T, N> a) {
#pragma unroll
  for (int set = 0; set < N; set++) a.at[set] = -a.at[set];
  return a;
}

template <class T, int N>
__device__ Jet<T, N> operator*(T factor, Jet<T, N> a) {
#pragma unroll
  for (int set = 0; set < N; set++) a.at[set] *= factor;
  return a;
}

template <class T, int N>
__device__ Jet<T, N> operator*(Jet<T, N> a, Jet<T, N> b) {
  Jet<T, N> product;
#pragma unroll
  for (int set = 0; set < N; set++) {
    T sum = a.at[0] * b.at[set];
#pragma unroll
    for (int own = 1; own < N; own++) {
      if ((own & ~set) == 0) sum += a.at[own] * b.at[set & ~own];
    }
    product.at[set] = sum;
  }
  return product;
}

template <class T, int N>
__device__ Jet<T, N> constant(T value) {
  Jet<T, N> own = {};
  own.at[0] = value;
  return own;
}

// A power of a number, whose power is known: the binomial series, which ends.
template <class T, int N>
__device__ Jet<T, N> power(Jet<T, N> a, double exponent, T of_value) {
  const T value = a.at[0];
  a.at[0] = T(0);
  Jet<T, N> term = constant<T, N>(of_value), sum = term;
#pragma unroll
  for (int k = 0; (1 << k) < N; k++) {
    term = (T((exponent - k) / (k + 1)) / value) * (term * a);
    sum = sum + term;
  }
  return sum;
}

template <class T, int N>
__device__ Jet<T, N> inverse(Jet<T, N> a) {
  return power(a, -1.0, T(1) / a.at[0]);
}

template <class T, int N>
__device__ Jet<T, N> exponential(Jet<T, N> a) {
  Jet<T, N> term = constant<T, N>(exp(a.at[0])), sum = term;
  a.at[0] = T(0);
#pragma unroll
  for (int k = 0; (1 << k) < N; k++) {
    term = (T(1) / T(k + 1)) * (term * a);
    sum = sum + term;
  }
  return sum;
}

template <class T, int N>
__device__ Jet<T, N> warp_sum(Jet<T, N> a) {
#pragma unroll
  for (int set = 0; set < N; set++) a.at[set] = warp_sum(a.at[set]);
  return a;
}

// Walks the subsets of a set. Tables of scores and shares have `rows` and `keys` for each component, `apart` elements apart.
#define FOR_EACH_SUBSET(own, of) for (int own = (of), own##_goes_on = 1; own##_goes_on; own##_goes_on = own > 0, own = (own - 1) & (of))

// The components of shares after the first, from components of scores. With the last direction i of a set s and scores S, the component is
// the sum over subsets a without i of P_a (S_{s - a} - R_{s - a}), where R is the sum over keys of what P S has without i in P.
template <class T, int N>
__global__ void jet_softmax(T *shares, const T *scores, Index rows, Index keys, Index apart) {
  FOR_EACH_ROW(row, rows) {
    T sums[N];
#pragma unroll
    for (int set = 1; set < N; set++) {
      int last = 1;
      while (2 * last <= set) last *= 2;
      const int rest = set & ~last;
      const auto at = [&](int component, Index key) { return component * apart + row * keys + key; };
      T sum = 0;
      for (Index key = lane; key < keys; key += 32) {
        FOR_EACH_SUBSET(own, rest) sum += scores[at(set & ~own, key)] * shares[at(own, key)];
      }
      sums[set] = warp_sum(sum);
      for (Index key = lane; key < keys; key += 32) {
        T share = 0;
        FOR_EACH_SUBSET(own, rest) share += shares[at(own, key)] * (scores[at(set & ~own, key)] - sums[set & ~own]);
        shares[at(set, key)] = share;
      }
    }
  }
}

// The components of the gradients of scores from the gradients of shares, which they replace: P (E - D) with the sums D of P E over keys.
template <class T, int N>
__global__ void jet_softmax_gradient(const T *shares, T *slopes, Index rows, Index keys, Index apart) {
  FOR_EACH_ROW(row, rows) {
    const auto at = [&](int component, Index key) { return component * apart + row * keys + key; };
    T sums[N] = {};
    for (Index key = lane; key < keys; key += 32) {
#pragma unroll
      for (int set = 0; set < N; set++) {
        FOR_EACH_SUBSET(own, set) sums[set] += slopes[at(set & ~own, key)] * shares[at(own, key)];
      }
    }
#pragma unroll
    for (int set = 0; set < N; set++) sums[set] = warp_sum(sums[set]);
    for (Index key = lane; key < keys; key += 32) {
      // A component reads itself and components of fewer directions, which come later.
#pragma unroll
      for (int set = N - 1; set >= 0; set--) {
        T slope = 0;
        FOR_EACH_SUBSET(own, set) slope += shares[at(own, key)] * (slopes[at(set & ~own, key)] - sums[set & ~own]);
        slopes[at(set, key)] = slope;
      }
    }
  }
}

// Norms `y = x f(m)` of groups of columns of each row, with the mean `m` of signed squares. Tables have for each group its first unit
// and the one after its last, its kind and what the sum of squares is divided by; for each unit, whose squares have one sign, its first
// column and the one after its last, and whether the sign is 1 in any case; for each column its place in rows of results, the place of
// its first component in rows of `x`, the distance to the next component, and the factor of its square.
struct Norms {
  const int *groups, *units, *columns;
  Index count;
  // The numbers of a row of results, and of `x`.
  Index width, of_x;
  // Multivectors: the least mean. Scalars, and both together: what is added to the mean.
  double least, of_scalars, of_both;
};

// Norms, or without room for them the gradients of `x`.
template <class T, int N>
__global__ void norms(const T *x, const T *g, T *y, T *to, Norms call, Index rows) {
  FOR_EACH_ROW(at, rows * call.count) {
    const int *group = call.groups + 4 * (at % call.count);
    const int first = group[0], last = group[1], kind = group[2];
    const T count = T(group[3]);
    const Index row = at / call.count;
    const T *own = x + row * call.of_x, *gradient = g == nullptr ? nullptr : g + row * call.width;
    // The columns of a group of scalars are taken from their mean.
    Jet<T, N> shift = {};
    T of_gradient = 0;
    const auto number = [&](const int *column) {
      Jet<T, N> found;
#pragma unroll
      for (int set = 0; set < N; set++) found.at[set] = own[column[1] + set * column[2]] - shift.at[set];
      return found;
    };
    const auto slope = [&](const int *column) { return gradient == nullptr ? T(0) : gradient[column[0]] - of_gradient; };
    const auto for_each_column = [&](int unit, auto work) {
      for (int column = call.units[3 * unit]; column < call.units[3 * unit + 1]; column++) work(call.columns + 4 * column);
    };
    if (kind == 1) {
      Jet<T, N> sum = {};
      T of_slopes = 0;
      for (int unit = first + int(lane); unit < last; unit += 32) {
        for_each_column(unit, [&](const int *column) {
          sum = sum + number(column);
          of_slopes += slope(column);
        });
      }
      shift = (T(1) / count) * warp_sum(sum);
      of_gradient = warp_sum(of_slopes) / count;
    }
    // The factor of the square of a column of a unit, without that of the column.
    const auto sign_of = [&](int unit) {
      if (call.units[3 * unit + 2]) return T(1);
      T square = 0;
      for_each_column(unit, [&](const int *column) {
        const T value = number(column).at[0];
        square += T(column[3]) * value * value;
      });
      return square > T(0) ? T(1) : square < T(0) ? T(-1) : T(0);
    };
    Jet<T, N> mean = {}, of_x = {};
    for (int unit = first + int(lane); unit < last; unit += 32) {
      const T sign = sign_of(unit);
      for_each_column(unit, [&](const int *column) {
        const Jet<T, N> found = number(column);
        mean = mean + (sign * T(column[3])) * (found * found);
        of_x = of_x + slope(column) * found;
      });
    }
    mean = (T(1) / count) * warp_sum(mean);
    of_x = warp_sum(of_x);
    const T least = T(call.least);
    const bool moves = kind != 0 || mean.at[0] > least;
    Jet<T, N> base = constant<T, N>(least);
    if (moves) base = mean + constant<T, N>(kind == 0 ? T(0) : T(kind == 1 ? call.of_scalars : call.of_both));
    const T root = T(1) / sqrt(base.at[0]);
    const Jet<T, N> value = power(base, -0.5, root);
    Jet<T, N> of_weighed = {};
    if (moves) of_weighed = T(-1) * (power(base, -1.5, root / base.at[0]) * of_x);
    for (int unit = first + int(lane); unit < last; unit += 32) {
      const T sign = sign_of(unit) / count;
      for_each_column(unit, [&](const int *column) {
        const Jet<T, N> found = number(column);
        if (gradient == nullptr) {
          y[row * call.width + column[0]] = (value * found).at[N - 1];
          return;
        }
        const Jet<T, N> made = slope(column) * value + (sign * T(column[3])) * (of_weighed * found);
#pragma unroll
        for (int set = 0; set < N; set++) to[row * call.of_x + column[1] + set * column[2]] = made.at[N - 1 - set];
      });
    }
  }
}

// The most coordinates of a point with its weight, and the most features of one.
#define MOST_BLADES 9

// Features of distances in place of some blades. Units are the multivector channels of a row: for each its column, whether it is of a
// query (1), a key (2) or neither (0), and the number of its weight. Rows of tokens have the channels of each component, one after another.
struct Points {
  const int *units, *slots;
  Index count, blades, channels, scalars, first, coordinates, weights;
  double eps;
};

// The place of a component of a blade of a column in rows of tokens; columns of scalars come after all blades.
template <int N>
__device__ Index place_of(const Points &call, Index row, Index blade, Index component, Index column) {
  const Index width = N * (call.blades * call.channels + call.scalars);
  if (blade == call.blades) return row * width + N * call.blades * call.channels + component * call.scalars + column;
  return row * width + (blade * N + component) * call.channels + column;
}

template <class T, int N>
struct Point {
  Jet<T, N> plain[MOST_BLADES], weighed[MOST_BLADES];
  Jet<T, N> factor, of_product, of_square, of_weight;
  Index coordinates, square, weight;

  __device__ Point(const Points &call, const T *x, const T *logarithms, Index row, const int *unit) : coordinates(call.coordinates) {
    for (Index at = 0; at <= coordinates; at++) {
#pragma unroll
      for (int set = 0; set < N; set++) plain[at].at[set] = x[place_of<N>(call, row, call.first + at, set, unit[0])];
    }
    const Jet<T, N> own = plain[coordinates];
    factor = own * inverse(own * own + constant<T, N>(T(call.eps)));
    for (Index at = 0; at <= coordinates; at++) weighed[at] = plain[at] * factor;
    square = coordinates;
    weight = coordinates + 1;
    of_product = of_square = of_weight = constant<T, N>(T(1));
    if (unit[1] == 1) {
      Jet<T, N> logarithm;
#pragma unroll
      for (int set = 0; set < N; set++) logarithm.at[set] = logarithms[set * call.weights + unit[2]];
      const Jet<T, N> scale = exponential(logarithm);
      of_product = scale + scale;
      of_square = of_weight = -scale;
      square = coordinates + 1;
      weight = coordinates;
    }
  }

  __device__ Jet<T, N> feature(Index at) const {
    const Jet<T, N> w = weighed[coordinates];
    if (at < coordinates) return of_product * weighed[at] * w;
    if (at == weight) return of_weight * w * w;
    Jet<T, N> sum = constant<T, N>(T(0));
    for (Index axis = 0; axis < coordinates; axis++) sum = sum + weighed[axis] * weighed[axis];
    return of_square * sum;
  }

  // Writes the gradients of the blades, and returns that of the logarithm of the weight.
  __device__ Jet<T, N> gradient(const Jet<T, N> *g, Jet<T, N> *to, double eps) const {
    const Jet<T, N> two = constant<T, N>(T(2)), w = weighed[coordinates], own = plain[coordinates];
    Jet<T, N> of_w = two * of_weight * g[weight] * w, of_factor = constant<T, N>(T(0)), of_logarithm = constant<T, N>(T(0));
    for (Index at = 0; at < coordinates; at++) {
      const Jet<T, N> of = of_product * g[at];
      const Jet<T, N> of_p = of * w + two * of_square * g[square] * weighed[at];
      of_w = of_w + of * weighed[at];
      of_factor = of_factor + of_p * plain[at];
      to[at] = of_p * factor;
    }
    of_factor = of_factor + of_w * own;
    const Jet<T, N> below = inverse(own * own + constant<T, N>(T(eps)));
    const Jet<T, N> slope = (constant<T, N>(T(eps)) + -(own * own)) * below * below;
    to[coordinates] = of_w * factor + of_factor * slope;
    for (Index at = 0; at < coordinates + 2; at++) of_logarithm = of_logarithm + feature(at) * g[at];
    return of_logarithm;
  }
};

// Tokens with features in place of some blades, or how they change. A thread has a channel of a row.
template <class T, int N>
__global__ void point_features(const T *x, const T *logarithms, T *y, Points call, Index rows) {
  const Index each = call.count + call.scalars, width = call.blades * call.channels + call.scalars;
  FOR_EACH(at, rows * each) {
    const Index row = at / each, own = at % each;
    T *to = y + row * width;
    if (own >= call.count) {
      const Index scalar = own - call.count;
      to[call.blades * call.channels + scalar] = x[place_of<N>(call, row, call.blades, N - 1, scalar)];
      continue;
    }
    const int *unit = call.units + 3 * own;
    for (Index blade = 0; blade < call.blades; blade++) {
      to[blade * call.channels + unit[0]] = x[place_of<N>(call, row, blade, N - 1, unit[0])];
    }
    if (unit[1] == 0) continue;
    const Point<T, N> point(call, x, logarithms, row, unit);
    for (Index feature = 0; feature < call.coordinates + 2; feature++) {
      const Jet<T, N> found = point.feature(feature);
      to[call.slots[feature] * call.channels + unit[0]] = found.at[N - 1];
    }
  }
}

// The gradient of tokens from the gradient of the result, if it is wanted, and the shares of rows in the gradients of logarithms of
// weights.
template <class T, int N>
__global__ void point_features_gradient(const T *x, const T *logarithms, const T *g, T *to, T *shares, Points call, Index rows) {
  const Index each = call.count + call.scalars, width = call.blades * call.channels + call.scalars;
  FOR_EACH(at, rows * each) {
    const Index row = at / each, own = at % each;
    const T *from = g + row * width;
    // Blades without features are the last component of tokens.
    const auto pass = [&](Index blade, Index column, T gradient) {
      if (to == nullptr) return;
#pragma unroll
      for (int set = 0; set < N; set++) to[place_of<N>(call, row, blade, set, column)] = set == N - 1 ? gradient : T(0);
    };
    if (own >= call.count) {
      const Index scalar = own - call.count;
      pass(call.blades, scalar, from[call.blades * call.channels + scalar]);
      continue;
    }
    const int *unit = call.units + 3 * own;
    for (Index blade = 0; blade < call.blades; blade++) pass(blade, unit[0], from[blade * call.channels + unit[0]]);
    if (unit[1] == 0) continue;
    const Point<T, N> point(call, x, logarithms, row, unit);
    Jet<T, N> given[MOST_BLADES], found[MOST_BLADES];
    for (Index feature = 0; feature < call.coordinates + 2; feature++) {
      given[feature] = constant<T, N>(from[call.slots[feature] * call.channels + unit[0]]);
      pass(call.slots[feature], unit[0], T(0));
    }
    const Jet<T, N> of_logarithm = point.gradient(given, found, call.eps);
    for (Index blade = 0; to != nullptr && blade <= call.coordinates; blade++) {
#pragma unroll
      for (int set = 0; set < N; set++) {
        to[place_of<N>(call, row, call.first + blade, set, unit[0])] += found[blade].at[N - 1 - set];
      }
    }
    if (unit[1] != 1 || shares == nullptr) continue;
    T *share = shares + row * N * call.weights + unit[2];
#pragma unroll
    for (int set = 0; set < N; set++) share[set * call.weights] = of_logarithm.at[N - 1 - set];
  }
}
