//! Helpers of the cross-process tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The interposer as the engine loads it, built in the profile of the calling test.
pub fn interposer_library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(build_interposer).clone()
}

/// A test of this crate does not depend on the interposer, which cargo would link into it: it runs cargo, which is quick when
/// nothing has changed.
fn build_interposer() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let target = profile.parent().expect("target/PROFILE");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--lib", "-p", "interposer", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(built.success(), "the interposer does not build");
    let library = Path::new(profile).join("libinterposer.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}
