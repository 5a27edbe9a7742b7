//! A list that only grows and lives as long as the process. A value that was added is found from then on.
//!
//! No lock is involved, so a forked child never waits for a thread that only its parent has.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list of values, each in a node that is never freed.
pub(crate) struct Kept<T: 'static> {
    head: AtomicPtr<Node<T>>,
}

struct Node<T: 'static> {
    value: T,
    next: Option<&'static Node<T>>,
}

impl<T: Send + Sync> Kept<T> {
    pub(crate) const fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// All values, the latest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        let mut next = head(self.head.load(Ordering::Acquire));
        std::iter::from_fn(move || {
            let node = next?;
            next = node.next;
            Some(&node.value)
        })
    }

    /// Adds a value. Two threads that make the same value at once both add it, which costs memory only.
    pub(crate) fn add(&self, value: T) -> &'static T {
        let node = Box::leak(Box::new(Node { value, next: None }));
        let node: *mut Node<T> = node;
        let mut current = self.head.load(Ordering::Acquire);
        loop {
            // SAFETY: nobody else knows the node before it is in the list, and it is never freed.
            unsafe { (*node).next = head(current) };
            let order = (Ordering::Release, Ordering::Acquire);
            match self
                .head
                .compare_exchange_weak(current, node, order.0, order.1)
            {
                // SAFETY: the same holds as above, and nobody changes the node any more.
                Ok(_) => return unsafe { &(*node).value },
                Err(other) => current = other,
            }
        }
    }
}

/// The first node.
fn head<T>(first: *mut Node<T>) -> Option<&'static Node<T>> {
    // SAFETY: the pointer is null, or a leaked node that nobody changes any more.
    unsafe { first.as_ref() }
}

/// A text that lives as long as the process, such as a name that was put together.
pub(crate) fn text(text: String) -> &'static str {
    static TEXTS: Kept<String> = Kept::new();
    let known = TEXTS.iter().find(|known| **known == text);
    known.unwrap_or_else(|| TEXTS.add(text))
}
