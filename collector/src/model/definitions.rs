//! What a process has defined: sites, stacks, names, images, graphs, hooks. Copied out of its dictionary, bounded.
//!
//! Records refer to definitions by id and may come before them, so ids are resolved when a profile is built.
//! A site or an image that is defined again (a freed code object, an address reused after dlclose) gets a new version,
//! and a stack remembers which versions it saw. For stacks, names and graphs the last meaning counts.

use shared_abi::dictionary::{
    DefinitionKind, GraphHead, GraphNode, ImageHead, PYTHON_ENTRY_FRAME, SiteHead, StackHead,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Bytes of definitions that are kept for one process; a segment's dictionary has 32 MiB by default.
pub const MAX_DEFINITION_BYTES: usize = 192 << 20;
/// Frames that are kept of one stack, native and Python each.
const MAX_FRAMES: usize = 1024;
/// Bytes that are kept of one text. Mangled kernel names reach 4.5 KB, demangled ones 6.7 KB.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Images of one process; a look-up walks over them. A torch process maps about 100.
const MAX_IMAGES: usize = 4096;
/// Lines of the process's description.
const MAX_PROCESS_KEYS: usize = 64;
/// Hooks of one process.
const MAX_HOOKS: usize = 4096;

/// A place in Python code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Qualified name of the function.
    pub qualified_name: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Line; zero when not known.
    pub line: u32,
}

/// One Python frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// Dictionary id of its site.
    pub site_id: u32,
    /// Which definition of that id the stack meant.
    pub site_version: u32,
    /// An interpreter loop was entered for it.
    pub is_entry: bool,
}

/// One distinct stack, innermost frame first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Addresses as loaded; return addresses except the first.
    pub native_avma: Vec<u64>,
    /// Python frames.
    pub python: Vec<PythonFrame>,
    /// `STACK_NATIVE_TRUNCATED`, `STACK_PYTHON_TRUNCATED`.
    pub flags: u32,
    /// Images that were defined when the stack was.
    pub images_known: usize,
}

/// Build id of an ELF image; empty when it has none.
pub type BuildId = Box<[u8]>;

/// One mapped ELF image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its dictionary id.
    pub id: u32,
    /// Load bias: address as loaded minus address in the file.
    pub bias_avma: u64,
    /// Lowest mapped address.
    pub start_avma: u64,
    /// One past the highest mapped address.
    pub end_avma: u64,
    /// Build id.
    pub build_id: BuildId,
    /// Path as the process sees it.
    pub path: Arc<str>,
}

/// One captured graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Its nodes in the order of cuGraphGetNodes.
    pub nodes: Vec<GraphNode>,
}

/// How one driver function was hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookDefinition {
    /// Driver function.
    pub name: String,
    /// `patched`, `preloaded`, `callback` or `none`, and why.
    pub way: String,
}

/// What became of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defined {
    /// It is kept.
    Kept,
    /// It contradicts itself.
    Invalid,
    /// Its kind is not known to this version.
    UnknownKind,
    /// The budget of its process is used up.
    OverBudget,
}

/// All definitions of one process.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    sites: HashMap<u32, Vec<Site>>,
    stacks: HashMap<u32, Stack>,
    names: HashMap<u32, Arc<str>>,
    images: Vec<Image>,
    graphs: HashMap<u32, Graph>,
    process: BTreeMap<String, String>,
    hooks: BTreeMap<u32, HookDefinition>,
    texts: HashMap<Arc<str>, ()>,
    bytes: usize,
}

impl Definitions {
    /// Takes one definition as it came out of the dictionary. Nothing in it is trusted.
    pub fn apply(&mut self, kind: u16, id: u32, payload: &[u8]) -> Defined {
        let Some(kind) = DefinitionKind::from_u16(kind) else { return Defined::UnknownKind };
        // 128 bytes: the map entry and the vectors around the payload, roughly.
        if self.bytes.saturating_add(payload.len() + 128) > MAX_DEFINITION_BYTES {
            return Defined::OverBudget;
        }
        self.bytes += payload.len() + 128;
        let kept = match kind {
            DefinitionKind::Site => self.apply_site(id, payload),
            DefinitionKind::Stack => self.apply_stack(id, payload),
            DefinitionKind::Name => self.apply_name(id, payload),
            DefinitionKind::Image => self.apply_image(id, payload),
            DefinitionKind::Graph => self.apply_graph(id, payload),
            DefinitionKind::Process => self.apply_process(payload),
            DefinitionKind::Hook => self.apply_hook(id, payload),
        };
        if kept.is_some() { Defined::Kept } else { Defined::Invalid }
    }

    /// The definition of a site that a stack meant, or the first one that came later.
    pub fn site(&self, frame: PythonFrame) -> Option<&Site> {
        let versions = self.sites.get(&frame.site_id)?;
        versions.get(frame.site_version as usize).or(versions.last())
    }

    /// The stack with this id.
    pub fn stack(&self, id: u32) -> Option<&Stack> {
        self.stacks.get(&id)
    }

    /// Mangled kernel name with this id.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(|name| &**name)
    }

    /// The graph with this id.
    pub fn graph(&self, id: u32) -> Option<&Graph> {
        self.graphs.get(&id)
    }

    /// All images, in the order of their definition.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Pairs that the process said of itself.
    pub fn process(&self) -> &BTreeMap<String, String> {
        &self.process
    }

    /// Hooks by index.
    pub fn hooks(&self) -> impl Iterator<Item = (u32, &HookDefinition)> {
        self.hooks.iter().map(|(id, hook)| (id.wrapping_sub(1), hook))
    }

    /// The hook with this index.
    pub fn hook(&self, index: u32) -> Option<&HookDefinition> {
        self.hooks.get(&index.checked_add(1)?)
    }

    /// The image that held `avma` when `images_known` images were defined: the latest one by then, otherwise the first one
    /// that came later.
    pub fn image_at(&self, avma: u64, images_known: usize) -> Option<&Image> {
        let holds = |image: &&Image| (image.start_avma..image.end_avma).contains(&avma);
        let (known, later) = self.images.split_at(images_known.min(self.images.len()));
        known.iter().rev().find(holds).or_else(|| later.iter().find(holds))
    }

    fn apply_site(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let (head, rest) = SiteHead::read_from_prefix(payload).ok()?;
        let (name, rest) = rest.split_at_checked(head.name_bytes as usize)?;
        let file = rest.get(..head.file_bytes as usize)?;
        let site = Site { qualified_name: self.text(name), file: self.text(file), line: head.line };
        let versions = self.sites.entry(id).or_default();
        if versions.last() != Some(&site) {
            versions.push(site);
        }
        Some(())
    }

    fn apply_stack(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let (head, rest) = StackHead::read_from_prefix(payload).ok()?;
        let (native, rest) = rest.split_at_checked(usize::from(head.native_count) * 8)?;
        let python = rest.get(..usize::from(head.python_count) * 4)?;
        let native_avma = native.chunks_exact(8).take(MAX_FRAMES).map(word).collect();
        let python = python.chunks_exact(4).take(MAX_FRAMES).map(|bytes| {
            let value = word(bytes) as u32;
            let site_id = value & !PYTHON_ENTRY_FRAME;
            let site_version = self.sites.get(&site_id).map_or(0, |versions| versions.len() as u32 - 1);
            PythonFrame { site_id, site_version, is_entry: value & PYTHON_ENTRY_FRAME != 0 }
        });
        let python = python.collect();
        self.stacks
            .insert(id, Stack { native_avma, python, flags: head.flags, images_known: self.images.len() });
        Some(())
    }

    fn apply_name(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let name = self.text(until_nul(payload));
        self.names.insert(id, name);
        Some(())
    }

    fn apply_image(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let (head, rest) = ImageHead::read_from_prefix(payload).ok()?;
        let path = rest.get(..head.path_bytes as usize)?;
        let build_id = head.build_id.get(..head.build_id_bytes as usize)?;
        let sound = head.start_avma < head.end_avma && head.bias_avma <= head.start_avma;
        let sound = sound && self.images.len() < MAX_IMAGES;
        let path = self.text(path);
        sound.then(|| {
            self.images.push(Image {
                id,
                bias_avma: head.bias_avma,
                start_avma: head.start_avma,
                end_avma: head.end_avma,
                build_id: build_id.into(),
                path,
            });
        })
    }

    fn apply_graph(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let (head, rest) = GraphHead::read_from_prefix(payload).ok()?;
        let nodes = rest.get(..(head.node_count as usize).checked_mul(size_of::<GraphNode>())?)?;
        let nodes = nodes.chunks_exact(size_of::<GraphNode>());
        let nodes = nodes.filter_map(|bytes| GraphNode::read_from_bytes(bytes).ok()).collect();
        self.graphs.insert(id, Graph { nodes });
        Some(())
    }

    fn apply_process(&mut self, payload: &[u8]) -> Option<()> {
        let text = String::from_utf8_lossy(until_nul(payload));
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            if self.process.len() < MAX_PROCESS_KEYS || self.process.contains_key(key) {
                let bounded = |text: &str| text.chars().take(1024).collect::<String>();
                self.process.insert(bounded(key.trim()), bounded(value));
            }
        }
        Some(())
    }

    fn apply_hook(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let text = String::from_utf8_lossy(until_nul(payload));
        let mut parts = text.splitn(3, '\t').map(|part| part.trim().chars().take(512).collect::<String>());
        let name = parts.next().filter(|name| !name.is_empty())?;
        let (way, detail) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let way = if detail.is_empty() { way } else { format!("{way}: {detail}") };
        if self.hooks.len() >= MAX_HOOKS && !self.hooks.contains_key(&id) {
            return None;
        }
        self.hooks.insert(id, HookDefinition { name, way });
        Some(())
    }

    /// One copy of each text: files and names repeat over sites.
    fn text(&mut self, bytes: &[u8]) -> Arc<str> {
        let bytes = bytes.get(..MAX_TEXT_BYTES).unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        if let Some((known, ())) = self.texts.get_key_value(&*text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone(), ());
        text
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0u8; 8];
    whole[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_le_bytes(whole)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
