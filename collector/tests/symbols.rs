//! Native frames, from the files of the images that a process maps.

mod support;

use launchscope::aggregate::profile::Profile;
use launchscope::pipeline::Pipeline;
use shared_abi::dictionary::ImageHead;
use shared_abi::record::LaunchKind;
use std::fs::File;
use std::path::Path;
use support::*;
use zerocopy::FromZeros;

fn start() -> (Pipeline, Producer) {
    let socket = fresh_socket();
    let mut pipeline = Pipeline::listen(&socket, None).expect("a fresh socket");
    let producer = Producer::connect(&socket);
    settle(&mut pipeline);
    (pipeline, producer)
}

fn end(mut pipeline: Pipeline, producer: Producer) -> Profile {
    drop(producer);
    settle(&mut pipeline);
    profile_of(&mut pipeline)
}

/// Stands for CPython's evaluation loop: its symbol is what the merge looks for.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn _PyEval_EvalFrameDefault(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn launchscope_test_extension(value: u64) -> u64 {
    std::hint::black_box(value) + 2
}

/// Native addresses become symbols by the file that was sent, although its path means nothing here, and the
/// evaluation loop's frames make room for Python's.
#[test]
fn native_frames_are_symbolized_from_the_sent_file() {
    let (mut pipeline, producer) = start();
    let file = File::open("/proc/self/exe").expect("our own file");
    let head = own_image();
    producer.image(1, head, "/elsewhere/engine.so");
    producer.send_image_file(1, &file);
    settle(&mut pipeline);
    std::hint::black_box((_PyEval_EvalFrameDefault(1), launchscope_test_extension(1)));
    let extension = launchscope_test_extension as *const () as u64 + 1;
    let eval = _PyEval_EvalFrameDefault as *const () as u64 + 1;
    producer.site(1, "inner", "a.py", 1);
    producer.site(2, "outer", "a.py", 2);
    producer.stack(1, &[extension, eval, extension, eval], &[1, 2]);
    producer.stack(2, &[head.start_avma, 16], &[]);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    producer.launch(launch_in_window(LaunchKind::Memory, 2, 2));
    let profile = end(pipeline, producer);
    let views: Vec<_> = profile.stacks.iter().map(|stack| launch_view(&profile, stack)).collect();
    let extension = "launchscope_test_extension";
    assert!(
        views.contains(
            &["outer", extension, "inner", extension, "cuLaunchKernel"].map(str::to_owned).to_vec()
        ),
        "{views:?}"
    );
    let unknown = views.iter().find(|view| view[0] == "[unknown]").expect("an address outside of all images");
    assert!(unknown[1].starts_with("engine.so+0x"), "{unknown:?}");
}

/// A stripped library has exported symbols only, and is found by its path when nobody sent it.
#[test]
fn exported_symbols_are_found_by_path() {
    let (pipeline, producer) = start();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    let path =
        maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|path| path.contains("/libc.so")));
    let path = path.expect("libc is mapped");
    producer.image(1, image_at(Path::new(path)), path);
    producer.stack(1, &[libc::getpid as *const () as u64 + 1], &[]);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    let profile = end(pipeline, producer);
    let view = launch_view(&profile, &profile.stacks[0]);
    assert!(view[0].contains("getpid"), "{view:?}");
}

fn own_image() -> ImageHead {
    image_at(&std::fs::canonicalize("/proc/self/exe").expect("our own path"))
}

fn image_at(executable: &Path) -> ImageHead {
    let mut head = ImageHead::new_zeroed();
    let build_id =
        blazesym::helper::read_elf_build_id(&executable).expect("readable").expect("linked with one");
    head.build_id[..build_id.len()].copy_from_slice(&build_id);
    head.build_id_bytes = build_id.len() as u32;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    let ours = maps.lines().filter(|line| line.ends_with(executable.to_str().expect("a plain path")));
    let ranges = ours.map(|line| {
        let (start, end) = line.split_once(' ').expect("columns").0.split_once('-').expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        (number(start), number(end))
    });
    let ranges: Vec<_> = ranges.collect();
    head.start_avma = ranges.first().expect("mapped").0;
    head.end_avma = ranges.last().expect("mapped").1;
    // A position-independent executable is linked at zero.
    head.bias_avma = head.start_avma;
    head
}
