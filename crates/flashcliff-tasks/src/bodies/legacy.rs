//! The random numbers of NumPy's `RandomState`: the Mersenne twister MT19937, doubles of 53 bits, and normal numbers by the polar method.
//!
//! NumPy keeps this stream as it is for ever (its NEP 19), so that published programs can be run again.

/// Words of the state.
const WORDS: usize = 624;
/// The distance of the words that the recurrence combines.
const MIDDLE: usize = 397;

/// The stream of `numpy.random.RandomState(seed)`.
#[derive(Clone)]
pub(super) struct LegacyRng {
    words: [u32; WORDS],
    /// The next word to give out; `WORDS` if all were.
    next: usize,
    /// The second number of a pair of normal numbers whose first was given out.
    second: Option<f64>,
}

impl LegacyRng {
    pub(super) fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        for i in 1..WORDS {
            let before = words[i - 1];
            let mixed = (before ^ (before >> 30)).wrapping_mul(1_812_433_253);
            words[i] = mixed.wrapping_add(i as u32);
        }
        Self {
            words,
            next: WORDS,
            second: None,
        }
    }

    /// Uniform in [0, 1), a multiple of 2^-53: `random_sample`.
    pub(super) fn uniform(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        let bits = u64::from(high) << 26 | u64::from(low);
        bits as f64 / (1_u64 << 53) as f64
    }

    /// From N(0, 1): `randn`. Its logarithm is that of the system's C library, as NumPy's.
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(second) = self.second.take() {
            return second;
        }
        let [x, y, square] = self.in_unit_disc();
        let factor = (-2.0 * square.ln() / square).sqrt();
        self.second = Some(factor * x);
        factor * y
    }

    /// Does what `count` calls of [`Self::uniform`] do to the stream.
    pub(super) fn skip_uniforms(&mut self, count: usize) {
        for _ in 0..2 * count {
            self.word();
        }
    }

    /// Does what `count` calls of [`Self::normal`] do to the stream, without their logarithms.
    pub(super) fn skip_normals(&mut self, count: usize) {
        let kept = count > 0 && self.second.take().is_some();
        let count = count - usize::from(kept);
        for _ in 0..count / 2 {
            self.in_unit_disc();
        }
        if count % 2 == 1 {
            self.normal();
        }
    }

    /// A point of the unit disc without its centre, by rejection, and the square of its distance from the centre.
    fn in_unit_disc(&mut self) -> [f64; 3] {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square != 0.0 {
                return [x, y, square];
            }
        }
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.renew();
        }
        let mut word = self.words[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn renew(&mut self) {
        for i in 0..WORDS {
            let joined = self.words[i] & 0x8000_0000 | self.words[(i + 1) % WORDS] & 0x7fff_ffff;
            let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + MIDDLE) % WORDS] ^ joined >> 1 ^ twist;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard gives this number to test `std::mt19937`.
    #[test]
    fn word_ten_thousand_is_that_of_the_standard() {
        let mut rng = LegacyRng::new(5489);
        let last = (0..10_000).map(|_| rng.word()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn skipping_leaves_the_stream_where_drawing_does() {
        for (before, count) in [
            (0, 0),
            (1, 0),
            (0, 1),
            (1, 1),
            (0, 6),
            (1, 6),
            (0, 7),
            (1, 7),
        ] {
            let mut drawn = LegacyRng::new(7);
            for _ in 0..before {
                drawn.normal();
            }
            let mut skipped = drawn.clone();
            for _ in 0..count {
                drawn.normal();
                drawn.uniform();
            }
            for _ in 0..count {
                skipped.skip_normals(1);
                skipped.skip_uniforms(1);
            }
            assert_eq!(drawn.normal(), skipped.normal(), "{before} {count}");
            assert_eq!(drawn.uniform(), skipped.uniform());
            for _ in 0..count {
                drawn.normal();
            }
            skipped.skip_normals(count);
            assert_eq!(drawn.normal(), skipped.normal(), "{before} {count}");
            assert_eq!(drawn.uniform(), skipped.uniform());
        }
    }
}
