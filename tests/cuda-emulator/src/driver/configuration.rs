//! The configuration of the emulated GPUs, set before `cuInit`.

/// Properties of the emulated driver and its devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configuration {
    /// Number of devices.
    pub devices: usize,
    /// Memory of each device in bytes.
    pub memory: u64,
    /// Compute capability: 87 is 8.7.
    pub capability: u32,
    /// Version of the driver as it counts: 12040 is CUDA 12.4.
    pub driver: u32,
    /// True if the devices share the host's memory.
    pub integrated: bool,
    /// True if the devices can use each other's memory.
    pub peers: bool,
    /// Number of multiprocessors of each device.
    pub multiprocessors: u32,
    /// Name of the devices.
    pub name: String,
    /// True if races between blocks on global memory are faults.
    pub global_races: bool,
    /// True if reads of bytes that nothing has written since their allocation are faults.
    pub uninitialised: bool,
    /// True if the caller ends each array of kernel parameters with a null pointer. Then their number is checked.
    pub terminated: bool,
    /// True if the driver finds no device.
    pub no_device: bool,
    /// Number of instructions that a thread may execute, if it is limited otherwise than by the interpreter's default.
    pub budget: Option<u64>,
    /// Nanoseconds that a product of cuBLASLt takes.
    pub cublaslt: u64,
    /// True if the first element of its products is wrong.
    pub cublaslt_wrong: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Configuration {
            devices: 1,
            memory: 1 << 30,
            capability: 87,
            driver: 12_040,
            integrated: false,
            peers: true,
            multiprocessors: 8,
            name: "Emulated GPU".into(),
            global_races: false,
            uninitialised: false,
            terminated: false,
            no_device: false,
            budget: None,
            cublaslt: 1000,
            cublaslt_wrong: false,
        }
    }
}

impl Configuration {
    /// Sets what `words` say: `key=value`, separated by spaces. Fails with the first word that means nothing.
    pub(crate) fn set(&mut self, words: &str) -> Result<(), String> {
        words.split_whitespace().try_for_each(|word| self.set_one(word).ok_or_else(|| word.to_string()))
    }

    fn set_one(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        let number = || value.parse::<u64>().ok();
        let flag = || number().filter(|&value| value <= 1).map(|value| value == 1);
        match key {
            "devices" => self.devices = number().filter(|&count| (1..=16).contains(&count))? as usize,
            "memory" => self.memory = number()?,
            "capability" => self.capability = value.parse().ok()?,
            "driver" => self.driver = value.parse().ok()?,
            "integrated" => self.integrated = flag()?,
            "peers" => self.peers = flag()?,
            "multiprocessors" => self.multiprocessors = number().filter(|&count| (1..=1024).contains(&count))? as u32,
            "name" => self.name = value.replace('_', " "),
            "global_races" => self.global_races = flag()?,
            "uninitialised" => self.uninitialised = flag()?,
            "terminated" => self.terminated = flag()?,
            "no_device" => self.no_device = flag()?,
            "budget" => self.budget = Some(number()?),
            "cublaslt" => self.cublaslt = number()?,
            "cublaslt_wrong" => self.cublaslt_wrong = flag()?,
            _ => return None,
        }
        Some(())
    }

    /// Returns the bytes of shared memory of a multiprocessor. A block may ask for all but the last KiB, or for all before 8.0.
    pub(crate) fn shared(&self) -> u32 {
        1024 * match self.capability {
            75 => 64,
            80 | 87 => 164,
            86 | 89 | 120.. => 100,
            90..=119 => 228,
            _ => 96,
        }
    }

    /// Returns the most bytes of shared memory that a block may have, if its function asks for them.
    pub(crate) fn most_shared(&self) -> u32 {
        self.shared() - if self.capability < 80 { 0 } else { 1024 }
    }

    /// Returns the number of threads that a multiprocessor has at a time.
    pub(crate) fn threads(&self) -> u32 {
        match self.capability {
            75 => 1024,
            86..=89 | 110.. => 1536,
            _ => 2048,
        }
    }

    /// Returns the newest version of PTX that the driver accepts: CUDA 11.4 has 7.4, 12.4 has 8.4, 13.0 has 9.0.
    pub(crate) fn newest_ptx(&self) -> (u32, u32) {
        let (major, minor) = (self.driver / 1000, self.driver % 1000 / 10);
        match (major, minor) {
            (..=11, _) => (7, minor),
            // CUDA 12.6 has the PTX of 12.5, so the numbers after it lag behind by one.
            (12, 6..) => (8, minor - 1),
            _ => (major - 4, minor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_set_or_refused() {
        let mut configuration = Configuration::default();
        configuration.set("devices=2 memory=4096 capability=72 name=Orin_NX integrated=1").unwrap();
        assert_eq!((configuration.devices, configuration.memory, configuration.capability), (2, 4096, 72));
        assert!(configuration.integrated && configuration.name == "Orin NX");
        assert_eq!(configuration.set("devices=0"), Err("devices=0".into()));
        assert_eq!(configuration.set("budget=1 speed=9"), Err("speed=9".into()));
    }

    #[test]
    fn the_capability_decides_on_shared_memory() {
        let kib = |capability| Configuration { capability, ..Configuration::default() }.most_shared() >> 10;
        assert_eq!([72, 75, 80, 86, 87, 90].map(kib), [96, 64, 163, 99, 163, 227]);
    }

    #[test]
    fn the_driver_decides_on_the_newest_ptx() {
        let newest = |driver| Configuration { driver, ..Configuration::default() }.newest_ptx();
        assert_eq!(newest(11_040), (7, 4));
        assert_eq!(newest(11_080), (7, 8));
        assert_eq!(newest(12_000), (8, 0));
        assert_eq!(newest(12_040), (8, 4));
        assert_eq!(newest(12_060), (8, 5));
        assert_eq!(newest(12_090), (8, 8));
        assert_eq!(newest(13_000), (9, 0));
    }
}
