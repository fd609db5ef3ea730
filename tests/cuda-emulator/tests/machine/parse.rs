//! The parser accepts every file of the CUDA backend, and damaged files (`ROUNDS` for each) are errors.

use gradlet_cuda_emulator::ptx::Module;

#[test]
fn the_backend_is_understood() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cuda-backend/ptx");
    let mut wrong = Vec::new();
    let mut kernels = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        match Module::parse(&text, (8, 0)) {
            Ok(module) => kernels += module.entries().count(),
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kernels > 0);
}

#[test]
fn damaged_files_are_errors() {
    const MARKS: &[u8] = b"0123456789abcdefx;:,.[]{}()<>@!|+-%$_ \n";
    let mut next = crate::support::random(11);
    let rounds = std::env::var("ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    for name in ["ampere", "control", "faults", "hopper", "integers", "together"] {
        let path = format!("{}/tests/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for _ in 0..rounds {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..1 + next() % 3 {
                let (from, to) = (next() as usize % bytes.len(), next() as usize % bytes.len());
                match next() % 4 {
                    0 => bytes[to] = bytes[from],
                    1 => bytes[to] = MARKS[from % MARKS.len()],
                    2 => drop(bytes.drain(to..(to + from % 40).min(bytes.len()))),
                    _ => {
                        let piece = bytes[from..(from + 20).min(bytes.len())].to_vec();
                        bytes.splice(to..to, piece);
                    }
                }
            }
            // It may be a module still, or not: what matters is that nothing panics.
            let _ = Module::parse(&String::from_utf8_lossy(&bytes), (8, 0));
        }
    }
}
