//! Mapped ELF images: each is defined once in the dictionary, so that the collector can tell which file an address
//! belongs to, and named once to the caller, so that its file can be handed over.
//!
//! Runs on: the helper thread. Allocates: yes. Locks: the loader's, while it lists. Syscalls: one readlink.
//! Cost: 20 ns when nothing was loaded or unloaded, otherwise about 0.5 ms for 100 images.

use crate::loader_counts::LoaderCounts;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, DictionaryFull, ImageHead, define};
use shared_abi::segment::Segment;
use shared_abi::sync::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// Path by which the kernel's own image is known; it has no file.
pub const VDSO_PATH: &str = "[vdso]";
const OWN_PROGRAM: &str = "/proc/self/exe";

/// An image that was not there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    /// Its dictionary id.
    pub image_id: u32,
    /// Its path, as defined.
    pub path: PathBuf,
    /// What to open to get its file; `None` for the vdso.
    pub open_path: Option<PathBuf>,
}

/// All images that were defined.
#[derive(Debug, Default)]
pub struct ImageTable {
    known: Vec<Known>,
    /// The loader's counts of loads and unloads at the last listing.
    listed_at: Option<LoaderCounts>,
}

#[derive(Debug)]
struct Known {
    id: u32,
    image: Image,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    avma: Range<u64>,
    bias_avma: u64,
    build_id: Vec<u8>,
    path: Vec<u8>,
}

impl ImageTable {
    /// Nothing defined yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines what was loaded since the last call, and returns it. An image that lies where another one was takes
    /// over its id.
    pub fn refresh(&mut self, segment: &Segment) -> Vec<NewImage> {
        let counts = LoaderCounts::now();
        if self.listed_at == Some(counts) {
            return Vec::new();
        }
        self.listed_at = Some(counts);
        let now = list_images();
        now.iter().filter_map(|image| self.take(segment, image)).collect()
    }

    fn take(&mut self, segment: &Segment, image: &Image) -> Option<NewImage> {
        if self.known.iter().any(|known| known.image == *image) {
            return None;
        }
        let overlaps = |known: &&mut Known| {
            known.image.avma.start < image.avma.end && image.avma.start < known.image.avma.end
        };
        let mut replaced = self.known.iter_mut().filter(overlaps);
        let id = match replaced.next() {
            Some(first) => {
                first.image = image.clone();
                // More than one was there: only one id can be taken over, the others cover nothing from now on.
                for other in replaced {
                    other.image = Image { avma: 0..0, bias_avma: 0, build_id: Vec::new(), path: Vec::new() };
                    define_image(segment, other.id, &other.image);
                }
                first.id
            }
            None => {
                let id = self.known.len() as u32 + 1;
                self.known.push(Known { id, image: image.clone() });
                id
            }
        };
        define_image(segment, id, image);
        let path = PathBuf::from(OsString::from_vec(image.path.clone()));
        Some(NewImage { image_id: id, open_path: open_path(&path), path })
    }
}

fn open_path(path: &Path) -> Option<PathBuf> {
    if path.as_os_str() == VDSO_PATH {
        return None;
    }
    // The program's file may have been renamed or replaced since it was started.
    let is_program = std::fs::read_link(OWN_PROGRAM).is_ok_and(|program| program == path);
    Some(if is_program { PathBuf::from(OWN_PROGRAM) } else { path.to_owned() })
}

fn define_image(segment: &Segment, id: u32, image: &Image) {
    let mut head = ImageHead {
        bias_avma: image.bias_avma,
        start_avma: image.avma.start,
        end_avma: image.avma.end,
        path_bytes: image.path.len() as u32,
        ..ImageHead::new_zeroed()
    };
    for (to, from) in head.build_id.iter_mut().zip(&image.build_id) {
        *to = *from;
        head.build_id_bytes += 1;
    }
    if let Err(DictionaryFull) = define(segment, DefinitionKind::Image, id, &[head.as_bytes(), &image.path]) {
        segment.counter(Counter::DictionaryDropped as usize).fetch_add(1, Ordering::Relaxed);
    }
}

fn list_images() -> Vec<Image> {
    let mut images: Vec<Image> = Vec::with_capacity(512);
    // SAFETY: the callback gets back the pointer to `images`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut images).cast::<c_void>()) };
    images
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _bytes: usize, images: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and the pointer that `list_images` gave it.
    let (info, images) = unsafe { (&*info, &mut *images.cast::<Vec<Image>>()) };
    // SAFETY: the loader says that there are so many headers; nothing is unloaded before the callback returns.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let range = |header: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    };
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(range);
    let (Some(start), Some(end)) = (loads().map(|load| load.start).min(), loads().map(|load| load.end).max())
    else {
        return 0;
    };
    let build_id = headers.iter().filter(|header| header.p_type == libc::PT_NOTE).find_map(|header| {
        let notes = range(header);
        loads().any(|load| load.start <= notes.start && notes.end <= load.end).then_some(())?;
        // SAFETY: the notes lie inside a loaded segment.
        let notes = unsafe { core::slice::from_raw_parts(notes.start as *const u8, header.p_memsz as usize) };
        find_build_id(notes, header.p_align)
    });
    images.push(Image {
        avma: start..end,
        bias_avma: info.dlpi_addr,
        build_id: build_id.unwrap_or_default(),
        path: image_path(info, start),
    });
    0
}

fn image_path(info: &libc::dl_phdr_info, start_avma: u64) -> Vec<u8> {
    // SAFETY: always valid to call.
    let vdso_avma = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if vdso_avma != 0 && start_avma == vdso_avma {
        return VDSO_PATH.into();
    }
    // SAFETY: null or a C string of the loader's, which stays during its callback.
    let name = unsafe { info.dlpi_name.as_ref().map(|name| CStr::from_ptr(name)) };
    match name {
        Some(name) if !name.is_empty() => name.to_bytes().to_vec(),
        // The program itself.
        _ => std::fs::read_link(OWN_PROGRAM)
            .map_or_else(|_| Vec::new(), |path| path.as_os_str().as_bytes().to_vec()),
    }
}

const NT_GNU_BUILD_ID: u32 = 3;

fn find_build_id(mut notes: &[u8], alignment: u64) -> Option<Vec<u8>> {
    let padded = |bytes: u32| (bytes as usize).next_multiple_of(if alignment == 8 { 8 } else { 4 });
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (name_bytes, text_bytes, kind) = (word(0)?, word(4)?, word(8)?);
        let text = rest.get(padded(name_bytes)..)?;
        if kind == NT_GNU_BUILD_ID && rest.starts_with(b"GNU\0") {
            return text.get(..text_bytes as usize).map(<[u8]>::to_vec);
        }
        notes = text.get(padded(text_bytes)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a build id is found behind another note, and that broken notes are none.
    #[test]
    fn build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        for (kind, text) in [(1u32, &b"abc\0"[..]), (NT_GNU_BUILD_ID, &[9; 20][..])] {
            notes.extend(4u32.to_ne_bytes());
            notes.extend((text.len() as u32).to_ne_bytes());
            notes.extend(kind.to_ne_bytes());
            notes.extend(b"GNU\0");
            notes.extend(text);
        }
        assert_eq!(find_build_id(&notes, 4), Some(vec![9; 20]));
        assert_eq!(find_build_id(&notes[..40], 4), None);
        assert_eq!(find_build_id(&[0xff; 40], 4), None);
    }

    /// Check that this program, libc and the vdso are listed, with build ids where they have them.
    #[test]
    fn own_images_are_listed() {
        let images = list_images();
        let by_path = |end: &str| images.iter().find(|image| image.path.ends_with(end.as_bytes()));
        let own = own_images_are_listed as *const () as u64;
        let program = images.iter().find(|image| image.avma.contains(&own)).unwrap();
        assert_eq!(program.path, std::fs::read_link(OWN_PROGRAM).unwrap().into_os_string().into_vec());
        assert_eq!(by_path("libc.so.6").unwrap().build_id.len(), 20);
        assert!(by_path(VDSO_PATH).is_some());
    }
}
