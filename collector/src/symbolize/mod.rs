//! In:         stack ids of processes, with their definitions and image files
//! Out:        `Frame`s, outermost first: Python and native frames of one stack merged
//! Drops when: frames of the interpreter and of liblaunchscope itself, on purpose; an address without a symbol stays as
//!             `image.so+0xoffset`
//! Runs on:    the thread that builds the profile

pub mod names; // demangled and short names
pub mod elf; // symbol tables of ELF files, cached by build id and address
mod skeleton; // files of others are never mapped
pub mod merge; // Python frames in place of the interpreter's

use crate::model::definitions::{Definitions, Image, Stack};
use crate::model::images::{ImageFiles, ImageKey};
use crate::model::{Frame, Layer, Name};
use elf::{Symbols, Wanted};
use merge::{NativeFrame, NativeKind, PythonSegmentFrame, Truncation};
use shared_abi::dictionary::{STACK_NATIVE_TRUNCATED, STACK_PYTHON_TRUNCATED};
use std::collections::HashMap;
use std::sync::Arc;

/// Turns stacks into frames. Keeps results over calls, bounded; the symbol tables themselves only during `prepare`.
#[derive(Debug, Default)]
pub struct Symbolizer {
    symbols: Symbols,
    kernel_names: HashMap<String, Arc<Name>>,
}

/// Kernel names that are kept demangled.
const MAX_KERNEL_NAMES: usize = 65_536;

impl Symbolizer {
    /// Looks up all addresses of these stacks, one image after the other.
    pub fn prepare<'a>(
        &mut self,
        stacks: impl Iterator<Item = (u64, &'a Definitions, u32)>,
        files: &ImageFiles,
    ) {
        let mut wanted: HashMap<ImageKey, Wanted> = HashMap::new();
        for (session, definitions, stack_id) in stacks {
            let Some(stack) = definitions.stack(stack_id) else { continue };
            for address in addresses(stack) {
                let Some(image) = definitions.image_at(address, stack.images_known) else { continue };
                let key = ImageKey::of(image, session);
                let svma = address.wrapping_sub(image.bias_avma);
                let entry = wanted.entry(key).or_insert_with(|| Wanted::new(image.path.clone()));
                entry.addresses_svma.insert(svma);
            }
        }
        self.symbols.look_up(wanted, files);
    }

    /// The frames of one stack, outermost first; empty when the stack was never defined.
    pub fn frames(&self, session: u64, definitions: &Definitions, stack_id: u32) -> Vec<Frame> {
        let Some(stack) = definitions.stack(stack_id) else { return Vec::new() };
        let native: Vec<NativeFrame> =
            addresses(stack).map(|address| self.native_frame(session, definitions, stack, address)).collect();
        let python: Vec<PythonSegmentFrame> = stack
            .python
            .iter()
            .map(|frame| {
                let shown = match definitions.site(*frame) {
                    Some(site) => Frame {
                        layer: Layer::Python,
                        name: site.qualified_name.to_string(),
                        full_name: String::new(),
                        file: site.file.to_string(),
                        line: site.line,
                    },
                    None => plain_frame(Layer::Python, "(Python code not known)", ""),
                };
                PythonSegmentFrame { frame: shown, is_entry: frame.is_entry }
            })
            .collect();
        let cut = stack.flags & (STACK_NATIVE_TRUNCATED | STACK_PYTHON_TRUNCATED) != 0;
        merge::merge(native, python, if cut { Truncation::Outermost } else { Truncation::None })
    }

    /// A kernel's name for people.
    pub fn kernel_name(&mut self, mangled: &str) -> Arc<Name> {
        if let Some(name) = self.kernel_names.get(mangled) {
            return name.clone();
        }
        if self.kernel_names.len() >= MAX_KERNEL_NAMES {
            self.kernel_names.clear();
        }
        let name = Arc::new(names::name_of(mangled));
        self.kernel_names.insert(mangled.to_owned(), name.clone());
        name
    }

    fn native_frame(
        &self,
        session: u64,
        definitions: &Definitions,
        stack: &Stack,
        address: u64,
    ) -> NativeFrame {
        let Some(image) = definitions.image_at(address, stack.images_known) else {
            return NativeFrame {
                kind: NativeKind::Plain,
                frame: plain_frame(Layer::Native, "[unknown]", ""),
            };
        };
        let svma = address.wrapping_sub(image.bias_avma);
        let symbol = self.symbols.get(&ImageKey::of(image, session), svma);
        let kind = merge::kind_of(symbol.map(|symbol| symbol.short.as_str()), base_name(&image.path));
        let frame = match symbol {
            Some(symbol) => Frame {
                layer: Layer::Native,
                name: symbol.short.clone(),
                full_name: symbol.full.clone(),
                file: image.path.to_string(),
                line: 0,
            },
            None => unknown_symbol(image, svma),
        };
        NativeFrame { kind, frame }
    }
}

/// Addresses to look up, innermost first: a return address points behind its call.
fn addresses(stack: &Stack) -> impl Iterator<Item = u64> {
    stack
        .native_avma
        .iter()
        .enumerate()
        .map(|(depth, avma)| if depth == 0 { *avma } else { avma.saturating_sub(1) })
}

fn unknown_symbol(image: &Image, svma: u64) -> Frame {
    plain_frame(Layer::Native, &format!("{}+{svma:#x}", base_name(&image.path)), &image.path)
}

fn plain_frame(layer: Layer, name: &str, file: &str) -> Frame {
    Frame { layer, name: name.to_owned(), full_name: String::new(), file: file.to_owned(), line: 0 }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
