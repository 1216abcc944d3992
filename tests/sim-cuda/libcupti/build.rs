//! Link arguments: CUPTI's SONAME, own calls that nobody interposes, and never unloaded, as the real one.

fn main() {
    for argument in ["-Wl,-soname,libcupti.so.13", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
