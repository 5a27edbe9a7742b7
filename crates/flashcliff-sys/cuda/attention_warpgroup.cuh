// Attention by matrix products of warpgroups: rows in shared memory, and products of them.
//
// Some rows are a CTA's own; the others come a tile at a time. A result is the factor A of the next product without a shuffle, because a
// sum does not depend on the order of its terms: its columns 2t and 2t + 1 are read as t and t + 4. The other factor has to lie along the
// sum, so tiles are turned in shared memory, into words of the rows 0, 2, 4, 6 and 1, 3, 5, 7 of each eight.
//
// Products leave out the 13 bits of a number that TF32 lacks. Exact ones are three: of the numbers, and of each factor's rest with the
// other factor.
#pragma once

#include <type_traits>

#include "attention_fragments.cuh"
#include "warpgroup.cuh"

namespace fc {
namespace {

// The sizes of a kernel for features of so many columns of eight, with zeros after the last. Rests take room, so exact products have half
// as many rows.
template <int Columns, bool Exact>
struct Form {
  static constexpr bool kExact = Exact;
  static constexpr int kColumns = Columns, kWidth = Columns * kEight, kOfRow = kWidth / kAligned;
  static constexpr int kWarpgroups = Exact ? 1 : 2, kThreads = kWarpgroups * 128, kOwnRows = kWarpgroups * kOfWarpgroup;
  static constexpr int kTile = Exact ? 32 : 64, kBlocks = kTile / kEight, kWords = kTile / kAligned;
  static constexpr int kSums = kBlocks * 4;  // of a thread, of a product with a tile
  static constexpr int kFactors = Exact ? 2 * kSums : kSums;
  // Numbers of shared memory.
  static constexpr int kParts = Exact ? 2 : 1, kOwn = kParts * lined_numbers(kOwnRows, kWidth), kOther = kParts * lined_numbers(kTile, kWidth),
                       kTurned = kParts * turned_numbers(kWidth, kWords);
};

#if FC_WARPGROUPS

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// What a product leaves out of a number.
FC_INLINE float rest_of(float x) { return x - __uint_as_float(__float_as_uint(x) & 0xffffe000u); }
FC_INLINE float4 rest_of(const float4 &x) { return make_float4(rest_of(x.x), rest_of(x.y), rest_of(x.z), rest_of(x.w)); }

// Rows of a kind, and their rests if products are exact.
template <class T>
struct Parts {
  T whole, rest;
};

template <class F, int Count>
FC_INLINE Parts<Lined<Count>> lined_of(float *&next) {
  const auto whole = lined<Count, F::kWidth>(next);
  return {whole, F::kExact ? lined<Count, F::kWidth>(next) : whole};
}
template <class F>
FC_INLINE Parts<Turned<F::kWidth>> turned_of(float *&next) {
  const auto whole = turned<F::kWidth, F::kWords>(next);
  return {whole, F::kExact ? turned<F::kWidth, F::kWords>(next) : whole};
}

// A tensor of the rows of a span.
struct Source {
  const float *features;  // of the first row of the first head
  int64_t row_stride, head_stride;
  int words;
  FC_INLINE Source(const fc_attention_tensor &of, int width, const Span &span)
      : row_stride(of.row_stride), head_stride(of.head_stride), words(width / kAligned) {
    features = static_cast<const float *>(of.features) + span.sequence * of.sequence_stride + span.first * row_stride + span.head * head_stride;
  }
  FC_INLINE const float *row(const Span &span, int row) const {
    if (span.count == span.rows) return features + row * row_stride;
    int item;
    const int head = span.divided(row, &item) - span.head;
    return features + item * row_stride + head * head_stride;
  }
};

// Begins to copy a word of 16 bytes if it is wanted, or zeros if it is not there.
template <int To, int From>
FC_INLINE void copy_word(uint32_t to, const float *from, bool wanted, bool there) {
  asm volatile("{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\n@wanted cp.async.cg.shared.global [%0 + %4], [%1 + %5], 16, %3;\n}" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(int(wanted)), "r"(there ? 16 : 0), "n"(To), "n"(From)
               : "memory");
}

// Begins to copy rows to shared memory, with zeros for rows and columns that are not there. Eight threads have neighbouring words of a
// row.
template <class F, int Count>
FC_INLINE void fill(const Parts<Lined<Count>> &parts, const Source &from, const Span &span, int first) {
  constexpr int kAtOnce = F::kThreads / kOfLine, kLineBytes = kLine * 4, kNext = Lined<Count>::kNext * 4;
  const int word = int(threadIdx.x) % kOfLine, row = int(threadIdx.x) / kOfLine, wanted = F::kOfRow - word, there = from.words - word;
  const uint32_t place = shared_address(&parts.whole.word(word, row));
  const auto copy = [&](auto at) {
    constexpr int kRow = decltype(at)::value * kAtOnce, kTo = kRow * kLineBytes;
    const bool inside = first + row + kRow < span.rows;
    const float *features = from.row(span, inside ? first + row + kRow : 0) + word * kAligned;
    copy_word<kTo, 0>(place, features, wanted > 0, inside && there > 0);
    copy_word<kTo + kNext, kLineBytes>(place, features, wanted > kOfLine, inside && there > kOfLine);
    copy_word<kTo + 2 * kNext, 2 * kLineBytes>(place, features, wanted > 2 * kOfLine, inside && there > 2 * kOfLine);
  };
  copy(std::integral_constant<int, 0>{});
  copy(std::integral_constant<int, 1>{});
  if constexpr (Count > 2 * kAtOnce) {
    copy(std::integral_constant<int, 2>{});
    copy(std::integral_constant<int, 3>{});
  }
}

// Writes the rests of what this thread copied.
template <class F, int Count>
FC_INLINE void write_rests(const Parts<Lined<Count>> &parts) {
  if constexpr (F::kExact) {
    const int word = int(threadIdx.x) % kOfLine, row = int(threadIdx.x) / kOfLine;
#pragma unroll
    for (int at = 0; at < F::kOfRow; at += kOfLine) {
      if (at + word >= F::kOfRow) break;
#pragma unroll
      for (int next = 0; next < Count; next += F::kThreads / kOfLine) {
        parts.rest.word(at + word, row + next) = rest_of(parts.whole.word(at + word, row + next));
      }
    }
  }
}

// Writes words of four rows as the same word of four columns.
FC_INLINE void write_turned(float4 *to, const float4 (&rows)[4]) {
  to[0] = make_float4(rows[0].x, rows[1].x, rows[2].x, rows[3].x);
  to[1] = make_float4(rows[0].y, rows[1].y, rows[2].y, rows[3].y);
  to[2] = make_float4(rows[0].z, rows[1].z, rows[2].z, rows[3].z);
  to[3] = make_float4(rows[0].w, rows[1].w, rows[2].w, rows[3].w);
}

// Writes the columns of a tile as rows.
template <class F>
FC_INLINE void turn(const Parts<Turned<F::kWidth>> &to, const Parts<Lined<F::kTile>> &from) {
  // Eight threads read neighbouring words of the same rows.
  const int place = int(threadIdx.x) / kOfLine % F::kWords, row = place / 2 * kEight + place % 2;
#pragma unroll
  for (int begin = 0; begin < F::kOfRow; begin += F::kThreads / F::kWords) {
    const int word = begin + int(threadIdx.x) % kOfLine + int(threadIdx.x) / (kOfLine * F::kWords) * kOfLine;
    if (word >= F::kOfRow) break;
    float4 rows[4];
    FC_EACH(4, rows[i] = from.whole.word(word, row + 2 * i);)
    write_turned(to.whole.word(place, word * kAligned), rows);
    if constexpr (F::kExact) {
      FC_EACH(4, rows[i] = rest_of(rows[i]);)
      write_turned(to.rest.word(place, word * kAligned), rows);
    }
  }
}

// sums = own . others, for the rows of this warpgroup.
template <class F>
FC_INLINE void dot_products(float (&sums)[F::kSums], const Parts<Lined<F::kOwnRows>> &own, const Parts<Lined<F::kTile>> &others) {
  const int row = warpgroup() * kOfWarpgroup;
  const auto add = [&](const Lined<F::kOwnRows> &a_rows, const Lined<F::kTile> &b_rows, bool add_first) {
    const FactorOf a = factor_of(a_rows, row), b = factor_of(b_rows, 0);
#pragma unroll
    for (int step = 0; step < F::kColumns; step++) dot_step(sums, a.next(units_of(a_rows, step)), b.next(units_of(b_rows, step)), add_first || step > 0);
  };
  if constexpr (F::kExact) {
    add(own.rest, others.whole, false);
    add(own.whole, others.rest, true);
  }
  add(own.whole, others.whole, F::kExact);
}

// The factor that a sum of `dot_products` becomes: of `weighted_sums`, in its place.
template <class F>
FC_INLINE void set_factor(float (&factors)[F::kFactors], int sum, float x) {
  const int place = sum % 4 == 1 ? sum + 1 : sum % 4 == 2 ? sum - 1 : sum;
  if constexpr (F::kExact) {
    factors[place] = x;
    factors[F::kSums + place] = rest_of(x);
  } else {
    factors[place] = rounded(x);
  }
}

// sums += weights . others, where the columns of others are rows in shared memory. Between products nothing else writes the registers of
// their factors.
template <class F>
FC_INLINE void weighted_sums(float (&sums)[F::kColumns * 4], const float (&weights)[F::kFactors], const Parts<Turned<F::kWidth>> &others) {
  const auto add = [&](int first, const Turned<F::kWidth> &rows) {
    const FactorOf factor = factor_of(rows);
#pragma unroll
    for (int n = 0; n < F::kBlocks; n++) sum_step(sums, &weights[first + 4 * n], factor.next(units_of(rows, n)));
  };
  if constexpr (F::kExact) {
    add(F::kSums, others.whole);
    add(0, others.rest);
  }
  add(0, others.whole);
}

// The row of a thread's sums among the rows of the CTA.
FC_INLINE int own_row(int half) { return int(threadIdx.x) / 32 * kOwn + Lane().g + half * kEight; }

// `fc::write` of sums in a row of registers.
template <int Columns>
FC_INLINE void write_own(const float (&sums)[Columns * 4], const float (&factors)[2], const fc_attention_tensor &to, const Span &span, int start,
                         int width) {
  float blocks[Columns][4];
#pragma unroll
  for (int column = 0; column < Columns; column++) FC_EACH(4, blocks[column][i] = sums[4 * column + i];)
  write<float>(blocks, factors, to, span, start, width, FC_F32);
}

#endif

}  // namespace
}  // namespace fc
