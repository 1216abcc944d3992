//! A segment in plain memory, and what its dictionary holds, for tests and the probe.
#![allow(dead_code, reason = "each test uses a part of it")]

use shared_abi::dictionary::{DefinitionKind, ImageHead, Read, Reader, SiteHead, StackHead};
use shared_abi::segment::{Identity, Segment, Sizes};
use std::collections::HashMap;
use zerocopy::{FromBytes as _, FromZeros as _};

/// A segment that is never freed.
pub fn new_segment(dictionary_bytes: u64) -> Segment {
    let sizes = Sizes { lane_count: 1, slot_count: 2, dictionary_bytes };
    let layout = std::alloc::Layout::from_size_align(sizes.segment_bytes() as usize, 4096).unwrap();
    // SAFETY: fresh zeroed memory of the right size and alignment, never freed.
    unsafe {
        let base = std::ptr::NonNull::new(std::alloc::alloc_zeroed(layout)).unwrap();
        Segment::create(base, sizes, Identity::new_zeroed())
    }
}

/// All definitions, the last of each id, and how often each was made.
pub struct SegmentContents {
    definitions: HashMap<(u16, u32), Vec<u8>>,
    pub count: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Stack {
    pub flags: u32,
    pub native: Vec<u64>,
    pub python: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Site {
    pub line: u32,
    pub first_line: u32,
    pub name: String,
    pub file: String,
}

impl SegmentContents {
    pub fn read(segment: &Segment) -> Self {
        let (mut reader, mut contents) = (Reader::default(), Self { definitions: HashMap::new(), count: 0 });
        loop {
            let mut bytes = Vec::new();
            match reader.next(segment, |word| bytes.extend(word.to_le_bytes())) {
                Read::Definition(definition) => {
                    contents.count += 1;
                    contents.definitions.insert((definition.kind, definition.id), bytes);
                }
                Read::End => return contents,
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn bytes(&self, kind: DefinitionKind, id: u32) -> Option<&[u8]> {
        self.definitions.get(&(kind as u16, id)).map(Vec::as_slice)
    }

    pub fn stack(&self, id: u32) -> Option<Stack> {
        let (head, rest) = StackHead::read_from_prefix(self.bytes(DefinitionKind::Stack, id)?).unwrap();
        let (native, rest) = rest.split_at(usize::from(head.native_count) * 8);
        Some(Stack {
            flags: head.flags,
            native: native.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect(),
            python: rest
                .chunks_exact(4)
                .take(head.python_count.into())
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .collect(),
        })
    }

    pub fn site(&self, id: u32) -> Option<Site> {
        let (head, rest) = SiteHead::read_from_prefix(self.bytes(DefinitionKind::Site, id)?).unwrap();
        let (name, rest) = rest.split_at(head.name_bytes as usize);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Some(Site {
            line: head.line,
            first_line: head.first_line,
            name: text(name),
            file: text(&rest[..head.file_bytes as usize]),
        })
    }

    pub fn image(&self, id: u32) -> Option<(ImageHead, String)> {
        let (head, rest) = ImageHead::read_from_prefix(self.bytes(DefinitionKind::Image, id)?).unwrap();
        Some((head, String::from_utf8(rest[..head.path_bytes as usize].to_vec()).unwrap()))
    }
}

/// A shared library made from C, loaded; `None` (with a note) where there is no C compiler.
pub struct CLibrary {
    pub path: std::path::PathBuf,
    handle: *mut libc::c_void,
}

impl CLibrary {
    pub fn build(name: &str, source: &str, options: &[&str]) -> Option<std::path::PathBuf> {
        let folder = std::env::temp_dir().join(format!("launchscope-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (from, path) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
        std::fs::write(&from, source).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-Wl,--build-id=sha1", "-o"])
            .args([&path, &from])
            .args(options)
            .status();
        match built {
            Ok(status) => assert!(status.success(), "cc failed on {}", from.display()),
            Err(error) => {
                println!("skipped: no C compiler ({error})");
                return None;
            }
        }
        Some(path)
    }

    pub fn load(path: std::path::PathBuf) -> Self {
        Self::load_with(path, libc::RTLD_NOW)
    }

    pub fn load_globally(path: std::path::PathBuf) -> Self {
        Self::load_with(path, libc::RTLD_NOW | libc::RTLD_GLOBAL)
    }

    fn load_with(path: std::path::PathBuf, flags: i32) -> Self {
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string; the libraries of these tests have no constructors.
        let handle = unsafe { libc::dlopen(text.as_ptr(), flags) };
        assert!(!handle.is_null());
        Self { path, handle }
    }

    pub fn symbol(&self, name: &std::ffi::CStr) -> *mut libc::c_void {
        // SAFETY: an open handle and a C string.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!symbol.is_null());
        symbol
    }

    pub fn unload(self) {
        // SAFETY: an open handle; the tests use nothing of it afterwards.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }
}
