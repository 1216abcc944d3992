//! What people read while it runs and at the end, and the same for scripts.

use crate::aggregate::profile::{LedgerLine, Profile};
use crate::config::Talk;
use crate::pipeline::Progress;
use crate::run::child::Ending;
use shared_abi::counters::{Counter, LaneCounter};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Kernels that are listed.
const TOP_KERNELS: usize = 10;

/// Says something on stderr, unless people want quiet. A closed stderr is no reason to fail.
pub fn say(talk: Talk, text: &str) {
    if talk == Talk::Normal {
        let _closed = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
    }
}

/// One line on the terminal, in place of the one before.
pub fn show_progress(progress: &Progress, elapsed: Duration) {
    let engine = &progress.engine;
    let (mut seen, mut sampled) = (0u64, 0u64);
    for (all, chosen) in [
        (LaneCounter::KernelLaunches, LaneCounter::KernelLaunchesSampled),
        (LaneCounter::GraphLaunches, LaneCounter::GraphLaunchesSampled),
        (LaneCounter::MemoryOperations, LaneCounter::MemoryOperationsSampled),
    ] {
        seen = seen.saturating_add(engine.lanes(all));
        sampled = sampled.saturating_add(engine.lanes(chosen));
    }
    let line = format!(
        "launchscope: {} s, {} processes, {} launches, {} sampled, {} windows ({:.2} s), {} GPU activities, {} dropped",
        elapsed.as_secs(),
        progress.running,
        grouped(seen),
        grouped(sampled),
        engine.process(Counter::WindowsOpened),
        engine.process(Counter::WindowOpenNs) as f64 / 1e9,
        grouped(progress.own.activities),
        grouped(engine.process(Counter::RingDropped)),
    );
    // A line that wraps could not be taken away again.
    let line: String = line.chars().take(terminal_columns().saturating_sub(1)).collect();
    let _closed = write!(std::io::stderr().lock(), "\r\x1b[K{line}");
}

fn terminal_columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is a valid winsize for the duration of the call.
    let result = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size) };
    if result == 0 && size.ws_col > 0 { usize::from(size.ws_col) } else { 80 }
}

/// Takes the progress line away.
pub fn clear_progress() {
    let _closed = write!(std::io::stderr().lock(), "\r\x1b[K");
}

/// The summary for people.
pub fn text(profile: &Profile, connected: u64, files: &[PathBuf]) -> String {
    let mut text = String::new();
    let meta = &profile.meta;
    let count = |key: &str| ledger(profile, key).map_or(0, |line| line.count);
    put(&mut text, format_args!("launchscope: {} over {}", meta.title, duration(meta.duration_ns as f64)));
    if connected == 0 {
        put(&mut text, format_args!("  {NOTHING_CONNECTED}"));
        put_files(&mut text, files);
        return text;
    }
    put(&mut text, format_args!("  processes      {connected}"));
    put(
        &mut text,
        format_args!(
            "  windows        {}, {} in them",
            meta.window_count,
            duration(meta.window_open_ns as f64)
        ),
    );
    put(
        &mut text,
        format_args!(
            "  launches       {} seen, {} sampled",
            grouped(count("launches_seen")),
            grouped(count("launches_sampled"))
        ),
    );
    let (estimated, recorded) = gpu_time(profile);
    if recorded > 0.0 {
        put(
            &mut text,
            format_args!(
                "  GPU time       {} estimated, {} recorded",
                duration(estimated),
                duration(recorded)
            ),
        );
        put(
            &mut text,
            format_args!(
                "  with stacks    {:.1} % joined to a launch{}",
                profile.joined_share() * 100.0,
                captured(profile)
            ),
        );
        put_kernels(&mut text, profile);
    } else {
        put(&mut text, format_args!("  GPU time       none recorded; the statuses below say why"));
    }
    put_losses(&mut text, profile);
    put_statuses(&mut text, profile);
    put_files(&mut text, files);
    text
}

const NOTHING_CONNECTED: &str = "no process loaded launchscope: the command used no GPU, or its children did not inherit \
CUDA_INJECTION64_PATH and LD_PRELOAD, or they are statically linked or set-user-id";

/// Writing into a String cannot fail.
fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(text, "{line}");
}

fn ledger<'a>(profile: &'a Profile, key: &str) -> Option<&'a LedgerLine> {
    profile.ledger.iter().find(|line| line.key == key)
}

fn gpu_time(profile: &Profile) -> (f64, f64) {
    let sum = |value: fn(&crate::aggregate::profile::Weights) -> f64| {
        profile.kernels.iter().map(|kernel| value(&kernel.weights)).fold(0.0, |sum: f64, ns| sum + ns)
    };
    (sum(|weights| weights.gpu_time_ns), sum(|weights| weights.recorded_gpu_time_ns))
}

fn captured(profile: &Profile) -> String {
    match captured_share(profile) {
        Some(share) => {
            format!(", {:.1} % of what ran in graphs with the stack that captured it", share * 100.0)
        }
        None => String::new(),
    }
}

/// Share of graph activities that carry their capture stack; `None` without graphs.
fn captured_share(profile: &Profile) -> Option<f64> {
    let count = |key| ledger(profile, key).map_or(0, |line| line.count) as f64;
    let captured = count("captured");
    let all = captured + count("capture_unknown") + count("name_mismatch");
    (all > 0.0).then(|| captured / all)
}

fn put_kernels(text: &mut String, profile: &Profile) {
    put(text, format_args!("  top kernels    share    GPU time    mean     name"));
    for kernel in profile.kernels.iter().take(TOP_KERNELS) {
        let name: String = kernel.name.chars().take(80).collect();
        let (time, mean) = (duration(kernel.weights.gpu_time_ns), duration(kernel.mean_ns));
        put(
            text,
            format_args!("               {:>5.1} %  {time:>10}  {mean:>8}  {name}", kernel.share * 100.0),
        );
    }
}

fn put_losses(text: &mut String, profile: &Profile) {
    let losses: Vec<&LedgerLine> =
        profile.ledger.iter().filter(|line| line.is_loss && line.count > 0).collect();
    if losses.is_empty() {
        put(text, format_args!("  losses         none"));
    }
    for (index, line) in losses.iter().enumerate() {
        let title = if index == 0 { "losses" } else { "" };
        put(text, format_args!("  {title:<14} {} {}", grouped(line.count), line.text));
    }
}

/// Never no data without a reason: each status once, however many processes it held in.
fn put_statuses(text: &mut String, profile: &Profile) {
    if profile.statuses.is_empty() {
        put(text, format_args!("  statuses       none reported"));
    }
    let mut said = Vec::new();
    for status in &profile.statuses {
        let is_over = !status.holds && !status.needs_attention;
        if is_over || said.contains(&(&status.name, &status.detail)) {
            continue;
        }
        let title = if said.is_empty() { "statuses" } else { "" };
        said.push((&status.name, &status.detail));
        let ended = if status.holds { "" } else { " (no longer)" };
        let detail = if status.detail.is_empty() { String::new() } else { format!(" [{}]", status.detail) };
        put(text, format_args!("  {title:<14} {}: {}{detail}{ended}", status.name, status.text));
    }
}

fn put_files(text: &mut String, files: &[PathBuf]) {
    for (index, file) in files.iter().enumerate() {
        let title = if index == 0 { "written" } else { "" };
        put(text, format_args!("  {title:<14} {}", file.display()));
    }
}

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Nanoseconds with the unit that suits them.
pub fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// The summary for scripts, one JSON object on one line.
pub fn print_json(profile: &Profile, connected: u64, files: &[PathBuf], ending: Ending) {
    let _closed = writeln!(std::io::stdout().lock(), "{}", json(profile, connected, files, ending));
}

/// The object that [`print_json`] prints.
pub fn json(profile: &Profile, connected: u64, files: &[PathBuf], ending: Ending) -> String {
    let (estimated, recorded) = gpu_time(profile);
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let kernels = profile.kernels.iter().take(TOP_KERNELS).map(|kernel| {
        format!(
            r#"{{"name":{},"share":{},"gpu_time_ns":{},"mean_ns":{},"recorded_count":{}}}"#,
            quoted(&kernel.name),
            kernel.share,
            kernel.weights.gpu_time_ns,
            kernel.mean_ns,
            kernel.weights.recorded_count
        )
    });
    let ledger = profile.ledger.iter().map(|line| format!("{}:{}", quoted(&line.key), line.count));
    let statuses = profile.statuses.iter().map(|status| {
        format!(
            r#"{{"process_id":{},"name":{},"holds":{},"detail":{}}}"#,
            status.process_id,
            quoted(&status.name),
            status.holds,
            quoted(&status.detail)
        )
    });
    let (code, signal) = match ending {
        Ending::Exit(code) => (code.to_string(), "null".to_owned()),
        Ending::Signal(number) => ("null".to_owned(), number.to_string()),
    };
    let captured = captured_share(profile).map_or("null".to_owned(), |share| share.to_string());
    format!(
        concat!(
            r#"{{"title":{},"duration_ns":{},"processes":{},"exit_code":{},"signal":{},"window_count":{},"#,
            r#""window_open_ns":{},"gpu_time_ns":{},"recorded_gpu_time_ns":{},"joined_share":{},"captured_share":{},"#,
            r#""kernels":{},"ledger":{{{}}},"statuses":{},"files":{}}}"#
        ),
        quoted(&profile.meta.title),
        profile.meta.duration_ns,
        connected,
        code,
        signal,
        profile.meta.window_count,
        profile.meta.window_open_ns,
        estimated,
        recorded,
        profile.joined_share(),
        captured,
        list(kernels.collect()),
        ledger.collect::<Vec<_>>().join(","),
        list(statuses.collect()),
        list(files.iter().map(|file| quoted(&file.to_string_lossy())).collect()),
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control < ' ' => {
                let _infallible = write!(quoted, "\\u{:04x}", control as u32);
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{duration, grouped, quoted};

    /// Numbers are easy to read.
    #[test]
    fn numbers_are_grouped_and_have_units() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(duration(1500.0), "1.50 us");
        assert_eq!(duration(2.5e9), "2.50 s");
    }

    /// Hostile names do not break the JSON.
    #[test]
    fn quoted_text_is_json() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\u000a\\u0001é\"");
    }
}
