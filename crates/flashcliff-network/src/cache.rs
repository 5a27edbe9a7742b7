//! The last values of some keys: plans of the last few sizes.

use std::sync::{Arc, Mutex, PoisonError};

/// The most values that stay. Each number of rows has a plan, so a host with batches of all sizes would collect plans without end.
const KEPT: usize = 16;

/// The values of the 16 keys that were last used, the last one at the end.
#[derive(Debug)]
pub struct Cache<K, V>(Mutex<Vec<(K, Arc<V>)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> Cache<K, V> {
    /// The value of a key, which is made if it is not there. Nothing waits meanwhile.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn get<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<Arc<V>, E> {
        let known = self.change(|all| {
            let at = all.iter().position(|(own, _)| *own == key)?;
            let last = all.remove(at);
            let value = last.1.clone();
            all.push(last);
            Some(value)
        });
        if let Some(value) = known {
            return Ok(value);
        }
        let value = Arc::new(make(&key)?);
        self.change(|all| {
            if all.len() == KEPT {
                all.remove(0);
            }
            all.push((key, value.clone()));
        });
        Ok(value)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<(K, Arc<V>)>) -> R) -> R {
        // The list is whole even after a panic.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_until_others_were_used_more_often_since() {
        let cache = Cache::default();
        let mut made = 0;
        let mut get = |key: usize| {
            let value = cache.get(key, |&key| {
                made += 1;
                Ok::<_, ()>(10 * key)
            });
            (*value.unwrap(), made)
        };
        for key in 0..KEPT {
            assert_eq!(get(key), (10 * key, key + 1));
        }
        assert_eq!(get(0), (0, KEPT));
        // The oldest one makes room: that is 1, since 0 was used again.
        assert_eq!(get(KEPT), (10 * KEPT, KEPT + 1));
        assert_eq!(get(0), (0, KEPT + 1));
        assert_eq!(get(1), (10, KEPT + 2));
    }

    #[test]
    fn a_value_that_cannot_be_made_is_not_there() {
        let cache = Cache::<u8, u8>::default();
        let refused = cache.get(1, |_| Err("no"));
        assert_eq!(refused, Err("no"));
        assert_eq!(*cache.get(1, |_| Ok::<_, ()>(7)).unwrap(), 7);
    }
}
