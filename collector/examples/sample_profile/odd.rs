//! The scenarios that are not pretty: nothing recorded, names that attack the formats, too many frames.

use launchscope::aggregate::profile::{Frame, Layer, LedgerLine, Profile, StatusLine};

use crate::around::{hooks, meta};
use crate::{Builder, PROCESS_ID};

/// A run without GPU work.
pub fn empty() -> Profile {
    let mut meta = meta("python serve.py");
    (meta.window_count, meta.window_open_ns) = (0, 0);
    Profile {
        meta,
        ledger: vec![LedgerLine {
            key: "launches_seen".to_owned(),
            text: "launches seen by the hooks".to_owned(),
            count: 0,
            is_loss: false,
        }],
        statuses: vec![StatusLine {
            process_id: PROCESS_ID,
            name: "no-gpu-work".to_owned(),
            text: "the process has launched nothing on a GPU yet".to_owned(),
            detail: String::new(),
            holds: true,
            needs_attention: true,
        }],
        hooks: hooks(),
        ..Profile::default()
    }
}

/// Names that try to break out.
pub fn hostile() -> Profile {
    let names = [
        "</script><script>window.pwned=1;alert(1)</script>".to_owned(),
        "<!--<script>".to_owned(),
        "<img src=x onerror=window.pwned=1>".to_owned(),
        "@@LAUNCHSCOPE_SCRIPT@@".to_owned(),
        "two\nlines; a semicolon \\ and\ttab \u{2028}\u{0}".to_owned(),
        "カーネル_注意_ядро_🦀_\u{202e}override".to_owned(),
        "very_long_".repeat(700),
        String::new(),
        "__proto__".to_owned(),
    ];
    let mut builder = Builder::default();
    let root = builder.line("proc python (4242)");
    for (index, name) in names.iter().enumerate() {
        let mut frame = |layer, name: &str| {
            builder.frame(Frame {
                layer,
                name: name.to_owned(),
                full_name: format!("{name}<full>"),
                file: name.to_owned(),
                line: 7,
            })
        };
        let (python, kernel) = (frame(Layer::Python, name), frame(Layer::Kernel, name));
        let count = 1_000.0 * (names.len() - index) as f64;
        builder.add(&[root, python], &[root, python, python], kernel, count, 20.0);
    }
    let mut profile = builder.finish();
    profile.meta.title = names[0].clone();
    profile.meta.labels.insert(names[2].clone(), names[0].clone());
    profile.ledger[0].text = names[2].clone();
    profile.statuses[0].text = names[0].clone();
    profile.statuses[0].detail = names[6].clone();
    profile.hooks[0].way = names[2].clone();
    profile
}

/// About 80,000 frames, three quarters of them too small to see.
pub fn big() -> Profile {
    let mut builder = Builder::default();
    let root = builder.line("proc python (4242)");
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        // xorshift64, so that every run writes the same profile.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for stack in 0..6_000_u64 {
        let mut frames = vec![root];
        for depth in 0..12 + random(10) {
            let width = 2 + depth / 3;
            let function = random(width);
            frames.push(
                builder
                    .line(&format!("py function_{depth}_{function} @ module_{depth}.py:{}", 10 + function)),
            );
        }
        let kernel = builder.line(&format!("kern kernel_{}", random(300)));
        let count = if stack % 4 == 0 { 900.0 } else { 6.0 };
        let capture: Vec<_> = frames.iter().copied().step_by(2).collect();
        builder.add(&frames, &capture, kernel, count, 4.0 + random(60) as f64);
    }
    builder.finish()
}
