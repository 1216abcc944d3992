//! Folds the frames of a big profile that are too small to see, so that the page stays quick to open and to
//! draw.
//!
//! A frame whose share is under the limit in every metric becomes, with all below it, part of one frame per
//! caller that says so. Sums stay what they are. Profiles that are not big pass untouched, and so does every
//! other format.

use std::collections::HashMap;

use super::View;
use super::rounding::sane;
use crate::aggregate::profile::{Frame, FrameId, Layer, Profile, WeightedStack, Weights};

/// Frames of one view above which a profile is folded: the page draws so many in a few milliseconds.
pub(super) const FOLD_ABOVE_FRAMES: usize = 20_000;
/// Share under which a frame is folded: a tenth of a pixel on a screen 1,000 wide.
pub(super) const FOLD_BELOW_SHARE: f64 = 0.0001;

/// A profile with its small frames folded.
pub(super) struct Folded {
    /// The profile, with the same totals.
    pub profile: Profile,
    /// Share under which frames were folded.
    pub below_share: f64,
    /// Frames folded, in the view where there were more of them.
    pub frames: usize,
}

/// What makes two folded stacks one: both views, process and device.
type StackKey = (Vec<FrameId>, Vec<FrameId>, u32, Option<u32>);

/// Folds `profile` if one of its views has more than `above_frames` frames.
pub(super) fn fold(profile: &Profile, above_frames: usize, below_share: f64) -> Option<Folded> {
    let launch = Tree::build(profile, View::Launch);
    let capture = Tree::build(profile, View::Capture);
    if launch.weights.len().max(capture.weights.len()) <= above_frames {
        return None;
    }
    let mut table = FrameTable::new(below_share);
    let mut merged: HashMap<StackKey, usize> = HashMap::new();
    let mut stacks: Vec<WeightedStack> = Vec::new();
    for stack in &profile.stacks {
        let launch_view = launch.folded(&stack.launch_view, below_share, profile, &mut table);
        let capture_view = capture.folded(&stack.capture_view, below_share, profile, &mut table);
        let key = (launch_view, capture_view, stack.process_id, stack.device);
        if let Some(index) = merged.get(&key) {
            add(&mut stacks[*index].weights, &stack.weights);
            continue;
        }
        stacks.push(WeightedStack {
            launch_view: key.0.clone(),
            capture_view: key.1.clone(),
            weights: stack.weights,
            process_id: stack.process_id,
            device: stack.device,
        });
        merged.insert(key, stacks.len() - 1);
    }
    let frames = launch.small_count(below_share).max(capture.small_count(below_share));
    let profile = Profile { frames: table.frames, stacks, ..without_stacks(profile) };
    Some(Folded { profile, below_share, frames })
}

/// Everything but frames and stacks.
fn without_stacks(profile: &Profile) -> Profile {
    Profile {
        meta: profile.meta.clone(),
        frames: Vec::new(),
        stacks: Vec::new(),
        kernels: profile.kernels.clone(),
        ledger: profile.ledger.clone(),
        statuses: profile.statuses.clone(),
        hooks: profile.hooks.clone(),
    }
}

/// Adds `more` to `sum`.
fn add(sum: &mut Weights, more: &Weights) {
    sum.gpu_time_ns += sane(more.gpu_time_ns);
    sum.recorded_gpu_time_ns += sane(more.recorded_gpu_time_ns);
    sum.recorded_count += sane(more.recorded_count);
    sum.launches += sane(more.launches);
}

/// The stacks of one view as a tree; node 0 is the root above all.
struct Tree {
    children: HashMap<(u32, FrameId), u32>,
    weights: Vec<Weights>,
}

impl Tree {
    fn build(profile: &Profile, view: View) -> Self {
        let mut tree = Tree { children: HashMap::new(), weights: vec![Weights::default()] };
        for stack in &profile.stacks {
            let mut node = 0;
            add(&mut tree.weights[0], &stack.weights);
            for frame in view.frames(stack) {
                let next = tree.weights.len() as u32;
                node = *tree.children.entry((node, *frame)).or_insert(next);
                if node == next {
                    tree.weights.push(Weights::default());
                }
                add(&mut tree.weights[node as usize], &stack.weights);
            }
        }
        tree
    }

    /// Whether a node is under the limit in every metric.
    fn is_small(&self, node: u32, below_share: f64) -> bool {
        let (total, weights) = (&self.weights[0], &self.weights[node as usize]);
        is_under(weights.gpu_time_ns, total.gpu_time_ns, below_share)
            && is_under(weights.recorded_gpu_time_ns, total.recorded_gpu_time_ns, below_share)
            && is_under(weights.launches, total.launches, below_share)
    }

    fn small_count(&self, below_share: f64) -> usize {
        (1..self.weights.len() as u32).filter(|node| self.is_small(*node, below_share)).count()
    }

    /// `stack` in the new frame table, up to its first small frame.
    fn folded(
        &self,
        stack: &[FrameId],
        below_share: f64,
        profile: &Profile,
        table: &mut FrameTable,
    ) -> Vec<FrameId> {
        let mut folded = Vec::with_capacity(stack.len());
        let mut node = 0;
        for id in stack {
            node = self.children[&(node, *id)];
            let frame = profile.frame(*id);
            if self.is_small(node, below_share) {
                folded.push(table.small(frame.layer));
                break;
            }
            folded.push(table.kept(*id, frame));
        }
        folded
    }
}

/// Whether `weight` is under the limit, or the metric is empty and so says nothing.
fn is_under(weight: f64, total: f64, below_share: f64) -> bool {
    total <= 0.0 || weight < total * below_share
}

/// The frames that are left.
struct FrameTable {
    frames: Vec<Frame>,
    kept: HashMap<FrameId, FrameId>,
    small: HashMap<Layer, FrameId>,
    small_name: String,
}

impl FrameTable {
    fn new(below_share: f64) -> Self {
        let small_name = format!("(frames under {} %)", below_share * 100.0);
        Self { frames: Vec::new(), kept: HashMap::new(), small: HashMap::new(), small_name }
    }

    fn kept(&mut self, id: FrameId, frame: &Frame) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        let new = *self.kept.entry(id).or_insert(next);
        if new == next {
            self.frames.push(frame.clone());
        }
        new
    }

    fn small(&mut self, layer: Layer) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        let new = *self.small.entry(layer).or_insert(next);
        if new == next {
            let name = self.small_name.clone();
            self.frames.push(Frame { layer, name, full_name: String::new(), file: String::new(), line: 0 });
        }
        new
    }
}
