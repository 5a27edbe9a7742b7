//! The model of a case: the least time that the machine could take, and what sets it.

use serde::{Deserialize, Serialize};

/// The resource that limits a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// The cost of the calls takes longest.
    #[serde(rename = "launch-bound")]
    Launch,
    /// Moving bytes takes longest, and the tensors stay in a cache.
    #[serde(rename = "cache-bound")]
    Cache,
    /// Moving bytes takes longest, and the tensors come from memory.
    #[serde(rename = "bandwidth-bound")]
    Bandwidth,
    /// The operations take longest.
    #[serde(rename = "compute-bound")]
    Compute,
}

/// How much faster than a large addition a floor must be for its bytes to come from a cache.
const CACHE: f64 = 1.25;

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Launch, Self::Cache, Self::Bandwidth, Self::Compute];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch-bound",
            Self::Cache => "cache-bound",
            Self::Bandwidth => "bandwidth-bound",
            Self::Compute => "compute-bound",
        }
    }

    /// The efficiency to aim at. Sums that a norm needs make a second pass over a row, which caches hide the less the smaller they are;
    /// vector units wait for loads, roots and divisions, which the count of operations takes for one each.
    pub fn target(self) -> f64 {
        match self {
            Self::Launch => 0.5,
            Self::Cache => 0.4,
            Self::Bandwidth => 0.6,
            Self::Compute => 0.4,
        }
    }
}

/// The parts of the least time of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The bytes that must be moved.
    pub bytes: usize,
    /// Seconds of the calls, whatever their size.
    pub call_seconds: f64,
    /// Seconds of moving the bytes, measured at their size.
    pub memory_seconds: f64,
    /// Seconds of the operations.
    pub compute_seconds: f64,
    /// The rate of a large addition, in bytes a second.
    pub stream_rate: f64,
}

impl Model {
    /// The least time: the calls, and bytes and operations side by side.
    pub fn seconds(&self) -> f64 {
        self.call_seconds + self.memory_seconds.max(self.compute_seconds)
    }

    /// The resource that takes longest.
    pub fn class(&self) -> Class {
        let work = self.memory_seconds.max(self.compute_seconds);
        if self.call_seconds >= work {
            Class::Launch
        } else if self.compute_seconds > self.memory_seconds {
            Class::Compute
        } else if self.bytes as f64 / self.memory_seconds > CACHE * self.stream_rate {
            Class::Cache
        } else {
            Class::Bandwidth
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model {
        bytes: 1000,
        call_seconds: 1.0,
        memory_seconds: 10.0,
        compute_seconds: 5.0,
        stream_rate: 100.0,
    };

    #[test]
    fn the_longest_part_names_the_class() {
        assert_eq!(MODEL.class(), Class::Bandwidth);
        assert_eq!(MODEL.seconds(), 11.0);
        let faster_than_memory = Model {
            stream_rate: 79.0,
            ..MODEL
        };
        assert_eq!(faster_than_memory.class(), Class::Cache);
        let many_operations = Model {
            compute_seconds: 10.1,
            ..MODEL
        };
        assert_eq!(many_operations.class(), Class::Compute);
        assert_eq!(many_operations.seconds(), 11.1);
        let tiny = Model {
            call_seconds: 10.0,
            ..MODEL
        };
        assert_eq!(tiny.class(), Class::Launch);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for class in Class::ALL {
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("\"{}\"", class.name()));
            assert!(class.target() > 0.0 && class.target() < 1.0);
        }
    }
}
