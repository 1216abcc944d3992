//! How `liblaunchscope.so` is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Our own references to what we export stay ours, whoever else in the process exports the same names. Not -Bsymbolic,
        // which would also put us first for our own RTLD_DEFAULT, where we ask for what others would find without us.
        "-Wl,-Bsymbolic-functions",
        // Once hooked, stay hooked: dlclose must not unmap what patched functions jump to.
        "-Wl,-z,nodelete",
        "-Wl,-soname,liblaunchscope.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
