//! Who may hand over a segment, over a real socket.

mod support;

use launchscope::config::token_bytes;
use launchscope::pipeline::Pipeline;
use shared_abi::handover::{Hello, Verdict};
use shared_abi::segment::LiveWord;
use shared_abi::sync::Ordering;
use shared_abi::version::{ABI_VERSION, MAGIC};
use std::os::fd::AsRawFd;
use support::{Producer, Sealing, fresh_socket, settle};
use zerocopy::IntoBytes;

fn pipeline(token: Option<&str>) -> (Pipeline, String) {
    let socket = fresh_socket();
    let token = token.map(|token| token_bytes(token).expect("short"));
    (Pipeline::listen(&socket, token).expect("a fresh socket"), socket)
}

/// Says this hello and tells the verdict and the warning.
fn refused(
    hello: impl Fn(&Producer) -> Hello,
    sealing: Sealing,
    token: Option<&str>,
) -> (Option<u32>, String) {
    let (mut pipeline, socket) = pipeline(token);
    let producer = Producer::without_hello(&socket, sealing);
    producer.say(hello(&producer).as_bytes(), &[producer.memory_file.as_raw_fd()]);
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().connected, 0);
    let words = pipeline.take_refusals().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    (producer.welcome().map(|welcome| welcome.verdict), words)
}

/// A sealed segment of our version is accepted, and its process sees the collector's heartbeat.
#[test]
fn sealed_segment_is_accepted() {
    let (mut pipeline, socket) = pipeline(None);
    let producer = Producer::connect(&socket);
    settle(&mut pipeline);
    let welcome = producer.welcome().expect("an answer");
    assert_eq!(
        (welcome.magic, welcome.abi_version, welcome.verdict),
        (MAGIC, ABI_VERSION, Verdict::Accepted as u32)
    );
    assert!(producer.segment.live(LiveWord::CollectorHeartbeatNs).load(Ordering::Relaxed) > 0);
    assert_eq!(pipeline.progress().running, 1);
}

/// Another ABI version is refused, and the warning names both.
#[test]
fn foreign_version_is_refused_by_name() {
    let foreign = |producer: &Producer| Hello { abi_version: 7, ..producer.hello("") };
    let (verdict, words) = refused(foreign, Sealing::Sealed, None);
    assert_eq!(verdict, Some(Verdict::ForeignVersion as u32));
    let expected = format!("ABI version 7, this collector reads version {ABI_VERSION}");
    assert!(words.contains(&expected) && words.contains(&std::process::id().to_string()), "{words}");
}

/// The version is read even from a hello whose size has changed since.
#[test]
fn foreign_hello_of_another_size_is_still_named() {
    let (mut pipeline, socket) = pipeline(None);
    let producer = Producer::without_hello(&socket, Sealing::Sealed);
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend(9u32.to_le_bytes());
    producer.say(&bytes, &[]);
    settle(&mut pipeline);
    assert!(pipeline.take_refusals()[0].to_string().contains("version 9"));
}

/// Only who knows the token is read.
#[test]
fn wrong_token_is_refused() {
    let (verdict, words) = refused(|producer| producer.hello("wrong"), Sealing::Sealed, Some("right"));
    assert_eq!(verdict, Some(Verdict::WrongToken as u32));
    assert!(words.contains("LAUNCHSCOPE_TOKEN"), "{words}");
    let (mut pipeline, socket) = pipeline(Some("right"));
    let producer = Producer::without_hello(&socket, Sealing::Sealed);
    producer.say(producer.hello("right").as_bytes(), &[producer.memory_file.as_raw_fd()]);
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().connected, 1);
}

/// A memory file that could shrink would end the collector by SIGBUS.
#[test]
fn unsealed_segment_is_refused() {
    let (verdict, words) = refused(|producer| producer.hello(""), Sealing::Unsealed, None);
    assert_eq!(verdict, Some(Verdict::BadSegment as u32));
    assert!(words.contains("not sealed"), "{words}");
}

/// A size that is not the file's is refused.
#[test]
fn wrong_size_is_refused() {
    let larger = |producer: &Producer| {
        let hello = producer.hello("");
        Hello { segment_bytes: hello.segment_bytes + 4096, ..hello }
    };
    let (verdict, words) = refused(larger, Sealing::Sealed, None);
    assert_eq!(verdict, Some(Verdict::BadSegment as u32));
    assert!(words.contains("bytes"), "{words}");
}

/// Exactly one descriptor: none, two or a whole handful are refused, and none of them stays open.
#[test]
fn surplus_descriptors_are_refused_and_closed() {
    let open_files = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    for count in [0, 2, 5, 100] {
        let (mut pipeline, socket) = pipeline(None);
        let producer = Producer::without_hello(&socket, Sealing::Sealed);
        let before = open_files();
        let descriptors = vec![producer.memory_file.as_raw_fd(); count];
        producer.say(producer.hello("").as_bytes(), &descriptors);
        settle(&mut pipeline);
        assert_eq!(pipeline.take_refusals().len(), 1, "{count} descriptors");
        // Other tests of this binary open files, too, but not a hundred.
        assert!(open_files() < before + 80, "{count} descriptors");
    }
}

/// Noise instead of a hello is refused and harms nobody else.
#[test]
fn noise_is_refused() {
    let (mut pipeline, socket) = pipeline(None);
    let noisy = Producer::without_hello(&socket, Sealing::Sealed);
    noisy.say(b"GET / HTTP/1.1\r\n\r\n", &[]);
    let _silent = Producer::without_hello(&socket, Sealing::Sealed);
    let _good = Producer::connect(&socket);
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().connected, 1);
    assert_eq!(pipeline.take_refusals().len(), 1);
}

/// A path socket works the same, replaces the one of a dead collector, and never that of a living one.
#[test]
fn path_socket_replaces_a_dead_one_only() {
    let path = std::env::temp_dir().join(format!("launchscope-test-{}.sock", std::process::id()));
    let path = path.to_str().expect("a plain path");
    let mut first = Pipeline::listen(path, None).expect("a fresh path");
    let error = Pipeline::listen(path, None).err().expect("a living one");
    assert!(error.to_string().contains("already served"), "{error}");
    let _producer = Producer::connect(path);
    settle(&mut first);
    assert_eq!(first.progress().connected, 1);
    std::mem::forget(first); // as if killed: its file stays, but here its socket lives on
    std::fs::remove_file(path).expect("it is there");
    std::fs::write(path, "not a socket").expect("writable");
    let error = Pipeline::listen(path, None).err().expect("a file");
    assert!(error.to_string().contains("not a socket"), "{error}");
    std::fs::remove_file(path).expect("it is there");
}
