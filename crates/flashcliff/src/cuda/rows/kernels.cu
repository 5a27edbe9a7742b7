// Functions of rows, compiled when they are first used. `T` is float or double; one thread has an element, or one warp has a row. Sums are
// taken in one order.

typedef long long Index;

#define FOR_EACH(at, count) \
  for (Index at = blockIdx.x * Index(blockDim.x) + threadIdx.x; at < (count); at += gridDim.x * Index(blockDim.x))

// Each warp has one row at a time.
#define FOR_EACH_ROW(row, rows)                                                                  \
  for (Index row = (blockIdx.x * Index(blockDim.x) + threadIdx.x) / 32, lane = threadIdx.x % 32; row < (rows); \
       row += gridDim.x * Index(blockDim.x) / 32)

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

template <class T>
__device__ T warp_maximum(T value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// to = x times a factor of each column.
template <class T>
__global__ void scale(const T *x, const T *factors, T *to, Index rows, Index width) {
  FOR_EACH(at, rows * width) to[at] = x[at] * factors[at % width];
}

// to = x * y.
template <class T>
__global__ void multiply(const T *x, const T *y, T *to, Index count) {
  FOR_EACH(at, count) to[at] = x[at] * y[at];
}

// to[row, column] = the sum over heads of x[row, head, column].
template <class T>
__global__ void head_sums(const T *x, T *to, Index rows, Index heads, Index width) {
  FOR_EACH(at, rows * width) {
    const T *from = x + at / width * heads * width + at % width;
    T sum = 0;
    for (Index head = 0; head < heads; head++) sum += from[head * width];
    to[at] = sum;
  }
}

// x [outer, first, second, width] with its middle axes in the other order.
template <class T>
__global__ void swap_axes(const T *x, T *to, Index outer, Index first, Index second, Index width) {
  FOR_EACH(at, outer * first * second * width) {
    const Index column = at % width, rest = at / width;
    const Index of_first = rest % first, of_second = rest / first % second, of_outer = rest / first / second;
    to[at] = x[((of_outer * first + of_first) * second + of_second) * width + column];
  }
}

// to[row, column] = a column of x, or one of y.
template <class T>
__global__ void take_columns(const T *x, const T *y, const int *places, T *to, Index rows, Index width, Index of_x, Index of_y) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, place = places[at % width];
    to[at] = place >= 0 ? x[row * of_x + place] : y[row * of_y - place - 1];
  }
}

// Pairs of columns turned by angles that grow with the position of a row in its sample. `partners` has the other column of a pair, or -1.
template <class T>
__global__ void turn(const T *x, const int *partners, const int *pairs, const T *signs, const double *frequencies, T *to,
                     Index rows, Index width, Index items, double way) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, column = at % width, partner = partners[column];
    if (partner < 0) {
      to[at] = x[at];
      continue;
    }
    double sine, cosine;
    sincos(double(row % items) * frequencies[pairs[column]], &sine, &cosine);
    to[at] = x[at] * T(cosine) + x[row * width + partner] * T(way * sine) * signs[column];
  }
}

struct Scores {
  Index groups, queries, keys;
  // Groups are samples and heads, or samples, of which heads are neighbouring queries.
  Index heads, heads_are_queries;
  // The distances in the mask from a sample, a head and a query to the next.
  Index of_sample, of_head, of_query;
  // The bounds of the sequences of items, and of the sequences of keys, `[sequences + 1]`, or null.
  const int *bounds, *of_keys;
  Index sequences;
  double scale;
};

// The sequence of an item: the last that begins at it or before.
__device__ Index sequence_of(const Scores &call, Index item) {
  Index low = 0, high = call.sequences;
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    if (call.bounds[middle] <= item) low = middle;
    else high = middle;
  }
  return low;
}

// Scores, times a factor and plus a mask, become the shares of keys. A query that sees no key has shares of 0.
template <class T>
__global__ void softmax(T *scores, const T *mask, Scores call) {
  const T least = -T(__int_as_float(0x7f800000)), factor = T(call.scale);
  FOR_EACH_ROW(row, call.groups * call.queries) {
    const Index group = row / call.queries, query = row % call.queries;
    const Index item = call.heads_are_queries ? query / call.heads : query;
    const Index head = call.heads_are_queries ? query % call.heads : group % call.heads;
    const Index sample = call.heads_are_queries ? group : group / call.heads;
    Index begin = 0, end = call.keys;
    if (call.bounds != nullptr) {
      const Index sequence = sequence_of(call, item);
      begin = call.of_keys[sequence];
      end = call.of_keys[sequence + 1];
    }
    T *own = scores + row * call.keys;
    const Index added = sample * call.of_sample + head * call.of_head + item * call.of_query;
    const auto score = [&](Index key) { return own[key] * factor + (mask == nullptr ? T(0) : mask[added + key]); };
    T most = least;
    for (Index key = begin + lane; key < end; key += 32) {
      const T value = score(key);
      most = value > most ? value : most;
    }
    most = warp_maximum(most);
    T sum = 0;
    for (Index key = begin + lane; key < end; key += 32) {
      const T share = most == least ? T(0) : exp(score(key) - most);
      own[key] = share;
      sum += share;
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (Index key = lane; key < call.keys; key += 32) {
      const bool is_seen = key >= begin && key < end && sum > 0;
      own[key] = is_seen ? own[key] / sum : T(0);
    }
  }
}

// The gradient of scores, after their factor and their mask, from the gradient of shares, which it replaces.
template <class T>
__global__ void softmax_gradient(const T *shares, T *gradients, Index rows, Index keys) {
  FOR_EACH_ROW(row, rows) {
    const T *own = shares + row * keys;
    T *to = gradients + row * keys;
    T sum = 0;
    for (Index key = lane; key < keys; key += 32) sum += own[key] * to[key];
    sum = warp_sum(sum);
    for (Index key = lane; key < keys; key += 32) to[key] = own[key] * (to[key] - sum);
  }
}

// The gradients of scores from the gradients of shares, which they replace in `slopes`. With changes of scores,
// `second` has at first the part of values of the gradient of shares in the change of shares, and then the gradient of
// scores.
template <class T>
__global__ void softmax_second(const T *shares, const T *changes, T *slopes, T *second, Index rows, Index keys) {
  FOR_EACH_ROW(row, rows) {
    const T *own = shares + row * keys, *moved = changes + row * keys;
    T *slope = slopes + row * keys, *to = second + row * keys;
    T change = 0, mean = 0;
    for (Index key = lane; key < keys; key += 32) {
      change += own[key] * moved[key];
      mean += own[key] * slope[key];
    }
    change = warp_sum(change);
    mean = warp_sum(mean);
    T sum = 0;
    for (Index key = lane; key < keys; key += 32) {
      to[key] += moved[key] * (slope[key] - mean) - change * slope[key];
      slope[key] = own[key] * (slope[key] - mean);
      sum += own[key] * to[key];
    }
    sum = warp_sum(sum);
    for (Index key = lane; key < keys; key += 32) to[key] = own[key] * (to[key] - sum);
  }
}

// At most so many parts of a whole.
#define MOST_PARTS 24

struct Parts {
  void *at[MOST_PARTS];  // null: is not there
  Index ends[MOST_PARTS];
};

// Parts become the whole that they lie in one after another, or the whole becomes parts.
template <class T>
__global__ void join(Parts parts, T *whole, Index count, Index back) {
  FOR_EACH(at, count) {
    int part = 0;
    while (at >= parts.ends[part]) part++;
    if (parts.at[part] == nullptr) continue;
    T *own = static_cast<T *>(parts.at[part]) + (at - (part > 0 ? parts.ends[part - 1] : 0));
    if (back) *own = whole[at];
    else whole[at] = *own;
  }
}

// At most so many tensors of a launch, and so many results of a thread, whose loads are under way at once.
#define MOST_TENSORS 480
#define EACH 4

struct Tensors {
  void *at[MOST_TENSORS];
};

// Results of one tensor, `[count]`: the sum over uses u of factors[u * stride + i] * a number at
// places[u * stride + i]. The bits of a place above the bits of a number say in which tensor from `from` on it is.
// `places` and `factors` are elements of the tables. So is `results - 1`: from there on the table has the place of each
// result, unless `results` is 0. The place -1 - i stands for i, of a result that is rounded to TF32.
struct Pack {
  int end;  // the first block after the blocks of the pack
  int count, uses, stride, places, factors, to, from, results;
};

__device__ float rounded_to_tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
__device__ double rounded_to_tf32(double x) { return x; }

// Results of a block from the one with the number `first` on.
template <class T>
__device__ void pack_block(const Tensors &tensors, const void *tables, const Pack &own, Index first, Index first_tensor, int bits) {
  const int *places = static_cast<const int *>(tables) + own.places;
  const T *factors = static_cast<const T *>(tables) + own.factors;
  void *const *from = tensors.at + (own.from - first_tensor);
  const int behind = int((1u << bits) - 1);
  first += threadIdx.x;
  T sums[EACH] = {};
  for (int use = 0; use < own.uses; use++) {
    T values[EACH] = {}, weights[EACH] = {};
    int of_use[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const Index at = first + i * Index(blockDim.x);
      if (at >= own.count) continue;
      of_use[i] = places[use * Index(own.stride) + at];
      weights[i] = factors[use * Index(own.stride) + at];
    }
    // A number whose factor is 0 is not read, whatever place it has.
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (weights[i] != T(0)) values[i] = static_cast<const T *>(from[of_use[i] >> bits])[of_use[i] & behind];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) sums[i] += weights[i] * values[i];
  }
  T *to = static_cast<T *>(tensors.at[own.to - first_tensor]);
  const int *results = own.results > 0 ? static_cast<const int *>(tables) + (own.results - 1) : nullptr;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const Index at = first + i * Index(blockDim.x);
    if (at >= own.count) continue;
    const Index place = results == nullptr ? at : results[at];
    if (place >= 0) to[place] = sums[i];
    else to[-1 - place] = rounded_to_tf32(sums[i]);
  }
}

// Packs one after another, each in its own blocks, which are counted from `first_block` on, as tensors are from `first_tensor` on.
template <class T>
__global__ void pack_all(const __grid_constant__ Tensors tensors, const void *tables, const Pack *packs, Index count,
                         Index first_block, Index first_tensor, Index bits) {
  const Index end = packs[count - 1].end;
  for (Index block = first_block + blockIdx.x; block < end; block += gridDim.x) {
    Index low = 0, high = count - 1;
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (block < packs[middle].end) high = middle;
      else low = middle + 1;
    }
    const Index before = low > 0 ? packs[low - 1].end : first_block;
    pack_block<T>(tensors, tables, packs[low], (block - before) * EACH * blockDim.x, first_tensor, int(bits));
  }
}

// The entries of the outermorphism of each row: its frame, then those that terms add up, `entry += sign left right`.
// A row is one thread, in the order of the terms.
template <class T>
__global__ void outermorphism(const T *frames, const int *terms, const T *signs, T *entries, Index rows, Index frame, Index all,
                              Index count) {
  FOR_EACH(row, rows) {
    T *own = entries + row * all;
    for (Index at = 0; at < all; at++) own[at] = at < frame ? frames[row * frame + at] : T(0);
    for (Index at = 0; at < count; at++) {
      own[terms[3 * at]] += own[terms[3 * at + 1]] * own[terms[3 * at + 2]] * signs[at];
    }
  }
}

// The gradient of frames from that of all entries, to which it adds on the way.
template <class T>
__global__ void outermorphism_gradient(const T *entries, T *gradients, const int *terms, const T *signs, T *to, Index rows, Index frame,
                                       Index all, Index count) {
  FOR_EACH(row, rows) {
    const T *own = entries + row * all;
    T *of_own = gradients + row * all;
    for (Index at = count - 1; at >= 0; at--) {
      const int left = terms[3 * at + 1], right = terms[3 * at + 2];
      const T share = of_own[terms[3 * at]] * signs[at];
      of_own[left] += share * own[right];
      of_own[right] += share * own[left];
    }
    for (Index at = 0; at < frame; at++) to[row * frame + at] = of_own[at];
  }
}

// Rows whose blades are multiplied by the matrix of their block, or by its transpose. A block is the first blade, the
// number of blades and the first entry; blades of an empty block, and what comes after all blades, stay.
template <class T>
__global__ void multiply_frames(const T *x, const T *entries, const int *blocks, const T *signs, T *to, Index rows, Index width,
                                Index blades, Index channels, Index all, Index transposed) {
  FOR_EACH(at, rows * width) {
    const Index row = at / width, column = at % width;
    const Index blade = column < blades * channels ? column / channels : -1;
    const Index size = blade < 0 ? 0 : blocks[3 * blade + 1];
    if (size == 0) {
      to[at] = x[at];
      continue;
    }
    const Index first = blocks[3 * blade], own = blade - first;
    const T *matrix = entries + row * all + blocks[3 * blade + 2];
    const T *from = x + row * width + column % channels;
    T sum = 0;
    for (Index other = 0; other < size; other++) {
      const T entry = transposed ? matrix[other * size + own] : matrix[own * size + other];
      sum += entry * (signs[blade] * signs[first + other]) * from[(first + other) * channels];
    }
    to[at] = sum;
  }
}

// For each entry the sum over channels of the products of its blades.
template <class T>
__global__ void frame_products(const T *x, const T *y, const int *pairs, const T *signs, T *to, Index rows, Index width, Index channels,
                               Index all) {
  FOR_EACH(at, rows * all) {
    const Index row = at / all, left = pairs[2 * (at % all)], right = pairs[2 * (at % all) + 1];
    T sum = 0;
    for (Index channel = 0; channel < channels; channel++) {
      sum += x[row * width + left * channels + channel] * y[row * width + right * channels + channel];
    }
    to[at] = sum * signs[left] * signs[right];
  }
}

// Norms `y = x f(m)` of groups of columns of each row, with the mean `m` of signed squares, and how they change along
// `u`. Tables have for each group its first unit and the one after its last, its kind and what the sum of squares is
// divided by; for each unit, whose squares have one sign, its first column and the one after its last, and whether the
// sign is 1 in any case; for each column its place in rows of results, its place in rows of `x`, the place of its
// change in rows of `x`, and the factor of its square.
struct Norms {
  const int *groups, *units, *columns;
  Index count;
  // The numbers of a row of results, and of `x`.
  Index width, of_x;
  // Multivectors: the least mean. Scalars, and both together: what is added to the mean.
  double least, of_scalars, of_both;
};

template <class T>
struct Sums {
  T x, u, g;
};

template <class T>
__global__ void norms(const T *x, const T *g, T *y, T *to, Norms call, Index rows, Index along) {
  FOR_EACH_ROW(at, rows * call.count) {
    const int *group = call.groups + 4 * (at % call.count);
    const int first = group[0], last = group[1], kind = group[2];
    const T count = T(group[3]);
    const Index row = at / call.count;
    const T *own = x + row * call.of_x, *gradient = g == nullptr ? nullptr : g + row * call.width;
    // The columns of a group of scalars are taken from their mean.
    Sums<T> shift = {0, 0, 0};
    const auto numbers = [&](int column) {
      const int *place = call.columns + 4 * column;
      Sums<T> found;
      found.x = own[place[1]] - shift.x;
      found.u = along ? own[place[2]] - shift.u : T(0);
      found.g = gradient == nullptr ? T(0) : gradient[place[0]] - shift.g;
      return found;
    };
    if (kind == 1) {
      Sums<T> sums = {0, 0, 0};
      for (int unit = first + int(lane); unit < last; unit += 32) {
        for (int column = call.units[3 * unit]; column < call.units[3 * unit + 1]; column++) {
          const Sums<T> found = numbers(column);
          sums.x += found.x;
          sums.u += found.u;
          sums.g += found.g;
        }
      }
      sums.x = warp_sum(sums.x) / count;
      sums.u = warp_sum(sums.u) / count;
      sums.g = warp_sum(sums.g) / count;
      shift = sums;
    }
    // The factor of the square of a column of a unit, without that of the column.
    const auto sign_of = [&](int unit) {
      if (call.units[3 * unit + 2]) return T(1);
      T square = 0;
      for (int column = call.units[3 * unit]; column < call.units[3 * unit + 1]; column++) {
        const T value = numbers(column).x;
        square += T(call.columns[4 * column + 3]) * value * value;
      }
      return square > T(0) ? T(1) : square < T(0) ? T(-1) : T(0);
    };
    T mean = 0, change = 0, of_x = 0, of_u = 0;
    for (int unit = first + int(lane); unit < last; unit += 32) {
      const T sign = sign_of(unit);
      for (int column = call.units[3 * unit]; column < call.units[3 * unit + 1]; column++) {
        const Sums<T> found = numbers(column);
        const T weight = sign * T(call.columns[4 * column + 3]);
        mean += weight * found.x * found.x;
        change += weight * found.x * found.u;
        of_x += found.g * found.x;
        of_u += found.g * found.u;
      }
    }
    mean = warp_sum(mean) / count;
    change = warp_sum(change) / count;
    of_x = warp_sum(of_x);
    of_u = warp_sum(of_u);
    const T least = T(call.least);
    const bool moves = kind != 0 || mean > least;
    const T base = kind == 0 ? (moves ? mean : least) : mean + T(kind == 1 ? call.of_scalars : call.of_both);
    const T value = T(1) / sqrt(base);
    const T twice = moves ? -value / base : T(0), four = moves ? T(3) * value / (base * base) : T(0);
    const T of_square = twice * of_u + four * of_x * change;
    for (int unit = first + int(lane); unit < last; unit += 32) {
      const T sign = sign_of(unit) / count;
      for (int column = call.units[3 * unit]; column < call.units[3 * unit + 1]; column++) {
        const int *place = call.columns + 4 * column;
        const Sums<T> found = numbers(column);
        const T weight = sign * T(place[3]);
        if (gradient == nullptr) {
          y[row * call.width + place[0]] = along ? value * found.u + twice * change * found.x : value * found.x;
          continue;
        }
        T *result = to + row * call.of_x;
        const T plain = value * found.g + twice * of_x * weight * found.x;
        result[along ? place[2] : place[1]] = plain;
        if (along) {
          result[place[1]] = of_square * weight * found.x + twice * (change * found.g + of_x * weight * found.u);
        }
      }
    }
  }
}

// A number and its change.
template <class T>
struct Dual {
  T value, change;
};

template <class T>
__device__ Dual<T> operator+(Dual<T> a, Dual<T> b) {
  return {a.value + b.value, a.change + b.change};
}

template <class T>
__device__ Dual<T> operator-(Dual<T> a) {
  return {-a.value, -a.change};
}

template <class T>
__device__ Dual<T> operator*(Dual<T> a, Dual<T> b) {
  return {a.value * b.value, a.value * b.change + a.change * b.value};
}

template <class T>
__device__ Dual<T> constant(double value) {
  return {T(value), T(0)};
}

template <class T>
__device__ Dual<T> inverse(Dual<T> a) {
  const T value = T(1) / a.value;
  return {value, -a.change * value * value};
}

// The most coordinates of a point with its weight, and the most features of one.
#define MOST_BLADES 9

// Features of distances in place of some blades. Units are the multivector channels of a row: for each its column,
// whether it is of a query (1), a key (2) or neither (0), and the number of its weight. Rows of tokens have `times`
// the channels: the channels of changes are the second half.
struct Points {
  const int *units, *slots;
  Index count, blades, channels, scalars, times, first, coordinates, weights;
  double eps;
};

// The place of a blade of a column in rows of tokens, in the half with a number; columns of scalars come after all blades.
__device__ Index place_of(const Points &call, Index row, Index blade, Index half, Index column) {
  const Index width = call.times * (call.blades * call.channels + call.scalars);
  if (blade == call.blades) return row * width + call.times * call.blades * call.channels + half * call.scalars + column;
  return row * width + (blade * call.times + half) * call.channels + column;
}

template <class T>
struct Point {
  Dual<T> plain[MOST_BLADES], weighed[MOST_BLADES];
  Dual<T> factor, of_product, of_square, of_weight;
  Index coordinates, square, weight;

  __device__ Point(const Points &call, const T *x, const T *logarithms, Index row, const int *unit) : coordinates(call.coordinates) {
    for (Index at = 0; at <= coordinates; at++) {
      plain[at].value = x[place_of(call, row, call.first + at, 0, unit[0])];
      plain[at].change = call.times == 2 ? x[place_of(call, row, call.first + at, 1, unit[0])] : T(0);
    }
    const Dual<T> own = plain[coordinates];
    factor = own * inverse(own * own + constant<T>(call.eps));
    for (Index at = 0; at <= coordinates; at++) weighed[at] = plain[at] * factor;
    square = coordinates;
    weight = coordinates + 1;
    of_product = of_square = of_weight = constant<T>(1);
    if (unit[1] == 1) {
      const T value = exp(logarithms[unit[2]]);
      const Dual<T> scale = {value, call.times == 2 ? value * logarithms[call.weights + unit[2]] : T(0)};
      of_product = scale + scale;
      of_square = of_weight = -scale;
      square = coordinates + 1;
      weight = coordinates;
    }
  }

  __device__ Dual<T> feature(Index at) const {
    const Dual<T> w = weighed[coordinates];
    if (at < coordinates) return of_product * weighed[at] * w;
    if (at == weight) return of_weight * w * w;
    Dual<T> sum = constant<T>(0);
    for (Index axis = 0; axis < coordinates; axis++) sum = sum + weighed[axis] * weighed[axis];
    return of_square * sum;
  }

  // Writes the gradients of the blades, and returns that of the logarithm of the weight.
  __device__ Dual<T> gradient(const Dual<T> *g, Dual<T> *to, double eps) const {
    const Dual<T> two = constant<T>(2), w = weighed[coordinates], own = plain[coordinates];
    Dual<T> of_w = two * of_weight * g[weight] * w, of_factor = constant<T>(0), of_logarithm = constant<T>(0);
    for (Index at = 0; at < coordinates; at++) {
      const Dual<T> of = of_product * g[at];
      const Dual<T> of_p = of * w + two * of_square * g[square] * weighed[at];
      of_w = of_w + of * weighed[at];
      of_factor = of_factor + of_p * plain[at];
      to[at] = of_p * factor;
    }
    of_factor = of_factor + of_w * own;
    const Dual<T> below = inverse(own * own + constant<T>(eps));
    const Dual<T> slope = (constant<T>(eps) + -(own * own)) * below * below;
    to[coordinates] = of_w * factor + of_factor * slope;
    for (Index at = 0; at < coordinates + 2; at++) of_logarithm = of_logarithm + feature(at) * g[at];
    return of_logarithm;
  }
};

// Tokens with features in place of some blades, or how they change. A thread has a channel of a row.
template <class T>
__global__ void point_features(const T *x, const T *logarithms, T *y, Points call, Index rows) {
  const Index each = call.count + call.scalars, width = call.blades * call.channels + call.scalars;
  FOR_EACH(at, rows * each) {
    const Index row = at / each, own = at % each;
    T *to = y + row * width;
    if (own >= call.count) {
      const Index scalar = own - call.count;
      to[call.blades * call.channels + scalar] = x[place_of(call, row, call.blades, call.times - 1, scalar)];
      continue;
    }
    const int *unit = call.units + 3 * own;
    for (Index blade = 0; blade < call.blades; blade++) {
      to[blade * call.channels + unit[0]] = x[place_of(call, row, blade, call.times - 1, unit[0])];
    }
    if (unit[1] == 0) continue;
    const Point<T> point(call, x, logarithms, row, unit);
    for (Index feature = 0; feature < call.coordinates + 2; feature++) {
      const Dual<T> found = point.feature(feature);
      to[call.slots[feature] * call.channels + unit[0]] = call.times == 2 ? found.change : found.value;
    }
  }
}

// The gradient of tokens from the gradient of the result, if it is wanted, and the shares of rows in the gradients of logarithms of
// weights.
template <class T>
__global__ void point_features_gradient(const T *x, const T *logarithms, const T *g, T *to, T *shares, Points call, Index rows) {
  const Index each = call.count + call.scalars, width = call.blades * call.channels + call.scalars, last = call.times - 1;
  FOR_EACH(at, rows * each) {
    const Index row = at / each, own = at % each;
    const T *from = g + row * width;
    if (own >= call.count) {
      const Index scalar = own - call.count;
      if (to == nullptr) continue;
      if (last > 0) to[place_of(call, row, call.blades, 0, scalar)] = T(0);
      to[place_of(call, row, call.blades, last, scalar)] = from[call.blades * call.channels + scalar];
      continue;
    }
    const int *unit = call.units + 3 * own;
    if (to != nullptr) {
      for (Index blade = 0; blade < call.blades; blade++) {
        if (last > 0) to[place_of(call, row, blade, 0, unit[0])] = T(0);
        to[place_of(call, row, blade, last, unit[0])] = from[blade * call.channels + unit[0]];
      }
    }
    if (unit[1] == 0) continue;
    const Point<T> point(call, x, logarithms, row, unit);
    Dual<T> given[MOST_BLADES], found[MOST_BLADES];
    for (Index feature = 0; feature < call.coordinates + 2; feature++) {
      given[feature] = {from[call.slots[feature] * call.channels + unit[0]], T(0)};
      if (to != nullptr) to[place_of(call, row, call.slots[feature], last, unit[0])] = T(0);
    }
    const Dual<T> of_logarithm = point.gradient(given, found, call.eps);
    for (Index blade = 0; to != nullptr && blade <= call.coordinates; blade++) {
      to[place_of(call, row, call.first + blade, last, unit[0])] += found[blade].value;
      if (last > 0) to[place_of(call, row, call.first + blade, 0, unit[0])] += found[blade].change;
    }
    if (unit[1] != 1 || shares == nullptr) continue;
    T *share = shares + row * call.times * call.weights + unit[2];
    if (last > 0) share[call.weights] = of_logarithm.value;
    share[0] = last > 0 ? of_logarithm.change : of_logarithm.value;
  }
}
