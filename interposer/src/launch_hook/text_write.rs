//! Writing a jump over the entry of a function that other threads may be calling.
//!
//! Allocates: no. Locks: no. Syscalls: mprotect twice, membarrier. Used while arming only.
//!
//! The page keeps its execute permission while it is writable, because other threads run in it; its protection is put back
//! at once. A jump that lies in one aligned word appears with one store. Otherwise (behind `endbr64`) the word with its
//! first bytes gets a jump to itself, then the next word its last bytes, then the first word the jump's first bytes; between
//! the steps every core that runs a thread of ours is made to fetch its instructions again.
//!
//! What no ordering can help is a thread that stopped between two of the moved instructions. The driver loads us inside
//! cuInit, before any launch function can have got past its check for an initialized driver.

use super::memory_map::Region;
use super::moved_code::{JUMP_BYTES, WAIT_HERE};
use super::refusal::Why;
use super::trampoline::{errno, page_bytes};
use core::ptr;
use shared_abi::sync::{AtomicU64, Ordering};

/// A function's entry whose page is writable until this is dropped.
#[derive(Debug)]
pub struct WritableEntry {
    address: usize,
    pages: usize,
    pages_bytes: usize,
    protection: i32,
}

impl WritableEntry {
    /// Makes the jump's bytes at `address`, which lie in `region`, writable.
    pub fn open(address: usize, region: Region) -> Result<Self, Why> {
        let page_bytes = page_bytes();
        let pages = address & !(page_bytes - 1);
        let end = (address + JUMP_BYTES).next_multiple_of(page_bytes);
        if pages < region.start || end > region.end || !region.is_private {
            return Err(Why::NotCode);
        }
        if bytes_in_first_word(address) < WAIT_HERE.len() {
            return Err(Why::Straddles);
        }
        let writable = region.protection | libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        protect(pages, end - pages, writable).map_err(|errno| Why::TextNotWritable { errno })?;
        Ok(Self { address, pages, pages_bytes: end - pages, protection: region.protection })
    }

    /// Writes the jump; from now on calls go where it leads.
    pub fn write(&self, jump: [u8; JUMP_BYTES]) {
        let first = bytes_in_first_word(self.address);
        let (head, tail) = jump.split_at(first);
        if !tail.is_empty() {
            self.store(self.address, &WAIT_HERE);
            fetch_again();
            self.store(self.address + first, tail);
            fetch_again();
        }
        self.store(self.address, head);
        fetch_again();
    }

    /// Replaces bytes within one aligned word with one store.
    fn store(&self, address: usize, bytes: &[u8]) {
        let word_address = address & !7;
        // SAFETY: an aligned word that holds a byte of the entry lies in the pages that `open` made writable, and nothing
        // else writes to the driver's text.
        let word = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(word_address)) };
        // Relaxed: nobody else writes here.
        let mut content = word.load(Ordering::Relaxed).to_le_bytes();
        for (to, from) in content.iter_mut().skip(address - word_address).zip(bytes) {
            *to = *from;
        }
        // Release: whoever runs these bytes finds what was written before them, the trampoline and the hook's original.
        // (Fetching instructions is the other half; the membarrier of `fetch_again` orders it on every core.)
        word.store(u64::from_le_bytes(content), Ordering::Release);
    }
}

impl Drop for WritableEntry {
    fn drop(&mut self) {
        // It only takes back what was granted, which no kernel refuses; and if one did, the engine would still run.
        let _ = protect(self.pages, self.pages_bytes, self.protection);
    }
}

fn protect(pages: usize, pages_bytes: usize, protection: i32) -> Result<(), i32> {
    // SAFETY: pages of the driver's text; they never lose the permissions they have.
    match unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(pages), pages_bytes, protection) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// How many bytes of a jump at `address` lie in the aligned word that its first byte lies in.
fn bytes_in_first_word(address: usize) -> usize {
    JUMP_BYTES.min(8 - address % 8)
}

/// Makes every core that runs a thread of this process forget instructions it has fetched. A kernel without the call (before
/// 4.16) or a filter against it leaves us with what the architecture promises for aligned stores.
fn fetch_again() {
    for command in [
        libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE,
    ] {
        // SAFETY: membarrier has no memory arguments.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    }
}
