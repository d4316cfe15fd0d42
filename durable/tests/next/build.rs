//! Makes the sources those of the next version of the schema.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=tickwheel_next_schema");
}
