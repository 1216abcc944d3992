//! Images and kernel names are defined once, and again only when they change.

mod support;

use interposer::image_events::{ImageTable, VDSO_PATH};
use interposer::name_once::NameTable;
use shared_abi::counters::Counter;
use shared_abi::dictionary::DefinitionKind;
use shared_abi::sync::Ordering;
use support::{CLibrary, SegmentContents, new_segment};

/// Check that each image is told once, with its file; that a library loaded later is told then; and that another one
/// in its place takes its id over.
#[test]
fn images_are_told_once() {
    let segment = new_segment(1 << 20);
    let mut table = ImageTable::new();
    let first = table.refresh(&segment);
    assert!(first.iter().any(|image| image.path.ends_with("libc.so.6")));
    assert!(first.iter().any(|image| image.path.as_os_str() == VDSO_PATH && image.open_path.is_none()));
    let opened = first.iter().filter_map(|image| image.open_path.as_ref());
    opened.for_each(|path| drop(std::fs::File::open(path).unwrap()));
    assert!(table.refresh(&segment).is_empty());

    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let source = format!("int {name}(void) {{ return 1; }}");
        let Some(path) = CLibrary::build(name, &source, &[]) else { return };
        let library = CLibrary::load(path);
        let new = table.refresh(&segment);
        let [image] = new.as_slice() else { panic!("{new:?}") };
        assert_eq!(image.path, library.path);
        ids.push(image.image_id);
        let (head, defined) = SegmentContents::read(&segment).image(image.image_id).unwrap();
        let address = library.symbol(&std::ffi::CString::new(name).unwrap()) as u64;
        assert!((head.start_avma..head.end_avma).contains(&address));
        assert_eq!((head.build_id_bytes, defined.as_str()), (20, image.path.to_str().unwrap()));
        library.unload();
        assert!(table.refresh(&segment).is_empty());
    }
    assert_eq!(ids[0], ids[1], "the second library lies where the first one was");
}

/// Check that a name has one id whatever memory it comes from, and that a full table is counted.
#[test]
fn names_are_told_once() {
    let segment = new_segment(1 << 20);
    let names = NameTable::new(64);
    let long = "_Z".to_owned() + &"x".repeat(6700);
    let id = names.intern(&segment, long.as_bytes());
    assert_eq!(names.intern(&segment, long.clone().as_bytes()), id);
    assert_eq!(names.intern_c(&segment, &std::ffi::CString::new(long.clone()).unwrap()), id);
    assert_ne!(names.intern(&segment, &long.as_bytes()[1..]), id);
    let contents = SegmentContents::read(&segment);
    assert_eq!(contents.count, 2);
    assert!(contents.bytes(DefinitionKind::Name, id).unwrap().starts_with(long.as_bytes()));
    let ids: Vec<u32> = (0..100).map(|i| names.intern(&segment, format!("_Z{i}").as_bytes())).collect();
    assert_eq!(ids.iter().filter(|id| **id == 0).count(), 38);
    assert_eq!(segment.counter(Counter::NameTableFull as usize).load(Ordering::Relaxed), 38);
}
