//! Conditions as numbers, 1 where they hold and 0 elsewhere, and values that are chosen by them.
//!
//! No derivative passes a condition, nor a value that is not chosen.

use crate::ir::{Function, Graph, Id};

impl Graph {
    /// The square root.
    pub(super) fn root(&mut self, x: Id) -> Id {
        match self.constant_value(x) {
            Some(value) => self.constant(value.sqrt()),
            None => self.call(Function::Sqrt, x),
        }
    }

    /// A value times a number.
    pub(super) fn scaled(&mut self, x: Id, factor: f64) -> Id {
        let factor = self.constant(factor);
        self.mul(x, factor)
    }

    /// A value plus a number.
    pub(super) fn shifted(&mut self, x: Id, number: f64) -> Id {
        let number = self.constant(number);
        self.add(x, number)
    }

    /// The magnitude, without a derivative at zero that would be of use: for conditions.
    pub(super) fn magnitude(&mut self, x: Id) -> Id {
        let negative = self.neg(x);
        self.max(x, negative)
    }

    /// Where a value is more than a number.
    pub(super) fn above(&mut self, x: Id, number: f64) -> Id {
        let number = self.constant(number);
        self.greater(x, number)
    }

    /// Where a value is less than a number.
    pub(super) fn below(&mut self, x: Id, number: f64) -> Id {
        let number = self.constant(number);
        self.greater(number, x)
    }

    /// Where values are finite.
    pub(super) fn are_finite(&mut self, values: impl IntoIterator<Item = Id>) -> Id {
        let mut largest = self.constant(0.0);
        for value in values {
            let size = self.magnitude(value);
            largest = self.max(size, largest);
        }
        self.below(largest, f64::INFINITY)
    }

    /// Where both conditions hold.
    pub(super) fn both(&mut self, a: Id, b: Id) -> Id {
        self.mul(a, b)
    }

    /// Where a condition does not hold.
    pub(super) fn not(&mut self, condition: Id) -> Id {
        let one = self.constant(1.0);
        self.sub(one, condition)
    }

    /// `yes` where a condition holds, else `no`. Neither an infinity nor NaN of the other one comes through.
    pub(super) fn choose(&mut self, condition: Id, yes: Id, no: Id) -> Id {
        let rest = self.not(condition);
        let (yes, no) = (self.damp(condition, yes), self.damp(rest, no));
        self.add(yes, no)
    }

    /// A value where a condition holds, else a number.
    pub(super) fn kept(&mut self, condition: Id, x: Id, number: f64) -> Id {
        let number = self.constant(number);
        self.choose(condition, x, number)
    }

    /// -1 where a condition holds, else 1.
    pub(super) fn sign_unless(&mut self, condition: Id) -> Id {
        let twice = self.scaled(condition, -2.0);
        self.shifted(twice, 1.0)
    }
}
