//! Collapsed stacks: one line per stack, root first, `;` between frames, then a space and nanoseconds of
//! estimated GPU time.
//!
//! Python frames carry `(file:line)`. In names `\` becomes `\\`, `;` becomes `\x3b`, a newline `\n`, and
//! other control characters `\xNN` or `\u{NNNN}`, so every line splits as the format says and the names can
//! be had back. Stacks without GPU time are left out; equal lines are summed and sorted, so two files can be
//! compared with `diff`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::View;
use super::rounding::{CarryRounder, sane};
use crate::aggregate::profile::{Frame, Layer, Profile};

/// The file of `profile` in one view.
pub fn encode(profile: &Profile, view: View) -> Vec<u8> {
    let frames: Vec<String> = profile.frames.iter().map(frame_text).collect();
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    for stack in &profile.stacks {
        let ids = view.frames(stack);
        if ids.is_empty() {
            continue;
        }
        let names: Vec<&str> = ids.iter().map(|id| frames[id.0 as usize].as_str()).collect();
        *totals.entry(names.join(";")).or_default() += sane(stack.weights.gpu_time_ns);
    }
    let mut rounder = CarryRounder::default();
    let mut text = String::new();
    for (stack, gpu_time_ns) in totals {
        let gpu_time_ns = rounder.round(gpu_time_ns);
        if gpu_time_ns > 0 {
            let _ = writeln!(text, "{stack} {gpu_time_ns}"); // Writing to a String cannot fail.
        }
    }
    text.into_bytes()
}

/// A frame as it appears in a line.
fn frame_text(frame: &Frame) -> String {
    let mut text = escape(&frame.name);
    if frame.layer == Layer::Python && !frame.file.is_empty() {
        let _ = write!(text, " ({}:{})", escape(&frame.file), frame.line);
    }
    text
}

/// `name` with nothing in it that would split the line.
fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            ';' => text.push_str("\\x3b"),
            // Some readers split lines at these two as well.
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{{{:x}}}", character as u32);
            }
            control if control.is_control() => {
                let _ = write!(text, "\\x{:02x}", control as u32);
            }
            other => text.push(other),
        }
    }
    text
}
