//! The shipped library as the dynamic linker sees it.

use launchscope_tests::built;
use object::elf::{
    DF_1_NODELETE, DF_1_NOW, DT_FLAGS_1, DT_NEEDED, DT_TEXTREL, PF_W, PF_X, PT_GNU_STACK, PT_LOAD,
};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, ObjectSymbolTable as _, RelocationTarget};
use std::collections::BTreeSet;
use std::path::Path;

fn image() -> Vec<u8> {
    std::fs::read(built::library()).unwrap()
}

/// The names in the interposer's list of exported driver functions.
fn driver_names() -> BTreeSet<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interposer/src/launch_hook/names.rs");
    let text = std::fs::read_to_string(list).unwrap();
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with("cu") && !line.contains(' '))
        .map(str::to_owned)
        .collect()
}

/// Exactly these symbols are exported: one for the driver, one for everybody, and the driver's own names.
#[test]
fn exports_are_exactly_those_of_entry_rs() {
    let image = image();
    let file = ElfFile64::<Endianness>::parse(&*image).unwrap();
    let exported: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    let mut expected = driver_names();
    assert!(expected.len() > 20);
    expected.extend(["InitializeInjection", "dlsym"].map(str::to_owned));
    assert_eq!(exported, expected);
}

/// Nothing of a vendor is needed or linked, and nothing that changes the environment is called.
#[test]
fn nothing_but_the_c_library_is_needed() {
    let image = image();
    let file = ElfFile64::<Endianness>::parse(&*image).unwrap();
    let allowed = [
        "libc.so.6",
        // The sampler draws by a logarithm.
        "libm.so.6",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libdl.so.2",
        "libpthread.so.0",
    ];
    let (needed, _) = dynamic(&file);
    for name in needed {
        assert!(allowed.contains(&name.as_str()), "needs {name}");
    }
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_undefined()) {
        let name = symbol.name().unwrap();
        assert!(!["setenv", "unsetenv", "putenv", "clearenv"].contains(&name), "calls {name}");
        assert!(
            !name.starts_with("cu") && !name.starts_with("hip") && !name.starts_with("rocp"),
            "linked to {name}"
        );
    }
}

/// Our own references stay ours, dlclose does not unmap what patched functions jump to, and no page is writable code.
#[test]
fn library_binds_its_own_exports_is_permanent_and_has_no_writable_code() {
    let image = image();
    let file = ElfFile64::<Endianness>::parse(&*image).unwrap();
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = file.dynamic_symbol_table().unwrap().symbol_by_index(index).unwrap();
        assert!(symbol.is_undefined(), "{:?} may be bound to another library's", symbol.name());
    }
    let (_, flags_1) = dynamic(&file);
    assert_ne!(flags_1 & u64::from(DF_1_NODELETE), 0);
    assert_ne!(flags_1 & u64::from(DF_1_NOW), 0);
    for header in file.elf_program_headers() {
        let flags = header.p_flags(Endianness::Little);
        if [PT_LOAD, PT_GNU_STACK].contains(&header.p_type(Endianness::Little)) {
            assert_ne!(flags & (PF_W | PF_X), PF_W | PF_X);
        }
    }
}

/// DT_NEEDED and DT_FLAGS_1.
fn dynamic(file: &ElfFile64<'_, Endianness>) -> (Vec<String>, u64) {
    let endian = Endianness::Little;
    let header = file.elf_header();
    let sections = header.sections(endian, file.data()).unwrap();
    let (entries, strings) = sections.dynamic(endian, file.data()).unwrap().unwrap();
    let strings = sections.strings(endian, file.data(), strings).unwrap();
    let (mut needed, mut flags_1) = (Vec::new(), 0);
    for entry in entries {
        let value = entry.d_val(endian);
        match u32::try_from(entry.d_tag(endian)) {
            Ok(DT_NEEDED) => {
                needed.push(String::from_utf8_lossy(entry.string(endian, strings).unwrap()).into_owned())
            }
            Ok(DT_FLAGS_1) => flags_1 = value,
            Ok(DT_TEXTREL) => panic!("has relocations in its text"),
            _ => {}
        }
    }
    (needed, flags_1)
}
