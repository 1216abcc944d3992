//! The slow path of native unwinding: finds the image of an address, and reads the unwind rule of that address from
//! the image's .eh_frame_hdr with gimli.
//!
//! Allocates: in `new` and in `refresh` only. Locks: no. Syscalls: no.
//! Cost: 0.2 to 0.35 µs a rule (the image with `_dl_find_object`: 12 ns).

use super::image_list::ImageList;
use super::unwind_rules::{CallerBp, Cfa, Rule};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection as _, UnwindTableRow, X86_64,
};

type Bytes = EndianSlice<'static, LittleEndian>;

/// Room for gimli, without the heap: rules for 24 registers (x86-64 saves 7 and the return address), and 8 nested
/// DW_CFA_remember_state (compilers use one).
#[derive(Clone, Copy, Debug)]
pub struct FixedStorage;

impl UnwindContextStorage<usize> for FixedStorage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 8];
}

/// gimli's scratch memory; one a thread.
pub type RuleContext = UnwindContext<usize, FixedStorage>;

/// Fresh scratch memory.
pub fn new_context() -> RuleContext {
    UnwindContext::new_in()
}

/// An image that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// What must be added to an address of the file.
    pub bias_avma: u64,
    /// Its program headers.
    pub program_headers_avma: u64,
    /// Their number.
    pub program_header_count: u64,
    /// Its .eh_frame_hdr.
    pub eh_frame_hdr_avma: u64,
}

/// glibc's `struct dl_find_object` for x86-64 (an ABI since 2.35).
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *const u8,
    map_end: *const u8,
    link_map: *const u64,
    eh_frame_hdr: *const u8,
    reserved: [u64; 7],
}

const _: () = assert!(size_of::<DlFindObject>() == 96);

type DlFindObjectFn = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

/// Finds images: by `_dl_find_object`, or in our own list where glibc is older than 2.35.
#[derive(Debug)]
pub struct ImageFinder {
    dl_find_object: Option<DlFindObjectFn>,
    list: Option<Box<ImageList>>,
}

/// Which way to find images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindBy {
    /// `_dl_find_object` where there is one.
    LoaderFirst,
    /// Always our own list.
    OwnList,
}

impl ImageFinder {
    /// Looks for `_dl_find_object`, and makes a list without it.
    pub fn new(find_by: FindBy) -> Self {
        let symbol = super::find_symbol(c"_dl_find_object").filter(|_| find_by == FindBy::LoaderFirst);
        // SAFETY: glibc's function of that name has this signature.
        let dl_find_object =
            symbol.map(|at| unsafe { core::mem::transmute::<*mut c_void, DlFindObjectFn>(at) });
        let list = dl_find_object.is_none().then(|| Box::new(ImageList::new()));
        let finder = Self { dl_find_object, list };
        finder.refresh();
        finder
    }

    /// Rebuilds the list, if one is used. Helper thread only.
    pub fn refresh(&self) {
        if let Some(list) = &self.list {
            list.rebuild();
        }
    }

    /// The image that covers `pc`.
    pub fn find(&self, pc: u64) -> Option<FoundImage> {
        match (self.dl_find_object, &self.list) {
            (Some(find), _) => find_by_loader(find, pc),
            (None, Some(list)) => list.find(pc),
            (None, None) => None,
        }
    }
}

fn find_by_loader(find: DlFindObjectFn, pc: u64) -> Option<FoundImage> {
    let mut found = MaybeUninit::<DlFindObject>::uninit();
    // SAFETY: the result is filled in whenever the function returns zero, and only then read. The ELF header lies at
    // the start of the mapping, and l_addr first in the link map; both stay while code at `pc` runs.
    unsafe {
        if find(pc as *const c_void, found.as_mut_ptr()) != 0 {
            return None;
        }
        let found = found.assume_init();
        let header = found.map_start;
        if found.eh_frame_hdr.is_null() || header.cast::<[u8; 4]>().read() != *b"\x7fELF" {
            return None;
        }
        Some(FoundImage {
            bias_avma: found.link_map.read(),
            program_headers_avma: (header as u64).wrapping_add(header.add(32).cast::<u64>().read()),
            program_header_count: u64::from(header.add(56).cast::<u16>().read()),
            eh_frame_hdr_avma: found.eh_frame_hdr as u64,
        })
    }
}

/// The memory from `avma` to the end of the loaded segment that holds it.
fn rest_of_segment(image: &FoundImage, avma: u64) -> Option<&'static [u8]> {
    let headers = image.program_headers_avma as *const libc::Elf64_Phdr;
    for index in 0..image.program_header_count.min(64) {
        // SAFETY: the loader mapped that many headers there; they stay while code of the image runs.
        let header = unsafe { headers.add(index as usize).read_unaligned() };
        let start = image.bias_avma.wrapping_add(header.p_vaddr);
        let end = start.wrapping_add(header.p_filesz);
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0 && (start..end).contains(&avma)
        {
            // SAFETY: a readable segment, mapped while code of the image runs, which is for as long as it is used.
            return Some(unsafe { core::slice::from_raw_parts(avma as *const u8, (end - avma) as usize) });
        }
    }
    None
}

/// The rule for the call that returns to `pc`; an address without one is odd.
pub fn rule_for(image: &FoundImage, pc: u64, context: &mut RuleContext) -> Rule {
    read_rule(image, pc, context).unwrap_or(Rule::Odd)
}

fn read_rule(image: &FoundImage, pc: u64, context: &mut RuleContext) -> Option<Rule> {
    let hdr_avma = image.eh_frame_hdr_avma;
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr_avma);
    let parsed = EhFrameHdr::new(rest_of_segment(image, hdr_avma)?, LittleEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(frame_avma) = parsed.eh_frame_ptr() else { return None };
    let frame: EhFrame<Bytes> = EhFrame::new(rest_of_segment(image, frame_avma)?, LittleEndian);
    let bases = bases.set_eh_frame(frame_avma);
    // `pc` is a return address: the call before it is what the frame is in.
    let row = parsed
        .table()?
        .unwind_info_for_address(&frame, &bases, context, pc.wrapping_sub(1), EhFrame::cie_from_offset)
        .ok()?;
    rule_from_row(&frame, row)
}

fn rule_from_row(frame: &EhFrame<Bytes>, row: &UnwindTableRow<usize, FixedStorage>) -> Option<Rule> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        None | Some(RegisterRule::Undefined) => return Some(Rule::Outermost),
        Some(_) => return None,
    }
    let (cfa, cfa_offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => (Cfa::Sp, *offset),
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RBP => (Cfa::Bp, *offset),
        CfaRule::Expression(expression) => (Cfa::AtBp, bp_plus(frame, expression, Then::Dereference)?),
        CfaRule::RegisterAndOffset { .. } => return None,
    };
    let (bp, bp_offset) = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (CallerBp::Same, 0),
        Some(RegisterRule::Offset(offset)) => (CallerBp::AtCfa, offset),
        Some(RegisterRule::Expression(expression)) => {
            (CallerBp::AtBp, bp_plus(frame, &expression, Then::Nothing)?)
        }
        Some(_) => return None,
    };
    let (cfa_offset, bp_offset) = (i32::try_from(cfa_offset).ok()?, i16::try_from(bp_offset).ok()?);
    Some(Rule::Step { cfa, cfa_offset, bp, bp_offset })
}

/// What an expression does with the address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    Dereference,
}

const DW_OP_BREG6: u8 = 0x76;
const DW_OP_DEREF: u8 = 0x06;

/// The offset in an expression that is `rbp + offset`, with or without a dereference: what compilers write for
/// functions that realign their stack. Other expressions (PLT entries, signal frames) are odd.
fn bp_plus(frame: &EhFrame<Bytes>, expression: &UnwindExpression<usize>, then: Then) -> Option<i64> {
    let mut bytes = expression.get(frame).ok()?.0;
    let first = gimli::Reader::read_u8(&mut bytes).ok()?;
    let offset = gimli::Reader::read_sleb128(&mut bytes).ok()?;
    let rest_fits = match then {
        Then::Nothing => bytes.is_empty(),
        Then::Dereference => bytes.slice() == [DW_OP_DEREF],
    };
    (first == DW_OP_BREG6 && rest_fits).then_some(offset)
}
