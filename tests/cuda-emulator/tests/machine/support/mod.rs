//! Memory and launches for the tests.

use std::{collections::HashMap, path::Path};

use gradlet_cuda_emulator::{
    machine::{Access, Fault, FaultKind, Launch, Memory, Options, Region, Statistics, run_with},
    ptx::Module,
};

/// Device memory: allocations far from each other.
#[derive(Default)]
pub struct Device {
    allocations: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

impl Device {
    /// Allocates bytes that nobody has written.
    pub fn allocate(&mut self, size: usize) -> u64 {
        let address = 0x7000_0000 + self.allocations.len() as u64 * 0x100_0000;
        self.allocations.push((address, vec![0xa5; size], vec![0; size]));
        address
    }

    /// Allocates bytes and writes them.
    pub fn upload(&mut self, bytes: &[u8]) -> u64 {
        let address = self.allocate(bytes.len());
        let (_, memory, written) = self.allocations.last_mut().unwrap();
        memory.copy_from_slice(bytes);
        written.fill(1);
        address
    }

    /// The bytes of an allocation.
    pub fn bytes(&self, address: u64) -> &[u8] {
        &self.allocations.iter().find(|a| a.0 == address).unwrap().1
    }
}

impl Memory for Device {
    fn region(&mut self, address: u64, length: usize, _: Access) -> Option<Region<'_>> {
        let (start, bytes, written) = self.allocations.iter_mut().rev().find(|a| a.0 <= address)?;
        let first = usize::try_from(address - *start).ok()?;
        let range = first..first.checked_add(length)?;
        Some(Region { bytes: bytes.get_mut(range.clone())?, written: Some(&mut written[range]) })
    }

    fn fault(&self, address: u64, length: usize, _: Access) -> Fault {
        Fault::new(FaultKind::IllegalAddress, format!("{length} bytes at {address:#x} are not inside an allocation"))
    }
}

/// A word in memory.
pub trait Plain: Copy {
    /// Its bytes.
    fn bytes(self) -> Vec<u8>;
    /// The word of bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Plain for $type {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().into()
            }
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

plain!(u8, i32, u32, i64, u64, f32, f64);

/// A module with its variables in memory.
pub struct Loaded {
    pub module: Module,
    pub device: Device,
    pub options: Options,
    /// Bytes of dynamic shared memory of a launch.
    pub dynamic_shared: u32,
}

/// Loads a file of this folder's `ptx`.
pub fn load(name: &str) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx").join(name);
    load_text(&std::fs::read_to_string(path).unwrap())
}

/// Loads PTX.
pub fn load_text(text: &str) -> Loaded {
    let mut module = Module::parse(text, (8, 8)).unwrap();
    let mut device = Device::default();
    let sizes: Vec<_> = module.globals().iter().map(|g| (g.name.clone(), g.bytes.len())).collect();
    let addresses: HashMap<String, u64> = sizes.into_iter().map(|(name, size)| (name, device.allocate(size))).collect();
    module.link(&addresses).unwrap();
    for global in module.globals() {
        let allocation = device.allocations.iter_mut().find(|a| a.0 == addresses[&global.name]).unwrap();
        allocation.1.copy_from_slice(&global.bytes);
        allocation.2.fill(1);
    }
    let options = Options { most_shared: 227 << 10, ..Options::default() };
    Loaded { module, device, options, dynamic_shared: 0 }
}

impl Loaded {
    /// Uploads words.
    pub fn upload<T: Plain>(&mut self, words: &[T]) -> u64 {
        self.device.upload(&words.iter().flat_map(|word| word.bytes()).collect::<Vec<_>>())
    }

    /// Downloads an allocation.
    pub fn download<T: Plain>(&self, address: u64) -> Vec<T> {
        self.device.bytes(address).chunks(size_of::<T>()).map(T::read).collect()
    }

    /// Launches a kernel with parameters, each a word.
    pub fn launch(&mut self, name: &str, grid: [u32; 3], block: [u32; 3], parameters: &[&dyn Parameter]) -> Result<Statistics, Fault> {
        let function = self.module.function(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let mut bytes = Vec::new();
        for (parameter, place) in parameters.iter().zip(function.parameters()) {
            bytes.resize(place.offset as usize, 0);
            bytes.extend(parameter.parameter());
        }
        let launch = Launch { function: &function, grid, block, dynamic_shared: self.dynamic_shared, parameters: &bytes };
        run_with(&launch, &mut self.device, &self.options)
    }

    /// Launches one block of some threads, which must succeed.
    pub fn block(&mut self, name: &str, threads: u32, parameters: &[&dyn Parameter]) -> Statistics {
        self.launch(name, [1; 3], [threads, 1, 1], parameters).unwrap_or_else(|fault| panic!("{fault}"))
    }
}

/// A parameter of a kernel.
pub trait Parameter {
    /// Its bytes.
    fn parameter(&self) -> Vec<u8>;
}

impl<T: Plain> Parameter for T {
    fn parameter(&self) -> Vec<u8> {
        self.bytes()
    }
}

/// Numbers that look random.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
