//! `launchscope collect` with processes that come, go and misbehave.

mod support;

use shared_abi::record::LaunchKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Producer, kernel, launch_in_window};

struct Collector {
    process: Child,
    directory: PathBuf,
    socket: String,
}

impl Collector {
    fn start(name: &str, options: &[&str]) -> Self {
        let directory =
            std::env::temp_dir().join(format!("launchscope-collect-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let socket = directory.join("s.sock").to_str().expect("a plain path").to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_launchscope"));
        command.args(["collect", "--format", "json", "--socket", &socket, "-o"]).arg(directory.join("out"));
        command.args(options).env_remove("LAUNCHSCOPE_TOKEN").stderr(Stdio::piped());
        let process = command.spawn().expect("launchscope starts");
        wait_until("it listens", || Path::new(&socket).exists());
        std::thread::sleep(Duration::from_millis(50));
        Self { process, directory, socket }
    }

    /// Names of finished profiles.
    fn profiles(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join("out")).expect("the directory");
        let names = entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text"));
        names.filter(|name| !name.starts_with('.')).collect()
    }

    fn signal(&self, number: i32) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.process.id() as i32, number) };
    }

    /// Ends it and tells its exit code and what it said.
    fn stop(&mut self, number: i32) -> (Option<i32>, String) {
        self.signal(number);
        let status = self.process.wait().expect("it ends");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.process.stderr.take().expect("piped"), &mut said)
            .expect("text");
        (status.code(), said)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn work(producer: &Producer, correlation_id: u32) {
    producer.launch(launch_in_window(LaunchKind::Kernel, 0, correlation_id));
    producer.activities(1, &[kernel(correlation_id, 0, 100)]);
}

/// Each process gets a profile every interval, and what is left is written at the end; a process that speaks
/// nonsense gets nothing and stops nobody.
#[test]
fn each_process_gets_its_profile() {
    let mut collector = Collector::start("each", &["--interval", "300ms"]);
    let (first, second) = (Producer::connect(&collector.socket), Producer::connect(&collector.socket));
    let noise = Producer::without_hello(&collector.socket, support::Sealing::Unsealed);
    noise.say(b"noise", &[]);
    work(&first, 1);
    work(&second, 1);
    wait_until("both have a profile", || collector.profiles().len() >= 2);
    work(&first, 2);
    drop(first);
    let (code, said) = collector.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(collector.profiles().len(), 3, "{said}");
    assert!(said.contains("was refused"), "{said}");
    assert!(!Path::new(&collector.socket).exists(), "the socket is removed");
}

/// One profile of all, when asked for, and SIGUSR1 asks for it now.
#[test]
fn merged_profile_is_written_on_demand() {
    let mut collector = Collector::start("merged", &["--merge", "--interval", "1h", "--keep", "1"]);
    let producers = [Producer::connect(&collector.socket), Producer::connect(&collector.socket)];
    for correlation_id in 1..=2 {
        producers.iter().for_each(|producer| work(producer, correlation_id));
        std::thread::sleep(Duration::from_millis(100));
        let before = collector.profiles();
        collector.signal(libc::SIGUSR1);
        wait_until("a new profile", || !collector.profiles().is_empty() && collector.profiles() != before);
    }
    let (code, said) = collector.stop(libc::SIGINT);
    assert_eq!((code, collector.profiles().len()), (Some(0), 1), "{said}");
}

/// A process without GPU work is told of, with its status, instead of a profile of nothing.
#[test]
fn process_without_work_is_told_of() {
    let mut collector = Collector::start("idle", &["--interval", "200ms"]);
    let producer = Producer::connect(&collector.socket);
    producer.status(shared_abi::status::Status::NoGpuWork as u32, true, "");
    std::thread::sleep(Duration::from_millis(500));
    let (_, said) = collector.stop(libc::SIGTERM);
    assert!(said.contains("no-gpu-work"), "{said}");
    assert!(collector.profiles().is_empty());
}
