//! Link arguments: the driver's SONAME, own calls that nobody interposes, and never unloaded, as the real one.

fn main() {
    for argument in ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
