//! The flame graph page: one file that opens from disk and asks for nothing else.
//!
//! The page is built in `collector/web/` and committed in `web/dist/`, so `cargo build` never runs npm. The
//! template has three slots: style, data and script. The data is the JSON of [`super::json`] with `<`, `>`,
//! `&` and the line separators of JavaScript as `\u` escapes, so that no name can end its element; beyond
//! that the template's content security policy allows only our script (by hash) and no network at all.

use std::io;

use super::fold::{FOLD_ABOVE_FRAMES, FOLD_BELOW_SHARE, fold};
use super::json;
use crate::aggregate::profile::Profile;

const TEMPLATE: &str = include_str!("../../web/dist/page.html");
const STYLE: &str = include_str!("../../web/dist/page.css");
const SCRIPT: &str = include_str!("../../web/dist/page.js");

/// A place in the template that is filled here.
const SLOTS: [&str; 3] = ["@@LAUNCHSCOPE_STYLE@@", "@@LAUNCHSCOPE_DATA@@", "@@LAUNCHSCOPE_SCRIPT@@"];

/// The page with `profile` inside.
pub fn encode(profile: &Profile) -> io::Result<Vec<u8>> {
    let data = match fold(profile, FOLD_ABOVE_FRAMES, FOLD_BELOW_SHARE) {
        Some(folded) => json::encode_folded(&folded)?,
        None => json::encode(profile)?,
    };
    let data = escape_for_element(&String::from_utf8(data).map_err(io::Error::other)?);
    let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + SCRIPT.len() + data.len());
    // Slots are found in the template only, never in what was put into an earlier slot.
    let mut rest = TEMPLATE;
    for (slot, content) in SLOTS.into_iter().zip([STYLE, &data, SCRIPT]) {
        let (before, after) = rest.split_once(slot).ok_or_else(|| {
            io::Error::other(format!("the built page has no {slot}: run `npm run build` in collector/web"))
        })?;
        page.push_str(before);
        page.push_str(content);
        rest = after;
    }
    page.push_str(rest);
    Ok(page.into_bytes())
}

/// `json` with nothing that the HTML parser or JavaScript could take for anything but text. These characters
/// occur only in strings.
fn escape_for_element(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + json.len() / 64);
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}
