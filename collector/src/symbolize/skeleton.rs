//! The parts of an ELF file that symbolization needs, copied into a memory file of our own.
//!
//! A file that another process sent, or owns, can be cut while it is mapped, and then the next access ends this process
//! by SIGBUS. So nothing of it is ever mapped: headers, symbol and string tables and notes are read by pread into a
//! sparse file of the same layout, which nobody else holds. Code and data stay holes and cost nothing.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Bytes that are copied of one file. The tables of libtorch_cpu.so, the largest known, have about 120 MiB.
const MAX_COPIED_BYTES: u64 = 512 << 20;
/// Bytes that a file may have; the copy is as long, but sparse.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;
const ELF_HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: u64 = 64;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;

/// A sparse copy of `file` with what symbolization reads. Errors mean that it is not a 64-bit little-endian ELF file,
/// contradicts itself or was cut meanwhile.
pub fn skeleton(file: &File) -> io::Result<File> {
    let length = file.metadata()?.len();
    let header = read(file, 0, ELF_HEADER_BYTES)?;
    if header.get(..6) != Some(b"\x7fELF\x02\x01") || length > MAX_FILE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let copy = memory_file()?;
    copy.set_len(length)?;
    let mut copier = Copier { file, copy: &copy, length, left_bytes: MAX_COPIED_BYTES };
    copier.copy(0, ELF_HEADER_BYTES as u64)?;
    let program_headers = half(&header, 54).saturating_mul(half(&header, 56));
    copier.copy(word(&header, 32), program_headers)?;
    let sections = section_headers(file, &header)?;
    copier.copy(word(&header, 40), sections.len() as u64)?;
    for section in sections.chunks_exact(SECTION_HEADER_BYTES as usize) {
        let kind = word(section, 4) as u32;
        if matches!(kind, SYMTAB | STRTAB | NOTE | DYNSYM) {
            copier.copy(word(section, 24), word(section, 32))?;
        }
    }
    Ok(copy)
}

struct Copier<'a> {
    file: &'a File,
    copy: &'a File,
    length: u64,
    left_bytes: u64,
}

impl Copier<'_> {
    fn copy(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.length);
        let left = self.left_bytes.checked_sub(bytes);
        let (Some(end), Some(left)) = (end, left) else { return Err(io::ErrorKind::InvalidData.into()) };
        self.left_bytes = left;
        for at in (offset..end).step_by(CHUNK_BYTES) {
            let part = read(self.file, at, CHUNK_BYTES.min((end - at) as usize))?;
            self.copy.write_all_at(&part, at)?;
        }
        Ok(())
    }
}

fn section_headers(file: &File, header: &[u8]) -> io::Result<Vec<u8>> {
    let (offset, count) = (word(header, 40), half(header, 60));
    if offset == 0 || half(header, 58) != SECTION_HEADER_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // More than 65,279 sections: the first header's size holds their number. No library that is loaded has so many.
    read(file, offset, (count * SECTION_HEADER_BYTES) as usize)
}

fn read(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 2)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, |bytes| u16::from_le_bytes(bytes).into())
}

fn memory_file() -> io::Result<File> {
    // SAFETY: plain system call with a constant name.
    let raw = unsafe { libc::memfd_create(c"launchscope-symbols".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: freshly made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) }.into())
}

#[cfg(test)]
mod tests {
    use super::skeleton;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    /// The copy has the build id of the original, and is much smaller.
    #[test]
    fn skeleton_keeps_what_is_needed_only() {
        let original = File::open("/proc/self/exe").expect("our own file");
        let copy = skeleton(&original).expect("an ELF file");
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        let build_id = |path: &str| blazesym::helper::read_elf_build_id(&path).expect("readable");
        assert_eq!(build_id(&path), build_id("/proc/self/exe"));
        let (whole, part) = (original.metadata().expect("open"), copy.metadata().expect("open"));
        assert_eq!(whole.len(), part.len());
        assert!(part.blocks() * 512 < whole.len() / 2, "{} of {}", part.blocks() * 512, whole.len());
    }

    /// What is no ELF file, or promises more than it has, is refused.
    #[test]
    fn nonsense_is_refused() {
        assert!(skeleton(&File::open("/etc/passwd").expect("it is there")).is_err());
        let mut bytes = std::fs::read("/proc/self/exe").expect("our own file");
        bytes.truncate(bytes.len() / 2);
        let path = std::env::temp_dir().join(format!("launchscope-cut-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("writable");
        assert!(skeleton(&File::open(&path).expect("just written")).is_err());
        std::fs::remove_file(path).expect("just written");
    }
}
