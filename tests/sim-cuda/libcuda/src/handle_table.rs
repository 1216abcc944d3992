//! Handles of one kind and what they stand for. A destroyed handle is given out again by the next creation, as the
//! real driver does with its addresses, so whoever keeps handles must notice their end.

use crate::abi::{Driver, Handle, INVALID_HANDLE};
use std::collections::HashMap;

/// All living objects of one kind.
pub struct HandleTable<T> {
    objects: HashMap<Handle, T>,
    free: Vec<Handle>,
    next: Handle,
}

impl<T> HandleTable<T> {
    /// An empty table whose handles lie in range number `kind`, so that a handle of one kind is garbage for others.
    pub fn new(kind: usize) -> Self {
        Self { objects: HashMap::new(), free: Vec::new(), next: 0x5100_0000_0000 + (kind << 32) }
    }
    pub fn insert(&mut self, object: T) -> Handle {
        let handle = self.free.pop().unwrap_or_else(|| {
            self.next += 0x40;
            self.next
        });
        self.objects.insert(handle, object);
        handle
    }
    pub fn get(&self, handle: Handle) -> Driver<&T> {
        self.objects.get(&handle).ok_or(INVALID_HANDLE)
    }
    pub fn get_mut(&mut self, handle: Handle) -> Driver<&mut T> {
        self.objects.get_mut(&handle).ok_or(INVALID_HANDLE)
    }
    pub fn remove(&mut self, handle: Handle) -> Driver<T> {
        let object = self.objects.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.free.push(handle);
        Ok(object)
    }
    pub fn contains(&self, handle: Handle) -> bool {
        self.objects.contains_key(&handle)
    }
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.objects.iter().map(|(handle, object)| (*handle, object))
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        self.objects.iter_mut().map(|(handle, object)| (*handle, object))
    }
}
