//! Compresses the stored PTX, of which a program contains all files and uses few.

use std::path::Path;
use std::{env, fs, io};

/// Level at which files are compressed, of at most 10.
const LEVEL: u8 = 9;

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=ptx");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for entry in fs::read_dir("ptx")? {
        let path = entry?.path();
        if let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|extension| extension == "ptx")) {
            let packed = miniz_oxide::deflate::compress_to_vec(&fs::read(&path)?, LEVEL);
            fs::write(Path::new(&out).join(name).with_extension("z"), packed)?;
        }
    }
    Ok(())
}
